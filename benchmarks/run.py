"""One federated round against the matrix products it contains, and against a NumPy closed form.

    make bench

Times are printed as ratios within this run only: machines differ and are shared. The reference problem has the shape
of the paper's CIFAR-10 features (50,000 records, 64 features, 10 classes, 20 clients), on synthetic numbers. Before
anything is timed, the NumPy form and ours must compute the same clipped mean.
"""

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim.data.dataset import Dataset
from fedsofim.data.partition import Split, split
from fedsofim.methods.fedavg import many_steps
from fedsofim.methods.fedsofim import fedsofim
from fedsofim.plan import Plan
from fedsofim.privacy import Budget
from fedsofim.round import Method, federated_round
from fedsofim.simulate import federation, start
from fedsofim.train import plan_for

RECORDS, FEATURES, CLASSES, CLIP = 50_000, 64, 10, 10.0


def reference_problem() -> Split:
    random = np.random.default_rng(0)
    x = np.abs(random.normal(size=(RECORDS, FEATURES))).astype(np.float32)
    y = random.integers(CLASSES, size=RECORDS)
    return split(Dataset.of("synthetic", x_train=x, y_train=y, x_test=x[:100], y_test=y[:100]), 20, 0.5, 42)


def numpy_mean(theta: np.ndarray, data: Split) -> np.ndarray:
    """G of one round without noise, client by client, in closed form."""
    uploads = []
    for part in data.parts:
        x, y = data.data.x_train[part], data.data.y_train[part]
        logits = x @ theta[:-1] + theta[-1]
        r = np.exp(logits - logits.max(axis=1, keepdims=True))
        r /= r.sum(axis=1, keepdims=True)
        r[np.arange(len(y)), y] -= 1
        norm = np.sqrt((np.square(x).sum(axis=1) + 1) * np.square(r).sum(axis=1))
        r *= (CLIP / np.maximum(norm, CLIP))[:, None]
        uploads.append(np.concatenate([x.T @ r, r.sum(axis=0)[None]]) / len(y))
    return np.mean(uploads, axis=0)


def round_of(plan: Plan, data: Split, pooled: bool) -> Callable[[], object]:
    """One compiled round from the start, noise and server step included."""
    init_key, noise_key = jax.random.split(jax.random.key(0))
    clients = federation(plan, data, noise_key, pooled)
    carry = start(plan, clients, data, init_key)
    facts = plan.facts._replace(noise_std=0.0)
    step = jax.jit(lambda c, f: federated_round(plan.method, plan.program, facts, pooled, f, c, jnp.int32(0)))
    return lambda: jax.block_until_ready(step(carry, clients))


def fastest(run: Callable[[], object], repeats: int = 30) -> float:
    run()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return min(times)


def check(data: Split) -> None:
    """Ours and NumPy's agree before they are timed."""
    step = Method("step", fedsofim().client, lambda mean, state, params, facts: (mean, state))
    plan = plan_for(data, step, None, rounds=1)
    init_key, noise_key = jax.random.split(jax.random.key(0))
    clients = federation(plan, data, noise_key, True)
    carry = start(plan, clients, data, init_key)
    ours = federated_round(step, plan.program, plan.facts, True, clients, carry, jnp.int32(0)).params
    np.testing.assert_allclose(ours, numpy_mean(np.asarray(carry.params), data), atol=1e-4)


def main() -> None:
    data = reference_problem()
    check(data)
    x, theta = data.data.x_train, np.ones((FEATURES, CLASSES), np.float32)
    r = np.ones((RECORDS, CLASSES), np.float32)
    left, right = jnp.asarray(x), (jnp.asarray(theta), jnp.asarray(r))
    products = jax.jit(lambda x, t, r: (x @ t, r.T @ x))
    plan = plan_for(data, fedsofim(), Budget(1.0), rounds=70)
    local = plan_for(data, many_steps(1), Budget(1.0), rounds=70)
    times = {
        "the two matrix products, NumPy": fastest(lambda: (x @ theta, r.T @ x)),
        "the two matrix products, JAX": fastest(lambda: jax.block_until_ready(products(left, *right))),
        "one round, one theta (DP-FedSOFIM)": fastest(round_of(plan, data, pooled=True)),
        "one round, one theta per client (DP-FedAvg, K = 1)": fastest(round_of(local, data, pooled=False)),
        "NumPy closed form, no noise, no server step": fastest(lambda: numpy_mean(np.ones((65, 10), np.float32), data)),
    }
    unit = min(list(times.values())[:2])
    for name, seconds in times.items():
        print(f"{name:55s} {seconds / unit:6.2f} x the faster pair of products")


if __name__ == "__main__":
    main()
