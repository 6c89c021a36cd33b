"""The constants of the paper's analysis, checked, and the noise that follows from them.

Client i adds E_i ~ N(0, (C_g·σ_g)²/n·I) to its sum of clipped gradients, so the average of what n clients send
carries

    ν² = (C_g·σ_g)²/n³ · Σ_i 1/|D_i|²    per coordinate (exact),    ν² <= (C_g·σ_g)²/(n·m_min)²    (the paper's bound).

At fixed ε the paper's σ_g itself grows with sqrt(n): the noise of n clients of m records falls as 1/(sqrt(n)·m),
not as 1/(n·m).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from fedsofim.core.budget import Budget
from fedsofim.errors import InputError, expect_whole, is_number, is_whole, shown


@dataclass(frozen=True, kw_only=True)
class Constants:
    """The paper's symbols. `G_max` None: C_g + ζ_max, which clipping implies; `mu` None: not strongly convex."""

    L: float
    C_g: float
    rho: float
    beta: float
    eta: float
    d: int
    sizes: tuple[int, ...]
    sigma_g: float
    zeta_max: float = 0.0
    G_max: float | None = None
    mu: float | None = None
    rounds: int = 70
    gap: float | None = None  # F(θ_0) - F*, or an upper bound of it
    start_gradient: float | None = None  # |∇F(θ_0)|, or an upper bound of it

    def __post_init__(self) -> None:
        for f in fields(self):
            _CHECKS.get(f.name, _above_zero)(f.name, getattr(self, f.name))

    @property
    def n(self) -> int:
        return len(self.sizes)

    @property
    def nu2(self) -> float:
        """ν² exactly: the noise per coordinate of the average."""
        return noise_variance(self.C_g, self.sigma_g, self.sizes)

    @property
    def nu2_bound(self) -> float:
        """The paper's bound of it, by the smallest client."""
        return (self.C_g * self.sigma_g / (self.n * min(self.sizes))) ** 2

    @property
    def noise2(self) -> float:
        """E|ξ|² = d·ν²."""
        return self.d * self.nu2

    @property
    def gradient(self) -> float:
        """The largest |∇F| along the way: G_max, but never more than clipping and its bias allow.

        ∇F = g_clip - ζ, and |g_clip| <= C_g, so |∇F| <= C_g + ζ_max: the paper's assumption on G_max follows from the
        one on ζ_max.
        """
        implied = self.C_g + self.zeta_max
        return implied if self.G_max is None else min(self.G_max, implied)


def noise_variance(C_g: float, sigma_g: float, sizes: Sequence[int]) -> float:
    """ν² exactly, for clients of these sizes.

    >>> noise_variance(C_g=10.0, sigma_g=2.0, sizes=[100, 100])
    0.01
    """
    n = len(sizes)
    return (C_g * sigma_g) ** 2 / n**3 * sum(1 / m**2 for m in sizes)


def sigma_g_of(budget: Budget, rounds: int, n: int) -> float:
    """The paper's noise multiplier for a budget over T rounds: 2·sqrt(n·T)/mu, exactly.

    >>> round(sigma_g_of(Budget(1, 1e-5), rounds=70, n=20), 2)
    279.17
    """
    return 2 * math.sqrt(n * rounds) / budget.mu if budget.private else 0.0


# --- checks -------------------------------------------------------------------------------------------------


def _above_zero(name: str, value: Any) -> None:
    if not is_number(value) or not 0 < value < math.inf:
        raise InputError(f"{name} is {shown(value)}; expected a finite number above 0")


def _not_negative(name: str, value: Any) -> None:
    if not is_number(value) or not 0 <= value < math.inf:
        raise InputError(f"{name} is {shown(value)}; expected a finite number >= 0")


def _above_zero_or_none(name: str, value: Any) -> None:
    if value is not None:
        _above_zero(name, value)


def _not_negative_or_none(name: str, value: Any) -> None:
    if value is not None:
        _not_negative(name, value)


def _decay(name: str, value: Any) -> None:
    if not is_number(value) or not 0 <= value < 1:
        raise InputError(f"{name} is {shown(value)}; expected 0 <= {name} < 1")


def _sizes(name: str, value: Any) -> None:
    if len(value) == 0 or not all(is_whole(m) and m >= 1 for m in value):
        raise InputError(f"{name} are {list(value)}; expected at least one client with at least one record each")


def _count(name: str, value: Any) -> None:
    expect_whole(name, value, 1)


_CHECKS = {
    "beta": _decay,
    "d": _count,
    "sizes": _sizes,
    "sigma_g": _not_negative,
    "zeta_max": _not_negative,
    "G_max": _above_zero_or_none,
    "mu": _above_zero_or_none,
    "rounds": _count,
    "gap": _not_negative_or_none,
    "start_gradient": _not_negative_or_none,
}
