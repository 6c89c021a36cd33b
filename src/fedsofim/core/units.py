"""The natural sizes of a run, in units of the clip, from which automatic steps follow. Public: no record is read."""

from typing import NamedTuple


class Units(NamedTuple):
    """`reach`: |θ*|·c, how far the best parameters are from the start. `early`, `later`: |G|/c, the mean gradient at
    the start and over most of the run. `classes`: how many, where the reach may be read off the first release.
    `further`: how many times as far it pays to go where there is next to no noise."""

    reach: float
    early: float
    later: float
    classes: int = 0
    further: float = 1.0


#: Records as they come, with a clip of about a gradient's length; fixed on validation records (docs/methods.md).
AS_THEY_COME = Units(reach=80.0, early=0.25, later=0.1)


#: How far apart the classes of prepared records are, in units of the clip: what is measured outside is noise, or of no
#: more use. At θ = 0 the mean gradient is about that over sqrt(classes).
APART = (0.4, 0.8)


def prepared_units(classes: int) -> Units:
    """Prepared records: centred, so gradients are short, and θ has a column for each class (docs/recipe.md).

    >>> round(prepared_units(classes=10).reach, 1)
    18.1
    """
    return Units(reach=8.4 * classes ** (1 / 3), early=0.005, later=0.03, classes=classes, further=1.5)
