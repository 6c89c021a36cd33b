"""The recommended recipe: what to do with a budget, with nothing to tune. docs/recipe.md has the measurements.

Everything follows from one public number, `Situation.noise`: that of a mean over all records, per coordinate and in
units of the clip, if it had all of the budget. The constants were fixed on validation records, never on test records.
"""

import math
from dataclasses import replace

from fedsofim.core.budgets import Budgets
from fedsofim.core.preparation import (
    Centred,
    ColumnScales,
    Step,
    UnitNorm,
    Whitened,
    scales_norm,
    second_moment_noise,
    width_of,
)
from fedsofim.recipes.paper import published
from fedsofim.recipes.recipe import Choices, Situation, numbers, share_for, spread
from fedsofim.tasks import CLASSES, TWO, Task

CLIP = 3.0  # of gradients of prepared records, whose features are about 5 long
FEW = 64  # features: with fewer, what a linear head can express is the limit, so square roots go beside them
CLEAR = 0.02  # a mean gradient's noise, in units of the clip, below which they pay with more features too
QUIET = 0.002  # and below which more rounds do
SHARP = 0.01  # noise of the second moment's eigenvalues, of a trace of 1, below which it is worth having
DAMPING = 2.0  # times that noise
LOUD = 0.04  # and above which many rounds do too: none of them teaches much
ROUNDS = (40, 70, 100)  # as a rule, with little noise, with much
BITS = (1.0, 3.0)  # noise of a column's size that is good enough: with few features, with many
KNOWN = 1.5  # noise of a column's size, in bits, up to which a record's length is worth keeping
LOST = 5.0  # and beyond which it would say nothing
NETWORK_ROUNDS = (40, 100)  # of models that are not linear: as a rule, with little noise
CALM = 0.01  # a head's gradient's noise below which it is little for them
NETWORK_CLIP, NETWORK_LR = 1.0, (0.3, 0.6)  # where records are left as they are: carried over from prepared ones


def recommended(situation: Situation) -> Choices:
    """Every choice, from public numbers."""
    if len(situation.shape) != 1:
        return _unprepared()
    if situation.takes == "records as they are":
        return _network_as_it_is(situation)
    steps, why = _preparation(situation)
    features = width_of(steps, situation.shape[0])
    loud = spread(situation.noise, numbers(features, situation.classes))
    rounds = ROUNDS[1 if loud < QUIET else 2 if loud > LOUD else 0] if situation.head else _network_rounds(loud)
    return Choices(
        recipe="auto",
        method="fedsofim",
        settings={"rho": 0.01 * CLIP**2, "beta": 0.8, "bias_correction": True, "weight_decay": 0.0},
        rounds=rounds,
        clip=CLIP,
        weights="size",
        start=0.0,
        preparation=steps,
        why=(
            *why,
            ("clip", f"{CLIP:g}: 0.6 of a prepared record's length"),
            _weights(situation),
            *(_of_the_head(rounds, loud) if situation.head else _of_a_network(rounds, loud)),
            ("method", "fedsofim; rho a hundredth of the clip squared, momentum 0.8"),
            ("step", _step(situation.task)),
        ),
    )


def _of_the_head(rounds: int, loud: float) -> tuple[tuple[str, str], ...]:
    return (
        ("start", "zero: a random one would have to be unlearned"),
        (
            "rounds",
            f"{rounds}: one release with all of the budget would leave a mean gradient a noise of {loud:.2g} "
            f"of the clip; {ROUNDS[0]} rounds between {QUIET:g} and {LOUD:g}, {ROUNDS[1]} below, {ROUNDS[2]} above",
        ),
    )


def _of_a_network(rounds: int, loud: float) -> tuple[tuple[str, str], ...]:
    return (
        (
            "rounds",
            f"{rounds}: {NETWORK_ROUNDS[1]} where a head's gradient would have a noise below {CALM:g} of the clip; "
            f"here {loud:.2g}",
        ),
        ("model", "not linear: prepared as for a head; rounds and steps were measured for MLPs on fashion and digits"),
    )


def _network_rounds(loud: float) -> int:
    return NETWORK_ROUNDS[loud < CALM]


def _step(task: Task) -> str:
    if task.kind in (CLASSES, TWO):
        return "from rounds, clip, noise, classes, and how long the first released gradient is"
    return f"from rounds, clip and noise, for {task.kind}; all else is as for classes, where it was measured"


_SIZE = ("weights", "size: every record counts alike, with less noise than if every client did")


def _weights(situation: Situation) -> tuple[str, str]:
    """Also where budgets are unequal: which clients to leave almost out is not a recipe's to choose."""
    if not isinstance(situation.budget, Budgets):
        return _SIZE
    quieter = situation.noise / replace(situation, quiet=True).noise
    said = f"size: every record counts alike; budgets are unequal, and quiet would have {quieter:.1f} times less noise"
    return "weights", said


def _unprepared() -> Choices:
    """For records that are no rows of features, images for example: the paper's protocol with better weights."""
    why = (
        ("features", "left as they are: they are no rows of features; clip, rounds, method as the paper's"),
        _SIZE,
    )
    return replace(published(), recipe="auto", weights="size", why=why)


def _network_as_it_is(situation: Situation) -> Choices:
    """For networks that are given records as they are, since they may be trained on such already."""
    loud = spread(situation.noise, numbers(situation.shape[0], situation.classes))
    return Choices(
        recipe="auto",
        method="fedsofim",
        settings={
            "lr": NETWORK_LR[loud < CALM],
            "rho": 0.01,
            "beta": 0.8,
            "bias_correction": True,
            "weight_decay": 0.0,
        },
        rounds=_network_rounds(loud),
        clip=NETWORK_CLIP,
        weights="size",
        start=0.5,
        why=(
            ("features", "left as they are: the model may be trained on such already"),
            ("clip", f"{NETWORK_CLIP:g}: as the steps"),
            _weights(situation),
            _of_a_network(_network_rounds(loud), loud)[0],
            ("method", "fedsofim; rho a hundredth of the clip squared, momentum 0.8"),
            ("step", "as it was found for prepared records; tried on digits only"),
        ),
    )


def _preparation(situation: Situation) -> tuple[tuple[Step, ...], tuple[tuple[str, str], ...]]:
    features, noise = situation.shape[0], situation.noise
    if situation.takes == "as many features":
        return _in_place(features, noise)
    few = features < FEW
    scales, bits, why_scales = _scales(features, noise, few)
    lift = few or spread(noise, numbers(2 * features, situation.classes)) < CLEAR
    unit = UnitNorm(constant=few and bits <= KNOWN, lift=lift)
    moments, why_moments = _moments(unit.width(features), noise)
    beside = "with square roots beside them: " + (f"fewer than {FEW} features" if few else "there is little noise")
    length = ", their length kept in one more feature" if unit.constant else ""
    why_unit = f"scaled to length 1{length}{', ' + beside if lift else ''}"
    return (*scales, unit, moments), (why_scales, ("records", why_unit), why_moments)


def _in_place(features: int, noise: float) -> tuple[tuple[Step, ...], tuple[tuple[str, str], ...]]:
    """Every feature stays where it is, pixels for example: records of one length around their mean."""
    share, why = _mean_share(features, noise)
    return (UnitNorm(), Centred(share)), (("records", "scaled to length 1"), why)


def _scales(features: int, noise: float, few: bool) -> tuple[tuple[Step, ...], float, tuple[str, str]]:
    """Sizes of columns, where they can be known at all, and their noise in bits."""
    bits = 26 * scales_norm(features) * noise  # with all of the budget; 12 bits, and a count to divide by
    share = share_for(bits, wanted=BITS[not few], least=0.002, most=0.05)
    bits /= math.sqrt(share)
    if bits > LOST:
        return (), bits, ("columns", "left in their units: their sizes would drown in noise")
    return (ColumnScales(share),), bits, ("columns", f"brought to one unit if they differ: {share:.1%} of mu²")


def _moments(features: int, noise: float) -> tuple[Step, tuple[str, str]]:
    """Curvature if it can be seen through its noise, else the mean alone."""
    share = 0.1
    blur = second_moment_noise(features, math.sqrt(2) * 1.25 * noise / 2 / math.sqrt(share))
    if blur < SHARP:
        step = Whitened(share, max(DAMPING * blur, 1e-3))
        return step, (
            "features",
            f"whitened by their second moment, {share:.0%} of mu²: its noise, {blur:.2g} of its trace, lets it; "
            f"damped by {step.damping:.2g}",
        )
    share, why = _mean_share(features, noise)
    return Centred(share), why


def _mean_share(features: int, noise: float) -> tuple[float, tuple[str, str]]:
    share = share_for(spread(noise, features), wanted=0.05, least=0.01, most=0.05)
    return share, ("features", f"centred by their mean, {share:.1%} of mu²")
