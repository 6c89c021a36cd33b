"""What was promised, as a curve: how well may an attacker tell two neighbouring data sets apart?

An attacker says "+" or "-". Its two error rates are alpha (says "+" in the world "-") and beta (says "-" in the world
"+"). A promise is a curve f: whoever attacks, beta >= f(alpha). For a mu-GDP promise

    f(alpha) = Φ(Φ⁻¹(1 - alpha) - mu);

for a promise known as delta(epsilon), f is the highest of the lines that each (epsilon, delta) gives:
f(alpha) = max over epsilon of (1 - delta - e^epsilon·alpha) and e^-epsilon·(1 - delta - alpha).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from fedsofim.core.accounting import Charge
from fedsofim.core.budgets import Budgets
from fedsofim.core.gaussian import epsilon_of
from fedsofim.core.phase import Phase
from fedsofim.core.plan import Plan
from fedsofim.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A promise about one record. `mu` is None where records are sampled: then `lines` are its (epsilon, delta)."""

    epsilon: float
    delta: float
    mu: float | None
    lines: tuple[tuple[float, float], ...] = ()

    def least_beta(self, alpha: float | np.ndarray) -> np.ndarray:
        """f(alpha): no attack may miss less often than this.

        >>> claim = Claim(epsilon=1.0, delta=1e-5, mu=0.0)
        >>> float(claim.least_beta(0.25))  # nothing leaves, so guessing is all there is
        0.75
        """
        alpha = np.asarray(alpha, float)
        if self.mu is not None:
            return ndtr(-ndtri(alpha) - self.mu)
        sides = [np.maximum(1 - d - math.exp(e) * alpha, math.exp(-e) * (1 - d - alpha)) for e, d in self.lines]
        return np.clip(np.max(sides, axis=0), 0.0, 1.0)


def claim_of(plan: Plan, phases: Sequence[Phase]) -> Claim:
    """What a plan promises of these phases. A preset that reruns a wrong account is held to what was published."""
    charges = [c for phase in phases for c in plan.programs[phase].charges]
    published = any(c.charged is not None for c in charges)
    if not plan.budget.private:
        raise InputError("no-privacy promises nothing, so there is nothing to attack; give --epsilon a number")
    if any(c.sample < 1 for c in charges):
        return _sampled(plan, charges)
    if isinstance(plan.budget, Budgets):
        raise InputError("an attack is on one budget for all clients; give --epsilon one number")
    mu = plan.budget.mu if published else math.sqrt(sum(c.mu_squared(plan.multipliers[c.site]) for c in charges))
    return Claim(epsilon=epsilon_of(mu, plan.delta), delta=plan.delta, mu=mu)


def _sampled(plan: Plan, charges: Sequence[Charge]) -> Claim:
    """The curve of sampled releases, from their privacy loss distribution."""
    delta_at = _profile(plan, charges)
    lines = tuple((float(e), float(delta_at(float(e)))) for e in np.linspace(0.0, 3 * plan.epsilon, 61))
    return Claim(epsilon=plan.epsilon, delta=plan.delta, mu=None, lines=lines)


def _profile(plan: Plan, charges: Sequence[Charge]) -> Callable[[float], float]:
    """delta(epsilon) of independent Gaussian releases, some on sampled records."""
    import dp_accounting as dpa
    from dp_accounting import pld

    accountant = pld.PLDAccountant(dpa.NeighboringRelation.REPLACE_ONE)
    for c in charges:
        event = dpa.GaussianDpEvent(2 * plan.multipliers[c.site] / c.ratio * math.sqrt(c.releases / c.weight))
        accountant.compose(event if c.sample == 1 else dpa.PoissonSampledDpEvent(c.sample, event), c.releases)
    return accountant.get_delta
