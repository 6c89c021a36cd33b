"""The page of what stays and what may change, held against the program."""

import re
from pathlib import Path

from fedsofim import formats

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "stability.md").read_text()


def test_the_page_has_the_versions_that_the_program_has_and_no_others():
    rows = [[cell.strip() for cell in line.split("|")[1:4]] for line in PAGE.splitlines() if line.startswith("| ")]
    listed = [tuple(row) for row in rows if re.fullmatch(r"\d+", row[1])]
    names = {kind: re.sub("^an? ", "", kind.name) for kind in formats.ALL}
    assert listed == [(names[kind], str(kind.writes), ", ".join(map(str, kind.reads))) for kind in formats.ALL]
