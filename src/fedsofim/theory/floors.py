"""The theorems: contraction and floors under strong convexity and PL, stationarity without either, and DP-FedGD's.

With |∇F|² >= 2μ·(F - F*) one step is E[gap'] <= r·gap + Γ, r = 1 - 2μ·η·c_∇, hence r^T·gap_0 + Γ·(1-r^T)/(1-r),
whose limit is the floor Γ/(2μ·η·c_∇). PL is the same inequality with its own μ. Without it the mean of |∇F|² over
the rounds is at most gap_0/(η·c_∇·T) + Γ/(η·c_∇).

**Vacuous.** Where |∇F| <= G, F - F* <= G²/(2μ) and |∇F|² <= G² hold before any round is run. A floor above that
says nothing. The coupling part alone is M̄²/(ρ²·c_∇) >= M̄²/ρ times as much: **whenever ρ <= M̄² = C_g² +
(1-β)·d·ν² both floors are vacuous**, whatever η, τ and the data. And where ρ > M̄², all eigenvalues of H are
within a factor 2 of 1/ρ (at |M|² = M̄²): DP-FedGD with step η/ρ.

**DP-FedGD** at the step η' = η/ρ has c = 1 - τ/2 and Γ = η'·ζ²/(2τ) + L·η'²/2·(C_g² + d·ν²). Put τ_i = t_i/ρ in
DP-FedSOFIM's: the same terms, plus the coupling and the noise's, over a smaller coefficient. So at equal steps
DP-FedSOFIM's floor is the higher one and its contraction the slower, for all constants: these bounds never show
an advantage.
"""

import math
from dataclasses import dataclass

from fedsofim.theory.buffer import aggregate_bound
from fedsofim.theory.constants import Constants
from fedsofim.theory.descent import Taus, best_taus, c_grad, gamma, least_taus


@dataclass(frozen=True, kw_only=True)
class Floor:
    """A bound that the iterates fall to, at which rate, and what was known without running anything."""

    what: str
    value: float  # inf where its conditions fail
    trivial: float
    rate: float | None = None  # r, the contraction of a round; None for stationarity
    coefficient: float = 0.0  # c
    additive: float = 0.0  # Γ

    @property
    def vacuous(self) -> bool:
        return not self.value < self.trivial

    def after(self, rounds: int, gap: float) -> float:
        """The bound after so many rounds from a first gap."""
        if self.rate is None or not math.isfinite(self.value):
            return math.inf
        return self.rate**rounds * gap + (1 - self.rate**rounds) / (1 - self.rate) * self.additive


def gap_floor(k: Constants, mu: float, taus: Taus | None = None, what: str = "DP-FedSOFIM, gradient form") -> Floor:
    """The floor of F - F* under strong convexity, or PL, with this μ."""
    taus = best_taus(k) if taus is None else taus
    return _contracting(what, k, mu, k.eta * c_grad(k.rho, taus), gamma(k, taus).total)


def fedgd_floor(k: Constants, mu: float, tau: float | None = None) -> Floor:
    """DP-FedGD's floor at the step η/ρ, where DP-FedSOFIM without curvature would be."""
    eta = k.eta / k.rho
    smooth = k.L * eta**2 / 2 * aggregate_bound(k)
    tau = least_taus(smooth / eta, k.zeta_max, 0.0, 1.0).bias if tau is None else tau
    bias = 0.0 if k.zeta_max == 0 else eta * k.zeta_max**2 / (2 * tau)
    return _contracting("DP-FedGD, step eta/rho", k, mu, eta * (1 - tau / 2), bias + smooth)


def _contracting(what: str, k: Constants, mu: float, takes: float, additive: float) -> Floor:
    """From one step: E[F'] <= F - takes·|∇F|² + additive."""
    rate = 1 - 2 * mu * takes
    value = additive / (2 * mu * takes) if 0 < rate < 1 else math.inf
    return Floor(
        what=what,
        value=value,
        trivial=k.gradient**2 / (2 * mu),
        rate=rate,
        coefficient=takes / k.eta,
        additive=additive,
    )


def stationarity_floor(k: Constants, taus: Taus | None = None) -> Floor:
    """The floor of the mean of |∇F|² over the rounds, for any smooth F."""
    taus = best_taus(k) if taus is None else taus
    c, additive = c_grad(k.rho, taus), gamma(k, taus).total
    value = additive / (k.eta * c) if c > 0 else math.inf
    return Floor(
        what="DP-FedSOFIM, gradient form", value=value, trivial=k.gradient**2, coefficient=c, additive=additive
    )


def stationarity_after(k: Constants, floor: Floor, gap: float) -> float:
    """(1/T)·Σ E|∇F(θ_t)|² is at most this, with gap = F(θ_0) - inf F."""
    return gap / (k.eta * floor.coefficient * k.rounds) + floor.value if floor.coefficient > 0 else math.inf
