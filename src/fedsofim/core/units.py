"""The natural sizes of a run, in units of the clip, from which automatic steps follow. Public: no record is read."""

import math
from typing import NamedTuple

from fedsofim.tasks import CLASSES, COUNTS, NUMBERS, TWO, Task


class Units(NamedTuple):
    """`reach`: |θ*|·c, how far the best parameters are from the start. `early`, `later`: |G|/c, the mean gradient at
    the start and over most of the run. `classes`: how many, where the reach may be read off the first release.
    `further`: how many times as far it pays to go where there is next to no noise; `loud`: the length of a round's
    noise from which on it does not pay to go further than the reach."""

    reach: float
    early: float
    later: float
    classes: int = 0
    further: float = 1.0
    loud: float = 0.05


#: Records as they come, with a clip of about a gradient's length; fixed on validation records (docs/methods.md).
AS_THEY_COME = Units(reach=80.0, early=0.25, later=0.1)


#: How far apart the classes of prepared records are, in units of the clip: what is measured outside is noise, or of no
#: more use. At θ = 0 the mean gradient is about that over sqrt(classes).
APART = (0.4, 0.8)


#: A network goes further than a head before it is better than one, and that at more noise: on validation records of
#: fashion and digits at four noises (docs/models.md).
NETWORK_LOUD = 0.7


def prepared_units(classes: int, linear: bool = True) -> Units:
    """Prepared records: centred, so gradients are short, and θ has a column for each class (docs/recipe.md).

    >>> round(prepared_units(classes=10).reach, 1)
    18.1
    """
    reach = 8.4 * classes ** (1 / 3)
    if linear:
        return Units(reach=reach, early=0.005, later=0.03, classes=classes, further=1.5)
    return Units(reach=reach, early=0.005, later=0.03, classes=classes, further=4.0, loud=NETWORK_LOUD)


def units_for(task: Task, outputs: int, prepared: bool, linear: bool = True) -> Units:
    """Of a task, whose records are prepared, or as they come; all fixed on validation records (docs/tasks.md).

    Outputs of numbers are at most 1, and of counts a logarithm, so θ* is far shorter than of a head, whose logits grow;
    and a squared loss bears no step much longer than that, so `early` keeps steps short where there is no noise.
    One logit moves by half of what two of a softmax do: |G|² is a quarter of Δ². Labels are as many of those.

    >>> units_for(Task("two-classes"), 1, prepared=True).classes
    4
    """
    if task.kind == CLASSES:
        return prepared_units(outputs, linear) if prepared else AS_THEY_COME
    found = {
        NUMBERS: Units(reach=1.4, early=0.1, later=0.03),
        COUNTS: Units(reach=2.5, early=0.1, later=0.03),
        TWO: Units(reach=8.4, early=0.05, later=0.03, classes=4, further=1.5),
    }.get(task.kind, Units(reach=8.4 * math.sqrt(outputs), early=0.02, later=0.05))
    if prepared:
        return found
    natural = prepared_units(2).reach  # as they come: in the same proportion to a head, which nobody measured
    return AS_THEY_COME._replace(reach=AS_THEY_COME.reach * found.reach / natural)
