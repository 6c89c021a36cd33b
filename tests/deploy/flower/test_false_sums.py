"""The coordinator's loop when a masked upload is false: the sum is thrown away, asked anew, and the liar looked for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedsofim[flower]'")
pytest.importorskip("cryptography")

from flwr.app import Message

from fake_grid import FakeGrid, answered, numbered
from fedsofim.deploy import certificate
from fedsofim.deploy.checkpoint import CHECKPOINT, restore
from fedsofim.deploy.flower.messages import opened, request_of, what_of
from fedsofim.deploy.flower.strategy import RoundFailed
from fedsofim.deploy.node import answer
from fedsofim.deploy.order import Order
from fedsofim.errors import Refused
from node_sums import order_of_five, summing_nodes
from nodes import charges, make_nodes, refusal, spent, start, started
from strategies import strategy

SOME = order_of_five(clients=3, min_clients=2)  # two rounds among three
ALL = order_of_five(clients=3, min_clients=None)
ROOM: dict[str, Any] = {"epsilon": 5.0}  # of a policy: the jobs of these tests cost 1


def lying(who: int, when: Callable[[Message], bool] = lambda question: True, array: str = "upload0"):
    """A node whose masked uploads are garbage of the right form."""

    def tamper(node: int, question: Message, reply: Message) -> Message:
        if node != who or what_of(question) != "ask" or not when(question) or not opened(reply).arrays:
            return reply
        arrays = dict(opened(reply).arrays)
        noise = np.random.default_rng(0).integers(0, 256, arrays[array].nbytes, dtype=np.uint8)
        arrays[array] = noise.view(arrays[array].dtype).reshape(arrays[array].shape)
        return answered(question, reply, arrays=arrays)

    return tamper


@pytest.mark.parametrize("order", [SOME, ALL], ids=["two of three", "all three"])
def test_one_false_upload_costs_one_round_and_not_the_job(tmp_path: Path, order: Order, caplog):
    three = summing_nodes(tmp_path / "nodes", **ROOM)
    grid = FakeGrid(numbered(three), lying(101, lambda question: request_of(question).attempt == 0))
    strategy(tmp_path, order).start(grid)
    found = restore(tmp_path / "job" / CHECKPOINT)
    assert found.finished and found.attempt == 0
    assert found.false_sums[0].present == ("n0", "n1", "n2") and len(found.false_sums) == 2
    assert "the sum over n0, n1, n2 has norm" in caplog.text
    document = certificate.read(tmp_path / "job" / "certificate.json")
    assert certificate.verify(document, [policy.ledger for policy in three]) == []


def test_an_attempt_has_other_masks_and_noise_and_is_charged_again(tmp_path: Path):
    three = summing_nodes(tmp_path / "nodes", **ROOM)
    grid = FakeGrid(numbered(three), lying(101, lambda question: request_of(question).attempt == 0))
    uploads: dict[int, np.ndarray] = {}
    honest = grid.tamper

    def watch(node: int, question: Message, reply: Message) -> Message | None:
        if node == 100 and what_of(question) == "ask" and request_of(question).round == 0:
            uploads[request_of(question).attempt] = opened(reply).arrays["upload0"]
        assert honest is not None
        return honest(node, question, reply)

    grid.tamper = watch
    strategy(tmp_path, ALL).start(grid, num_rounds=1)
    assert sorted(uploads) == [0, 1]
    assert not np.any(uploads[0] == uploads[1])  # uniform words: masks and noise are of one attempt
    high = (uploads[0] - uploads[1]) >> np.uint64(56)
    assert len(np.unique(high)) > 4  # nor does their difference show what is under the masks
    assert [charges(policy) for policy in three] == [2, 2, 2]
    assert spent(three[0]) > 0


def test_a_liar_is_found_where_rounds_can_do_without_it_and_left_out_from_then_on(tmp_path: Path, caplog):
    three = summing_nodes(tmp_path / "nodes", **ROOM)
    grid = FakeGrid(numbered(three), lying(101))
    strategy(tmp_path, SOME).start(grid)
    found = restore(tmp_path / "job" / CHECKPOINT)
    assert found.finished and found.absent == {0: ("n1",), 1: ("n1",)}
    assert [false.present for false in found.false_sums] == [("n0", "n1", "n2"), ("n1", "n2")]
    assert "its sum is right without n1, which probably answered falsely" in caplog.text
    assert [charges(policy) for policy in three] == [3, 2, 4]  # n0 was left out of the second attempt


def test_who_was_framed_by_a_single_lie_is_back_after_the_next(tmp_path: Path):
    """A masked sum does not tell who lied: n1 lies in first answers only, so the sum is right when n0 is left out."""
    three = summing_nodes(tmp_path / "nodes", **ROOM)
    first = lying(101, lambda question: request_of(question).attempt == 0)
    strategy(tmp_path, order_of_five(clients=3, min_clients=2, rounds=4)).start(FakeGrid(numbered(three), first))
    found = restore(tmp_path / "job" / CHECKPOINT)
    assert found.finished
    assert found.absent == {0: ("n0",), 1: ("n1",), 2: ("n1",), 3: ("n1",)}


def test_without_a_retry_the_job_names_who_took_part_and_can_be_resumed(tmp_path: Path):
    three = summing_nodes(tmp_path / "nodes", **ROOM)
    with pytest.raises(RoundFailed, match=r"false sums were over n0, n1, n2.*All 0 retries.*--retries"):
        strategy(tmp_path, ALL, retries=0).start(FakeGrid(numbered(three), lying(101)))
    assert [charges(policy) for policy in three] == [1, 1, 1]
    with pytest.raises(RoundFailed, match="All 0 retries"):
        strategy(tmp_path, ALL, retries=0, resume=True).start(FakeGrid(numbered(three)))
    assert [charges(policy) for policy in three] == [1, 1, 1]  # saying so costs nothing
    strategy(tmp_path, ALL, retries=1, resume=True).start(FakeGrid(numbered(three)))
    assert restore(tmp_path / "job" / CHECKPOINT).finished
    assert [charges(policy) for policy in three] == [3, 3, 3]


def test_a_budget_without_room_for_a_retry_is_asked_about_first_and_nothing_is_spent(tmp_path: Path):
    three = summing_nodes(tmp_path / "nodes", epsilon=1.0)  # for the job and no more
    said = r"(?s)over n0, n1, n2. It is not asked anew, and nothing more.*n0: refused: .*the cap"
    with pytest.raises(RoundFailed, match=said):
        strategy(tmp_path, ALL).start(FakeGrid(numbered(three), lying(101)))
    assert [charges(policy) for policy in three] == [1, 1, 1]


def test_parcels_that_nobody_can_open_do_not_brick_the_job(tmp_path: Path):
    three = summing_nodes(tmp_path / "nodes", **ROOM)
    strategy(tmp_path, SOME).start(FakeGrid(numbered(three), lying(101, array="sealed_own")))
    found = restore(tmp_path / "job" / CHECKPOINT)
    assert found.finished and found.absent[0] == ("n1",)


def test_pieces_that_do_not_give_a_secret_back_accuse_who_cut_them(tmp_path: Path):
    three = summing_nodes(tmp_path / "nodes", **ROOM)

    def tamper(node: int, question: Message, reply: Message) -> Message:
        if node != 102 or what_of(question) != "ask" or not opened(reply).arrays:
            return reply
        arrays = dict(opened(reply).arrays)
        arrays["marks"] = arrays["marks"].copy()
        arrays["marks"][-1] ^= 1
        return answered(question, reply, arrays=arrays)

    strategy(tmp_path, SOME).start(FakeGrid(numbered(three), tamper))
    found = restore(tmp_path / "job" / CHECKPOINT)
    assert found.finished and found.absent == {0: ("n2",), 1: ("n2",)}
    assert [false.accused for false in found.false_sums] == [("n2",)]  # the first retry leaves it out


def test_a_job_that_was_bricked_by_an_older_version_goes_on(tmp_path: Path):
    """Its folder holds the false sum, and no node is asked for it again."""
    three = summing_nodes(tmp_path / "nodes", **ROOM)
    grid = FakeGrid(numbered(three), lying(101, lambda question: request_of(question).attempt == 0))
    grid.accept = lambda node, message: what_of(message) != "reveal"
    with pytest.raises(RoundFailed, match="Nothing is lost"):
        strategy(tmp_path, SOME, timeout=5.0).start(grid)
    assert (tmp_path / "job" / "open-sum.npz").exists()
    strategy(tmp_path, SOME, resume=True).start(FakeGrid(numbered(three)))
    found = restore(tmp_path / "job" / CHECKPOINT)
    assert found.finished and len(found.false_sums) == 1


def test_a_node_answers_another_attempt_of_a_secure_sum_only(tmp_path: Path):
    (node, *_), request = (nodes := make_nodes(tmp_path)), started(nodes).request()
    assert "only a secure sum" in refusal(node, request._replace(attempt=1))
    three = summing_nodes(tmp_path / "three", **ROOM)
    request = start(three, ALL).request()
    assert request.digest() != request._replace(attempt=1).digest()
    for attempt in (-1, 17):
        with pytest.raises(Refused, match="only so often"):
            answer(three[0], request._replace(attempt=attempt))
