"""Numbers on pages that came from a run are those in the files (scripts/quoted.py says how a page marks them).

Every number with decimals or in percent, on every page that people write, has such a mark, or is known not to be
measured: a setting, a definition, an example (support/stated_numbers.py). Pages that a program writes are rendered
again from their files, or their sums are held; tables that a program wrote: test_tables_on_pages.py.
"""

import json
import re
import sys

import pytest
from quoted import DOCS, NUMBER, Quote, agrees, pages, quotes, renewed, values

from fedsofim.errors import InputError
from stated_numbers import STATED

ROOT = DOCS.parent
PAGES = [str(p.relative_to(ROOT)) for p in pages()]
LEAST = {"README.md": 8, "docs/paper.md": 17, "docs/recipe.md": 12, "docs/results/README.md": 48, "docs/theory.md": 19}


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


#: Written whole by a program, prose too.
RENDERED = {"docs/performance.md", "docs/results/recipe-regret/README.md"}
HIDDEN = re.compile(  # code, what programs write, and what is no measurement
    r"```.*?```|`[^`]*`|<!-- table \S+ -->.*?<!-- end -->|<!-- written by.*?<!-- (?:until|up to) here -->|<!--.*?-->"
    r"|\]\([^)]*\)"
    r"|^\|[^\n]*ε = 0\.5[^\n]*$|(?:Python|JAX|NumPy|cosmic-ray) \d[\d.]*\d|Apache-2\.0"
    r"|(?:ε = |epsilon |Dirichlet[ (]|recall |alpha )\d[\d.]*(?:(?:, | and | or | to )\d[\d.]*)*"
    r"|95 % (?:interval|of DP-FedGD)",
    re.S | re.M,
)


def written_by_hand() -> list[str]:
    """Pages that people write: those of results are written by programs, but for their README.md."""
    found = [p for p in sorted(DOCS.rglob("*.md")) if p.name == "README.md" or "results" not in p.parts]
    return [page for p in (ROOT / "README.md", *found) if (page := str(p.relative_to(ROOT))) not in RENDERED]


def unmarked(page: str, text: str) -> list[str]:
    """Numbers with decimals or in percent of which the page does not say where they come from, each with its line."""
    marked = {place for quote in quotes(page, text) for place in quote.places}
    for stated in STATED.get(page, ()):
        assert stated in text, f"{page} no longer says: {stated}"
    known = re.compile("|".join(map(re.escape, STATED.get(page, ()))) or r"(?!)")
    bare = HIDDEN.sub(blank, known.sub(blank, text))
    found = [n for n in NUMBER.finditer(bare) if "." in n[0] or bare[n.end() :].lstrip().startswith("%")]
    return [f"{n[0]}: {line_at(text, n.start())}" for n in found if n.start() not in marked]


def blank(found: re.Match[str]) -> str:
    return " " * len(found[0])


def line_at(text: str, place: int) -> str:
    return text[text.rfind("\n", 0, place) + 1 :].partition("\n")[0]


@pytest.mark.parametrize("page", written_by_hand())
def test_every_measured_number_of_a_page_is_marked(page: str):
    found = unmarked(page, (ROOT / page).read_text(encoding="utf-8"))
    assert not found, (
        "say where they come from, <!-- from FILE: ... -->; or, of what was not measured, in stated_numbers.py"
    )


@pytest.mark.parametrize("page", ["README.md", "docs/recipe.md", "docs/results/README.md"])
def test_a_number_that_nobody_measured_is_noticed_wherever_it_stands(page: str):
    text = (ROOT / page).read_text(encoding="utf-8")
    before = unmarked(page, text)
    for heading in re.finditer(r"^## .*$", text, re.M):
        claimed = f"{text[: heading.end()]}\n\nIt reaches 99.87 % on ImageNet.\n{text[heading.end() :]}"
        assert len(unmarked(page, claimed)) == len(before) + 1, heading[0]


def test_what_is_stated_is_stated_on_a_page_that_is_there():
    assert set(STATED) <= set(written_by_hand())


# --- pages that a program writes ----------------------------------------------------------------------------


def test_the_performance_page_is_what_its_files_say():
    sys.path.append(str(ROOT / "benchmarks"))
    import page  # pyright: ignore[reportMissingImports]
    import results  # pyright: ignore[reportMissingImports]

    assert page.render(results.load(DOCS / "performance.json")) == (DOCS / "performance.md").read_text(encoding="utf-8")


def test_the_soak_page_is_what_its_file_says():
    text = (DOCS / "soak.md").read_text(encoding="utf-8")
    document = json.loads((DOCS / "soak.json").read_text())
    took, faults, seed = (document[key] for key in ("minutes", "minutes of faults", "seed"))
    assert f"\n{took:g} minutes, {faults:g} of them with faults, seed {seed};" in text
    for name, value in [*document["faults"].items(), *document["messages"].items(), *document["figures"].items()]:
        assert re.search(rf"^\| \**{re.escape(name)}\** \| {re.escape(str(value))} \|$", text, re.M), name


def test_the_sums_of_the_page_of_planted_bugs_are_right():
    """It is written by scripts/mutate.py, from a journal that is not kept: an hour or two of runs."""
    text = (DOCS / "mutation.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) % \|$", text, re.M)
    wholes: list[list[int]] = []
    sums = [0, 0, 0, 0]
    for name, *counts, percent in rows:
        numbers = [int(n) for n in counts]
        assert numbers[0] == sum(numbers[1:]), name
        assert int(percent) == round(100 * (numbers[1] + numbers[2]) / numbers[0]), name
        if name == "all":
            assert numbers == sums
            wholes.append(numbers)
            sums = [0, 0, 0, 0]
        else:
            sums = [a + b for a, b in zip(sums, numbers, strict=True)]
    assert len(wholes) == 2
    planted, survived = sum(w[0] for w in wholes), sum(w[3] for w in wholes)
    noticed = planted - survived
    assert f"{planted} bugs planted, {noticed} noticed: **{100 * noticed / planted:.1f} %**" in text
    assert len(re.findall(r"^\| `(?:core|deploy)/.*\|$", text.partition("### Not noticed")[2], re.M)) == survived


@pytest.mark.parametrize(
    "comment",
    [
        "performance.json.gone: a",
        "performance.json: gone",
        "performance.json: targets[what=gone].measured.median",
        "results/published-accuracy/rows.csv: method=none; mean",
        "results/published-accuracy/rows.csv: method=none; lowest and highest of mean",
        "results/published-accuracy/rows.csv: method=DP-FedGD; gone",
        "results/published-accuracy/rows.csv: gone=DP-FedGD; mean",
    ],
)
def test_a_comment_that_yields_nothing_is_an_error(comment: str):
    with pytest.raises(InputError):
        list(quotes("a page", f"1.0 <!-- from {comment} -->"))


FASHION = "results/recipe-fashion-local/tables/accuracy-fashion-dirichlet-0.5.csv"
FOUR = f"<!-- from {FASHION}: method=recipe; means of round 70 -->"


def test_numbers_are_written_anew_as_they_were_written():
    new = renewed("a page", f"kept 1.5, **78** | 80.6 | +83.870 | 1.23 {FOUR} kept 2")
    (quote,) = quotes("a page", new)
    assert quote.true
    as_before = r"kept 1\.5, \*\*\d\d\*\* \| \d\d\.\d \| \+\d\d\.\d{3} \| \d\d\.\d\d <!.*--> kept 2"
    assert re.fullmatch(as_before, new)


UNITS = "results/units/table.md"


@pytest.mark.parametrize(
    ("query", "value"),
    [
        ("clients=20 & protects=person of 2; means of ε = 1", "one"),
        ("protects=client of 60; means of ε = 1 less protects=client of 60; means of ε = 5", "loss"),
        ("clients=20; means of ε = 1 less clients=20 & protects=record; means of ε = 1", "one for all"),
    ],
)
def test_tables_in_markdown_and_differences(query: str, value: str):
    found = values(UNITS, query)
    assert {"one": found[0] > 50, "loss": -20 < found[0] < 0, "one for all": len(found) > 2 and found[0] == 0}[value]


def test_differences_of_so_many_and_so_many_are_an_error():
    with pytest.raises(InputError):
        values(UNITS, "clients=20; means of ε = 1 less clients=1,000; means of ε = 1")


def test_too_few_numbers_before_a_comment_are_an_error():
    with pytest.raises(InputError, match="4 numbers are due"):
        renewed("a page", f"78.31 {FOUR}")
