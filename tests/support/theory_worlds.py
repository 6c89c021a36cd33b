"""Small worlds in NumPy in which every quantity of the analysis is known, and DP-FedSOFIM run in them over many seeds.

Kept apart from the package's own optimizer, which tests/theory/test_worlds.py holds against it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from checked_formulas import momentum_step
from fedsofim.theory.constants import Constants
from fedsofim.theory.preconditioner import preconditioned

SURE = 5.0  # standard errors: one wrong alarm in three million checks


@dataclass(frozen=True, kw_only=True)
class World:
    """Clients' records and a loss; `slopes` maps (seeds, d) to every record's gradient, (seeds, n, m, d)."""

    records: np.ndarray  # (n, m, d): every client holds m
    value: Callable[[np.ndarray], np.ndarray]  # F of (seeds, d)
    slopes: Callable[[np.ndarray], np.ndarray]
    L: float
    least: float = 0.0  # inf F

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.records.shape[1],) * self.records.shape[0]

    @property
    def d(self) -> int:
        return self.records.shape[2]

    def gradient(self, theta: np.ndarray) -> np.ndarray:
        return self.slopes(theta).mean(axis=(1, 2))

    def clipped(self, theta: np.ndarray, C_g: float) -> np.ndarray:
        g = self.slopes(theta)
        return (g * np.minimum(1, C_g / np.maximum(np.linalg.norm(g, axis=-1, keepdims=True), 1e-300))).mean((1, 2))

    def constants(self, **given: Any) -> Constants:
        usual: dict[str, Any] = {"L": self.L, "d": self.d, "sizes": self.sizes, "C_g": 1.0, "rho": 1.0}
        usual |= {"beta": 0.9, "eta": 0.1, "sigma_g": 1.0}
        return Constants(**(usual | given))


def bowl(records: np.ndarray, curvature: np.ndarray) -> World:
    """Strongly convex: each record's loss is ½(θ-x)ᵀA(θ-x), A diagonal."""
    records, a = np.asarray(records, float), np.asarray(curvature, float)
    middle = records.mean(axis=(0, 1))

    def value(theta: np.ndarray) -> np.ndarray:
        u = theta[:, None, None, :] - records
        return 0.5 * np.mean(np.sum(a * u * u, axis=-1), axis=(1, 2))

    return World(
        records=records,
        value=value,
        slopes=lambda theta: a * (theta[:, None, None, :] - records),
        L=float(a.max()),
        least=float(value(middle[None])[0]),
    )


def wavy(records: np.ndarray) -> World:
    """PL with μ = 1/32 and not convex: Σ_k u² + 3·sin²u for u = θ - x, all records alike."""
    records = np.asarray(records, float)
    assert np.ptp(records, axis=(0, 1)).max() == 0  # a mean of shifted ones need not be PL

    def u(theta: np.ndarray) -> np.ndarray:
        return theta[:, None, None, :] - records

    return World(
        records=records,
        value=lambda theta: np.mean(np.sum(u(theta) ** 2 + 3 * np.sin(u(theta)) ** 2, axis=-1), axis=(1, 2)),
        slopes=lambda theta: 2 * u(theta) + 3 * np.sin(2 * u(theta)),
        L=8.0,
    )


def dents(records: np.ndarray) -> World:
    """Neither convex nor PL, gradients bounded everywhere: Σ_k u²/(1 + u²)."""
    records = np.asarray(records, float)

    def u(theta: np.ndarray) -> np.ndarray:
        return theta[:, None, None, :] - records

    return World(
        records=records,
        value=lambda theta: np.mean(np.sum(u(theta) ** 2 / (1 + u(theta) ** 2), axis=-1), axis=(1, 2)),
        slopes=lambda theta: 2 * u(theta) / (1 + u(theta) ** 2) ** 2,
        L=2.0,
    )


@dataclass(frozen=True, kw_only=True)
class Paths:
    """What happened: round first, then seed. θ and F have one more entry than rounds."""

    theta: np.ndarray
    F: np.ndarray
    gradient: np.ndarray  # ∇F(θ_t)
    clipped: np.ndarray  # g_clip(θ_t)
    xi: np.ndarray
    M: np.ndarray
    steps: np.ndarray  # (θ_t - θ_{t+1})/η

    @property
    def G(self) -> np.ndarray:
        return self.clipped + self.xi

    @property
    def zeta(self) -> np.ndarray:
        return self.clipped - self.gradient


FORMS: dict[str, Callable[[np.ndarray, np.ndarray, float], np.ndarray]] = {
    "gradient": preconditioned,
    "momentum": lambda M, G, rho: momentum_step(M, rho),
    "fedgd": lambda M, G, rho: G / rho,
}


def run(
    world: World, k: Constants, start: np.ndarray, *, seeds: int, form: str = "gradient", buffer: Any = 0.0,
    corrected: bool = False, seed: int = 0,
) -> Paths:  # fmt: skip
    """T rounds of the algorithm, clients' noise drawn as the paper has it: each its own, on its sum."""
    random = np.random.default_rng(seed)
    theta = np.broadcast_to(np.asarray(start, float), (seeds, world.d)).copy()
    M = np.broadcast_to(np.asarray(buffer, float), theta.shape).copy()
    kept: dict[str, list[np.ndarray]] = {f: [] for f in ("theta", "F", "gradient", "clipped", "xi", "M", "steps")}
    for t in range(k.rounds):
        clipped, xi = world.clipped(theta, k.C_g), client_noise(k, seeds, random)
        M = k.beta * M + (1 - k.beta) * (clipped + xi)
        used = M / (1 - k.beta ** (t + 1)) if corrected else M
        step = FORMS[form](used, clipped + xi, k.rho)
        parts = (theta, world.value(theta), world.gradient(theta), clipped, xi, used, step)
        for name, what in zip(kept, parts, strict=True):
            kept[name].append(what)
        theta = theta - k.eta * step
    kept["theta"].append(theta)
    kept["F"].append(world.value(theta))
    return Paths(**{name: np.stack(all_) for name, all_ in kept.items()})


def client_noise(k: Constants, seeds: int, random: np.random.Generator) -> np.ndarray:
    """ξ as it comes about: every client's own noise over its size, averaged."""
    E = random.standard_normal((k.n, seeds, k.d)) * k.C_g * k.sigma_g / np.sqrt(k.n)
    return np.mean(E / np.asarray(k.sizes, float)[:, None, None], axis=0)


def surely_above(samples: np.ndarray, bound: Any) -> np.ndarray:
    """Is the mean over seeds (the last axis) above the bound beyond any doubt?"""
    samples = np.atleast_2d(samples)
    error = samples.std(axis=-1, ddof=1) / np.sqrt(samples.shape[-1])
    return samples.mean(axis=-1) - SURE * error > np.asarray(bound) * (1 + 1e-9) + 1e-12
