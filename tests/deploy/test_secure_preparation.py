"""A preparation under secure summation: the sum is right, its noise is what was priced, and no phase shares a mask."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("cryptography")

import fedsofim as fs
from fedsofim.core.budget import NO_PRIVACY
from fedsofim.core.feature_moments import FeatureMoments
from fedsofim.core.phase import Phase
from fedsofim.core.preparation import Centred, ColumnScales, Step, UnitNorm, Whitened, prepared
from fedsofim.core.queries import half_of
from fedsofim.deploy.account import Account
from fedsofim.deploy.job_state import JobState
from fedsofim.deploy.node import consider
from fedsofim.deploy.order import Order
from fedsofim.deploy.policy import Policy
from fedsofim.deploy.secure_sum import masks, pair_secrets
from fedsofim.deploy.server import step
from fedsofim.deploy.uploads import faults
from fedsofim.errors import InputError
from fedsofim.simulation.preparing import mapped
from node_sums import introduced, prepare_by, summing_nodes
from nodes import SMALL, ask_all, finish, make_node, refusal, spent, start

ALL: tuple[Step, ...] = (ColumnScales(0.01), UnitNorm(), Whitened(0.1, 0.25))


def order(**changed: Any) -> Order:
    return Order(**({"recipe": "auto", "epsilon": 1.0, "rounds": 1, "trust": "secure-sum"} | changed))


@pytest.mark.slow
def test_the_sums_are_the_weighted_means_of_what_was_clipped(tmp_path: Path):
    """The recipe's three phases with hardly any noise: released and trained as the simulator does without."""
    policies = summing_nodes(tmp_path, epsilon=1e9, smallest_multiplier=1e-9)
    now = finish(policies, start(policies, order(epsilon=1e8)))
    assert list(now.released) == [Phase.SCALES, Phase.MOMENTS]
    steps = now.plan.preparation
    std = {Phase.SCALES: now.plan.mean_std(Phase.SCALES)}
    # mapped by what the nodes released, so that the noise of the scales does not count as an error of the moments
    scaled = mapped(SMALL, prepared(steps[:1], now.released, std))
    for split, own, phase in ((SMALL, steps, Phase.SCALES), (scaled, steps[1:], Phase.MOMENTS)):
        run = fs.train(split, budget=NO_PRIVACY, rounds=1, preparation=own)
        for key, value in run.prepared.released[phase].items():
            assert now.released[phase][key].shape == value.shape
            np.testing.assert_allclose(now.released[phase][key], value, atol=2e-3)
    second = now.released[Phase.MOMENTS]["second"]
    assert np.array_equal(second, second.T)


@pytest.mark.parametrize("weights", ["uniform", "size"])
def test_what_travels_of_a_second_moment_is_its_half(tmp_path: Path, monkeypatch, weights: str):
    prepare_by(monkeypatch, UnitNorm(), Whitened(0.5, 0.25))
    policies = summing_nodes(tmp_path, epsilon=1e9, smallest_multiplier=1e-9)
    now = start(policies, order(epsilon=1e8, weights=weights))
    uploads = ask_all(policies, now)
    assert {u["upload0"].shape for u in uploads.values()} == {(10,)}  # of 4 x 4
    assert faults(now, uploads) == {}
    whole = uploads | {"n1": {"upload0": np.zeros(16, np.uint64)}}
    assert "expected uint64[10]" in faults(now, whole)["n1"]
    x = SMALL.dataset.x_train / np.linalg.norm(SMALL.dataset.x_train, axis=1, keepdims=True)
    vectors = np.concatenate([x, np.full((len(x), 1), 0.5)], axis=1)
    means = [vectors[part].T @ vectors[part] / len(part) for part in SMALL.parts]
    found = step(now, uploads).released[Phase.MOMENTS]["second"]
    np.testing.assert_allclose(found, np.tensordot(now.plan.client_weights, means, 1), atol=2e-3)


# --- noise --------------------------------------------------------------------------------------------------


def silent(folder: Path, features: int) -> list[Policy]:
    """Three nodes of unequal size whose records are zeros: what they release beyond what is known is noise."""
    made = []
    for i, size in enumerate((4, 6, 9)):
        x = np.zeros((size, features), np.float32)
        made.append(make_node(folder / f"n{i}", x, np.zeros(size, int), f"n{i}", 2, epsilon=1e3))
    return introduced(made, 3)


def noise_of(now: JobState, policies: list[Policy]) -> np.ndarray:
    """The noise in the mean of the phase that a job is at, as a vector on which it is independent."""
    found = step(now, ask_all(policies, now)).released[now.phase]
    if "largest" in found:
        return np.concatenate([found["size"], found["there"], [found["largest"] + 1]])  # zeros have no size at all
    if found.get("second", np.zeros(0)).ndim == 2:
        known = np.zeros_like(found["second"])
        known[-1, -1] = 0.25  # of [0; 1/2]
        return np.asarray(half_of(jnp.asarray(found["second"] - known)))
    return np.concatenate([found[key] for key in sorted(found)])


STEPS: dict[str, tuple[Step, int]] = {
    "column scales": (ColumnScales(0.05), 1500),
    "mean": (Centred(0.1), 3000),
    "second moment": (Whitened(0.2, 0.25), 77),
    "feature moments": (FeatureMoments(0.3), 1500),
}


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["uniform", "size"])
@pytest.mark.parametrize("name", STEPS)
def test_its_noise_is_what_was_priced(tmp_path: Path, monkeypatch, name: str, weights: str):
    """About 3000 numbers: a standard error of 1.3 %. At full noise of each client it would be 20 % off and more."""
    one, features = STEPS[name]
    prepare_by(monkeypatch, one)
    policies = silent(tmp_path, features)
    now = start(policies, order(epsilon=2.0, weights=weights))
    noise, planned = noise_of(now, policies), now.plan.mean_std(now.phase)
    assert np.std(noise) == pytest.approx(planned, rel=0.07)
    (charge,), (std,) = now.plan.programs[now.phase].charges, now.job.stds[now.phase]
    assert charge.mu_squared(std / charge.clip) == pytest.approx(one.share * (now.plan.mu or 0) ** 2, rel=1e-9)  # type: ignore[attr-defined]
    assert planned == pytest.approx(std * now.plan.factors.max(), rel=1e-12)
    alone = replace(now.plan, trust="local").mean_std(now.phase)
    assert alone > 1.2 * planned


def test_every_phase_has_masks_and_noise_of_its_own(tmp_path: Path, monkeypatch):
    """The same numbers asked for in another phase or another job: nothing of one helps against the other."""
    prepare_by(monkeypatch, *ALL)
    policies = summing_nodes(tmp_path)
    now = start(policies, order())
    request = now.request()
    assert len({request._replace(phase=phase).digest() for phase in Phase}) == len(Phase)
    first, other = policies[0], request._replace(phase=Phase.MOMENTS)
    assert first.mask_key is not None
    secrets = pair_secrets("n0", first.mask_key, dict(first.peers), [p.name for p in policies])
    mine, theirs = (masks("n0", secrets, r.digest(), 50) for r in (request, other))
    assert (mine != theirs).all()
    again = replace(now, job=replace(now.job, id="again"))
    released = [step(at, ask_all(policies, at)).released[Phase.SCALES]["size"] for at in (now, again)]
    assert not np.any(released[0] == released[1])


# --- price --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["uniform", "size"])
def test_each_node_is_charged_for_every_phase_and_at_most_the_budget(tmp_path: Path, monkeypatch, weights: str):
    prepare_by(monkeypatch, *ALL)
    policies = summing_nodes(tmp_path)
    now = start(policies, order(weights=weights))
    assert consider(policies[0], now.job)["epsilon"] == pytest.approx(1.0, rel=1e-6)  # the smallest
    now = finish(policies, now)
    labels = [f"{what} (secure sum of 3)" for what in ("column scales", "feature second moment", "gradient")]
    mu = now.plan.mu or 0
    for policy, factor in zip(policies, now.plan.factors / now.plan.factors.max(), strict=True):
        lines = [line for _, line in Account(policy.ledger).entries()]
        assert [line.label for line in lines] == labels
        squares = [line.weight * (line.ratio / line.multiplier) ** 2 for line in lines]
        assert squares[:2] == pytest.approx([0.01 * (factor * mu) ** 2, 0.1 * (factor * mu) ** 2], rel=1e-9)
    assert max(spent(p) for p in policies) == pytest.approx(1.0, rel=1e-6)


def test_masks_that_do_not_cancel_are_noticed_in_a_preparation_too(tmp_path: Path, monkeypatch):
    prepare_by(monkeypatch, *ALL)
    policies = summing_nodes(tmp_path)
    now = start(policies, order())
    other = replace(now, params=now.params + 1.0)
    uploads = ask_all(policies, now) | {"n2": ask_all(policies[2:], other)["n2"]}
    with pytest.raises(InputError, match="masks do not cancel"):
        step(now, uploads)


def test_a_setup_is_never_summed(tmp_path: Path):
    policies = summing_nodes(tmp_path)
    request = start(policies, order(recipe="paper", method="fedgd")).request()
    setup = request._replace(phase=Phase.SETUP, job=replace(request.job, method="fedfc", settings={}))
    assert "a method's setup needs full noise" in refusal(policies[0], setup)
    with pytest.raises(InputError, match="a secure sum needs"):
        start(policies, order(method="fedfc"))
