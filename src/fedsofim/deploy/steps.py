"""A preparation in a job's terms: a few steps (core/step_tables.py), whose releases come in the order of the phases."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from fedsofim.core.phase import Phase
from fedsofim.core.preparation import Step
from fedsofim.core.step_tables import step_of
from fedsofim.errors import InputError, Refused, is_number

#: The phases in which a preparation releases something, in their order.
PREPARING = (Phase.SCALES, Phase.MOMENTS)
#: The phases whose programs are the library's own: no job names their clips.
OWN = (*PREPARING, Phase.EVALUATION)

_MOST = 4  # a step may double the features: what is beyond would only keep a node busy


def steps_of(tables: Any) -> tuple[Step, ...]:
    """The steps that terms name. Refused for what this library does not have, an error for what makes no sense."""
    if not isinstance(tables, list) or len(tables) > _MOST:
        raise InputError(f"the job's preparation makes no sense; expected a list of at most {_MOST} steps")
    steps = tuple(map(step_of, tables))
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
