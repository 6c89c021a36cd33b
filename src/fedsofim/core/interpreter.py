"""Evaluate a traced program, equation by equation, with a handler that decides what each equation gives.

Whatever runs a program uses this: the opening of calls (opening.py), the dynamic check (second_opinion.py), a node's
exact arithmetic (deploy/execute.py) and the vectors of single records (leaves.py). The static walk (walk.py) does not:
it follows what values depend on, and stays independent of whatever runs a program.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jax.extend.core import Jaxpr, Literal

Handler = Callable[[Any, list], Sequence]  # (equation, values of its operands) -> values of its results


def evaluate(jaxpr: Jaxpr, consts: Sequence, args: Sequence, handle: Handler) -> list:
    """Return the outputs of a program.

    Args:
        jaxpr: The program.
        consts: The values of its constants.
        args: The values of its inputs.
        handle: What each equation gives; `bind` is what JAX itself gives.

    Returns:
        The program's outputs in their order.
    """
    values = Values({**dict(zip(jaxpr.constvars, consts, strict=True)), **dict(zip(jaxpr.invars, args, strict=True))})
    values.run(jaxpr.eqns, handle)
    return [values.read(atom) for atom in jaxpr.outvars]


def bind(eqn: Any, values: Sequence, params: dict[str, Any] | None = None) -> list:
    """Return what JAX gives for an equation, perhaps with other parameters than its own."""
    given = eqn.params if params is None else params
    out = eqn.primitive.bind(*values, **eqn.primitive.get_bind_params(given))
    return list(out) if eqn.primitive.multiple_results else [out]


class Values:
    """The values of a program's variables while it is evaluated.

    Args:
        known: Those of its inputs and constants.
        literal: How a literal becomes a value.
    """

    def __init__(self, known: dict[Any, Any], literal: Callable[[Literal], Any] = lambda atom: atom.val) -> None:
        self._known, self._literal = known, literal

    def read(self, atom: Any) -> Any:
        """Return the value of a variable or a literal."""
        return self._literal(atom) if isinstance(atom, Literal) else self._known[atom]

    def run(self, eqns: Iterable[Any], handle: Handler) -> None:
        """Evaluate equations in their order."""
        for eqn in eqns:
            found = handle(eqn, [self.read(atom) for atom in eqn.invars])
            self._known.update(zip(eqn.outvars, found, strict=True))
