"""DP-FedGD and DP-FedSOFIM as a plain NumPy loop: nothing hidden, one record at a time.

This is what the fast simulator computes; a test holds the two together to float precision. Run it to see the
accuracy on the small `digits` set:

    python examples/plain_loop.py
"""

from collections.abc import Callable, Sequence

import numpy as np

from fedsofim.core.gaussian import mu_of
from fedsofim.data import load
from fedsofim.data.partition import evenly

Noise = Callable[[int, int], np.ndarray]  # (round, client) -> a standard normal array shaped like theta


def clipped_gradient(theta: np.ndarray, x: np.ndarray, y: int, clip: float) -> np.ndarray:
    """Cross-entropy gradient of one record at a linear head, shortened to norm `clip` if it is longer."""
    record = np.append(x, 1.0)
    logits = record @ theta
    p = np.exp(logits - logits.max())
    p /= p.sum()
    p[y] -= 1.0
    gradient = np.outer(record, p)
    return gradient / max(1.0, float(np.linalg.norm(gradient)) / clip)


def average(theta, clients: Sequence[tuple[np.ndarray, np.ndarray]], clip: float, std: float, noise: Noise, t: int):
    """G = (1/n)·Σ_i (S_i + noise)/|D_i|."""
    uploads = []
    for i, (xs, ys) in enumerate(clients):
        total = sum(clipped_gradient(theta, x, int(y), clip) for x, y in zip(xs, ys, strict=True))
        uploads.append((total + std * noise(t, i)) / len(ys))
    return np.mean(uploads, axis=0)


def fedgd(theta, clients, rounds: int, clip: float, std: float, noise: Noise, lr: float) -> np.ndarray:
    for t in range(rounds):
        theta = theta - lr * average(theta, clients, clip, std, noise, t)
    return theta


def fedsofim(
    theta,
    clients,
    rounds: int,
    clip: float,
    std: float,
    noise: Noise,
    lr: float,
    rho: float,
    beta: float,
    direction: str = "momentum",
) -> np.ndarray:
    """M = beta·M + (1-beta)·G, then a step along H·M (or H·G) with H = (M Mᵀ + rho·I)^-1 by Sherman-Morrison."""
    m = np.zeros_like(theta)
    for t in range(rounds):
        g = average(theta, clients, clip, std, noise, t)
        m = beta * m + (1 - beta) * g
        size = np.sum(m * m)
        step = m / (rho + size) if direction == "momentum" else g / rho - m * np.sum(m * g) / (rho**2 + rho * size)
        theta = theta - lr * step
    return theta


def main() -> None:
    data, rounds, clip, epsilon, delta = load("digits"), 30, 10.0, 5.0, 1e-5
    parts = evenly(len(data.y_train), clients=5, seed=0)
    clients = [(data.x_train[p], data.y_train[p]) for p in parts]
    std = 2 * clip * rounds**0.5 / mu_of(epsilon, delta)
    random = np.random.default_rng(0)
    theta = 0.1 * random.normal(size=(data.features + 1, data.classes))

    def noise(t: int, i: int) -> np.ndarray:
        return random.normal(size=theta.shape)

    for name, final in (
        ("DP-FedGD", fedgd(theta, clients, rounds, clip, std, noise, lr=0.3)),
        ("DP-FedSOFIM", fedsofim(theta, clients, rounds, clip, std, noise, lr=1.0, rho=1.0, beta=0.9)),
    ):
        guess = np.argmax(data.x_test @ final[:-1] + final[-1], axis=1)
        print(f"{name}: {100 * np.mean(guess == data.y_test):.1f} % after {rounds} rounds at epsilon {epsilon:g}")


if __name__ == "__main__":
    main()
