"""Another bound for the gradient form, ours: no G_max, no additive coupling, a noise term that vanishes as β -> 1.

Step by step it is the sharper one; its floor is not always: where |M|² is far above ρ, its coefficient 1/(ρ + m²)
is small.

**Coupling.** The paper bounds ∇FᵀH∇F >= |∇F|²/ρ - G²|M|²/ρ² though it is never negative. 1/(ρ + y) is convex, so
by Jensen E[∇FᵀH∇F | past] >= |∇F|²/(ρ + E[|M|² | past]): a smaller coefficient and nothing to add.

**Noise.** H depends on ξ, so E[aᵀHξ] is not 0. Stein's lemma, E[φ(ξ)ᵀξ] = ν²·E[div φ], with ∂M/∂ξ = (1-β)·I gives
it exactly:

    E[aᵀHξ | past] = -ν²·(1-β)/ρ · E[ (M·a)/(ρ + |M|²) · (d + 1 - 2|M|²/(ρ + |M|²)) | past ].

It is negative where M points along a: noise turns the expected step against a gradient that the buffer has
followed (docs/theory.md has a case in which the expected step climbs). |M|/(ρ + |M|²) <= 1/(2·sqrt(ρ)), so
|E[aᵀHξ]| <= κ·|a| with

    κ = min( ν·sqrt(d)/ρ,  ν²·(1-β)·(d+1)/(2·ρ^1.5) ),    the first by Cauchy and Schwarz.

**Step.** (1-β)·G = M_t - β·M_{t-1}, so |H·G| <= (1/(2·sqrt(ρ)) + β·|M_{t-1}|/ρ)/(1-β), and always |H·G| <= |G|/ρ.

**Together**, on the event that |M_s| <= M_δ for all s < t (buffer.py: probability 1 - δ_M), with m² = (β·M_δ +
(1-β)·C_g)² + (1-β)²·d·ν², E[gap_{t+1}; event] <= r·E[gap_t; event] + Γ', c = 1/(ρ + m²) - (τ_1+τ_2)/2, r = 1 -
2μ·η·c, Γ' = η·(ζ_max/ρ)²/(2τ_1) + η·κ²/(2τ_2) + L·η²/2·E|H·G|². Stopping the process when it leaves the event, or
a region on which ζ_max holds, keeps the recursion, since the event up to t is known before round t.
"""

import math
from dataclasses import dataclass

from fedsofim.theory.buffer import aggregate_bound, sharper_event_bound
from fedsofim.theory.constants import Constants
from fedsofim.theory.descent import least_taus
from fedsofim.theory.floors import Floor


def noise_pull(k: Constants) -> float:
    """κ: |E[aᵀHξ | past]| is at most κ·|a|."""
    plain = math.sqrt(k.noise2) / k.rho
    return min(plain, k.nu2 * (1 - k.beta) * (k.d + 1) / (2 * k.rho**1.5))


def step_bound(k: Constants, before: float) -> float:
    """|H_t·G_t| is at most this, whatever the noise of round t, given |M_{t-1}| = before."""
    return (1 / (2 * math.sqrt(k.rho)) + k.beta * before / k.rho) / (1 - k.beta)


@dataclass(frozen=True, kw_only=True)
class Uncoupled:
    event: float  # M_δ²
    kappa: float
    step: float  # of |H·G| on the event
    floor: Floor | None  # None without μ


def uncoupled_floor(k: Constants, delta_M: float) -> Uncoupled:
    """Ours, with probability 1 - δ_M of the event."""
    event = sharper_event_bound(k, delta_M)
    largest = math.sqrt(event)
    kappa, step = noise_pull(k), step_bound(k, largest)
    if k.mu is None:
        return Uncoupled(event=event, kappa=kappa, step=step, floor=None)
    m2 = (k.beta * largest + (1 - k.beta) * k.C_g) ** 2 + (1 - k.beta) ** 2 * k.noise2
    second = min(aggregate_bound(k) / k.rho**2, step**2)
    smooth = k.L * k.eta / 2 * second
    taus = least_taus(smooth, k.zeta_max / k.rho, kappa, 1 / (k.rho + m2))
    c = 1 / (k.rho + m2) - (taus.bias + taus.noise) / 2
    additive = k.eta * (smooth + _young(k.zeta_max / k.rho, taus.bias) + _young(kappa, taus.noise))
    rate = 1 - 2 * k.mu * k.eta * c
    value = additive / (2 * k.mu * k.eta * c) if 0 < rate < 1 else math.inf
    floor = Floor(
        what="DP-FedSOFIM, gradient form, ours",
        value=value,
        trivial=k.gradient**2 / (2 * k.mu),
        rate=rate,
        coefficient=c,
        additive=additive,
    )
    return Uncoupled(event=event, kappa=kappa, step=step, floor=floor)


def _young(b: float, tau: float) -> float:
    return 0.0 if b == 0 else b**2 / (2 * tau)
