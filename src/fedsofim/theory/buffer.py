"""The momentum buffer M_t = β·M_{t-1} + (1-β)·G_t: how long it can be, and how much of it is noise.

**The paper's.** E|G_t|² = |g_clip|² + d·ν² <= C_g² + d·ν²; by convexity of |·|², E[|M_t|² | past] <= β·|M_{t-1}|²
+ (1-β)·C_g² + (1-β)²·d·ν², so E|M_t|² <= M̄² = C_g² + (1-β)·d·ν². By Markov and a union over T rounds, all |M_t|²
are at most M_δ² = T·M̄²/δ_M with probability 1 - δ_M. The noise in M_t has variance ν²·(1-β)/(1+β)·(1-β^(2t+2))
per coordinate; M_t itself has another one, since ∇F(θ_s) depends on earlier noise (docs/theory.md).

**With bias correction** M̂_t = M_t/(1-β^(t+1)) the bound M̄² is wrong: M̂_0 = G_0. M̂_t = a·M̂_{t-1} + (1-a)·G_t
with 1-a = (1-β)/(1-β^(t+1)), and the same convexity gives its own recursion.

**Sharper, ours.** M_t is a mean of clipped gradients, at most C_g long, plus exactly Gaussian noise w: |M_t| <=
C_g + |w|. So E|M_t|² <= (C_g + ν·sqrt(d·(1-β)/(1+β)))², and since |w| is 1-Lipschitz in its standard normals,
P(|w| > s·(sqrt(d) + x)) <= e^(-x²/2), s² the variance per coordinate: all |M_t| are at most C_g +
ν·sqrt((1-β)/(1+β))·(sqrt(d) + sqrt(2·log(T/δ_M))) with probability 1 - δ_M. No factor T/δ_M.
"""

import math

from fedsofim.theory.constants import Constants


def aggregate_bound(k: Constants) -> float:
    """E|G_t|² is at most this."""
    return k.C_g**2 + k.noise2


def recursion(k: Constants, before: float) -> float:
    """E[|M_t|² | past] is at most this, given |M_{t-1}|²."""
    return k.beta * before + (1 - k.beta) * k.C_g**2 + (1 - k.beta) ** 2 * k.noise2


def buffer_bound(k: Constants) -> float:
    """M̄²: E|M_t|² is at most this, at every t."""
    return k.C_g**2 + (1 - k.beta) * k.noise2


def sharper_bound(k: Constants) -> float:
    """The least of M̄² and ours."""
    return min(buffer_bound(k), (k.C_g + math.sqrt(k.noise2 * noise_left(k.beta))) ** 2)


def noise_left(beta: float, t: float = math.inf) -> float:
    """What of ν² is in the noise of M_t: (1-β)/(1+β) in the long run.

    >>> round(noise_left(0.9), 4), round(noise_left(0.9, t=0), 4)
    (0.0526, 0.01)
    """
    return (1 - beta) / (1 + beta) * (1 - beta ** (2 * t + 2))


def event_bound(k: Constants, delta_M: float) -> float:
    """M_δ², the paper's: max_t |M_t|² exceeds it with probability at most δ_M."""
    return k.rounds * buffer_bound(k) / delta_M


def sharper_event_bound(k: Constants, delta_M: float) -> float:
    """The least of that and ours, by Gaussian tails."""
    spread = math.sqrt(k.nu2 * noise_left(k.beta))
    tail = math.sqrt(k.d) + math.sqrt(2 * math.log(k.rounds / delta_M))
    return min(event_bound(k, delta_M), (k.C_g + spread * tail) ** 2)
