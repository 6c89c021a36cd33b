"""The coordinator gives back what a node signed last: a ledger that is older than that releases nothing any more."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography")

from fedsofim.deploy import credentials, ledger_file
from fedsofim.deploy.certificate import statement
from fedsofim.deploy.node import answer, hello
from fedsofim.deploy.policy import Policy
from fedsofim.deploy.recall import keep, kept, recalled
from fedsofim.deploy.witness import place_of
from fedsofim.errors import InputError
from nodes import asked, charges


@pytest.fixture
def node(nodes: list[Policy]) -> Policy:
    """n0, with a key of its own."""
    credentials.node_key(nodes[0].data.parent, "n0")
    return nodes[0]


def key_of(policy: Policy) -> Path:
    return policy.data.parent / "node.key"


def signed_by(policy: Policy) -> dict[str, Any]:
    return statement(policy, key_of(policy))


def files_of(policy: Policy) -> list[Path]:
    return [policy.ledger, place_of(policy.account.identity())]


class Backup:
    """The whole machine as it was: ledger and witness together."""

    def __init__(self, policy: Policy) -> None:
        self.files = {path: path.read_bytes() for path in files_of(policy)}

    def restore(self) -> None:
        for path, content in self.files.items():
            path.write_bytes(content)
        ledger_file._checked.clear()  # as in a process that has just started


def test_a_whole_machine_that_was_taken_back_is_noticed(nodes: list[Policy], node: Policy):
    """By nobody but the coordinator; from then on nothing is released, whoever asks."""
    backup = Backup(node)
    answer(node, asked(nodes))
    signed = signed_by(node)
    backup.restore()
    hello(node)  # its own witness was taken back too
    with pytest.raises(InputError, match="this is an older copy"):
        recalled(node, signed, key_of(node))
    for act in (lambda: hello(node), lambda: answer(node, asked(nodes[1:], clients=2)), lambda: signed_by(node)):
        with pytest.raises(InputError, match="older copy"):
            act()


def test_an_older_copy_that_went_on_is_noticed(nodes: list[Policy], node: Policy):
    """Though it is longer by now than what was signed: its history is another."""
    backup = Backup(node)
    answer(node, asked(nodes, rounds=9))
    signed = signed_by(node)
    backup.restore()
    for i in range(3):
        answer(node, asked(nodes, rounds=9 + i))
    assert charges(node) == 3
    with pytest.raises(InputError, match="another history"):
        recalled(node, signed, key_of(node))
    with pytest.raises(InputError, match="another history"):
        hello(node)


def test_the_newest_copy_brings_the_node_back(nodes: list[Policy], node: Policy):
    old = Backup(node)
    answer(node, asked(nodes))
    signed, new = signed_by(node), node.ledger.read_bytes()
    old.restore()
    with pytest.raises(InputError):
        recalled(node, signed, key_of(node))
    node.ledger.write_bytes(new)
    assert recalled(node, signed, key_of(node)) == {"recalled": "the ledger has it"}
    assert hello(node)["size"] == 7


def test_a_whole_ledger_has_everything_that_was_ever_signed(nodes: list[Policy], node: Policy):
    first = signed_by(node)
    answer(node, asked(nodes))
    second = signed_by(node)
    answer(node, asked(nodes, rounds=3))
    for signed in (first, second, signed_by(node)):
        assert recalled(node, signed, key_of(node)) == {"recalled": "the ledger has it"}
    answer(node, asked(nodes, rounds=40))


@pytest.mark.parametrize("how", ["changed", "another's key", "no key", "another ledger", "unsigned"])
def test_nobody_elses_words_stop_a_node(nodes: list[Policy], node: Policy, tmp_path: Path, how: str):
    """A coordinator that could make a statement up could stop any node for good."""
    answer(node, asked(nodes))
    signed, key = signed_by(node), key_of(node)
    if how == "changed":
        signed |= {"entries": 99, "head": "00" * 32}
    elif how == "another's key":
        credentials.node_key(tmp_path, "n0")
        signed = statement(node, tmp_path / "node.key") | {"entries": 99}
    elif how == "another ledger":
        signed = statement(nodes[1], key)
    elif how == "unsigned":
        signed = statement(node) | {"entries": 99}
    said = recalled(node, signed, None if how == "no key" else key)["recalled"]
    assert said != "the ledger has it"
    answer(node, asked(nodes, rounds=3))


@pytest.mark.parametrize("given", [None, 7, [], {}, {"ledger": 3}, {"jobs": [], "through": 1e400}])
def test_nonsense_is_refused(node: Policy, given: Any):
    with pytest.raises(InputError):
        recalled(node, given, key_of(node))


def test_the_coordinator_keeps_the_longest_that_was_signed(nodes: list[Policy], node: Policy, tmp_path: Path):
    old = signed_by(node)
    answer(node, asked(nodes))
    new, folder = signed_by(node), tmp_path / "statements"
    assert kept(folder, "n0") is None
    assert keep(folder, {"n0": new, "n1": statement(nodes[1])}) == []  # what is not signed is no witness
    assert kept(folder, "n1") is None
    assert keep(folder, {"n0": old}) == ["n0 states 0 entries of its ledger; it has signed 2"]
    assert kept(folder, "n0") == json.loads(json.dumps(new))
    (folder / "n0.json").write_text("{}")
    with pytest.raises(InputError, match="damaged"):
        kept(folder, "n0")


def test_the_next_job_is_not_begun_with_a_ledger_that_was_taken_back(nodes: list[Policy], node: Policy, tmp_path: Path):
    pytest.importorskip("flwr", reason="needs Flower: pip install 'fedsofim[flower]'")
    from fake_grid import FakeGrid, numbered
    from strategies import ORDER, strategy

    where: dict[str, Any] = {"statements": str(tmp_path / "statements")}
    backup = Backup(node)
    half = ORDER.__class__(**vars(ORDER) | {"epsilon": 0.5, "rounds": 1, "method": "fedgd"})
    grid = FakeGrid(numbered(nodes))
    strategy(tmp_path, half, **where).start(grid)
    assert [what for what, _ in grid.asked].count("recall") == 0  # nobody had signed anything
    shutil.rmtree(tmp_path / "job")
    strategy(tmp_path, half, **where).start(grid)
    assert [what for what, _ in grid.asked].count("recall") == 1
    backup.restore()
    shutil.rmtree(tmp_path / "job")
    before = [charges(p) for p in nodes[1:]]
    with pytest.raises(InputError, match=r"a ledger is not what its node signed \(n0: .*older copy"):
        strategy(tmp_path, half, **where).start(grid)
    assert [charges(p) for p in nodes[1:]] == before


def test_of_two_histories_that_left_neither_goes_on_alone(nodes: list[Policy], node: Policy):
    """Taken back whole, the node went on for somebody who keeps nothing. Whichever copy it has from then on, the other
    history's charges are not in it."""
    backup = Backup(node)
    answer(node, asked(nodes))
    signed, first = signed_by(node), Backup(node)
    backup.restore()
    answer(node, asked(nodes, method="fedadam"))
    with pytest.raises(InputError, match="nothing is released"):
        recalled(node, signed, key_of(node))
    node.ledger.write_bytes(first.files[node.ledger])  # the copy that has what was signed, but not what left since
    ledger_file._checked.clear()
    with pytest.raises(InputError, match=r"another history|older copy"):
        answer(node, asked(nodes, method="fedgd", rounds=3))
