"""The coordinator's loop over a secure sum when clients are lost: before their upload, after it, or with it."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedsofim[flower]'")
pytest.importorskip("cryptography")

from flwr.app import Message

from fake_grid import FakeClock, FakeGrid, is_round, numbered
from fedsofim.deploy.checkpoint import CHECKPOINT, restore
from fedsofim.deploy.flower.messages import what_of
from fedsofim.deploy.flower.strategy import RoundFailed
from fedsofim.deploy.policy import Policy
from fedsofim.deploy.server import step
from node_sums import helping, order_of_five, summing_nodes
from nodes import SMALL, charges
from strategies import strategy

ORDER = order_of_five(clients=3, min_clients=2)  # two rounds among three


@pytest.fixture
def three(tmp_path: Path) -> list[Policy]:
    return summing_nodes(tmp_path / "nodes", trusted=3, data=SMALL)


def exchanges(grid: FakeGrid, what: str) -> list[int]:
    return [node for question, node in grid.asked if question == what]


def test_without_losses_a_round_has_one_more_exchange(tmp_path: Path, three: list[Policy]):
    grid, clock = FakeGrid(numbered(three)), FakeClock()
    strategy(tmp_path, ORDER, clock=clock).start(grid)
    found = restore(tmp_path / "job" / CHECKPOINT)
    assert found.finished and found.absent == {}
    assert exchanges(grid, "reveal") == [100, 101, 102] * 2
    assert exchanges(grid, "agree") == []
    assert clock.now < 1  # nobody is waited for


def test_a_job_goes_on_without_who_is_lost_before_the_upload_or_after_it(tmp_path: Path, three: list[Policy]):
    """n1 never gets the first round's question; n0 leaves in the second, when its upload is there."""
    grid, clock = FakeGrid(numbered(three)), FakeClock()
    uploaded = set()

    def accept(node: int, message: Message) -> bool:
        uploaded.update({node} if is_round(message, 1) else ())
        gone = node == 100 and what_of(message) in ("agree", "reveal") and 100 in uploaded
        return not gone and not (node == 101 and is_round(message, 0))

    grid.accept = accept
    strategy(tmp_path, ORDER, clock=clock).start(grid)
    found = restore(tmp_path / "job" / CHECKPOINT)
    assert found.finished and found.absent == {0: ("n1",)}
    assert [charges(policy) for policy in three] == [2, 1, 2]
    assert clock.now < 30


def test_with_too_few_to_open_it_a_sum_stays_open_and_the_resumed_job_goes_on_with_it(tmp_path, three: list[Policy]):
    """n1 is not in the sum; then n2 goes too. When n2 is back, the coordinator opens the very sum that it had."""
    grid = FakeGrid(numbered(three))
    grid.accept = lambda node, message: (
        not ((node == 101 and is_round(message, 0)) or (node != 100 and what_of(message) in ("agree", "reveal")))
    )
    with pytest.raises(RoundFailed, match=r"1 clients agreed to a sum over n0, n2, 2 are needed.*Nothing is lost"):
        strategy(tmp_path, ORDER, timeout=5.0).start(grid)
    before = restore(tmp_path / "job" / CHECKPOINT)
    assert before.round == 0
    asked = FakeGrid(numbered(three))
    strategy(tmp_path, ORDER, resume=True).start(asked, num_rounds=1)
    assert exchanges(asked, "round 0") == []  # uploads were kept: n1 cannot slip in, and nobody is asked again
    after = restore(tmp_path / "job" / CHECKPOINT)
    assert after.round == 1 and after.absent == {0: ("n1",)}
    uploads = {name: grid.uploads["round", 0][name] for name in ("n0", "n2")}
    again = step(before, uploads, helping(three))
    assert np.array_equal(np.asarray(again.params), np.asarray(after.params))


def test_a_coordinator_that_lost_its_open_sum_is_told_so(tmp_path, three: list[Policy]):
    grid = FakeGrid(numbered(three))
    grid.accept = lambda node, message: (
        not ((node == 101 and is_round(message, 0)) or (node != 100 and what_of(message) in ("agree", "reveal")))
    )
    with pytest.raises(RoundFailed):
        strategy(tmp_path, ORDER, timeout=5.0).start(grid)
    (tmp_path / "job" / "open-sum.npz").unlink()
    with pytest.raises(
        RoundFailed, match=r"n0: this node was told that the sum is over n0, n2, and now over n0, n1, n2"
    ):
        strategy(tmp_path, ORDER, resume=True, timeout=5.0).start(
            FakeGrid(numbered(three), accept=lambda node, message: node != 102 or what_of(message) != "reveal")
        )


def test_flowers_own_loop_opens_sums_too(tmp_path: Path, three: list[Policy]):
    from flwr.app import ArrayRecord, ConfigRecord

    one, grid = strategy(tmp_path, ORDER), FakeGrid(numbered(three))
    messages = list(one.configure_train(1, ArrayRecord(), ConfigRecord(), grid))
    arrays, _ = one.aggregate_train(1, grid.send_and_receive(messages))
    assert arrays is not None and one.now.round == 1
