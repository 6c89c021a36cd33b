"""A client's program under deployment noise: the simulator's sums, noise as asked, records sampled from secret bits."""

import itertools
import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedsofim.core.clipping import GUARD
from fedsofim.core.mechanisms import Diagonal, Independent, Mechanism, Tree
from fedsofim.core.phase import Phase
from fedsofim.core.programs import read_programs
from fedsofim.deploy.execute import Secrets, run
from fedsofim.errors import Refused
from fedsofim.methods import make
from node_programs import HEAD, SECRETS, inputs_for, public_for, released, shapes_for, values
from nodes import METHODS, X, Y, leaves, same_bits

X, Y = X[:20], Y[:20]

# --- the simulator's sums -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_without_noise_it_is_the_simulators_release(name: str):
    method = make(name)
    shapes = shapes_for(method, X, Y)
    for phase, program in read_programs(method, HEAD, (), public_for(X, Y)).items():
        inputs = inputs_for(shapes if phase is Phase.ROUND else replace(shapes, state=(), memory=()), X, Y)
        wanted = program(inputs)
        ours = run(program, inputs, {site.number: 0.0 for site in program.sites}, SECRETS)
        assert jax.tree.structure(ours) == jax.tree.structure(wanted)
        assert leaves(ours)
        for a, b in zip(leaves(ours), leaves(wanted), strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            # both clip a little below the clip: a node by 1e-9 of it, the simulator by GUARD
            np.testing.assert_allclose(a, b, rtol=0, atol=3 * GUARD * np.abs(b).max() + 1e-6)


@pytest.mark.parametrize("name", METHODS)
def test_the_simulators_noise_is_never_used(name: str, monkeypatch):
    method = make(name)
    clip = 2.34375 + METHODS.index(name) / 64  # of this test alone, so that nothing compiled before is met again
    program = read_programs(method, HEAD, (), public_for(X, Y, clip))[Phase.ROUND]
    inputs = inputs_for(shapes_for(method, X, Y), X, Y)

    def forbidden(*a: Any, **k: Any) -> Any:
        raise AssertionError("the simulator's noise")

    for where in ("jax.random.normal", "jax.random.bits", "jax.random.uniform", "jax.random.bernoulli",
                  "fedsofim.core.release.noisy", "fedsofim.core.clipped_sums.draw_tree",
                  "fedsofim.core.mechanisms.draw_tree"):  # fmt: skip
        monkeypatch.setattr(where, forbidden)
    with pytest.raises(AssertionError, match="the simulator's noise"):
        program(inputs)  # so the trap works
    stds = {site.number: 5.0 for site in program.sites}
    first = run(program, inputs, stds, SECRETS)
    other_key = run(program, replace(inputs, key=jax.random.key(1)), stds, SECRETS)
    other_stds = run(program, replace(inputs, stds=inputs.stds + jnp.float32(9)), stds, SECRETS)
    assert same_bits(first, other_key)
    assert same_bits(first, other_stds)
    other = run(program, inputs, stds, Secrets(bytes(range(1, 33)), bytes(range(2, 34))))
    assert not same_bits(first, other)


# --- noise --------------------------------------------------------------------------------------------------

WIDE = np.random.default_rng(3).normal(size=(6, 3000))


def clipped_sum(x: np.ndarray, clip: float) -> np.ndarray:
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    return (x * np.minimum(1, clip / norms)).sum(axis=0)


@pytest.mark.parametrize("clip", [1.0, 500.0])
@pytest.mark.parametrize(
    "mechanism, round, scale",
    [(Independent(1.0), 0, 1.0), (Independent(2.0), 2, 2.0), (Tree(), 0, 1.0), (Tree(), 1, math.sqrt(2))],
    ids=str,
)
def test_noise_is_of_the_size_asked_around_the_clipped_sum(mechanism: Mechanism, round: int, scale: float, clip: float):
    std = 3.7
    out = released(lambda door: door.sum(values, noise=mechanism), WIDE, {0: std}, rounds=4, clip=clip, round=round)
    z = (np.asarray(out) - clipped_sum(WIDE, clip)) / (std * scale)
    assert stats.kstest(z, "norm").pvalue > 0.01  # type: ignore[attr-defined]
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(z * wrong, "norm").pvalue < 1e-12  # type: ignore[attr-defined]
    assert abs(z.mean()) < 4 / math.sqrt(len(z))


@pytest.mark.parametrize("round", [0, 3])
def test_a_schedule_is_followed(round: int):
    mechanism = Diagonal(4)
    out = released(lambda door: door.sum(values, noise=mechanism), WIDE * 0, {0: 2.0}, rounds=4, round=round)
    unit = math.sqrt(sum(math.sqrt(k) for k in range(1, 5)) / 4)
    assert np.std(out) == pytest.approx(2.0 * unit * (4 - round) ** -0.25, rel=0.06)


def test_several_leaves_have_noise_of_their_own_each():
    out = released(lambda door: door.sum(lambda x, y: {"a": values(x, y), "b": values(x, y)}), WIDE * 0, {0: 2.0})
    assert np.std(out["a"]) == pytest.approx(2.0, rel=0.06)
    assert abs(np.corrcoef(out["a"], out["b"])[0, 1]) < 0.1


def test_two_releases_have_noise_of_their_own_each():
    out = released(lambda door: (door.sum(values), door.sum(values)), WIDE * 0, {0: 2.0, 1: 3.0})
    assert np.std(out[0]) == pytest.approx(2.0, rel=0.06)
    assert np.std(out[1]) == pytest.approx(3.0, rel=0.06)
    assert abs(np.corrcoef(*out)[0, 1]) < 0.1


def test_local_steps_have_noise_of_their_own_each():
    def client(door):
        def step(door, carry):
            return jnp.concatenate([carry[1:], door.sum(values)[None]])

        return door.scan(step, jnp.zeros((4, WIDE.shape[1]), jnp.float64), 4)

    out = np.asarray(released(client, WIDE * 0, {1: 2.0}))  # site 0 is the scan itself
    assert np.std(out, axis=1) == pytest.approx(2.0, rel=0.06)
    for a, b in itertools.combinations(out, 2):
        assert abs(np.corrcoef(a, b)[0, 1]) < 0.1


def test_a_symmetric_release_has_symmetric_noise():
    out = np.asarray(released(lambda door: door.second_moment(values, clip=1.0), WIDE[:, :60] * 0, {0: 2.0}))
    assert np.array_equal(out, out.T)
    assert np.std(np.diag(out)) == pytest.approx(2.0, rel=0.3)
    assert np.std(out[np.triu_indices(60, 1)]) == pytest.approx(2.0 / math.sqrt(2), rel=0.08)


@pytest.mark.slow
def test_what_comes_back_in_later_rounds_is_the_jobs_and_the_rest_is_fresh():
    def noise_of(mechanism: Mechanism, secrets: Secrets) -> np.ndarray:
        out = released(lambda door: door.sum(values, noise=mechanism), WIDE * 0, {0: 1.0}, secrets, rounds=4)
        return np.asarray(out)

    other_request = Secrets(bytes(range(9, 41)), SECRETS.job)
    other_job = Secrets(SECRETS.own, bytes(range(9, 41)))
    tree, independent = (noise_of(m, SECRETS) for m in (Tree(), Independent()))
    assert np.array_equal(tree, noise_of(Tree(), other_request))
    assert not np.any(tree == noise_of(Tree(), other_job))
    assert not np.any(independent == noise_of(Independent(), other_request))
    assert np.array_equal(independent, noise_of(Independent(), other_job))


def test_noise_the_lattice_cannot_hold_is_refused():
    for std in (1e-9, 1e12):
        with pytest.raises(Refused, match="lattice"):
            released(lambda door: door.sum(values), WIDE, {0: std})


# --- sampling -----------------------------------------------------------------------------------------------


def counted(secrets: Secrets, rate: float, records: int = 20_000) -> int:
    """How many records a sampled release of ones adds up."""
    client = lambda door: door.sum(lambda x, y: jnp.ones(1, jnp.float64), sample=rate)  # noqa: E731
    return round(float(released(client, np.zeros((records, 1)), {0: 0.0}, secrets)[0]))


@pytest.mark.parametrize("rate", [0.02, 0.5, 0.9])
def test_records_are_sampled_at_the_rate_from_this_requests_bits(rate: float):
    counts = [counted(Secrets(bytes([i]) * 32, bytes(32)), rate) for i in range(3)]
    assert len(set(counts)) == 3
    for count in counts:
        assert stats.binomtest(count, 20_000, rate).pvalue > 1e-3
    assert counted(Secrets(bytes(32), bytes(range(32))), rate) == counts[0]  # the job's secret has no part in it


def test_local_steps_sample_anew():
    def client(door):
        def step(door, carry):
            return jnp.concatenate([carry[1:], door.sum(values, sample=0.5)[None]])

        return door.scan(step, jnp.zeros((2, 40), jnp.float64), 2)

    first, second = np.asarray(released(client, np.eye(40), {1: 0.0}))
    assert set(np.rint(first)) | set(np.rint(second)) == {0.0, 1.0}
    assert 5 < np.sum(first != second) < 35
