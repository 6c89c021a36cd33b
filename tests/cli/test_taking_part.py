"""`fedsofim privacy` prices who takes part and which records are read, as `fedsofim run` does."""

import json
from typing import Any

import pytest

from commands import run_here


def priced(capsys, monkeypatch, *options: Any) -> dict[str, Any]:
    done = run_here(capsys, monkeypatch, "privacy", "--epsilon", "1", "--clients", "20", "--json", *map(str, options))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--participants", 5),
        ("--trust", "secure-sum"),
        ("--trust", "secure-sum", "--participants", 5),
        ("--trust", "secure-sum", "--min-clients", 15),
        ("--trust", "secure-sum", "--client-rate", 0.2),
        ("--trust", "secure-sum", "--unit", "client"),
        ("--method", "fedfc", "--participants", 7, "--records", 3),
    ],
    ids=lambda options: " ".join(map(str, options)),
)
def test_the_papers_multiplier_goes_both_ways(capsys, monkeypatch, options: tuple):
    """--sigma-g of what --epsilon printed gives that epsilon back, whoever takes part and whoever sees what."""
    there = priced(capsys, monkeypatch, *options)
    asked = ("privacy", "--sigma-g", there["sigma_g"], "--clients", "20", "--json", *options)
    back = json.loads(run_here(capsys, monkeypatch, *asked).stdout)
    assert back["epsilon"] == pytest.approx(there["epsilon"], rel=1e-9)
    assert multiplier(back) == pytest.approx(multiplier(there), rel=1e-9)


def multiplier(summary: dict[str, Any]) -> float:
    return summary["ledger"][0]["multiplier"]


def test_a_client_pays_for_the_rounds_in_which_it_is_asked(capsys, monkeypatch):
    turns = priced(capsys, monkeypatch, "--rounds", 80, "--participants", 5)
    assert turns["participants"] == 5
    assert multiplier(turns) == pytest.approx(multiplier(priced(capsys, monkeypatch, "--rounds", 20)))


def test_drawn_records_need_less_noise(capsys, monkeypatch):
    drawn = priced(capsys, monkeypatch, "--rounds", 20, "--batch-rate", 0.1)
    assert multiplier(drawn) < multiplier(priced(capsys, monkeypatch, "--rounds", 20)) / 2


def test_drawn_clients_need_less_noise_where_they_are_the_unit(capsys, monkeypatch):
    whole = ("--rounds", 20, "--trust", "secure-sum", "--unit", "client")
    drawn = priced(capsys, monkeypatch, *whole, "--client-rate", 0.1)
    assert drawn["client_rate"] == 0.1
    assert multiplier(drawn) < multiplier(priced(capsys, monkeypatch, *whole)) / 2


def test_clients_by_chance_hold_several_records_unless_it_is_said_that_they_hold_one(capsys, monkeypatch):
    """A record alone at its client is hidden by the draw and needs a quarter of the noise: no run would have that."""
    chance = ("--rounds", 20, "--trust", "secure-sum", "--client-rate", 0.1, "--records")
    several, one = (multiplier(priced(capsys, monkeypatch, *chance, n)) for n in (50, 1))
    assert multiplier(priced(capsys, monkeypatch, *chance[:-1])) == pytest.approx(several) and several > 4 * one


def test_who_answers_is_seen_under_local_trust(capsys, monkeypatch):
    done = run_here(capsys, monkeypatch, "privacy", "--epsilon", "1", "--client-rate", "0.1")
    assert done.returncode == 2 and "secure-sum" in done.stderr
