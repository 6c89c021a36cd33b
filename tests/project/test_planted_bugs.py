"""`make mutate` can plant every bug of our own list: each finds its place in the source, and tests that concern it.

Nothing is planted here. Whoever changes a line that a bug stands in writes that bug anew, in the same commit.
"""

import ast
from pathlib import Path

import pytest
from mutations import mutant as ours

ROOT = Path(__file__).resolve().parents[2]
MUTANTS, ROTTEN = ours.planted(ROOT)
BY_FILE: dict[str, list[ours.Mutant]] = {}
for bug in MUTANTS:
    BY_FILE.setdefault(bug.file, []).append(bug)


def test_every_bug_fits_the_source():
    gone = [f"{entry.name}: {entry.why}" for entry in ROTTEN]
    assert not gone, "\n".join(["write these anew in scripts/mutations/planted/:", *gone])
    assert len(MUTANTS) > 500


@pytest.mark.parametrize("file", sorted(BY_FILE))
def test_every_bug_is_python_and_has_tests_that_are_there(file: str):
    """What does not parse is always noticed, and says nothing of the tests."""
    for bug in BY_FILE[file]:
        try:
            ast.parse(bug.text)
        except SyntaxError as error:
            pytest.fail(f"{bug.name}: {error}")
    for named in ours.tests_for(file):
        path, _, function = named.partition("::")
        text = (ROOT / path).read_text(encoding="utf-8")
        assert f"def {function}" in text, f"scripts/mutations/tests.toml names {named}, which is not there"
