"""A preparation in a job's terms: each step as a plain table, read back strictly.

A node runs these steps on its records, so a table can only name one of the library's own, with exactly that step's
fields. Whatever the numbers in it are, a step maps each record by itself and its release is audited, priced and
clipped like any other: a server can make a preparation useless, never a leak.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any

from fedsofim.core.phase import Phase
from fedsofim.core.preparation import Step
from fedsofim.core.programs import STEPS
from fedsofim.errors import InputError, Refused, is_number

#: The phases in which a preparation releases something, in their order.
PREPARING = (Phase.SCALES, Phase.MOMENTS)

_KNOWN: dict[str, Any] = {k.__name__: k for k in STEPS}
_MOST = 4  # a step may double the features: what is beyond would only keep a node busy


def as_tables(steps: Iterable[Step]) -> list[dict[str, Any]]:
    """Steps as a job's terms carry them.

    >>> from fedsofim.core.preparation import UnitNorm
    >>> as_tables([UnitNorm(lift=True)])
    [{'step': 'UnitNorm', 'constant': False, 'lift': True}]
    """
    return [{"step": type(step).__name__, **asdict(step)} for step in steps]  # type: ignore[call-overload]


def steps_of(tables: Any) -> tuple[Step, ...]:
    """The steps that terms name. Refused for what this library does not have, an error for what makes no sense."""
    if not isinstance(tables, list) or len(tables) > _MOST:
        raise InputError(f"the job's preparation makes no sense; expected a list of at most {_MOST} steps")
    steps = tuple(map(_step, tables))
    places = [PREPARING.index(phase) for phase in phases_of(steps)]
    if places != sorted(set(places)):
        names = ", ".join(type(step).__name__ for step in steps)
        raise Refused(f"the job's preparation is {names}; expected at most one step that releases in each phase, and "
                      f"the phases in their order ({', '.join(PREPARING)})")  # fmt: skip
    return steps


def phases_of(steps: Iterable[Step]) -> list[Phase]:
    """The phases of the steps that release something."""
    return [step.phase for step in steps if step.phase is not None]


def check_mean_stds(stds: Any, steps: Iterable[Step]) -> None:
    """A finite number for each phase of the preparation: the noise in the mean of what was released there."""
    wanted = phases_of(steps)
    if not isinstance(stds, Mapping) or set(stds) != set(wanted):
        raise InputError(f"the job's mean_stds are {stds!r}; expected one number for each of {list(map(str, wanted))}")
    for phase, std in stds.items():
        if not is_number(std) or not 0 <= std < math.inf:
            raise InputError(f"the job's mean_stds have {std!r} for {phase}; expected a finite number, at least 0")


def _step(table: Any) -> Step:
    if not isinstance(table, dict) or not isinstance(name := table.get("step"), str):
        raise InputError(f"a step of the job's preparation is {_short(table)}; expected a table with the step's name")
    if name not in _KNOWN:
        raise Refused(f"there is no step {_short(name)} of a preparation here; known: {', '.join(_KNOWN)}. A job names "
                      "a step, it never brings one")  # fmt: skip
    kind, given = _KNOWN[name], {key: value for key, value in table.items() if key != "step"}
    wanted = {f.name: f.type for f in fields(kind)}
    if set(given) != set(wanted):
        raise Refused(f"the step {name} has {_short(sorted(map(str, given)))}; expected exactly {sorted(wanted)}")
    for key, value in given.items():
        right = isinstance(value, bool) if wanted[key] is bool else is_number(value) and math.isfinite(value)
        if not right:
            expected = "true or false" if wanted[key] is bool else "a finite number"
            raise Refused(f"{key} of the step {name} is {_short(value)}; expected {expected}")
    return kind(**given)


def _short(value: Any) -> str:
    return repr(value)[:80]
