"""The stop switch: nothing is charged and nothing leaves while it is set, whatever the node was doing when it was."""

import os
from pathlib import Path

import pytest

from fedsofim.deploy import node, stopping
from fedsofim.deploy.node import answer, consider
from fedsofim.deploy.policy import Policy
from fedsofim.deploy.stopping import SAID, lift, stop, stop_file, stopped_since
from fedsofim.errors import InputError, Refused
from nodes import asked, charges, refusal, same_bits, started


def test_a_stopped_node_refuses_everything_and_charges_nothing(nodes: list[Policy]):
    request = asked(nodes)
    first = answer(nodes[0], request)
    assert stop(nodes[0].ledger)
    assert refusal(nodes[0], request) == SAID, "what was answered before is not answered again either"
    assert refusal(nodes[0], asked(nodes, "fedsofim")) == SAID
    with pytest.raises(Refused, match="stopped by its operator"):
        consider(nodes[0], started(nodes).job)
    assert charges(nodes[0]) == 1
    assert answer(nodes[1], request)
    assert lift(nodes[0].ledger)
    assert same_bits(answer(nodes[0], request), first)


def test_it_stays_stopped_until_that_is_lifted(nodes: list[Policy]):
    ledger = nodes[0].ledger
    assert stopped_since(ledger) is None
    assert [stop(ledger), stop(ledger)] == [True, False]
    since = stopped_since(ledger)
    assert since is not None and since > 0
    assert [lift(ledger), lift(ledger)] == [True, False]
    assert stopped_since(ledger) is None


def test_a_stop_in_the_middle_of_the_work_keeps_the_answer_back(nodes: list[Policy], monkeypatch):
    """The charge was written, so it stays; the answer is stored, and leaves for free once the operator allows it."""
    request, run = asked(nodes), node.run

    def stopped_meanwhile(*arguments):
        stop(nodes[0].ledger)
        return run(*arguments)

    monkeypatch.setattr(node, "run", stopped_meanwhile)
    with pytest.raises(Refused, match="stopped"):
        answer(nodes[0], request)
    assert charges(nodes[0]) == 1
    monkeypatch.setattr(node, "run", run)
    lift(nodes[0].ledger)
    assert answer(nodes[0], request)
    assert charges(nodes[0]) == 1


def test_a_stop_in_the_moment_before_the_charge_comes_in_time(nodes: list[Policy], monkeypatch):
    request, inputs = asked(nodes), node._inputs

    def stopped_meanwhile(*arguments):
        stop(nodes[0].ledger)
        return inputs(*arguments)

    monkeypatch.setattr(node, "_inputs", stopped_meanwhile)
    assert refusal(nodes[0], request) == SAID


@pytest.mark.parametrize("kind", ["folder", "link to nowhere"])
def test_whatever_lies_in_its_place_stops(tmp_path: Path, kind: str):
    ledger = tmp_path / "ledger.db"
    place = stop_file(ledger)
    if kind == "folder":
        place.mkdir()
    else:
        place.symlink_to(tmp_path / "nothing")
    assert stopped_since(ledger) is not None


def test_who_cannot_look_does_not_answer(tmp_path: Path, monkeypatch):
    def denied(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(stopping.os, "lstat", denied)
    with pytest.raises(Refused):
        stopping.check_going(tmp_path / "ledger.db")


def test_what_cannot_be_stopped_says_what_else_to_do(tmp_path: Path):
    with pytest.raises(InputError, match="end its process instead"):
        stop(tmp_path / "no such folder" / "ledger.db")
    if os.geteuid() != 0:
        (tmp_path / "ledger.db.stopped").touch()
        tmp_path.chmod(0o500)
        with pytest.raises(InputError, match="remove that file"):
            lift(tmp_path / "ledger.db")
        tmp_path.chmod(0o700)
