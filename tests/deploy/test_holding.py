"""Which requests a node holds: a lock that dies with its process, and no question worked on twice at a time."""

import fcntl
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from fedsofim.deploy import node
from fedsofim.deploy.account import Account
from fedsofim.deploy.execute import run
from fedsofim.deploy.holding import Holding, held, holding_of, sweep
from fedsofim.deploy.node import answer
from fedsofim.deploy.policy import Policy
from fedsofim.errors import InputError, Refused
from nodes import asked, charges, same_bits

D, OTHER = "0" * 64, "f" * 64


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    Account(tmp_path / "ledger.db").create()
    return tmp_path / "ledger.db"


def left(ledger: Path) -> list[Path]:
    """Files of requests that are or were under way."""
    return list(ledger.with_name("ledger.db.held").iterdir())


def test_held_while_it_lasts_and_no_longer(ledger: Path):
    assert holding_of(Account(ledger), D) is Holding.NOTHING
    with held(ledger, D):
        assert holding_of(Account(ledger), D) is Holding.WORKING
        assert holding_of(Account(ledger), D) is Holding.WORKING  # looking takes nothing away
        assert holding_of(Account(ledger), OTHER) is Holding.NOTHING
        with held(ledger, OTHER):
            assert holding_of(Account(ledger), OTHER) is Holding.WORKING
    assert holding_of(Account(ledger), D) is Holding.NOTHING
    assert left(ledger) == []


def test_what_killed_processes_left_is_swept_away_and_what_is_held_stays(ledger: Path):
    with held(ledger, D):
        (left(ledger)[0].parent / OTHER).touch()
        sweep(ledger)
        assert [path.name for path in left(ledger)] == [D]
        assert holding_of(Account(ledger), D) is Holding.WORKING
    sweep(ledger)
    assert left(ledger) == []
    sweep(ledger.with_name("never used.db"))


def test_an_error_leaves_nothing_held(ledger: Path):
    with pytest.raises(MemoryError), held(ledger, D):
        raise MemoryError
    assert holding_of(Account(ledger), D) is Holding.NOTHING
    assert left(ledger) == []


@pytest.mark.slow
def test_a_killed_process_holds_nothing(ledger: Path):
    script = (
        "import sys, pathlib, fedsofim.deploy.holding as h\n"
        "with h.held(pathlib.Path(sys.argv[1]), sys.argv[2]):\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, str(ledger), D]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert holding_of(Account(ledger), D) is Holding.WORKING
        process.kill()
        process.wait()
        assert holding_of(Account(ledger), D) is Holding.NOTHING
    assert len(left(ledger)) == 1  # its file is there, and stops nobody
    with held(ledger, D):
        assert holding_of(Account(ledger), D) is Holding.WORKING
    assert left(ledger) == []


@pytest.mark.parametrize("digest", ["", "x", "../../" + "0" * 58, "0" * 63, "0" * 65, "A" * 64, "0" * 63 + "\n"])
def test_only_a_digest_becomes_a_files_name(ledger: Path, digest: str):
    before = sorted(ledger.parent.rglob("*"))
    for act in (lambda: holding_of(Account(ledger), digest), lambda: held(ledger, digest).__enter__()):
        with pytest.raises(InputError, match="digest"):
            act()
    assert sorted(ledger.parent.rglob("*")) == before


def test_without_a_place_to_write_nothing_is_released(tmp_path: Path):
    with pytest.raises(InputError, match="nothing is released"), held(tmp_path / "none" / "ledger.db", D):
        pytest.fail("held")


# --- a node's requests --------------------------------------------------------------------------------------


def test_a_node_holds_its_request_while_it_works_and_its_answer_afterwards(nodes: list[Policy], monkeypatch):
    policy, request = nodes[0], asked(nodes)
    seen: list[Holding] = []
    honest = run

    def watched(*a: Any) -> Any:
        seen.append(holding_of(policy.account, request.digest()))
        return honest(*a)

    monkeypatch.setattr(node, "run", watched)
    assert holding_of(policy.account, request.digest()) is Holding.NOTHING
    answer(policy, request)
    assert seen == [Holding.WORKING]
    assert holding_of(policy.account, request.digest()) is Holding.ANSWERED
    assert holding_of(nodes[1].account, request.digest()) is Holding.NOTHING
    assert left(policy.ledger) == []


def test_a_refused_request_is_not_held(nodes: list[Policy]):
    request = asked(nodes, epsilon=50.0)
    with pytest.raises(Refused, match="above the cap"):
        answer(nodes[0], request)
    assert holding_of(nodes[0].account, request.digest()) is Holding.NOTHING
    assert left(nodes[0].ledger) == []


def test_who_asks_the_same_meanwhile_waits_and_pays_nothing(nodes: list[Policy], monkeypatch):
    """Three askers at once, one charge: the others come to the lock, and find the stored answer when it opens."""
    policy, request = nodes[0], asked(nodes)
    replies: list[Any] = []
    arrived = threading.Semaphore(0)
    real = fcntl.flock

    def flock(file: Any, how: int) -> None:
        if how == fcntl.LOCK_EX and threading.current_thread() is not threading.main_thread():
            arrived.release()
        real(file, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    others = [threading.Thread(target=lambda: replies.append(answer(policy, request))) for _ in range(2)]
    with held(policy.ledger, request.digest()):
        for thread in others:
            thread.start()
        for _ in others:
            arrived.acquire()
        first = node._answer(policy, request)
        assert replies == []
    for thread in others:
        thread.join()
    assert len(replies) == 2
    assert all(same_bits(first, reply) for reply in replies)
    assert charges(policy) == 1
    assert left(policy.ledger) == []
