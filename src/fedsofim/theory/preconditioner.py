"""H = (ρI + M·Mᵀ)⁻¹ by Sherman and Morrison: I/ρ - M·Mᵀ/(ρ·(ρ + |M|²)), never formed.

Its eigenvalues are 1/(ρ + |M|²), along M, and 1/ρ, across: |H·v| <= |v|/ρ and |v|²/(ρ + |M|²) <= vᵀHv <= |v|²/ρ,
each met by some v. So H never lengthens a step beyond v/ρ: what it does is to shorten it along M.
"""

import numpy as np


def preconditioned(M: np.ndarray, v: np.ndarray, rho: float) -> np.ndarray:
    """H·v for each row: v/ρ - M·(M·v)/(ρ² + ρ·|M|²).

    >>> preconditioned(np.array([1.0, 0.0]), np.array([1.0, 1.0]), rho=1.0)
    array([0.5, 1. ])
    """
    along = np.sum(M * v, axis=-1, keepdims=True)
    square = np.sum(M * M, axis=-1, keepdims=True)
    return v / rho - M * along / (rho**2 + rho * square)


def operator_bound(rho: float) -> float:
    """|H·v| <= this·|v|, and vᵀHv <= this·|v|²."""
    return 1 / rho


def quadratic_lower(rho: float, square: float) -> float:
    """vᵀHv >= this·|v|², for |M|² = square."""
    return 1 / (rho + square)
