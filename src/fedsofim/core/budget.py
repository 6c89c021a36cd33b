"""A budget, and the one way to say that there is none: NO_PRIVACY, written `no-privacy`."""

import math
from dataclasses import dataclass
from typing import Any

from fedsofim.core.gaussian import EPSILONS, check_delta, check_within, mu_of
from fedsofim.errors import InputError, shown


@dataclass(frozen=True)
class Budget:
    """What one record may be exposed to over the whole run, under replace-one adjacency.

    >>> round(Budget(epsilon=1, delta=1e-5).mu, 6)
    0.268051
    """

    epsilon: float
    delta: float = 1e-5

    def __post_init__(self) -> None:
        check_within("epsilon", self.epsilon, *EPSILONS, f"; a run without noise is fs.NO_PRIVACY, written {WITHOUT}")
        check_delta(self.delta)
        for name in ("epsilon", "delta"):  # a class of somebody's own may print as anything
            if type(value := getattr(self, name)) not in (int, float):
                object.__setattr__(self, name, float(value))

    @property
    def mu(self) -> float:
        return mu_of(self.epsilon, self.delta)

    @property
    def private(self) -> bool:
        """Is anything protected at all?"""
        return self.epsilon != math.inf

    def __str__(self) -> str:
        return f"epsilon {self.epsilon:g} at delta {self.delta:g}" if self.private else WITHOUT


#: How a run without noise is written wherever an epsilon stands: command line, experiments, jobs, policies, results.
WITHOUT = "no-privacy"


class _NoPrivacy(Budget):
    def __post_init__(self) -> None:
        """The one budget without bounds."""

    def __repr__(self) -> str:
        return "NO_PRIVACY"


#: No noise and no guarantee: for rehearsals and upper bounds.
NO_PRIVACY: Budget = _NoPrivacy(math.inf, 0.0)


def budget_of(epsilon: Any, delta: float) -> Budget:
    """The budget of an epsilon as people write it: a number, or `no-privacy`.

    >>> budget_of("no-privacy", 1e-5) is NO_PRIVACY, budget_of("0.5", 1e-5).epsilon
    (True, 0.5)
    """
    if epsilon == WITHOUT or epsilon is NO_PRIVACY:
        return NO_PRIVACY
    try:
        return Budget(float(epsilon), delta)
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"epsilon is {shown(epsilon)}; expected a number above 0, or {WITHOUT}") from None


def stated(epsilon: float) -> float | str:
    """An epsilon as results state it: without bound means no privacy.

    >>> stated(1.5), stated(math.inf)
    (1.5, 'no-privacy')
    """
    return epsilon if math.isfinite(epsilon) else WITHOUT


def epsilon_stated(value: float | str) -> float:
    """Back from what results state."""
    return math.inf if value == WITHOUT else float(value)


def in_words(epsilon: float | str) -> str:
    """An epsilon for people, short.

    >>> in_words(0.5), in_words(math.inf)
    ('0.5', 'no-privacy')
    """
    value = epsilon_stated(epsilon)
    return f"{value:.6g}" if math.isfinite(value) else WITHOUT
