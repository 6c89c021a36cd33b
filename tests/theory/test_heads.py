"""Constants of a head: bounds that hold wherever one looks, met somewhere, and honest about what they read."""

import math

import numpy as np
import pytest

import fedsofim as fs
from fedsofim.core.phase import Phase
from fedsofim.simulation.preparing import prepare
from fedsofim.simulation.training import Given, planned
from fedsofim.theory import complexity
from fedsofim.theory.heads import from_radius, from_records, from_released
from toy import make_toy

RIDGE, CLIP = 0.02, 2.0


def parts(split: fs.Split, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x̃, every record's gradient and its weight in F, for uniform client weights."""
    x, y = split.dataset.x_train.astype(float), split.dataset.y_train
    x = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    z = x @ theta
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(y)), y] -= 1
    a = np.zeros(len(y))
    for rows in split.parts:
        a[rows] = 1 / (len(split.parts) * len(rows))
    return x, x[:, :, None] * p[:, None, :] + RIDGE * theta, a


def test_the_bounds_hold_at_random_parameters():
    split = make_toy()
    k, random = from_records(split, C_g=CLIP, ridge=RIDGE), np.random.default_rng(0)
    reach = math.sqrt(2 * math.log(split.dataset.classes) / RIDGE)
    width, classes = split.dataset.features + 1, split.dataset.classes
    steepest = 0.0
    for scale in (0.0, 0.3, 1.0):
        theta = random.normal(size=(width, classes))
        theta *= scale * reach / np.linalg.norm(theta)
        _, g, a = parts(split, theta)
        lengths = np.linalg.norm(g, axis=(1, 2))
        gradient = np.einsum("j,jkc->kc", a, g)
        clipped = np.einsum("j,jkc->kc", a * np.minimum(1, CLIP / lengths), g)
        assert np.linalg.norm(gradient) <= k.G_max
        assert np.linalg.norm(clipped - gradient) <= k.zeta_max
        near = theta + 1e-5 * (step := random.normal(size=theta.shape))
        change = np.einsum("j,jkc->kc", a, parts(split, near)[1]) - gradient
        ratio = np.linalg.norm(change) / np.linalg.norm(1e-5 * step)
        assert RIDGE * (1 - 1e-6) <= ratio <= k.L
        steepest = max(steepest, float(ratio))
        if scale == 0:
            assert np.linalg.norm(gradient) == pytest.approx(k.start_gradient)
    assert k.d == width * classes and k.gap == pytest.approx(math.log(classes))
    assert k.mu == RIDGE and k.condition == pytest.approx(k.L / RIDGE)
    assert not k.private and "clear" in k.how


def test_smoothness_is_met_with_two_classes_along_the_longest_direction():
    """λ_max(S)/2 is the Hessian's at θ = 0 along (v, -v): a tenth less would be wrong."""
    random = np.random.default_rng(1)
    x, y = random.normal(size=(60, 3)) * [3, 1, 1], random.integers(0, 2, 60)
    data = fs.Dataset.of("two", x_train=x, y_train=y, x_test=x[:2], y_test=y[:2])
    split = fs.split(data, clients=1, iid=True)
    k = from_records(split, C_g=CLIP, ridge=RIDGE)
    rows, _, a = parts(split, np.zeros((4, 2)))
    v = np.linalg.eigh((rows * a[:, None]).T @ rows)[1][:, -1]
    u = np.stack([v, -v], axis=1) / math.sqrt(2)
    g0, g1 = (np.einsum("j,jkc->kc", a, parts(split, h * u)[1]) for h in (0.0, 1e-6))
    assert np.linalg.norm(g1 - g0) / 1e-6 == pytest.approx(k.L, rel=1e-4)
    by_size = from_records(split, C_g=CLIP, ridge=RIDGE, weights="size")
    assert by_size.L == pytest.approx(k.L)  # noqa: SIM300


def test_a_public_radius_gives_bounds_that_no_record_was_read_for():
    split = make_toy()
    x = split.dataset.x_train
    radius = math.sqrt(float(np.max(np.sum(x.astype(float) ** 2, axis=1))) + 1)
    public = from_radius(radius, features=x.shape[1], classes=split.dataset.classes, C_g=CLIP, ridge=RIDGE)
    read = from_records(split, C_g=CLIP, ridge=RIDGE)
    assert public.private
    for name in ("L", "G_max", "zeta_max", "start_gradient"):
        assert getattr(public, name) >= getattr(read, name)
    assert from_radius(1.0, features=3, classes=3, C_g=1.5 * math.sqrt(2), ridge=1e-4).zeta_max == 0.0


@pytest.mark.slow
def test_a_released_second_moment_gives_smoothness_at_its_price():
    """The engine's own release, of unit records beside the constant 1/2: above the truth, below what is public."""
    split = fs.split(fs.load("digits"), clients=2, iid=True)
    steps = (fs.UnitNorm(), fs.Whitened(0.1, 0.1))
    plan, _ = planned(split, fs.Budget(2.0), recipe="auto", trust="local", given=Given(preparation=steps))
    unit = fs.UnitNorm().fitted({}, 0.0)(split.dataset.x_train)
    rows = np.concatenate([unit, np.full((len(unit), 1), 0.5)], axis=1)
    exact = float(np.linalg.eigvalsh(rows.T.astype(float) @ rows / len(rows))[-1])
    found = []
    for seed in range(3):
        released = prepare(plan, split, seed)[1]
        moment, std = released.released[Phase.MOMENTS]["second"], released.stds[Phase.MOMENTS]
        k = from_released(moment, std, radius=math.sqrt(1.25), classes=10, C_g=CLIP, ridge=RIDGE)
        assert exact / 2 + RIDGE <= k.L <= 1.25 / 2 + RIDGE
        found.append(float(np.linalg.eigvalsh(np.asarray(moment, float))[-1]))
        assert k.private and "released" in k.how
    assert len(set(found)) == 3  # it is noisy


def test_the_slack_for_noise_is_enough_and_needed():
    """Of one long direction, whose noise is as often below as above."""
    random, width, std, failure = np.random.default_rng(2), 4, 0.05, 0.05
    v = random.normal(size=width)
    S = 3 * np.outer(v, v) / (v @ v)
    fails, without = np.zeros(600), np.zeros(600)
    for i in range(600):
        W = random.normal(size=(width, width)) * std / math.sqrt(2)
        W = np.triu(W, 1) + np.triu(W, 1).T + np.diag(random.normal(size=width) * std)
        k = from_released(S + W, std, radius=9.0, classes=3, C_g=1.0, ridge=1e-9, failure=failure)
        fails[i], without[i] = k.L < 1.5, np.linalg.eigvalsh(S + W)[-1] < 3.0
    assert fails.mean() <= failure and without.mean() > 0.4


def test_a_head_without_ridge_is_refused_in_words():
    with pytest.raises(fs.InputError, match="not strongly convex"):
        from_records(make_toy(), C_g=1.0, ridge=0.0)


# --- lem:complexity -----------------------------------------------------------------------------------------


def flops(function, *shapes: tuple[int, ...]) -> float:
    import jax
    import jax.numpy as jnp

    specs = [jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes]
    counted = jax.jit(function).lower(*specs).compile().cost_analysis()
    assert counted is not None
    return counted["flops"]


def test_the_papers_client_cost_leaves_out_the_records():
    """lem:complexity says O(d) per client. Twice the records are twice the work, at the same n and d."""
    counts = [flops(lambda x, t, r: (x @ t, x.T @ r), (m, 8), (8, 3), (m, 3)) for m in (100, 200)]
    assert counts[1] / counts[0] == pytest.approx(2.0, rel=0.01)
    ours = [complexity.client_multiplications(m, 24) for m in (100, 200)]
    assert [c / 2 for c in counts] == pytest.approx(ours, rel=0.01)  # a multiplication and an addition each


def test_the_servers_step_is_linear_in_the_parameters():
    import jax.numpy as jnp

    from fedsofim.theory.complexity import per_round, sofim_multiplications

    def step(M, G):
        M = 0.9 * M + 0.1 * G
        square, along = jnp.sum(M * M), jnp.sum(M * G)
        return G / 0.5 - M * along / (0.25 + 0.5 * square), M

    counts = [flops(step, (d,), (d,)) for d in (1000, 4000)]
    assert counts[1] / counts[0] == pytest.approx(4.0, rel=0.02)
    assert sofim_multiplications(4000) == 4 * sofim_multiplications(1000)
    round_ = per_round([10, 30], 24)
    assert round_["all_clients_multiplications"] == 2 * 40 * 24 != round_["paper_says_all_clients"]
