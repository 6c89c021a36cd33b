"""The steps of a preparation as plain tables, read back strictly: in a model's file and in a job's terms alike.

A table can only name one of the library's own steps, with exactly that step's fields. A node runs these steps on its
records; whatever the numbers in a table are, a step maps each record by itself and its release is audited, priced and
clipped like any other: who writes a table can make a preparation useless, never a leak.
"""

import math
from collections.abc import Iterable
from dataclasses import asdict, fields
from typing import Any

from fedsofim.core.preparation import Step
from fedsofim.core.programs import STEPS
from fedsofim.errors import InputError, Refused, is_number

_KNOWN: dict[str, Any] = {k.__name__: k for k in STEPS}


def as_tables(steps: Iterable[Step]) -> list[dict[str, Any]]:
    """Steps as plain data.

    >>> from fedsofim.core.preparation import UnitNorm
    >>> as_tables([UnitNorm(lift=True)])
    [{'step': 'UnitNorm', 'constant': False, 'lift': True}]
    """
    return [{"step": type(step).__name__, **asdict(step)} for step in steps]  # type: ignore[call-overload]


def step_of(table: Any) -> Step:
    """The step that a table names. Refused for what this library does not have, an error for what makes no sense."""
    if not isinstance(table, dict) or not isinstance(name := table.get("step"), str):
        raise InputError(f"a step of the preparation is {_short(table)}; expected a table with the step's name")
    if name not in _KNOWN:
        raise Refused(f"there is no step {_short(name)} of a preparation here; known: {', '.join(_KNOWN)}. A table "
                      "names a step, it never brings one")  # fmt: skip
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
