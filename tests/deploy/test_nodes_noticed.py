"""A node's arithmetic, draws and limits, each where nothing else stands behind it."""

import math
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsofim.core.budget import WITHOUT
from fedsofim.core.phase import Phase
from fedsofim.core.queries import PerRecord
from fedsofim.core.records import block_shape
from fedsofim.deploy import account as account_module
from fedsofim.deploy import exact_sums
from fedsofim.deploy.account import Account
from fedsofim.deploy.exact_sums import exact_sum
from fedsofim.deploy.holding import held
from fedsofim.deploy.job_state import JobState
from fedsofim.deploy.lines import epsilon_of_lines, within_cap
from fedsofim.deploy.node import answer
from fedsofim.deploy.noise import TIES, slack
from fedsofim.deploy.packing import from_bytes, to_bytes
from fedsofim.deploy.policy import Policy, read_policy
from fedsofim.deploy.pricing import check_terms
from fedsofim.deploy.secure_sum import as_peers, new_key
from fedsofim.deploy.uploads import faults
from fedsofim.deploy.wire import Arrays, Job
from fedsofim.errors import InputError, Refused
from ledgers import DELTA, ask, line, open_
from node_programs import released, values
from nodes import ask_all, asked, make_node, make_nodes, refusal, started, with_terms

# --- sums ---------------------------------------------------------------------------------------------------


def identity(features: int) -> PerRecord:
    record = jax.ShapeDtypeStruct((features,), jnp.float64), jax.ShapeDtypeStruct((), jnp.int32)
    return PerRecord.trace(lambda x, y: x, *record)[0]


def whole_sum(x: list[list[float]], step: float) -> list[int]:
    records = np.asarray(x, np.float64)
    return exact_sum(identity(records.shape[1]), [], records, np.zeros(len(x), np.int32), 100.0, step).tolist()


def test_a_record_is_rounded_to_the_nearest_of_the_lattice():
    """Half a step at most: that is what `lattice_std` pays for."""
    assert whole_sum([[0.7, -0.3], [0.3, -0.7]], 1.0) == [1, -1]
    assert whole_sum([[0.3, -0.2], [0.3, -0.2], [0.3, -0.2]], 0.5) == [3, 0]


@pytest.mark.parametrize("records", range(1, 8))
def test_every_record_of_a_node_is_added_whatever_their_number(records: int, monkeypatch: pytest.MonkeyPatch):
    """Two at a time, so that some numbers leave a single one for the last turn."""
    monkeypatch.setattr(exact_sums, "_AT_ONCE", 4)
    x = [[2.0**i, 1.0] for i in range(records)]
    assert whole_sum(x, 1.0) == [2**records - 1, records]


@pytest.mark.parametrize("records, size", [(1, 3), (40, 3), (7, 30), (3, 70)])
def test_few_vectors_are_held_at_a_time(records: int, size: int, monkeypatch: pytest.MonkeyPatch):
    """However many records there are: a node's memory is not theirs to fill. One vector is the least."""
    sizes: list[int] = []
    real = exact_sums._summands

    def watched(query, consts, x, y, clip):
        sizes.append(len(y))
        return real(query, consts, x, y, clip)

    monkeypatch.setattr(exact_sums, "_AT_ONCE", 60)
    monkeypatch.setattr(exact_sums, "_summands", watched)
    assert whole_sum([[1.0] * size] * records, 1.0) == [records] * size
    assert sum(sizes) == records and max(sizes) <= max(1, 60 // size)


def test_sums_that_integers_or_doubles_cannot_hold_are_refused():
    """2^62 steps in all, of which a record has at most 2^52; up to there nothing is refused."""

    def fits(records: int, steps: float) -> bool:
        x, y = np.zeros((records, 1)), np.zeros(records, np.int32)
        try:
            return not exact_sum(identity(1), [], x, y, 1.0, 1 / steps).any()
        except Refused:
            return False

    assert fits(1, 1.9 * 2.0**51) and not fits(1, 2.0**52) and not fits(1, 2.0**70)
    assert fits(1024, 1.9 * 2.0**51) and not fits(2048, 2.0**51) and not fits(2048, 1.9 * 2.0**51)


def test_padding_takes_no_part_in_a_nodes_sum():
    """Padding holds zeros, of which a function makes what it likes: here a one."""
    records = 521  # prime: no blocks of up to 512 hold it without padding
    assert math.prod(block_shape([records])) > records
    counted = released(lambda door: door.sum(lambda x, y: 0 * x + 1, clip=2.0), np.zeros((records, 1)), {0: 0.0})
    assert np.asarray(counted).item() == records


def test_who_takes_part_is_not_told_by_the_noise_on_the_sum():
    """The size of the noise on a record's own number, whether the record is in it or not."""
    records = 1024
    seen = np.asarray(
        released(lambda door: door.sum(values, sample=0.5, clip=2000.0), 1000 * np.eye(records), {0: 1.0})
    )
    took = seen > 500
    noise = np.abs(np.where(took, seen - 1000, seen))
    assert abs(np.mean(took) - 0.5) < 6 * 0.5 / math.sqrt(records)
    assert np.max(noise) < 10
    assert abs(np.corrcoef(took, noise)[0, 1]) < 6 / math.sqrt(records)


# --- accounts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["open_ask", "check"])
def test_nobody_else_writes_while_a_price_is_held_against_the_cap(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
):
    """Else two processes may each find room for their own charge, and together spend more than there is."""
    path, tried = tmp_path / "ledger.db", []
    open_(path, ask())

    def meanwhile(*args):
        other = sqlite3.connect(path, timeout=0, isolation_level=None)
        try:
            other.execute("BEGIN IMMEDIATE")
            tried.append("written")
        except sqlite3.OperationalError as error:
            tried.append(str(error))
        finally:
            other.close()
        return within_cap(*args)

    monkeypatch.setattr(account_module, "within_cap", meanwhile)
    if what == "open_ask":
        open_(path, ask(1))
    else:
        Account(path).check([line()], cap=1e9, delta=DELTA)
    assert tried == ["database is locked"]


def test_lines_that_nobody_can_pay_for_cost_everything_and_none_cost_nothing():
    """Ties take a little of delta for every number: where they take all of it, no epsilon is left."""
    assert epsilon_of_lines([], DELTA) == 0.0
    assert epsilon_of_lines([line(coordinates=10**17)], DELTA) == math.inf
    assert slack(10) == pytest.approx(10 * TIES * 2.0**-64, rel=1e-12)
    assert 1 < TIES < 1000


def test_what_a_node_holds_is_for_its_owners_eyes(tmp_path: Path):
    ledger = tmp_path / "ledger.db"
    Account(ledger).create()
    with held(ledger, "0" * 64):
        (folder,) = tmp_path.glob("*.held")
        assert folder.stat().st_mode & 0o777 == 0o700


# --- uploads ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def uploads(shared_nodes: list[Policy], now: JobState) -> dict[str, Arrays]:
    return ask_all(shared_nodes, now)


def of_norm(upload: np.ndarray, norm: float) -> Arrays:
    return {"upload0": (upload * (norm / np.linalg.norm(upload))).astype(np.float32)}


def test_an_upload_longer_than_clip_and_noise_allow_is_named(now: JobState, uploads: dict[str, Arrays]):
    """Though it is not absurd beside the others: 12 numbers, 10 standard deviations."""
    std, (size, *_) = now.job.stds[Phase.ROUND][0], (c.size for c in now.clients)
    largest = 10.0 + std * (math.sqrt(12) + 10) / size
    first = now.clients[0].name
    upload = uploads[first]["upload0"]
    assert upload.size == 12
    assert faults(now, uploads | {first: of_norm(upload, 1.0005 * largest)}) == {}
    assert "clip and noise allow" in faults(now, uploads | {first: of_norm(upload, 1.002 * largest)})[first]


def test_an_upload_far_beyond_the_others_is_named_where_nothing_bounds_it(tmp_path: Path):
    """Local steps have no bound of their own."""
    nodes = make_nodes(tmp_path)
    now = started(nodes, "fedavg")
    sound = ask_all(nodes, now)
    norms = {name: math.hypot(*(np.linalg.norm(a) for a in arrays.values())) for name, arrays in sound.items()}
    for length in (1e-3, 1e3):  # of all but one: what counts is how many times as long the one is
        for factor, named in ((100.0, False), (5000.0, True)):
            scales = {name: np.float32(length / norm) for name, norm in norms.items()}
            scales["n1"] *= np.float32(factor)
            found = faults(now, {name: {k: a * scales[name] for k, a in sound[name].items()} for name in sound})
            assert list(found) == (["n1"] if named else [])
            assert not named or "median" in found["n1"]


# --- terms and policies -------------------------------------------------------------------------------------


def test_terms_at_the_edge_of_what_is_allowed(now: JobState):
    """Up to a million rounds, any clip above 0, any noise from 0: whether a node takes part is its policy's matter."""
    job = now.job
    for right in ({"rounds": 10**6}, {"rounds": 10**5 + 1}, {"clip": 0.25}, {"clip": 1}, {"noise_std": 0.0},
                  {"stds": {Phase.ROUND: [0.5]}}, {"id": "x" * 64}):  # fmt: skip
        assert Job.read(replace(job, **right).text()) == replace(job, **right)
    for wrong in ({"rounds": 10**6 + 1}, {"rounds": 0}, {"clip": 0.0}, {"noise_std": -0.5}, {"id": ""}, {"id": 7},
                  {"id": "x" * 65}, {"stds": {Phase.ROUND: [-0.5]}}, {"trust": "secure-sum"}):  # fmt: skip
        with pytest.raises(InputError, match="terms"):
            Job.read(replace(job, **wrong).text())


def test_arrays_that_would_run_code_are_not_read():
    """A pickle is a program; what comes from a server or a disk is numbers or nothing."""
    with pytest.raises(ValueError, match="allow_pickle"):
        from_bytes(to_bytes({"a": np.array([{"an": "object"}], object)}))


def test_policies_at_the_edge_of_what_makes_sense(tmp_path: Path):
    wrongs: list[dict[str, Any]] = [
        {"largest_clip": 0.0},
        {"epsilon": WITHOUT},
        {"smallest_multiplier": 0},
        {"smallest_multiplier": -1.0},
    ]
    for i, wrong in enumerate(wrongs):
        with pytest.raises(InputError, match=r"largest_clip|smallest_multiplier"):
            make_node(tmp_path / str(i), np.zeros((2, 1)), np.zeros(2, int), **wrong)


# --- secure sums --------------------------------------------------------------------------------------------


def summing(folder: Path, trusted: int = 3, **changed: Any) -> list[Policy]:
    """Nodes that know each other's mask keys, as if their operators had met."""
    pytest.importorskip("cryptography")
    policies = make_nodes(folder, **changed)
    public = {p.name: new_key(p.ledger.parent / "mask.key") for p in policies}
    for policy in policies:
        path = policy.ledger.parent / "policy.toml"
        peers = "".join(f'{name} = "{key}"\n' for name, key in public.items() if name != policy.name)
        text = path.read_text().replace("[budget]", 'mask_key = "mask.key"\n\n[budget]')
        path.write_text(f"{text}secure_sum_min_clients = {trusted}\n\n[peers]\n{peers}")
    return [read_policy(p.ledger.parent / "policy.toml") for p in policies]


@pytest.mark.parametrize("number, why", [(1, "a sum over one client hides nothing"), (-1, "is negative")])
def test_a_sum_over_one_client_or_fewer_is_no_policy(tmp_path: Path, number: int, why: str):
    """It would show that client's upload with a share of the noise only."""
    policy = summing(tmp_path)[0]
    path = policy.ledger.parent / "policy.toml"
    path.write_text(path.read_text().replace("secure_sum_min_clients = 3", f"secure_sum_min_clients = {number}"))
    with pytest.raises(InputError, match=why):
        read_policy(path)


@pytest.mark.parametrize("bad", [[["a", 5], ["a", 7]], [["a", 5], ["b", 0]], [["a", 5], ["b", -1]]])
def test_peers_are_different_nodes_with_records(bad: list):
    """One node named twice would be counted as two that draw noise, and no records as any weight."""
    assert as_peers([["a", 5], ["b", 7]]) == (("a", 5), ("b", 7))
    with pytest.raises(InputError, match="peers make no sense"):
        as_peers(bad)


def test_a_node_named_twice_is_not_two_that_draw_noise(tmp_path: Path):
    nodes = summing(tmp_path)
    request = asked(nodes, trust="secure-sum")
    with pytest.raises(InputError, match="terms cannot be read"):
        with_terms(request, peers=(*request.job.peers[:2], request.job.peers[1]))


def test_the_operators_least_noise_is_of_what_the_trusted_clients_draw(tmp_path: Path):
    """Two of three are trusted: of the noise planned for n0, whose records count most, sqrt(2/3) is theirs."""
    nodes = summing(tmp_path, trusted=2, epsilon=50.0)
    request = asked(nodes, trust="secure-sum")
    planned = request.job.stds[Phase.ROUND][0] / 10.0
    path = nodes[0].ledger.parent / "policy.toml"
    text = path.read_text()
    for least, allowed in ((0.81, True), (0.83, False), (0.99, False)):
        path.write_text(text.replace("smallest_multiplier = 0.01", f"smallest_multiplier = {least * planned}"))
        policy = read_policy(path)
        if allowed:
            answer(policy, request)
        else:
            assert "the smallest allowed here" in refusal(policy, request._replace(round=1))


def test_a_methods_own_setup_is_refused_in_a_secure_sum_before_anything_is_built(tmp_path: Path):
    """It is no sum over clients: every client must add all of the noise to it."""
    nodes = summing(tmp_path, epsilon=50.0)
    alone = asked(nodes, "fedfc")
    assert alone.phase is Phase.SETUP
    check_terms(nodes[0], alone)
    peers = tuple((p.name, size) for p, size in zip(nodes, (7, 20, 12), strict=True))
    shared = with_terms(alone, trust="secure-sum", peers=peers)
    refusal(nodes[0], shared)
    with pytest.raises(Refused, match="full noise"):
        check_terms(nodes[0], shared)
