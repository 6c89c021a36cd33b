"""`make results` knows every result: each folder of docs/results, each file that a run wrote, and none that is gone."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import make_results as results
import pytest
from results_list import ELSEWHERE, RESULTS, Result

ROOT = Path(__file__).resolve().parents[2]
WRITTEN = {output for r in RESULTS for output in r.outputs}
PLACES = {name: Path("nowhere") for name in ("runs", "own", "features", "tables", "published")}
LONGEST = 180  # minutes on two idle cores


def test_every_folder_and_file_of_results_has_its_entry():
    found = {f"docs/results/{p.name}" for p in (ROOT / "docs" / "results").iterdir()} - {
        "docs/results/README.md",
        "docs/results/minutes.json",  # what everything took
    }
    assert found <= WRITTEN | set(ELSEWHERE), "scripts/results_list.py: say what makes it"


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


def test_all_of_it_was_measured_and_fits_into_three_hours():
    """By the clock, of the machine that made them; so it was idle, or quick enough beside its other work."""
    took = json.loads((ROOT / "docs" / "results" / "minutes.json").read_text())
    assert set(took) == {r.name for r in RESULTS}
    assert sum(t["minutes"] for t in took.values()) < LONGEST


# --- how it goes on -----------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(results, "MINUTES", tmp_path / "minutes.json")


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
    assert results.finished(places["runs"] / "done.jsonl") == {}


def test_what_a_stopped_attempt_took_counts(tmp_path: Path, places, monkeypatch: pytest.MonkeyPatch):
    result = counting(tmp_path)
    monkeypatch.setattr(results, "RESULTS", (result,))
    (places["runs"]).mkdir()
    journal, digest = places["runs"] / "done.jsonl", results.digest_of(result)
    before = {"name": "counted", "digest": digest, "done": False, "minutes": 7.0, "cpu": 5.0}
    other = before | {"digest": "of other code"}
    journal.write_text("".join(json.dumps(line) + "\n" for line in (before, other)))
    assert results.attempt(result, "1/1", places, results.finished(journal))
    took = {"minutes": pytest.approx(7, abs=0.5), "cpu": pytest.approx(5, abs=0.5), "code": results.package()}
    assert results.minutes() == {"counted": took}


def test_stopping_it_ends_what_runs_and_notes_the_time(tmp_path: Path, places):
    """As `kill` does it: the program below is gone with it, and the next attempt goes on."""
    code = f"""
import sys, signal; sys.path[:0] = {sys.path!r}
import make_results as results
from pathlib import Path
signal.signal(signal.SIGTERM, signal.default_int_handler)
waiting = "import os, time; sum(range(10**7)); open('pid', 'w').write(str(os.getpid()))"
waiting += "; os.rename('pid', 'begun'); time.sleep(600)"
result = results.Result("counted", "", (("python", "-c", "import os; os.chdir({str(tmp_path)!r}); " + waiting),), ())
places = {{name: Path({str(places["runs"])!r}) for name in {list(PLACES)!r}}}
results.attempt(result, "1/1", places, {{}})
"""
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE)
    while not (tmp_path / "begun").exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate()
    assert process.returncode != 0 and b"KeyboardInterrupt" in said
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "begun").read_text()), 0)
    (line,) = (json.loads(text) for text in (places["runs"] / "done.jsonl").read_text().splitlines())
    assert line["done"] is False and line["cpu"] > 0 and results.finished(places["runs"] / "done.jsonl") == {}


def test_without_its_data_a_result_is_skipped_with_a_sentence(places, capsys):
    result = next(r for r in RESULTS if "tables" in r.needs)
    assert results.attempt(result, "1/1", places, {})
    said = capsys.readouterr().out
    assert "skipped: no --features in" in said and "make_tables.py" in said


@pytest.mark.parametrize(("given", "code"), [([], True), (["--allow-missing"], False)])
def test_what_could_not_be_made_is_said_at_the_end_and_is_no_success(tmp_path, capsys, monkeypatch, given, code):
    monkeypatch.setattr(results.quoted, "renew", list)
    folders = [word for name in ("runs", *results.HINTS) for word in (f"--{name}", str(tmp_path / name))]
    monkeypatch.setattr(sys, "argv", ["make_results.py", "--only", "theory-numbers", *folders, *given])
    with pytest.raises(SystemExit) as ended:
        results.main()
    assert ended.value.code == code
    assert "not made, 1 of 1, for want of data (above): theory-numbers" in capsys.readouterr().out


@pytest.mark.slow
def test_the_list_is_printed(tmp_path: Path):
    command = [sys.executable, ROOT / "scripts" / "make_results.py", "--dry-run", "--runs", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert all(r.name in done.stdout for r in RESULTS)
    assert "minutes (" in done.stdout and "of computing" in done.stdout
    assert not list(tmp_path.iterdir())
