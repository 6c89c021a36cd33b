"""`fedsofim audit` as a user types it."""

import json
from pathlib import Path

import pytest

from commands import run_here

QUICK = ("--rounds", 2, "--epsilon", 5, "--trials", 600)


@pytest.mark.slow
def test_an_honest_method_is_consistent_and_the_answer_is_one_json_object(capsys, monkeypatch, tmp_path: Path):
    done = run_here(capsys, monkeypatch, "audit", "--method", "fedsofim", *QUICK, "--json", "--out", tmp_path / "out")
    assert done.returncode == 0
    assert done.stderr == ""
    answer = json.loads(done.stdout)
    keys = {"method", "epsilon", "delta", "mu", "mu_estimate", "epsilon_lower", "confidence", "seconds"}
    assert keys <= answer.keys()
    assert answer["method"] == "fedsofim"
    assert answer["epsilon_lower"] < answer["epsilon"] == pytest.approx(5)
    assert answer["mu_estimate"] == pytest.approx(answer["mu"], rel=0.1)
    assert json.loads((tmp_path / "out" / "audit.json").read_text()) == answer
    assert (tmp_path / "out" / "audit.png").stat().st_size > 10_000


@pytest.mark.slow
def test_a_broken_engine_is_told_in_words_and_by_the_exit_code(capsys, monkeypatch):
    done = run_here(capsys, monkeypatch, "audit", "--broken", "no-clipping", *QUICK)
    assert done.returncode == 1
    assert "CLAIM BROKEN" in done.stdout


def test_the_broken_engines_can_be_listed(capsys, monkeypatch):
    done = run_here(capsys, monkeypatch, "audit", "--broken", "list")
    assert done.returncode == 0
    assert "reused-noise: Every round draws the noise of round 0 again." in done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--one-run", "--all"), "give one of them"),
        (("--broken", "nose-too-small"), "did you mean 'noise-too-small'"),
        (("--epsilon", "no-privacy"), "promises nothing"),
        (("--trials", 3), "trials is 3"),
        (("--confidence", 1), "confidence is 1.0"),
        (("--standardize", "public"), "known: none, private"),
        (("--method", "fedfc", "--node", 1), "without a setup"),
    ],
)
def test_senseless_options_are_explained(capsys, monkeypatch, options, message):
    done = run_here(capsys, monkeypatch, "audit", *options)
    assert done.returncode == 2
    assert message in done.stderr
