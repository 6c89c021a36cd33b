"""`fedsofim run` needs a dataset and a budget; the recipe does the rest, and says so."""

import json

import pytest

from commands import run_here
from toy import write_blobs

DIGITS = ("run", "--dataset", "digits", "--epsilon", "8", "--clients", "3", "--partition", "iid")


@pytest.fixture
def call(capsys, monkeypatch):
    return lambda *args: run_here(capsys, monkeypatch, *args)


@pytest.fixture
def asked(call):
    def ask(*more: str) -> dict:
        done = call(*DIGITS, *more, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return ask


@pytest.mark.slow
def test_nothing_else_is_needed(asked):
    answer = asked()
    assert answer["recipe"] == "auto" and answer["by_hand"] == []
    choices = {"columns", "records", "features", "clip", "weights", "start", "rounds", "method", "step"}
    assert set(answer["chosen"]) == choices
    assert answer["epsilon"] == pytest.approx(8, abs=1e-9)
    assert sum(line["of_mu2"] for line in answer["ledger"]) == pytest.approx(1, abs=1e-6)
    assert [line["what"] for line in answer["ledger"]] == ["column scales", "feature mean", "gradient"]
    assert answer["final_accuracy"] > 85


@pytest.mark.slow
def test_the_papers_protocol_is_one_word_away(asked):
    answer = asked("--recipe", "paper", "--rounds", "5")
    assert (answer["clip"], answer["weights"], answer["preparation"]) == (10.0, "uniform", [])
    assert answer["by_hand"] == ["rounds"]


@pytest.mark.slow
def test_what_is_set_by_hand_wins_and_is_named(asked):
    by_hand = ("--method", "fedadam", "--clip", "2", "--weights", "uniform", "--rounds", "6", "--standardize", "none")
    answer = asked(*by_hand)
    assert (answer["method"], answer["clip"], answer["weights"], answer["rounds"]) == ("fedadam", 2.0, "uniform", 6)
    assert set(answer["by_hand"]) == {"method", "rounds", "clip", "weights", "preparation"}


def test_an_unknown_recipe_is_refused_in_words(call):
    done = call(*DIGITS, "--recipe", "atuo")
    assert done.returncode != 0 and "recipe" in done.stderr and "auto" in done.stderr


@pytest.mark.slow
def test_the_result_says_what_was_chosen(call):
    done = call(*DIGITS)
    assert "recipe auto:" in done.stdout and "size: every record counts alike" in done.stdout
    assert "of mu²" in done.stdout


@pytest.mark.slow
def test_limit_says_that_it_is_not_private(call, tmp_path):
    write_blobs(tmp_path / "toy.npz")
    done = call("limit", "--dataset", tmp_path / "toy.npz", "--epsilon", "8", "--clients", "3", "--partition", "iid")
    assert "not private" in done.stdout and "limit" in done.stdout
