"""The threats page: whatever it says holds has tests, and every test that it names is there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ABOVE, BELOW, NINE = re.split(r"## Which tests say so|## Nine things", (ROOT / "docs" / "threats.md").read_text())


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines[1:]]


HOLDS = [tries for _, tries, holds, *_ in rows(ABOVE) if holds]
NAMED = {tries: re.findall(r"`(test_\w+)`", tests) for tries, tests in rows(BELOW)}


def test_each_of_the_nine_has_a_cure_tests_and_where_they_failed():
    assert [row[0] for row in rows(NINE)] == [*"123456789"]
    assert all(cure and re.findall(r"`(test_\w+)`", tests) and failed for _, _, cure, tests, failed in rows(NINE))


def test_every_line_that_holds_names_its_tests_and_no_other_line_does():
    assert len(HOLDS) > 15 and list(NAMED) == HOLDS
    assert all(NAMED.values())


def test_every_test_that_is_named_is_there():
    """Of that very name, in one file or more."""
    there = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)
    }
    assert set(re.findall(r"`(test_\w+)`", ABOVE + BELOW + NINE)) - there == set()
