"""The soak's script notices what is left behind and ends that say nothing; the promises are in tests/deploy/flower."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedsofim[flower]'")
sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))

from soaking import page, verdict  # pyright: ignore[reportMissingImports]
from soaking.faults import left_over  # pyright: ignore[reportMissingImports]
from soaking.found import Found, about  # pyright: ignore[reportMissingImports]
from soaking.lanes import Work  # pyright: ignore[reportMissingImports]


def test_a_process_that_names_the_folder_is_found(tmp_path: Path):
    assert about(tmp_path) == []
    code = "import sys; print('here', flush=True); sys.stdin.read()"  # before that it may not have its name yet
    command = [sys.executable, "-c", code, str(tmp_path / "job")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "here\n"
        assert [found.pid for found in about(tmp_path)] == [process.pid]
    assert about(tmp_path) == []


@pytest.mark.parametrize(
    ("command", "what"),
    [
        (["python", "-m", "fedsofim.deploy.flower.worker", "{}"], "worker"),
        (["python", "-m", "fedsofim.deploy.flower.node_loop"], "node"),
        (["python", "/bin/flwr-serverapp", "--token"], "server"),
        (["python", "/bin/flower-superlink"], "link"),
        (["python", "-m", "fedsofim", "serve"], ""),
    ],
)
def test_processes_are_told_apart(command: list[str], what: str):
    assert Found(1, 1, command).what == what


def test_files_that_only_a_process_at_work_has_are_found(tmp_path: Path):
    left = ["jobs/a/checkpoint.npz.part", "nodes/n/ledger.db-journal", "nodes/n/ledger.db.held/00", "tmp/x"]
    for name in [*left, "nodes/n/ledger.db", "jobs/a/checkpoint.npz"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert left_over(tmp_path) == sorted(left)


@pytest.mark.parametrize(
    ("why", "right"),
    [
        ("error: the disk is full; make room", True),
        ("Traceback (most recent call last):\n  File", False),
        ("error: no\nTraceback", False),
        ("no reason; exit 1", False),
        ("it did not end in time", False),
    ],
)
def test_a_job_must_end_with_a_plain_reason(why: str, right: bool):
    broken = verdict._broken_by_end(Work(Path("j"), [], reasons=[why]), {})
    assert (broken == []) == right


def test_a_finished_job_must_have_a_certificate(tmp_path: Path):
    assert verdict._broken_by_end(Work(tmp_path, [], finished=True), {}) != []


def test_the_page_keeps_what_is_around_its_table(tmp_path: Path):
    result = {
        "minutes": 1.5, "minutes of faults": 1, "seed": 0, "faults": {"node killed": 2}, "messages": {"answer lost": 1},
        "ended by themselves and started again": 0, "figures": {"rounds": 1000}, "why jobs stopped": {"no": 3},
        "broken promises": [],
    }  # fmt: skip
    path = tmp_path / "soak.md"
    path.write_text(f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n")
    for _ in range(2):
        page.write_page(path, result)
    text = path.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    assert "| rounds | 1,000 |" in text and "| **broken promises** | 0 |" in text and text.count("node killed") == 1
    assert path.with_suffix(".json").exists()
