"""Bounds for the momentum form θ' = θ - η·M/(ρ + |M|²), which the paper's numbers come from and its theory leaves out.

**Step.** |M|/(ρ + |M|²) <= 1/(2·sqrt(ρ)), since ρ + x² >= 2·sqrt(ρ)·x; met at |M| = sqrt(ρ). Whatever the noise,
with or without bias correction, a round moves θ by at most η/(2·sqrt(ρ)).

**Drift.** |θ_T - θ_0| <= η·T/(2·sqrt(ρ)), surely. With decoupled weight decay λ, θ' = (1-ηλ)·θ - η·H·M and ηλ <=
1, for ever |θ_t| <= max(|θ_0|, 1/(2λ·sqrt(ρ))): a bounded region, so here the assumptions on G_max and ζ_max can
hold at all (the gradient form leaves every region). Hence |∇F(θ_t)| <= |∇F(θ_0)| + L·η·t/(2·sqrt(ρ)).

**Descent.** Let e = M - ∇F(θ) and q(y) = y/(ρ + y). With ∇F = M - e,

    -∇Fᵀ·M/(ρ + |M|²) = -q(|M|²) + eᵀM/(ρ + |M|²) <= -q(|M|²)/2 + |e|²/(2ρ),

by eᵀM <= |M|²/2 + |e|²/2. q is concave and 0 at 0, so q(|∇F|²) <= q(2|M|² + 2|e|²) <= 2·q(|M|²) + 2·|e|²/ρ. With
smoothness and the bound on the step, **surely, at every step**,

    F(θ') <= F(θ) - η/4·q(|∇F(θ)|²) + η·|e|²/ρ + L·η²/(8ρ).

**Error.** M_t = Σ_s w_s·G_s with w_s = (1-β)·β^(t-s), or these over their sum with bias correction. So e_t = Σ
w_s·(ζ_s + ξ_s) + Σ w_s·(∇F(θ_s) - ∇F(θ_t)) - (1 - Σ w_s)·∇F(θ_t). The noise is exactly Gaussian. A round moves θ in
root mean square by at most s = η·min(1/(2·sqrt(ρ)), sqrt(max E|M|²)/ρ), since |H·M| <= |M|/ρ too (buffer.py bounds
E|M|²), so ∇F(θ_s) - ∇F(θ_t) by at most L·(t-s)·s. Hence by Minkowski, A_t the mean age of what is in M_t,

    sqrt(E|e_t|²) <= ζ_max + β^(t+1)·|∇F(θ_0)| + A_t·L·s + ν·sqrt(d·Σ w_s²),

without the second term under bias correction. A_t <= β/(1-β), Σ w_s² -> (1-β)/(1+β).

**Theorem.** Summed, for smooth F bounded below, nothing else assumed but ζ_max on the reachable ball:

    1/T·Σ E q(|∇F(θ_t)|²) <= 4·gap_0/(η·T) + 4/(ρT)·Σ E|e_t|² + 2·L·s²/η.

q < 1, so this says something where the right side is below 1; then P(|∇F(θ_R)|² > y) <= right side/q(y) for a
random round R. Under PL with μ, q(|∇F|²) >= 2μ·gap/(ρ + G²), G the largest |∇F| reachable, so E gap_{t+1} <= (1 -
ημ/(2(ρ+G²)))·E gap_t + η·E|e_t|²/ρ + L·s²/2. For weight decay 0.
"""

import math
from dataclasses import dataclass

from fedsofim.theory.buffer import aggregate_bound, sharper_bound
from fedsofim.theory.constants import Constants


def largest_step(eta: float, rho: float) -> float:
    """No round moves θ further.

    >>> largest_step(eta=0.8, rho=0.25)
    0.8
    """
    return eta / (2 * math.sqrt(rho))


def largest_drift(k: Constants, t: int | None = None) -> float:
    """|θ_t - θ_0| is at most this; t None: after all rounds."""
    return largest_step(k.eta, k.rho) * (k.rounds if t is None else t)


def typical_step(k: Constants, corrected: bool = False) -> float:
    """s: a round's step in root mean square is at most this."""
    buffer = aggregate_bound(k) if corrected else sharper_bound(k)
    return min(largest_step(k.eta, k.rho), k.eta * math.sqrt(buffer) / k.rho)


def q(square: float, rho: float) -> float:
    """|∇F|²/(ρ + |∇F|²): 0 at stationary points, never 1."""
    return square / (rho + square)


def mean_age(beta: float, t: int, corrected: bool) -> float:
    """A_t: how many rounds old what is in M_t is on average; without correction, what is missing counts as old as t.

    >>> round(mean_age(0.9, t=10_000, corrected=False), 6), mean_age(0.9, t=0, corrected=True)
    (9.0, 0.0)
    """
    old = beta * (1 - beta**t) / (1 - beta)
    return (old - t * beta ** (t + 1)) / (1 - beta ** (t + 1)) if corrected else old


def squared_weights(beta: float, t: int, corrected: bool) -> float:
    """Σ w_s²: what of the noise's variance is in M_t."""
    whole = (1 - beta) / (1 + beta) * (1 - beta ** (2 * t + 2))
    return whole / (1 - beta ** (t + 1)) ** 2 if corrected else whole


def error_bound(k: Constants, t: int, corrected: bool = False) -> float:
    """E|e_t|² is at most this."""
    drift = mean_age(k.beta, t, corrected) * k.L * typical_step(k, corrected)
    missing = 0.0 if corrected else k.beta ** (t + 1) * start_gradient(k)
    noise = math.sqrt(k.noise2 * squared_weights(k.beta, t, corrected))
    return (k.zeta_max + missing + drift + noise) ** 2


def start_gradient(k: Constants) -> float:
    return k.gradient if k.start_gradient is None else k.start_gradient


def one_step(k: Constants, square: float, error: float) -> float:
    """F(θ') - F(θ) is at most this, surely, with |∇F(θ)|² = square and |e|² = error."""
    return -k.eta / 4 * q(square, k.rho) + k.eta * error / k.rho + k.L * k.eta**2 / (8 * k.rho)


@dataclass(frozen=True, kw_only=True)
class MomentumForm:
    """What is proved of the momentum form over a run."""

    step: float
    drift: float
    gradient: float  # the largest |∇F| within the drift, on which ζ_max is assumed
    error: float  # the mean over rounds of the bound on E|e_t|²
    stationarity: float | None  # of the mean of q(|∇F|²); None without a first gap
    gap: float | None  # of F - F* after all rounds; None without μ or a first gap
    trivial_gap: float | None

    @property
    def vacuous(self) -> bool:
        """Does it say nothing about stationarity?"""
        return self.stationarity is None or self.stationarity >= 1


def momentum_bounds(k: Constants, corrected: bool = False) -> MomentumForm:
    """The theorem's numbers."""
    errors = [error_bound(k, t, corrected) for t in range(k.rounds)]
    drift, first = largest_drift(k), start_gradient(k)
    reach = min(first + k.L * drift, k.gradient)
    mean, bent = sum(errors) / k.rounds, k.L * typical_step(k, corrected) ** 2 / 2
    known = None if k.gap is None else 4 * (k.gap / (k.eta * k.rounds) + mean / k.rho + bent / k.eta)
    return MomentumForm(
        step=largest_step(k.eta, k.rho),
        drift=drift,
        gradient=reach,
        error=mean,
        stationarity=known,
        gap=None if k.gap is None or k.mu is None else _gap_after(k, errors, bent, reach),
        trivial_gap=None if k.gap is None else _known(k, k.gap + first * drift + k.L / 2 * drift**2, reach),
    )


def _known(k: Constants, climbed: float, reach: float) -> float:
    """What F - F* cannot exceed at any θ within the drift, whatever the method: by smoothness, or by PL."""
    return climbed if k.mu is None else min(climbed, reach**2 / (2 * k.mu))


def _gap_after(k: Constants, errors: list[float], bent: float, reach: float) -> float:
    assert k.mu is not None and k.gap is not None
    gap, takes = k.gap, k.eta * k.mu / (2 * (k.rho + reach**2))
    for error in errors:
        gap = max(1 - takes, 0.0) * gap + k.eta * error / k.rho + bent
    return gap
