"""The noise of nodes: of the priced size in every phase, and fresh in every round, site, leaf and secure sum."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from fedsofim.core.mechanisms import Diagonal, Independent, Mechanism, Tree
from fedsofim.core.phase import Phase
from fedsofim.deploy import noise
from fedsofim.deploy.execute import Secrets
from fedsofim.deploy.node import answer
from fedsofim.deploy.noise import Bits, lattice_normal, lattice_std
from fedsofim.deploy.order import Order
from fedsofim.deploy.policy import Policy
from fedsofim.deploy.secure_sum import Shares, masks, new_key, pair_secrets
from fedsofim.errors import InputError, Refused
from node_programs import SECRETS, released, values
from node_sums import introduced
from nodes import make_node, make_nodes, start, started, with_terms

MANY = 3000
SILENT = np.zeros((4, MANY))


def unrelated(pieces: Sequence[np.ndarray]) -> bool:
    """No two pieces of noise are correlated; by chance at 7 standard errors never."""
    bound = 7 / math.sqrt(len(pieces[0]))
    return all(abs(np.corrcoef(a, b)[0, 1]) < bound for a, b in combinations(pieces, 2))


# --- one program --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_leaves_sites_and_steps_have_noise_of_their_own():
    def client(door):
        def step(inner, carry):
            i, seen = carry
            return i + 1, seen.at[i].set(inner.sum(values))

        _, steps = door.scan(step, (jnp.int32(0), jnp.zeros((2, MANY))), 2)
        return [*steps, door.sum(values), *door.sum(lambda x, y: [x, x])]

    pieces = released(client, SILENT, dict.fromkeys(range(4), 5.0))
    assert len(pieces) == 5 and unrelated([np.asarray(p) for p in pieces])
    assert np.std(pieces) == pytest.approx(5.0, rel=0.04)


@pytest.mark.parametrize("noise", [Independent(0.5), Diagonal(3), Tree()], ids=lambda m: type(m).__name__)
def test_rounds_have_noise_of_their_own(noise: Mechanism):
    """Each request brings fresh bytes; only a tree's nodes come back, which is its price."""
    rounds = []
    for t in range(3):
        secrets = Secrets(own=bytes([t]) * 32, job=SECRETS.job)
        rounds.append(
            released(lambda door: door.sum(values, noise=noise), SILENT, {0: 5.0}, secrets, rounds=3, round=t)
        )
    pieces = [np.asarray(r) for r in rounds]
    if isinstance(noise, Tree):  # nodes 0, 01, 2: what enters is the change of their running sum
        pieces = [pieces[0], pieces[0] + pieces[1], pieces[2]]
    assert unrelated(pieces)


def test_a_node_draws_other_bytes_for_every_question_and_every_job(tmp_path: Path):
    policy = make_node(tmp_path, np.zeros((2, 100), np.float32), np.zeros(2, int), classes=2, epsilon=50.0)
    uploads = []
    for method in ("fedgd", "ftrl"):
        for _ in range(2):
            request = started([policy], method, rounds=2).request()
            uploads.append(answer(policy, request)["upload0"].ravel())
    assert unrelated(uploads)


# --- one-shot phases ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def silent_node(tmp_path_factory) -> Policy:
    x = np.zeros((3, 100), np.float32)
    return make_node(tmp_path_factory.mktemp("silent"), x, np.zeros(3, int), classes=2, epsilon=50.0)


@pytest.mark.slow
def test_noise_of_a_setup_is_what_was_priced(silent_node: Policy):
    """101·102/2 numbers: the measured std is good to 1 %. The features [0;1] have a known covariance."""
    now = started([silent_node], "fedfc", epsilon=5.0)
    (std,) = now.job.stds[Phase.SETUP]
    (site,) = now.plan.programs[Phase.SETUP].sites
    (charge,) = now.plan.programs[Phase.SETUP].charges
    assert std == pytest.approx(site.clip * now.plan.multipliers[charge.site], rel=1e-12)
    upload = answer(silent_node, now.request())["upload0"].astype(np.float64) * 3
    upload[-1, -1] -= 3.0
    rows, columns = np.triu_indices(101)
    half = upload[rows, columns] * np.where(rows == columns, 1.0, math.sqrt(2.0))
    assert np.std(half) == pytest.approx(std, rel=0.06)
    assert np.std(half[rows == columns]) == pytest.approx(std, rel=0.4)


@pytest.mark.slow
def test_noise_of_the_moments_is_what_was_priced(tmp_path: Path):
    policy = make_node(tmp_path, np.zeros((3, 4000), np.float32), np.zeros(3, int), classes=2, epsilon=50.0)
    now = started([policy], standardize=0.2, epsilon=5.0)
    (std,) = now.job.stds[Phase.MOMENTS]
    (charge,) = now.plan.programs[Phase.MOMENTS].charges
    assert charge.mu_squared(std / charge.clip) == pytest.approx(0.2 * (now.plan.mu or 0) ** 2, rel=1e-9)
    uploads = answer(policy, now.request())
    both = np.concatenate([uploads["upload0"], uploads["upload1"]]).astype(np.float64) * 3
    assert np.std(both) == pytest.approx(std, rel=0.05)
    assert unrelated(np.split(both, 2))


# --- secure sums --------------------------------------------------------------------------------------------


def summing(folder: Path, count: int, features: int) -> list[Policy]:
    """Nodes of silent records that know each other's mask keys."""
    x = np.zeros((4, features), np.float32)
    made = [make_node(folder / f"n{i}", x, np.zeros(4, int), f"n{i}", 2, epsilon=90.0) for i in range(count)]
    return introduced(made, count)


@pytest.mark.slow
def test_rounds_of_a_secure_sum_have_noise_of_their_own_and_of_the_priced_size(tmp_path: Path):
    """The same question in three rounds: the words' sums differ by fresh noise, A·s/sqrt(3) from each client."""
    pytest.importorskip("cryptography")
    nodes = summing(tmp_path, 3, 1500)
    now = start(nodes, Order(recipe="paper", method="fedgd", epsilon=8.0, rounds=3, trust="secure-sum", clients=3))
    request, numbers = now.request(), 1501 * 2
    std = Shares.of(now.job.peers, "uniform").std(now.job.stds[Phase.ROUND][0], 20.0, numbers)
    sums = []
    for t in range(3):
        words = [answer(p, request._replace(round=t))["upload0"] for p in nodes]
        total = words[0] + words[1] + words[2]
        sums.append(total.view(np.int64).astype(np.float64) * std * 2.0**-32)
    noise = [a - b for a, b in combinations(sums, 2)]
    assert unrelated([noise[0], sums[2] - np.mean(sums[:2], axis=0)])
    for difference in noise:
        assert np.std(difference) == pytest.approx(std * math.sqrt(6), rel=0.08)
    assert std * math.sqrt(3) == pytest.approx(now.plan.noise_std, rel=1e-6)


@pytest.mark.parametrize("settings", [(), (("noise", "diagonal"),)], ids=["tree", "diagonal"])
def test_noise_laid_out_over_the_rounds_is_not_shared(tmp_path: Path, settings: tuple):
    """Shares of it do not add up to the layout that is priced."""
    pytest.importorskip("cryptography")
    nodes = summing(tmp_path, 2, 3)
    order = Order(recipe="paper", method="ftrl", epsilon=8.0, rounds=3, clients=2, settings=settings)
    with pytest.raises(InputError, match="a secure sum needs"):  # our server does not begin
        start(nodes, replace(order, trust="secure-sum"))
    request = start(nodes, order).request()
    asked = with_terms(request, trust="secure-sum", peers=(("n0", 4), ("n1", 4)))
    with pytest.raises(Refused, match="needs full noise"):  # and a node does not answer another's
        answer(nodes[0], asked)


def test_masks_of_two_rounds_have_nothing_in_common(tmp_path: Path):
    pytest.importorskip("cryptography")
    names = ("a", "b")
    public = {n: new_key(tmp_path / n) for n in names}
    secrets = pair_secrets("a", tmp_path / "a", public, names)
    request = started(make_nodes(tmp_path / "nodes")).request()
    first, second = (masks("a", secrets, request._replace(round=t).digest(), MANY) for t in (0, 1))
    assert not np.any(first == second)
    assert unrelated([(m >> np.uint64(11)).astype(np.float64) for m in (first, second)])


def test_the_share_of_each_client_follows_from_the_largest_factor():
    """A = max a_i: each of n clients draws A·s/sqrt(n); who counts less is charged less."""
    peers = [("a", 10), ("b", 20), ("c", 40)]
    shares = Shares.of(peers, "uniform")
    assert shares.factors == pytest.approx([1 / 30, 1 / 60, 1 / 120])
    assert shares.std(6.0, 20.0, 10) == pytest.approx(6.0 / 30 / math.sqrt(3), rel=1e-6)
    assert shares.std(6.0, 20.0, 10) > 6.0 / 30 / math.sqrt(3)  # rounding is paid for
    assert [shares.multiplier(n, 6.0, 3) for n in "abc"] == pytest.approx([6.0, 12.0, 24.0])
    assert shares.multiplier("b", 6.0, 2) == pytest.approx(12.0 * math.sqrt(2 / 3))
    assert shares.multiplier("b", 6.0, 9) == pytest.approx(12.0)
    assert Shares.of(peers, "size").factors == pytest.approx([1 / 70] * 3)


@pytest.mark.parametrize("weights", ["uniform", "size"])
def test_every_clients_rounding_is_paid_for(weights: str):
    """On the lattice a record of client i moves the sum by a_i·Δ + g·sqrt(d), hidden as well as a_i·Δ would be."""
    shares, delta, d = Shares.of([("a", 1), ("b", 400)], weights), 20.0, 10**12
    std = shares.std(6.0, delta, d)
    wanted = max(shares.factors) * 6.0 / math.sqrt(2)
    for factor in shares.factors:
        assert (factor * delta + std * 2.0**-32 * math.sqrt(d)) / std <= factor * delta / wanted * (1 + 1e-12)
    assert std < 1.5 * wanted


def test_secrets_of_pairs_come_from_their_keys(tmp_path: Path):
    pytest.importorskip("cryptography")
    names = ("a", "b", "c")
    found = []
    for again in ("first", "second"):
        folder = tmp_path / again
        folder.mkdir()
        public = {n: new_key(folder / n) for n in names}
        found += pair_secrets("a", folder / "a", public, names).values()
    assert len(set(found)) == 4


# --- exact draws, word by word ------------------------------------------------------------------------------


class Scripted(Bits):
    """A stream that gives just these words, one at a time."""

    def __init__(self, *words: int) -> None:
        super().__init__(b"")
        self.script = list(words)

    def words(self, count: int) -> np.ndarray:
        return np.array([self.script.pop(0) for _ in range(count)], np.uint64)


def test_a_draw_just_below_zero_is_rounded_down():
    """Whole part 0 (a falling run of one), fraction 0, kept, sign minus: floor(-0) from below is -1."""
    whole, fraction, kept, sign = (0, 5), (0,), (0, 0, 0), (1 << 63,)
    assert lattice_normal(Scripted(*whole, *fraction, *kept, *sign), 1) == -1
    assert lattice_normal(Scripted(*whole, *fraction, *kept, 0), 1) == 0


def test_words_of_the_incomplete_last_stretch_are_drawn_again():
    """2^64 - 1 is a multiple of 3, so 2^64 - 1 itself would make 0 likelier than 1 and 2."""
    assert noise._below(Scripted(2**64 - 1, 4), np.array([3], np.uint64)) == 1


def test_the_lattice_is_paid_for_by_the_sensitivity_of_the_site():
    """What leaves shows its lattice: with step g = s·2^-32, s must be `lattice_std` of the site's own ratio·clip."""
    clip, std = 1e-3, 1e3  # a million times the clip: rounding counts
    upload = np.asarray(released(lambda door: door.sum(values, clip=clip), SILENT, {0: std}))
    step = lattice_std(std, 2 * clip, MANY) * 2.0**-32
    whole = upload / step
    assert np.abs(whole - np.rint(whole)).max() < 1e-2
    assert step * 2.0**32 > std * (1 + 1e-3)
