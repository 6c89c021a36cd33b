"""Numbers on pages that came from a run are those in the files (tests/support/quoted.py says how a page marks them).

Covered in full: README.md (every number in it that has decimals), docs/performance.md (rendered again from its files)
and docs/soak.md (the same). By their marks: the tables of docs/paper.md, docs/recipe.md, docs/results/README.md (tuned)
and docs/methods.md (published). Not covered, since their numbers are in no file of docs/: docs/models.md, docs/tasks.md
(tests train them), docs/node.md, docs/coordinator.md, docs/audit.md, docs/fuzzing.md, docs/mutation.md, docs/theory.md,
the step sizes of docs/methods.md, and the prose of docs/results/README.md.
"""

import json
import re
import sys
from pathlib import Path

import pytest

from quoted import DOCS, NUMBER, Quote, agrees, quotes

ROOT = DOCS.parent
PAGES = ["README.md", *sorted(str(p.relative_to(ROOT)) for p in DOCS.rglob("*.md") if "<!-- from " in p.read_text())]
LEAST = {"README.md": 8, "docs/paper.md": 17, "docs/recipe.md": 12, "docs/methods.md": 26, "docs/results/README.md": 18}


def of(page: str) -> list[Quote]:
    return list(quotes(page, (ROOT / page).read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", PAGES)
def test_quoted_numbers_are_those_in_the_files(page: str):
    found = of(page)
    assert len(found) >= LEAST.get(page, 1), "marks are gone"
    wrong = [(q.said, q.found, q.comment) for q in found if not q.true]
    assert not wrong, f"{page}: said, and in the file: {wrong}"


@pytest.mark.parametrize("page", ["README.md", "docs/paper.md"])
def test_changing_any_digit_of_any_of_them_is_noticed(page: str):
    text = (ROOT / page).read_text(encoding="utf-8")
    for quote in of(page):
        for said, place in zip(quote.said, quote.places, strict=True):
            assert text[place : place + len(said)] == said
            for i in (i for i, c in enumerate(said) if c.isdigit()):
                other = said[:i] + str((int(said[i]) + 1) % 10) + said[i + 1 :]
                assert not all(map(agrees, [other if s is said else s for s in quote.said], quote.found))


def test_every_number_of_readme_with_decimals_is_marked():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    marked = {place for quote in of("README.md") for place in quote.places}
    hidden = re.compile(r"```.*?```|`[^`]*`|<!--.*?-->|^\|.*ε = 0\.5.*$|Python 3\.\d+|Apache-2\.0", re.S | re.M)
    bare = hidden.sub(lambda found: " " * len(found[0]), text)
    left = [n[0] for n in NUMBER.finditer(bare) if "." in n[0] and n.start() not in marked]
    assert left == [], "say where they come from: <!-- from FILE: ... -->"


# --- pages that a program writes ----------------------------------------------------------------------------


def test_the_performance_page_is_what_its_files_say():
    sys.path.append(str(ROOT / "benchmarks"))
    import page  # pyright: ignore[reportMissingImports]
    import results  # pyright: ignore[reportMissingImports]

    assert page.render(results.load(DOCS / "performance.json")) == (DOCS / "performance.md").read_text(encoding="utf-8")


def test_the_soak_page_is_what_its_file_says():
    text = (DOCS / "soak.md").read_text(encoding="utf-8")
    document = json.loads((DOCS / "soak.json").read_text())
    for name, value in [*document["faults"].items(), *document["messages"].items(), *document["figures"].items()]:
        assert re.search(rf"^\| \**{re.escape(name)}\** \| {re.escape(str(value))} \|$", text, re.M), name


def test_a_comment_that_yields_nothing_is_an_error(tmp_path: Path):
    with pytest.raises(AssertionError):
        list(quotes("a page", "1.0 <!-- from performance.json.gone: a -->"))
    with pytest.raises(AssertionError):
        list(quotes("a page", "1.0 <!-- from results/published-accuracy/rows.csv: method=none; mean -->"))
