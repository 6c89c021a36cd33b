"""docs/theory.md has a row for every statement of the paper, and every tool and test in it is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `((?:lem|thm|prop|cor):[\w-]+)` (.*)$", PAGE, re.MULTILINE))
STATEMENTS = [
    "lem:precond_mean", "lem:noise_bound", "lem:gclip_norm", "lem:momentum_recursion", "lem:SM_bounds",
    "cor:nonvacuous_momentum_event", "lem:one_step", "lem:one_step_unconditional",
    "prop:biased-aggregate-descent", "thm:conv_sc", "lem:dp-fedgd-onestep", "thm:dp-fedgd-floor", "thm:conv_pl",
    "thm:nonconvex-stationarity", "cor:biased-nonconvex-stationarity", "lem:privacy_aggregate",
    "lem:privacy_round", "thm:privacy_comp", "thm:accountant-privacy", "prop:general-local-update-privacy",
    "prop:privacy-equivalence", "lem:complexity", "lem:momentum_variance",
]  # fmt: skip


def test_every_statement_has_its_row():
    assert sorted(ROWS) == sorted(STATEMENTS)


def test_the_list_of_statements_is_the_papers(shared: Path):
    paper = shared / "paper" / "dp-fedsofim.tex"
    if not paper.exists():
        pytest.skip("needs the paper's source, which is not part of the project, as shared/paper/dp-fedsofim.tex")
    text = paper.read_text(encoding="utf-8")
    found = re.findall(
        r"\\begin\{(?:lemma|theorem|proposition|corollary)\}(?:\[[^\n]*\])?\s*\\label\{([\w:-]+)\}", text
    )
    assert len(found) == len(re.findall(r"\\begin\{(?:lemma|theorem|proposition|corollary)\}", text))
    assert sorted(found) == sorted(STATEMENTS)


def names_in(path: Path) -> set[str]:
    return {n.name for n in ast.parse(path.read_text(encoding="utf-8")).body if hasattr(n, "name")}  # type: ignore


@pytest.mark.parametrize("label", STATEMENTS)
def test_a_rows_tool_and_test_exist_and_it_has_a_verdict(label: str):
    _, tool, test, verdict, _ = (ROWS[label] + " ").replace("\\|", "¦").split("|")
    file, *names = re.findall(r"`([^`]+)`", tool)
    places = [ROOT / "src" / "fedsofim" / folder / file for folder in ("theory", "")]
    (path,) = [p for p in places if p.is_file()]
    assert set(names) <= names_in(path)
    file, name = re.findall(r"`([^`]+)`", test)
    assert name in names_in(ROOT / "tests" / "theory" / file)
    assert re.search(r"holds|vacuous when|wrong because|as `thm:", verdict.lower())


def test_the_pages_own_links_lead_to_its_headings():
    headings = {
        re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.*)$", PAGE, re.MULTILINE)
    }
    for target in re.findall(r"\]\(#([^)]+)\)", PAGE):
        assert target in headings, target
