"""The site: every page is in its navigation, every public name in its reference, and its own checks would notice.

`make docs` builds it with warnings as errors and looks up every link (scripts/site/check.py); CI calls that.
"""

import re
import sys
from pathlib import Path

import pytest

import fedsofim
from fedsofim import formats
from fedsofim.deploy import policy

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
sys.path.append(str(ROOT / "scripts" / "site"))

import check  # noqa: E402 # pyright: ignore[reportMissingImports]
import code_host  # noqa: E402 # pyright: ignore[reportMissingImports]
import command_pages  # noqa: E402 # pyright: ignore[reportMissingImports]
import file_formats  # noqa: E402 # pyright: ignore[reportMissingImports]
import outside  # noqa: E402 # pyright: ignore[reportMissingImports]
import policy_keys  # noqa: E402 # pyright: ignore[reportMissingImports]

NAV = re.findall(r"^ +- .+: ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
FILES = (DOCS / "reference" / "files.md").read_text()
REFERENCE = "\n".join(p.read_text() for p in (DOCS / "reference").glob("*.md"))


# --- pages --------------------------------------------------------------------------------------------------


def test_every_page_is_in_the_navigation_once():
    pages = {str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md") if not in_a_result(p)}
    assert pages - set(NAV) == set(), "add a line for each to `nav` in mkdocs.yml"
    assert set(NAV) - pages == set() and len(NAV) == len(set(NAV))


def in_a_result(page: Path) -> bool:
    """Below docs/results a page is reached from the README there."""
    return "results" in page.parts and page.parent.name != "results"


def test_nothing_is_fetched_from_elsewhere():
    settings = (ROOT / "mkdocs.yml").read_text()
    assert "font: false" in settings and "- offline" in settings and "://" not in settings


# --- reference ----------------------------------------------------------------------------------------------


def test_every_public_name_is_in_the_reference_once():
    shown = re.findall(r"^::: fedsofim\.(\w+)$", REFERENCE, re.M)
    assert sorted(shown) == sorted(set(fedsofim.__all__) - {"__version__", "NO_PRIVACY"})
    assert "### NO_PRIVACY" in REFERENCE  # a value, which has no docstring of its own


@pytest.mark.parametrize("name", sorted(set(fedsofim.__all__) - {"__version__", "NO_PRIVACY"}))
def test_every_public_name_says_what_it_is(name: str):
    assert (getattr(fedsofim, name).__doc__ or "").strip()


def test_every_command_has_its_section():
    written = command_pages.text()
    for words, command in command_pages.commands():
        assert f"## `fedsofim {' '.join(words)}`" in written
        assert command.help, words
    assert "`--epsilon`" in written and "`fedsofim certificate verify`" in written


def test_every_key_of_a_policy_has_its_line_and_its_meaning():
    written = policy_keys.text()
    keys = {key for section in policy._FIELDS.values() for key in section} | set(policy.Work.__dataclass_fields__)
    for key in keys | {"format"}:
        (line,) = re.findall(rf"^\| `{key}` \|.*$", written, re.M)
        _, _, _, meaning = [cell.strip() for cell in line[1:-1].split("|")]
        assert meaning, f"{key}: say what it means in deploy/policy.py"


def test_every_format_has_its_line_and_its_page_the_table():
    lines = file_formats.text().splitlines()[2:]
    assert [line.split(" | ")[0].strip("| ") for line in lines] == [kind.name for kind in formats.ALL]
    assert "<!-- written when the site is built: formats -->" in FILES
    assert "format` 1" not in FILES and "format = " not in FILES  # the table says it


def test_every_file_that_the_page_names_is_one_that_the_program_writes_or_reads():
    source = "\n".join(path.read_text() for path in (ROOT / "src" / "fedsofim").rglob("*.py"))
    first = re.findall(r"^\| (`.+?`) \|", FILES, re.M)
    names = [name for cell in first for name in re.findall(r"`([^`]+)`", cell)]
    parts = {part for name in names for part in name.split("/") if part.strip("*.")}
    theirs = {"mine.py"}  # of a person's own choice
    assert len(parts) > 30
    assert {
        part for part in parts - theirs if (part.removeprefix("ledger.db") or part).lstrip("*") not in source
    } == set()


def test_the_columns_of_rows_are_those_that_are_written():
    source = (ROOT / "src" / "fedsofim" / "experiments" / "report" / "results.py").read_text()
    (columns,) = re.findall(r'writerow\(\[("dataset".*?)\]\)', source)
    said = ", ".join(re.sub(r'[\s"]', "", c).replace("_", " ") for c in columns.replace("score", "accuracy").split(","))
    assert f"| `rows.csv` | every round of every run: {said} |" in FILES


def test_the_glossary_has_the_words_that_the_pages_lean_on():
    words = re.findall(r"^\| \*\*(.+?)\*\* \|", (DOCS / "glossary.md").read_text(), re.M)
    assert {"door", "charge", "site", "unit release", "mu", "trust", "recipe"} <= set(words)
    assert words == sorted(words, key=str.lower) and len(words) == len(set(words))


# --- what the build does to pages ---------------------------------------------------------------------------


def test_links_out_of_docs_lead_to_pages_of_the_site():
    text = "[how](../CONTRIBUTING.md#taste) [code](../src/fedsofim/core/door.py) [here](data.md) [all](../experiments)"
    made = outside.relinked(text, "page.md", ROOT)
    assert "(repository/CONTRIBUTING.md#taste)" in made and "(repository/src/fedsofim/core/door.py.md)" in made
    assert "[here](data.md)" in made and "(../experiments)" not in made
    files = outside.files(ROOT, {"page.md": text})
    assert {"repository/CONTRIBUTING.md", "repository/src/fedsofim/core/door.py.md"} <= set(files)
    assert "repository/examples/heavyball.py.md" in files  # to which CONTRIBUTING.md links in turn


def test_lists_are_read_as_on_a_code_host():
    assert code_host.read("say:\n- a\n- b") == "say:\n\n- a\n- b"
    assert code_host.read("1. a\n   ```sh\n   x\n   ```\nend") == "1. a\n    ```sh\n    x\n    ```\nend"
    assert code_host.read("```\ntext\n- a\n```") == "```\ntext\n- a\n```"


# --- what the check of a built site notices -----------------------------------------------------------------

GOOD = '<h1 id="top">a</h1><a href="#top">x</a><a href="b.html#part">x</a><a href="https://example.org">x</a>'


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (GOOD, ""),
        ('<a href="c.html">x</a>', "which is not there"),
        ('<a href="b.html#gone">x</a>', "no such heading"),
        ('<script src="https://example.org/x.js"></script>', "from elsewhere"),
        ('<img src="gone.png">', "which is not there"),
    ],
)
def test_a_broken_site_is_noticed(page: str, said: str, tmp_path: Path):
    (tmp_path / "a.html").write_text(page)
    (tmp_path / "b.html").write_text('<h2 id="part">b</h2>')
    found = check.faults(tmp_path)
    assert (said in found[0]) if said else not found
