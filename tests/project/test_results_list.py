"""`make results` knows every result: each folder of docs/results, each file that a run wrote, and none that is gone."""

import subprocess
import sys
from pathlib import Path

import make_results as results
import pytest
from results_list import ELSEWHERE, RESULTS, Result

ROOT = Path(__file__).resolve().parents[2]
WRITTEN = {output for r in RESULTS for output in r.outputs}
PLACES = {name: Path("nowhere") for name in ("runs", "features", "tables", "published")}


def test_every_folder_and_file_of_results_has_its_entry():
    found = {f"docs/results/{p.name}" for p in (ROOT / "docs" / "results").iterdir() if p.name != "README.md"}
    assert found <= WRITTEN, "scripts/results_list.py: say what makes it"


def test_every_file_of_numbers_and_every_curve_has_its_entry():
    drawn = {"architecture.svg", "node-page.png", "job-page.png"}  # by scripts/draw_*.py, of no run
    files = {f"docs/{p.name}" for p in (ROOT / "docs").iterdir() if p.suffix in (".json", ".png")}
    assert files - {f"docs/{name}" for name in drawn} <= WRITTEN | set(ELSEWHERE)


@pytest.mark.parametrize("result", RESULTS, ids=lambda r: r.name)
def test_what_an_entry_names_is_there(result: Result):
    scripts = [
        word for command in result.commands for word in command if word.endswith((".py", ".toml")) and "{" not in word
    ]
    for name in (*scripts, *result.inputs, *result.outputs):
        assert (ROOT / name).exists(), name
    assert set(result.needs) <= set(results.HINTS)
    assert all(results.filled(command, PLACES) for command in result.commands)


def test_names_are_given_once():
    assert len({r.name for r in RESULTS}) == len(RESULTS)


def test_what_is_known_fits_into_three_hours():
    assert sum(r.minutes or 0 for r in RESULTS) < 180


# --- how it goes on -----------------------------------------------------------------------------------------


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    return {name: tmp_path / name for name in PLACES}


def counting(tmp_path: Path, code: str = "open('count', 'a').write('x')") -> Result:
    return Result("counted", "a file", (("python", "-c", f"import os; os.chdir({str(tmp_path)!r}); {code}"),), ())


def test_what_is_done_is_not_done_again_until_something_changes(tmp_path: Path, places, capsys):
    result, journal = counting(tmp_path), places["runs"] / "done.jsonl"
    for _ in range(2):
        assert results.attempt(result, "1/1", places, results.finished(journal))
    assert (tmp_path / "count").read_text() == "x"
    assert "done before" in capsys.readouterr().out
    other = counting(tmp_path, "open('count', 'a').write('y')")
    assert results.attempt(other, "1/1", places, results.finished(journal))
    assert (tmp_path / "count").read_text() == "xy"


def test_what_failed_is_not_noted_as_done(tmp_path: Path, places, capsys):
    assert not results.attempt(counting(tmp_path, "raise SystemExit(3)"), "1/1", places, {})
    assert not (places["runs"] / "done.jsonl").exists()


def test_without_its_data_a_result_is_skipped_with_a_sentence(places, capsys):
    result = next(r for r in RESULTS if "tables" in r.needs)
    assert results.attempt(result, "1/1", places, {})
    said = capsys.readouterr().out
    assert "skipped: no --features in" in said and "make_tables.py" in said


@pytest.mark.slow
def test_the_list_is_printed(tmp_path: Path):
    command = [sys.executable, ROOT / "scripts" / "make_results.py", "--dry-run", "--runs", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert all(r.name in done.stdout for r in RESULTS)
    assert "nobody recorded" in done.stdout
    assert not list(tmp_path.iterdir())
