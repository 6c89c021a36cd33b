"""How the leaves of a per-record vector come about, read from the program that gives them.

A leaf that is a sum of outer products Σ_t a_t ⊗ g_t (contractions.py) need not be formed for every record: its length
and the clipped sum follow from a and g. So a gradient of many parameters costs what an ordinary one does. The forms:

    APART    one term:   |a ⊗ g| = |a|·|g|                              a layer of a network, a record is one row
    GRAM     few terms:  |Σ_t a_t ⊗ g_t|² = Σ_tt' (a_t·a_t')(g_t·g_t')   parameters used twice, short sequences
    LOOKUP   rows added into a table (lookups.py)                       embeddings
    FORMED   the leaf itself, as the program computes it                many terms, biases, scales, all the rest

The reading decides how a sum is computed, never what may leave: whatever a and g are, what is added is Σ_t a_t ⊗ g_t,
and that is what is measured (docs/clipping.md).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Jaxpr, Literal

from fedsofim.core.contractions import Sizes, factors, result, sizes_of, turned_sum
from fedsofim.core.interpreter import Values, bind
from fedsofim.core.lookups import looked_up, rows_of
from fedsofim.core.windows import Patches, conv_of, quick

_MOVES = {"transpose", "reshape", "squeeze", "copy"}  # the same numbers in another place
_ADDITIONS = {"add_any", "add"}
_TERMS = 16  # at most, of a Gram: more make groups of so few records that forming the leaf is cheaper
_ROUNDED = 2048  # at most, in the length of a leaf that is not formed: 2^-13 of its square


class Form(Enum):
    APART = "from |a|·|g|"
    GRAM = "from the products of its few terms"
    LOOKUP = "from the rows of a table that a record touches"
    FORMED = "formed for every record"


class Term(NamedTuple):
    """One equation of a leaf; turned: the leaf has its columns first."""

    eqn: Any
    turned: bool = False


@dataclass(frozen=True, eq=False)
class Leaf:
    """One array of a record's vector: how it is computed, and what was done to place its numbers since."""

    form: Form
    shape: tuple[int, ...]  # of the leaf
    dtype: Any
    sizes: Sizes  # of the contraction; formed: one row
    var: Any  # what is formed
    terms: tuple[Term, ...] = ()  # what is not
    moves: tuple[Any, ...] = ()

    @property
    def numbers(self) -> int:
        return math.prod(self.shape)

    @property
    def groups(self) -> int:
        """In how many parts a group of records is added up, so that no part has more terms than a group records."""
        return 1 << (self.sizes.terms - 1).bit_length() if self.form is Form.GRAM else 1

    @property
    def held(self) -> int:
        """Numbers in memory for each record."""
        if self.form is Form.FORMED:
            return self.numbers
        if self.form is Form.LOOKUP:
            return self.sizes.terms * (self.sizes.columns + self.sizes.terms)
        return self.sizes.batch * self.sizes.terms * (self.sizes.rows + self.sizes.columns)

    @property
    def reads(self) -> list[Any]:
        """The values of the program that it is computed from."""
        return [v for t in self.terms for v in t.eqn.invars[-2:]] if self.terms else [self.var]

    def parts(self, patches: Patches, values: Sequence[jax.Array]) -> tuple[jax.Array, ...]:
        """One record's numbers as one row, or its a and its g as one row each, from what it reads."""
        if self.form is Form.FORMED:
            conv = conv_of(self.terms[0].eqn) if self.terms else None
            formed = values[0] if conv is None else turned_sum(conv, patches, *values)
            return (formed.astype(self.dtype).reshape(-1),)
        if self.form is Form.LOOKUP:
            return looked_up(self.terms[0].eqn, values[0], values[1].astype(self.dtype))
        pairs = [factors(term.eqn, patches, *values[2 * i : 2 * i + 2]) for i, term in enumerate(self.terms)]
        straight = [pair[::-1] if term.turned else pair for pair, term in zip(pairs, self.terms, strict=True)]
        return tuple(jnp.concatenate(s, axis=1).astype(self.dtype).reshape(-1) for s in zip(*straight, strict=True))

    def factors(self, part: tuple[jax.Array, ...]) -> list[jax.Array]:
        """All records' a and g, (records, batch, terms, numbers) each, from their rows."""
        return [f.reshape(len(f), self.sizes.batch, self.sizes.terms, -1) for f in part]

    def of_row(self, row: jax.Array) -> jax.Array:
        """The leaf from its numbers in the order in which they are added up, of any dtype."""
        s = self.sizes
        if len(self.terms) > 1:
            return row.reshape(self.shape)
        if not self.terms or self.form is Form.LOOKUP:
            out = row.reshape(self.var.aval.shape)
        elif self.form is Form.FORMED:
            out = result(self.terms[0].eqn, row.reshape(s.columns, s.rows).T[None])
        else:
            out = result(self.terms[0].eqn, row.reshape(s.batch, s.rows, s.columns))
        return _moved(out, self.moves)


def leaves_of(jaxpr: Jaxpr, dtypes: Sequence[Any]) -> tuple[Leaf, ...]:
    """Every leaf that a per-record program gives, in the form that costs least."""
    made = {v: eqn for eqn in jaxpr.eqns for v in eqn.outvars}
    private = _of_records(jaxpr)

    def leaf(var: Any, dtype: Any) -> Leaf:
        terms = None if isinstance(var, Literal) else _terms(var, made, private, ())
        return _leaf(var, dtype, list(terms or ()), len(dtypes)) or _formed(var, dtype, made, private)

    return tuple(leaf(v, d) for v, d in zip(jaxpr.outvars, dtypes, strict=True))


def evaluated(jaxpr: Jaxpr, leaves: Sequence[Leaf], consts: Sequence, x: jax.Array, y: jax.Array) -> list[tuple]:
    """The parts of every leaf for one record: only the equations that they need are run, and each the quickest way."""
    private, patches = _of_records(jaxpr), Patches()
    known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, x, y), strict=True))
    found = Values(known, literal=lambda atom: jnp.asarray(atom.val, _dtype(atom)))

    def step(eqn: Any, values: list) -> Sequence:
        quicker = quick(eqn) if eqn.primitive.name == "select_and_scatter_add" or _first(eqn, private) else None
        if quicker is None:
            return bind(eqn, values)
        return [quicker(patches, *values).astype(eqn.outvars[0].aval.dtype)]

    found.run(_needed(jaxpr, leaves), step)
    return [leaf.parts(patches, [found.read(v) for v in leaf.reads]) for leaf in leaves]


# --- reading ------------------------------------------------------------------------------------------------


def _of_records(jaxpr: Jaxpr) -> set[Any]:
    """The variables that depend on the record."""
    found = set(jaxpr.invars)
    for eqn in jaxpr.eqns:
        if any(v in found for v in eqn.invars if not isinstance(v, Literal)):
            found |= set(eqn.outvars)
    return found


def _dtype(atom: Any) -> Any:
    return atom.aval.dtype


def _needed(jaxpr: Jaxpr, leaves: Sequence[Leaf]) -> list[Any]:
    """The equations without which the leaves' parts cannot be computed."""
    needed, eqns = {v for leaf in leaves for v in leaf.reads if not isinstance(v, Literal)}, []
    for eqn in reversed(jaxpr.eqns):
        if any(v in needed for v in eqn.outvars):
            eqns.append(eqn)
            needed |= {v for v in eqn.invars if not isinstance(v, Literal)}
    return eqns[::-1]


def _both(eqn: Any, private: set[Any]) -> bool:
    return all(not isinstance(v, Literal) and v in private for v in eqn.invars)


def _first(eqn: Any, private: set[Any]) -> bool:
    """Is the first of two operands the record's, and the other not?"""
    of_record = [not isinstance(v, Literal) and v in private for v in eqn.invars]
    return of_record == [True, False]


def _terms(var: Any, made: dict, private: set, moves: tuple) -> list[tuple[Any, tuple]] | None:
    """The contractions that add up to a variable, each with the moves from there; None if it is something else."""
    eqn = None if isinstance(var, Literal) else made.get(var)
    if eqn is None:
        return None
    if _moves(eqn):
        return _terms(eqn.invars[0], made, private, (eqn, *moves))
    if eqn.primitive.name in _ADDITIONS:
        sides = [_terms(v, made, private, moves) for v in eqn.invars]
        return None if None in sides else [term for side in sides for term in side or ()]
    return [(eqn, moves)] if sizes_of(eqn) and _both(eqn, private) else None


def _moves(eqn: Any) -> bool:
    """Does it only place numbers anew? (A reshape may also be told to permute first.)"""
    permutes = eqn.primitive.name == "reshape" and eqn.params["dimensions"] is not None
    return eqn.primitive.name in _MOVES and not permutes


def _leaf(var: Any, dtype: Any, terms: list[tuple[Any, tuple]], leaves: int) -> Leaf | None:
    """A leaf that need not be formed."""
    if not terms:
        return None
    shape = tuple(var.aval.shape)
    if len(terms) == 1:
        ((eqn, moves),) = terms
        sizes, parts = sizes_of(eqn), (Term(eqn),)
    else:
        moves, (sizes, parts) = (), _side_by_side(terms)
    form = _form(sizes, leaves) if sizes else Form.FORMED
    return None if form is Form.FORMED else Leaf(form, shape, dtype, sizes, None, parts, moves)  # type: ignore[arg-type]


def _side_by_side(terms: list[tuple[Any, tuple]]) -> tuple[Sizes | None, tuple[Term, ...]]:
    """Several contractions as one of as many terms as they have together, if the leaf has all their rows alike."""
    found = [_standing(eqn, moves) for eqn, moves in terms]
    shapes = {(s.rows, s.columns) for s, _ in filter(None, found)}
    if None in found or len(shapes) > 1:
        return None, ()
    (rows, columns), total = shapes.pop(), sum(s.terms for s, _ in filter(None, found))
    turned = [turned for _, turned in filter(None, found)]
    return Sizes(1, total, rows, columns), tuple(Term(eqn, t) for (eqn, _), t in zip(terms, turned, strict=True))


def _standing(eqn: Any, moves: tuple) -> tuple[Sizes, bool] | None:
    """The sizes of a contraction as it stands in the leaf, and whether it is turned there; None if it is neither.

    Told by moving the numbers of their places themselves.
    """
    s = sizes_of(eqn)
    if s is None or s.batch != 1:
        return None
    places = np.arange(s.numbers).reshape(s.rows, s.columns)
    placed = _moved(result(eqn, places[None]), moves).reshape(-1)
    if np.array_equal(placed, places.reshape(-1)):
        return s, False
    if np.array_equal(placed, places.T.reshape(-1)):
        return s._replace(rows=s.columns, columns=s.rows), True
    return None


def _form(s: Sizes, leaves: int) -> Form:
    """The form that costs least among those whose length rounds little enough."""
    if s.terms == 1:
        rounded = sum(map(_roundings, (s.rows, s.columns, s.batch, leaves))) + 16
        return Form.APART if rounded <= _ROUNDED else Form.FORMED
    matrix = s.rows * s.columns
    gram = s.terms**2 * (s.rows + s.columns) + s.terms * matrix // 6
    fits = 1 < s.terms <= _TERMS and gram_roundings(s, leaves) <= _ROUNDED
    return Form.GRAM if fits and gram < 4 * matrix else Form.FORMED


def gram_roundings(s: Sizes, leaves: int) -> int:
    """How often a number is rounded at most on its way into a squared length: in both products, and in their sum."""
    return s.rows + s.columns + s.terms**2 + s.batch + leaves + 16


def _roundings(numbers: int) -> int:
    """Of a sum in levels (clipping.square_sum)."""
    return numbers if numbers <= 768 else 256 * math.ceil(math.log(numbers, 256))


def _formed(var: Any, dtype: Any, made: dict, private: set) -> Leaf:
    """A leaf as it was before its numbers were moved: a gradient of a matrix ends in a transpose, which as a row would
    have to be carried out for every record."""
    shape, moves = tuple(var.aval.shape), ()
    while not isinstance(var, Literal) and var in made and _moves(made[var]):
        moves, var = (made[var], *moves), made[var].invars[0]
    eqn = None if isinstance(var, Literal) else made.get(var)
    if eqn is not None and (rows := rows_of(eqn, made)):
        return Leaf(Form.LOOKUP, shape, dtype, Sizes(1, rows[0], 1, rows[1]), var, (Term(eqn),), moves)
    if eqn is not None and conv_of(eqn) and _both(eqn, private) and (sizes := sizes_of(eqn)):
        return Leaf(Form.FORMED, shape, dtype, sizes, var, (Term(eqn),), moves)
    return Leaf(Form.FORMED, shape, dtype, Sizes(1, 1, 1, math.prod(shape)), var, (), moves)


def _moved(a: Any, moves: Sequence[Any]) -> Any:
    """An array of JAX's or NumPy's as the moves leave it."""
    for eqn in moves:
        turn = eqn.primitive.name == "transpose"
        a = a.transpose(eqn.params["permutation"]) if turn else a.reshape(eqn.outvars[0].aval.shape)
    return a


def told(leaves: Sequence[Leaf]) -> str:
    """For people: how much of a record's vector is formed."""
    total = sum(leaf.numbers for leaf in leaves)
    formed = [leaf for leaf in leaves if leaf.form is Form.FORMED]
    if not formed:
        return f"none of a record's {total:,} numbers is formed"
    shapes = [leaf.shape for leaf in sorted(formed, key=lambda leaf: -leaf.numbers)]
    most = ", ".join(" x ".join(map(str, shape)) or "1" for shape in shapes[:3])
    rest = f" and {len(shapes) - 3} smaller" if len(shapes) > 3 else ""
    return f"{sum(leaf.numbers for leaf in formed):,} of a record's {total:,} numbers are formed: {most}{rest}"
