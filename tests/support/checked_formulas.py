"""Formulas of the theory that no page states and tests check."""

import math

import numpy as np

from fedsofim.theory.buffer import aggregate_bound
from fedsofim.theory.constants import Constants


def corrected_bound(k: Constants, t: int) -> float:
    """E|M̂_t|² with bias correction is at most this."""
    bound = aggregate_bound(k)
    for s in range(1, t + 1):
        new = (1 - k.beta) / (1 - k.beta ** (s + 1))
        bound = (1 - new) * bound + new * k.C_g**2 + new**2 * k.noise2
    return bound


def decayed_radius(start: float, rho: float, weight_decay: float) -> float:
    """|θ_t| is at most this for ever, from |θ_0| = start, with decoupled weight decay of at most 1/η."""
    return max(start, 1 / (2 * weight_decay * math.sqrt(rho)))


def momentum_step(M: np.ndarray, rho: float) -> np.ndarray:
    """H·M = M/(ρ + |M|²)."""
    return M / (rho + np.sum(M * M, axis=-1, keepdims=True))


def stein(M: np.ndarray, a: np.ndarray, k: Constants) -> np.ndarray:
    """What E[aᵀHξ] is the mean of, for draws of M: by Stein's lemma."""
    square = np.sum(M * M, axis=-1)
    bent = k.d + 1 - 2 * square / (k.rho + square)
    return -k.nu2 * (1 - k.beta) / k.rho * (M @ a) / (k.rho + square) * bent
