"""Runs on disk: resumed after a kill with identical rows, never repeated, never mixed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from commands import QUICKLY
from fedsofim.errors import InputError
from fedsofim.experiments.grid import points
from fedsofim.experiments.grid_file import read_experiment
from fedsofim.experiments.journal import RUNS, mend, only_process, read_runs
from fedsofim.experiments.reading import read_dataset
from fedsofim.experiments.record_digests import KEY
from fedsofim.experiments.runner import run_experiment


def results(folder: Path) -> list[dict]:
    """Rows without what may differ between two runs of one thing: its duration."""
    return [{k: v for k, v in run.items() if k != "seconds"} for run in read_runs(folder)]


def command(experiment: Path, out: Path) -> list[str]:
    code = "from fedsofim.cli.app import main; main()"
    return [sys.executable, "-c", code, "compare", str(experiment), "--out", str(out)]


@pytest.mark.slow
def test_rows_survive_kill_9_and_end_identical(small, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    environment = os.environ | QUICKLY
    process = subprocess.Popen(command(small, killed), env=environment)
    while len(read_runs(killed)) < 2 and process.poll() is None:  # until it has written two rows, or ended
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = results(killed)
    assert 2 <= len(before) <= 8
    with (killed / RUNS).open("ab") as file:
        file.write(b'{"id": "half a line')  # the worst moment to be killed
    subprocess.run(command(small, killed), check=True, env=environment)
    whole.mkdir()
    shutil.copy(killed / KEY, whole)  # or nobody could tell that they are the same runs
    subprocess.run(command(small, whole), check=True, env=environment)
    assert results(killed)[: len(before)] == before
    assert results(killed) == results(whole)
    assert len(results(whole)) == 8


@pytest.mark.slow
def test_finished_work_is_not_repeated(small, tmp_path):
    experiment = read_experiment(small)
    assert run_experiment(experiment, tmp_path, small.parent) == 8
    content = (tmp_path / RUNS).read_bytes()
    assert run_experiment(experiment, tmp_path, small.parent) == 0
    assert (tmp_path / RUNS).read_bytes() == content
    row = json.loads(content.splitlines()[0])
    assert row["privacy"]["epsilon"] == pytest.approx(1.0)
    assert row["privacy"]["ledger"][0]["releases"] == 6
    assert len(row["accuracy"]) == len(row["loss"]) == 6
    assert row["environment"]["jax"]


def test_another_dataset_under_the_same_name_is_another_run(small, tmp_path):
    folder = tmp_path / "changed"
    folder.mkdir()
    with np.load(small.parent / "toy.npz") as stored:
        arrays = dict(stored)
    arrays["x_train"] = arrays["x_train"] + 1
    np.savez(folder / "toy.npz", **arrays)
    one = read_dataset("toy.npz", small.parent)
    other = read_dataset("toy.npz", folder)
    experiment = read_experiment(small)
    ids = [{c.id for c in points(experiment, {"toy.npz": d})} for d in (one, other)]
    assert not ids[0] & ids[1]


def test_a_half_line_is_cut_off(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b'{"a": 1}\n{"b"')
    mend(path)
    assert path.read_bytes() == b'{"a": 1}\n'


def test_two_processes_cannot_write_to_one_folder(tmp_path):
    with only_process(tmp_path), pytest.raises(InputError, match="another process"), only_process(tmp_path):
        pass
