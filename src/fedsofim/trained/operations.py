"""What happens to features before the head, as a list of simple operations that other libraries know too."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedsofim.core.preparation import CAP, RADIUS, Centred, UnitNorm, Whitened

if TYPE_CHECKING:
    from fedsofim.trained.model import Trained


class Move(NamedTuple):
    """x -> (x - shift)·scale; a matrix where `scale` has two axes."""

    shift: np.ndarray
    scale: np.ndarray


class Unit(NamedTuple):
    """UnitNorm of core/preparation.py."""

    constant: bool
    lift: bool


class Cap(NamedTuple):
    """x -> radius·x·min(1, cap/|x|)."""

    radius: float = RADIUS
    cap: float = CAP


Operation = Move | Unit | Cap


def operations_of(model: "Trained") -> tuple[Operation, ...]:
    """In their order, from features as they come to what the head takes."""
    out: list[Operation] = []
    if model.standardised is not None:
        out.append(Move(model.standardised.shift, model.standardised.scale))
    made = model.prepared
    for step in made.steps:
        if isinstance(step, UnitNorm):
            out.append(Unit(step.constant, step.lift))
        elif step.phase is not None:
            out.append(Move(*step.affine(made.released[step.phase], made.stds[step.phase])))  # type: ignore[attr-defined]
            out += [Cap()] if isinstance(step, Centred | Whitened) else []
    return tuple(out)
