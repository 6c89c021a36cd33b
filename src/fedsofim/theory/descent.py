"""One step's descent in expectation: the paper's coefficient c_∇, its additive part Γ, and the best Young parameters.

    E[F(θ_{t+1}) | past] <= F(θ_t) - η·c_∇·|∇F|² + η·G²/ρ²·E[|M_t|² | past]              (coupling)
                            + η·ζ_max²/(2τ_1ρ²) + η·d·ν²/(2τ_2ρ²) + L·η²/(2ρ²)·(C_g² + d·ν²),

c_∇ = 1/ρ - (τ_1 + τ_2)/2, any τ_1, τ_2 > 0. With E|M_t|² <= M̄² the additive parts sum to Γ. The proof uses only
that |bias| <= B pathwise, E|ξ|² <= d·ν² and E|G|² <= G_0² + d·ν², so the same function gives Γ_B for any private
update.

**The best τ.** Every floor is Γ/(η·c_∇) up to a constant factor. With z = ζ_max/ρ, s = ν·sqrt(d)/ρ and τ = τ_1 +
τ_2 fixed, z²/τ_1 + s²/τ_2 is least, (z+s)²/τ, where τ_1 : τ_2 = z : s. Left is (A + w/(2τ))/(1/ρ - τ/2), w =
(z+s)², A the parts without τ; its derivative vanishes where A·τ² + w·τ - w/ρ = 0, of which one root is positive,
and below 1/ρ. Where z or s is 0 its τ may be as small as one likes; the infimum is taken, with 0²/0 read as 0.
"""

import math
from typing import NamedTuple

from fedsofim.theory.buffer import aggregate_bound, buffer_bound
from fedsofim.theory.constants import Constants


class Taus(NamedTuple):
    bias: float  # τ_1
    noise: float  # τ_2


class Gamma(NamedTuple):
    """The additive parts of one step."""

    coupling: float
    bias: float
    noise: float
    smoothness: float

    @property
    def total(self) -> float:
        return sum(self)


def c_grad(rho: float, taus: Taus) -> float:
    """c_∇: what of |∇F|² a step of size η takes off, times η."""
    return 1 / rho - (taus.bias + taus.noise) / 2


def gamma(k: Constants, taus: Taus, buffer: float | None = None) -> Gamma:
    """Γ by its parts; with `buffer` = E[|M_t|² | past] the conditional ones."""
    buffer = buffer_bound(k) if buffer is None else buffer
    return general_gamma(k, taus, bias=k.zeta_max, second_moment=aggregate_bound(k), buffer=buffer)


def general_gamma(
    k: Constants, taus: Taus, *, bias: float, second_moment: float, buffer: float, gradient: float | None = None
) -> Gamma:
    """Γ_B of any private update G = ∇F + b + ξ: |b| <= bias, E|G|² <= second_moment, E|M|² <= buffer."""
    return Gamma(
        coupling=k.eta * (k.gradient if gradient is None else gradient) ** 2 / k.rho**2 * buffer,
        bias=k.eta * _young(bias / k.rho, taus.bias),
        noise=k.eta * _young(math.sqrt(k.noise2) / k.rho, taus.noise),
        smoothness=k.L * k.eta**2 / (2 * k.rho**2) * second_moment,
    )


def _young(b: float, tau: float) -> float:
    """b²/(2τ), and 0 where there is nothing to bound."""
    return 0.0 if b == 0 else b**2 / (2 * tau) if tau > 0 else math.inf


def best_taus(k: Constants) -> Taus:
    """The Young parameters with the least floor, in closed form."""
    parts = gamma(k, Taus(1.0, 1.0))
    return least_taus(
        (parts.coupling + parts.smoothness) / k.eta, k.zeta_max / k.rho, math.sqrt(k.noise2) / k.rho, 1 / k.rho
    )


def least_taus(fixed: float, bias: float, noise: float, full: float) -> Taus:
    """argmin of (fixed + bias²/(2τ_1) + noise²/(2τ_2))/(full - (τ_1+τ_2)/2).

    >>> least_taus(fixed=0.0, bias=1.0, noise=1.0, full=2.0)
    Taus(bias=1.0, noise=1.0)
    """
    w = (bias + noise) ** 2
    if w == 0:
        return Taus(0.0, 0.0)
    tau = 2 * w * full / (w + math.sqrt(w * w + 4 * fixed * w * full))  # the positive root, without cancellation
    return Taus(tau * bias / (bias + noise), tau * noise / (bias + noise))
