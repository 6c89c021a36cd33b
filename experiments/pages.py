"""Tables that programs write, and the pages of docs that show them.

    python experiments/pages.py private-tuning

A page has a table between `<!-- table NAME -->` and `<!-- end -->`. NAME is a folder of docs/results, whose `table.md`
it is, or FOLDER/FILE for another one there. What makes a table calls `keep`; the command above shows one that is there.
Links in a table are relative to its file; on a page they are written as from there.
tests/project/test_tables_on_pages.py finds a page that has another table than the file.
"""

import csv
import os.path
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1] / "docs"


def path_of(name: str, docs: Path = DOCS) -> Path:
    """The file of a table.

    >>> path_of("audit", Path("docs")).as_posix(), path_of("audit/broken", Path("docs")).as_posix()
    ('docs/results/audit/table.md', 'docs/results/audit/broken.md')
    """
    folder, _, file = name.partition("/")
    return docs / "results" / folder / f"{file or 'table'}.md"


def keep(name: str, table: str, rows: Sequence[Mapping[str, Any]] = (), docs: Path = DOCS) -> None:
    """A table's file, the rows it was made of beside it in rows.csv, and the pages that show it."""
    path = path_of(name, docs)
    path.parent.mkdir(parents=True, exist_ok=True)
    if rows:
        with (path.parent / "rows.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    path.write_text(table, encoding="utf-8")
    show(name, docs)


def show(name: str, docs: Path = DOCS) -> None:
    """Every page with the table as its file has it."""
    for page in docs.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        if (new := shown(text, name, as_on(page, name, docs))) != text:
            page.write_text(new, encoding="utf-8")


def as_on(page: Path, name: str, docs: Path = DOCS) -> str:
    """A table as a page has it: its links lead to the same files."""
    path = path_of(name, docs)
    return moved(path.read_text(encoding="utf-8"), path.parent, page.parent)


def moved(table: str, here: Path, there: Path) -> str:
    """The same links from another folder.

    >>> moved("[a](../b/c.md#d) [e](https://f.example)", Path("docs/results/x"), Path("docs/results"))
    '[a](b/c.md#d) [e](https://f.example)'
    """

    def from_there(link: re.Match[str]) -> str:
        return link[0] if "://" in link[1] else f"]({os.path.relpath(here / link[1], there)})"

    return re.sub(r"\]\(([^)#][^)]*)\)", from_there, table)


def shown(page: str, name: str, table: str) -> str:
    """A page's text with the table where it shows one of this name."""
    begin = f"<!-- table {name} -->\n"
    before, found, rest = page.partition(begin)
    return page if not found else f"{before}{begin}{table}<!-- end -->{rest.partition('<!-- end -->')[2]}"


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A table in Markdown; the first columns, so many, are words and stand left.

    >>> print(markdown(["method", "accuracy"], [["DP-FedGD", "64.27"]]), end="")
    | method | accuracy |
    |---|--:|
    | DP-FedGD | 64.27 |
    """
    rule = "|" + "---|" * left + "--:|" * (len(head) - left)
    return "\n".join([f"| {' | '.join(head)} |", rule, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def rows_in(path: Path) -> list[dict[str, str]]:
    """What `keep` wrote."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    for given in sys.argv[1:]:
        show(given)
