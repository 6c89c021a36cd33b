"""Secure sums that can do without some clients: exact whoever is lost and when, priced for the fewest, never fewer."""

import math
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("cryptography")

import fedsofim as fs
from fedsofim.core.plan import make_plan
from fedsofim.deploy import execute
from fedsofim.deploy.job_state import JobState
from fedsofim.deploy.node import consider
from fedsofim.deploy.presence import noise_std_of
from fedsofim.deploy.secure_sum import Shares, fewest_safe, in_units, masked, step_of
from fedsofim.deploy.server import step
from fedsofim.deploy.unmasking import TooFew, found_again, kept, open_sum_of, unmasked
from fedsofim.errors import InputError, Refused
from node_sums import FIVE, helping, prepare_by, summing_nodes
from node_sums import order_of_five as order
from nodes import ask_all, charges, refusal, spent, start
from toy import make_toy

ALL = ("n0", "n1", "n2", "n3", "n4")


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """What each node released, noise and all, before its masks: in the order of the answers."""
    seen: list[np.ndarray] = []

    def spy(whole: np.ndarray, noise: np.ndarray, mask: np.ndarray) -> np.ndarray:
        seen.append(whole + noise)
        return masked(whole, noise, mask)

    monkeypatch.setattr(execute, "masked", spy)
    return seen


@pytest.mark.parametrize(
    "before, after",
    [
        ((), ()), (("n1",), ()), (("n0", "n4"), ()), ((), ("n2",)), ((), ("n0", "n3")), (("n4",), ("n0",)),
        (("n2", "n3"), ("n4",)),
    ],
)  # fmt: skip
def test_the_sum_is_exact_whoever_is_lost_before_the_upload_or_after(five, job, bare, before, after) -> None:
    now = job()
    uploads = ask_all([p for p in five if p.name not in before], now)
    opening = open_sum_of(now, uploads)
    assert opening is not None and opening.lost == before
    away = {*before, *after}
    if before and len(ALL) - len(away) < 3:  # late ones who were not summed may help, if they answered
        with pytest.raises(TooFew, match="3 are needed"):
            unmasked(opening, helping(five, away))
        ask_all([p for p in five if p.name in before], now)
        away = {*after}
    expected = sum(bare[: len(uploads)])
    assert np.array_equal(unmasked(opening, helping(five, away)).view(np.int64), expected)


def test_with_fewer_than_enough_nothing_is_opened_and_nothing_lost(five, job) -> None:
    now = job()
    uploads = ask_all(five, now)
    with pytest.raises(InputError, match=r"sound upload of 3 clients; missing: \['n2', 'n3', 'n4'\]"):
        step(now, {name: uploads[name] for name in ("n0", "n1")}, helping(five))
    four = {name: uploads[name] for name in ALL[:4]}
    with pytest.raises(TooFew, match=r"2 clients agreed .* 3 are needed.*Nothing is lost"):
        step(now, four, helping(five, away=("n0", "n1", "n4")))
    charged = [charges(p) for p in five]
    after = step(now, four, helping(five, away=("n4",)))  # they are back
    assert after.absent == {now.round: ("n4",)} and after.round == now.round + 1
    assert [charges(p) for p in five] == charged  # opening costs nothing


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["uniform", "size"])
def test_the_step_is_the_weighted_mean_of_who_was_there(tmp_path, weights) -> None:
    """With hardly any noise: the simulator's step on the records of those clients."""
    policies = summing_nodes(tmp_path, trusted=5, data=FIVE, epsilon=1e9, smallest_multiplier=1e-6)
    now = start(policies, order(epsilon=1e8, rounds=1, weights=weights))
    present = policies[:3]
    after = step(now, ask_all(present, now), helping(present))
    three = replace(FIVE, parts=FIVE.parts[:3])
    how: dict = {"weights": weights, "recipe": "paper", "rounds": 1}
    expected = fs.train(three, fs.make("fedgd", {"lr": 1.0}), fs.NO_PRIVACY, **how).params
    np.testing.assert_allclose(np.asarray(after.params), np.asarray(expected), atol=1e-2)


# --- noise and price ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_any_that_are_enough_have_the_planned_noise(tmp_path, bare) -> None:
    """Each draws A·s/sqrt(t): about 3600 draws, a standard error of 1.2 %."""
    wide = make_toy(sizes=(7, 20, 12, 9, 15), features=400)
    policies = summing_nodes(tmp_path, trusted=5, data=wide, epsilon=1.0)
    now = start(policies, order())
    three = ask_all(policies[2:], now)
    opening = open_sum_of(now, three)
    assert opening is not None
    (site,), full = now.program.sites, now.job.stds[now.phase][0]
    shares = Shares.of(now.job.peers, now.job.weights, 3)
    std = shares.std(full, 2 * site.clip, len(opening.total))
    found = in_units(unmasked(opening, helping(policies[2:])), step_of(std))
    planned = full * max(shares.factors)
    assert np.std(found) == pytest.approx(planned, rel=0.06)  # the gradients themselves are small beside it
    assert std * math.sqrt(3) == pytest.approx(planned, rel=1e-6)
    assert now.plan.noise_std == pytest.approx(planned * math.sqrt(5 / 3), rel=1e-12)
    assert noise_std_of(now, ["n2", "n3", "n4"]) == pytest.approx(planned / 0.6, rel=1e-12)


@pytest.mark.slow
def test_the_ledger_and_the_simulators_price_agree_and_are_for_the_fewest(tmp_path) -> None:
    five = summing_nodes(tmp_path, trusted=5, data=FIVE)
    now = start(five, order(rounds=2))
    for _ in range(2):
        now = step(now, ask_all(five, now), helping(five))
    assert max(spent(p) for p in five) == pytest.approx(1.0, rel=1e-6)  # though five drew noise: three might have
    how: dict = {"sizes": FIVE.sizes, "shape": (3,), "classes": 3, "rounds": 2, "clip": now.plan.clip}
    plan = make_plan(
        fs.make("fedgd"), fs.softmax_head(), budget=fs.Budget(1.0), trust="secure-sum", min_clients=3, **how
    )
    assert plan.noise_std == now.plan.noise_std == pytest.approx(now.job.noise_std)
    assert plan.epsilon == pytest.approx(max(spent(p) for p in five), rel=1e-6)


def test_a_node_charges_for_the_colluders_that_the_worst_subset_has(tmp_path) -> None:
    policies = summing_nodes(tmp_path, trusted=4, data=FIVE, epsilon=100.0)
    now = start(policies, order(min_clients=4))
    ask_all(policies, now)
    shares = Shares.of(now.job.peers, now.job.weights, 4)
    for policy in policies:
        ((_, line),) = policy.account.entries()
        assert line.label == "gradient (secure sum of 4 of 5)"
        alone = shares.multiplier(policy.name, now.job.stds[now.phase][0] / line.clip, 4)
        assert line.multiplier == pytest.approx(alone * math.sqrt(3 / 4), rel=1e-9)  # of 4 that sum, 3 are honest


def test_a_node_refuses_where_its_colluders_could_have_two_sums(tmp_path) -> None:
    policies = summing_nodes(tmp_path, trusted=4, data=FIVE, epsilon=100.0)
    now = start(policies, order(min_clients=3))
    assert "Order min-clients 4" in refusal(policies[0], now.request())
    with pytest.raises(Refused, match="could be split into two sums"):
        consider(policies[0], now.job)
    for n in range(2, 12):
        for trusted in range(1, n + 1):
            t = fewest_safe(n, n, trusted)
            assert 2 * t > n + (n - trusted) >= 2 * (t - 1) and t <= n


@pytest.mark.parametrize("few", [0, 1, 2, 6])
def test_an_order_for_too_few_is_an_error_before_any_node_is_asked(five, few: int) -> None:
    with pytest.raises(InputError, match=r"min.clients is"):
        start(five, order(min_clients=few))


# --- preparation, and a coordinator that comes back ---------------------------------------------------------


@pytest.mark.slow
def test_a_preparation_is_opened_the_same_way_and_needs_everybodys_upload(tmp_path, bare, monkeypatch) -> None:
    from fedsofim.core.preparation import Centred

    prepare_by(monkeypatch, Centred(0.1))
    five = summing_nodes(tmp_path, trusted=5, data=FIVE)
    now = start(five, order(recipe="auto", method="fedgd"))
    uploads = ask_all(five, now)
    opening = open_sum_of(now, uploads)
    assert opening is not None
    assert np.array_equal(unmasked(opening, helping(five, away=("n1", "n3"))).view(np.int64), sum(bare))
    with pytest.raises(InputError, match="every client"):
        step(now, {name: uploads[name] for name in ALL[:4]}, helping(five))
    after = step(now, uploads, helping(five, away=("n1", "n3")))
    assert after.phase != now.phase and after.absent == {}


def test_an_open_sum_is_found_again_and_only_for_its_own_question(five, job) -> None:
    now: JobState = job()
    opening = open_sum_of(now, ask_all(five[:4], now))
    assert opening is not None
    found = found_again(now, kept(opening))
    assert found is not None and found.present == ALL[:4]
    assert np.array_equal(unmasked(found, helping(five[:4])), unmasked(opening, helping(five[1:4])))
    assert found_again(replace(now, round=now.round + 1), kept(opening)) is None
    assert found_again(now, kept(opening)[:-50]) is None
