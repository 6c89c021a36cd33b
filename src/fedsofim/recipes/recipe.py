"""What a recipe is: from what is public before a run to every choice of it, as frozen data.

`auto` is the recommended one and the default, `paper` the protocol of the paper.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedsofim.core.budgets import AnyBudget, each_of
from fedsofim.core.models import Takes
from fedsofim.core.plan import Trust, Weights
from fedsofim.core.pooled import noise_gain
from fedsofim.core.preparation import Step
from fedsofim.core.weights import weights_of
from fedsofim.errors import one_of
from fedsofim.tasks import Task


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What is public before a run: nothing here depends on a record's contents."""

    budget: AnyBudget
    sizes: tuple[int, ...]
    shape: tuple[int, ...]  # of one record
    classes: int  # outputs of the model
    trust: Trust = "local"
    head: bool = True  # is the model the linear head, or linear in another task?
    takes: Takes = "any features"  # what the model may be given
    task: Task = Task()
    min_clients: int | None = None  # how many a secure sum can do with; None: it needs all of them
    quiet: bool = False  # are clients weighted for the least noise, by hand?

    @property
    def noise(self) -> float:
        """Noise std per coordinate of a mean over all records, in units of the clip, if it had all of the budget.

        2·a/mu: a record moves a client's sum by at most twice the clip, and a is what of its noise is in the mean.
        """
        if not self.budget.private:
            return 0.0
        sizes, shared = np.asarray(self.sizes, float), self.trust == "secure-sum"
        mu = np.array([b.mu for b in each_of(self.budget, len(sizes))])
        factors = np.full(len(sizes), 1 / sizes.sum())  # every record counts alike
        if self.quiet:
            factors = weights_of("quiet", sizes, 1 / mu, shared) / sizes
        return 2 * noise_gain(factors * (mu.max() / mu), shared, self.min_clients) / float(mu.max())


@dataclass(frozen=True, kw_only=True)
class Choices:
    """Every choice of a run, and why, in words."""

    recipe: str
    method: str
    settings: Mapping[str, Any]
    rounds: int
    clip: float
    weights: Weights
    start: float  # size of the head's initial parameters
    preparation: tuple[Step, ...] = ()
    why: tuple[tuple[str, str], ...] = ()  # (choice, reason)


Recipe = Callable[[Situation], Choices]
_PREPARES = ("columns", "records", "features")  # what a preparation is the reason for


def settings_in(chosen: Choices, method: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """A method's settings within a recipe: the recipe's own for the method it chose, and those given by hand."""
    return {**(chosen.settings if method == chosen.method else {}), **settings}


def by_hand(
    chosen: Choices, method: str | None = None, settings: Mapping[str, Any] | None = None, **other: Any
) -> Choices:
    """What a recipe chose, with what was chosen by hand in its place; None is left to the recipe.

    `other`: rounds, clip, weights, preparation. Reasons for what was chosen by hand are left out.
    """
    given = {name: value for name, value in other.items() if value is not None}
    named = method or chosen.method
    instead = {*given, *(_PREPARES if "preparation" in given else ()), *(("step",) if named != chosen.method else ())}
    return replace(
        chosen,
        why=tuple((what, why) for what, why in chosen.why if what not in instead),
        method=named,
        settings=settings_in(chosen, named, settings or {}),
        **given,
    )


def names() -> list[str]:
    return list(_recipes())


def choose(recipe: str, situation: Situation) -> Choices:
    """What a recipe makes of a situation."""
    one_of("recipe", recipe, names())
    return _recipes()[recipe](situation)


def _recipes() -> dict[str, Recipe]:
    from fedsofim.recipes.auto import recommended  # here, since they are written in terms of this file
    from fedsofim.recipes.paper import published

    return {"auto": recommended, "paper": published}


def share_for(noise: float, wanted: float, least: float, most: float) -> float:
    """The part of mu² that brings a release's noise down to what is wanted, within bounds. Noise falls with its root.

    >>> share_for(0.05, wanted=0.5, least=0.001, most=0.05), share_for(1.0, wanted=0.5, least=0.001, most=0.05)
    (0.010000000000000002, 0.05)
    """
    return min(max((noise / wanted) ** 2, least), most)


def numbers(features: int, classes: int) -> int:
    """Parameters of a head.

    >>> numbers(features=64, classes=10)
    650
    """
    return (features + 1) * classes


def spread(noise: float, count: int) -> float:
    """The length of noise on so many coordinates."""
    return noise * math.sqrt(count)
