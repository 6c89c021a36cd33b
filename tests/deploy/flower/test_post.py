"""What a killed node held is noticed and asked again; a node that is slow but alive is asked once. No time passes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodes import charges, make_nodes, same_bits

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedsofim[flower]'")

from flwr.app import Message

from fake_grid import FakeClock, FakeGrid, answered, is_round, numbered
from fedsofim.deploy import certificate
from fedsofim.deploy.account import Account
from fedsofim.deploy.flower import post
from fedsofim.deploy.flower.messages import what_of
from fedsofim.deploy.flower.strategy import RoundFailed
from fedsofim.deploy.order import Conduct
from fedsofim.deploy.policy import Policy
from strategies import ORDER, replayed, strategy, theta

SOON = 3 * post._LATE  # noticed at the first look at who is late, or at the second; not when patience ends
assert Conduct().timeout > 5 * SOON


class Case:
    """A job of three rounds in which node 101 gets into trouble with its second."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder, self.clock = tmp_path, FakeClock()
        self.nodes: list[Policy] = make_nodes(tmp_path / "nodes")
        self.grid = FakeGrid(numbered(self.nodes))

    def first_time(self, what: Callable[[Message], bool], then: Callable[[Message], Any]) -> None:
        """Node 101 does not get to answer the first such message; `then` happens instead."""
        seen: list[Message] = []

        def accept(node: int, message: Message) -> bool:
            if node != 101 or seen or not what(message):
                return True
            seen.append(message)
            then(message)
            return False

        self.grid.accept = accept

    def second_round(self, then: Callable[[Message], Any]) -> None:
        self.first_time(lambda message: is_round(message, 1), then)

    def trained(self, **conduct: Any) -> None:
        """The job ends as it would have without the trouble, and its certificate holds."""
        result = strategy(self.folder, clock=self.clock, **conduct).start(self.grid)
        assert same_bits(theta(result), replayed(ORDER, self.nodes, self.grid))
        document = certificate.read(self.folder / "job" / "certificate.json")
        assert set(document["clients"]) == {"n0", "n1", "n2"}
        assert certificate.verify(document, [p.ledger for p in self.nodes]) == []

    def times(self, what: str, node: int = 101) -> int:
        return self.grid.asked.count((what, node))

    @property
    def charged(self) -> list[int]:
        return [charges(policy) for policy in self.nodes]


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


# --- lost ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_request_lost_with_its_node_is_asked_again_at_once(case: Case):
    case.second_round(lambda message: case.grid.restart(101))
    case.trained()
    assert case.clock.now < SOON
    assert case.times("round 1") == 2
    assert (case.times("round 1", 100), case.times("round 1", 102)) == (1, 1)
    assert case.charged == [3, 3, 3]


@pytest.mark.slow
def test_killed_between_charge_and_answer_it_is_asked_again_too(case: Case, monkeypatch):
    def killed(message: Message) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(Account, "close_ask", lambda *a: (_ for _ in ()).throw(OSError("killed")))
            case.grid.work(101, message)
        del case.grid.waiting[message.metadata.message_id]
        case.grid.restart(101)

    case.second_round(killed)
    case.trained()
    assert case.clock.now < SOON
    assert case.times("round 1") == 2
    assert case.charged == [3, 3, 3]  # the question was charged; asking it again is free


@pytest.mark.slow
@pytest.mark.parametrize("restarted", [True, False])
def test_an_answer_lost_on_the_way_is_fetched_again_for_free(case: Case, restarted: bool):
    def lost(message: Message) -> None:
        case.grid.work(101, message)
        del case.grid.waiting[message.metadata.message_id]
        if restarted:
            case.grid.restart(101)

    case.second_round(lost)
    case.trained(attempts=1)  # it takes none of the attempts
    assert case.clock.now < SOON
    assert case.times("round 1") == 2
    assert case.charged == [3, 3, 3]


@pytest.mark.slow
@pytest.mark.parametrize("what", ["hello", "consider", "account"])
@pytest.mark.parametrize("restarted", [True, False])
def test_a_lost_question_that_costs_nothing_is_asked_again(case: Case, what: str, restarted: bool):
    case.first_time(lambda message: what_of(message) == what, lambda _: restarted and case.grid.restart(101))
    case.trained(attempts=1)
    assert case.clock.now < SOON
    assert case.times(what) == 2


@pytest.mark.slow
def test_a_node_that_loses_every_request_ends_the_round_by_name(case: Case):
    """Each time may have been charged, so it is not asked for ever."""

    def accept(node: int, message: Message) -> bool:
        if node != 101 or what_of(message) != "ask":
            return True
        case.grid.restart(101)
        return False

    case.grid.accept = accept
    with pytest.raises(RoundFailed, match="n1: no upload: the node lost the request"):
        strategy(case.folder, clock=case.clock, attempts=3).start(case.grid)
    assert case.times("round 0") == 3
    assert case.clock.now < 3 * SOON


# --- slow but alive -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [50.0, 500.0])
def test_a_node_that_is_slow_is_not_asked_twice(case: Case, seconds: float):
    case.second_round(lambda message: case.clock.after(seconds, case.grid.keep_busy(101, message)))
    case.trained(attempts=1)
    assert case.times("round 1") == 1
    assert case.times("holding") >= 2  # it was asked, and said that it works
    assert seconds < case.clock.now < seconds + SOON
    assert case.charged == [3, 3, 3]


@pytest.mark.slow
def test_a_question_lost_on_its_way_is_asked_again_though_the_node_was_never_restarted(case: Case):
    """A connection broke while it was fetched: the SuperLink thinks it delivered, and the node never had it."""
    case.second_round(lambda message: None)
    case.trained(attempts=1)
    assert case.clock.now < SOON
    assert case.times("round 1") == 2
    assert case.charged == [3, 3, 3]


@pytest.mark.slow
def test_nor_is_one_that_cannot_be_asked_meanwhile(case: Case):
    """As Flower's SuperNode is: one message at a time."""
    held_back: list[Message] = []

    def accept(node: int, message: Message) -> bool:
        if node != 101 or not (is_round(message, 1) or held_back):
            return True
        held_back.append(message)
        return False

    def work() -> None:
        for message in held_back:
            case.grid.work(101, message)
        case.grid.accept = None

    case.grid.accept = accept
    case.clock.after(300.0, work)
    case.trained(attempts=1)
    assert case.times("round 1") == 1
    assert case.times("holding") == 1
    assert case.charged == [3, 3, 3]


@pytest.mark.slow
def test_a_worker_that_outlives_its_node_is_waited_for_and_its_answer_is_free(case: Case):
    def orphaned(message: Message) -> None:
        finish = case.grid.keep_busy(101, message)
        case.grid.restart(101)

        def done() -> None:
            finish()
            del case.grid.waiting[message.metadata.message_id]  # its SuperNode is gone, and nobody sends it

        case.clock.after(90.0, done)

    case.second_round(orphaned)
    case.trained(attempts=1)
    assert 90.0 < case.clock.now < 90.0 + SOON
    assert case.times("round 1") == 2
    assert case.charged == [3, 3, 3]


# --- what is not believed -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "facts",
    [{}, {"holding": 3}, {"holding": "nothing"}, {"holding": "lost", "instance": "x"}, {"refused": "no"}],
    ids=str,
)
def test_a_node_that_does_not_say_sensibly_what_it_holds_has_the_whole_time(case: Case, facts: dict[str, Any]):
    def tamper(node: int, question: Message, reply: Message) -> Message:
        return answered(question, reply, facts={"node": "n1"} | facts) if what_of(question) == "holding" else reply

    case.grid.tamper = tamper
    case.second_round(lambda message: case.grid.restart(101))
    case.trained(timeout=5 * SOON)
    assert case.clock.now >= 5 * SOON
    assert case.times("round 1") == 2
