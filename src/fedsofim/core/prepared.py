"""A preparation with what was released for it: part of a model, since whoever uses the model prepares records by it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedsofim.core.phase import Phase
from fedsofim.core.preparation import Map, Released, Step, prepared
from fedsofim.core.step_tables import as_tables, step_of
from fedsofim.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Takes records as they come."""

    steps: tuple[Step, ...] = ()
    released: Mapping[Phase, Released] = field(default_factory=dict)
    stds: Mapping[Phase, float] = field(default_factory=dict)  # of the noise in what was released

    @property
    def map(self) -> Map:
        return prepared(self.steps, self.released, self.stds)

    def tables(self) -> list[dict[str, Any]]:
        """Each step as plain data, with the noise std of what it released; `read` takes it back."""
        noise = ({} if s.phase is None else {"std": float(self.stds[s.phase])} for s in self.steps)
        return [table | std for table, std in zip(as_tables(self.steps), noise, strict=True)]

    def arrays(self) -> dict[str, np.ndarray]:
        """What was released, by a name that says in which phase."""
        return {f"{phase}.{key}": np.asarray(v) for phase, found in self.released.items() for key, v in found.items()}

    @staticmethod
    def read(tables: Any, arrays: Mapping[str, np.ndarray]) -> "Prepared":
        """Back from plain data and arrays, checked."""
        steps, released, stds = [], {}, {}
        for table in tables:
            step = step_of({k: v for k, v in table.items() if k != "std"})
            steps.append(step)
            if step.phase is not None:
                head = f"{step.phase}."
                released[step.phase] = {k.removeprefix(head): v for k, v in arrays.items() if k.startswith(head)}
                stds[step.phase] = float(table["std"])
                if not released[step.phase] or not math.isfinite(stds[step.phase]):
                    raise InputError(f"the step {table['step']} of the preparation lacks what was released for it")
        return Prepared(steps=tuple(steps), released=released, stds=stds)
