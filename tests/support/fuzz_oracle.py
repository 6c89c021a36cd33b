"""Does a program leak? Decided by running it, without reading it: independent of the walk.

Let r be everything a program releases and f the rest of it. If (1) f's outputs, its memory, what it asks for and all
that is shown to people are the same for different records and keys once r is held fixed, and (2) r, with its own past
held fixed, is Gaussian whose mean moves with one record by D and whose covariance is Σ with sqrt(Dᵀ Σ⁻¹ D) <= the mu
that is charged, then the program is mu-GDP: (2) is adaptive composition, (1) makes all else post-processing. Both are
measured here, over rounds and clients, so noise shared between any two releases shows in Σ.
"""

import math
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from fedsofim.core.lattice import Pair
from fedsofim.core.records import Records
from fuzz_execute import CannotRun
from fuzz_releases import noised, sums
from fuzz_runs import Priced, Seen, alone, multipliers, shown, stds_of, together
from fuzz_world import neighbours, opposites, records_with

KEYS = 1024
CHANCE = 1e-9  # of calling an honest program a leak, for one pair of neighbours
ROUNDING = 1 + 1e-6  # stds are float32; sums keep their sensitivity, rounding included
LARGEST = 400  # released numbers in all: more would need more keys
ENGINE = ("broken", "coarse")  # findings that are about the engine, whatever the program
SHOWN = "shown: a print or callback depends on records or keys"


def leak(priced: Priced, *, whole: bool = False) -> str | None:
    """The first thing by which a program leaks, or None. `whole`: its releases by the engine in one, compiled."""
    stds = stds_of(priced)
    return _interference(priced, stds) or _too_little_noise(priced, stds, whole)


def _interference(priced: Priced, stds: jax.Array) -> str | None:
    """One client alone, on two record sets with two keys: with the releases held fixed nothing may differ."""
    runs = []
    for seed, records in enumerate(opposites()):
        with shown() as out:
            one = alone(priced, records, jax.random.key(seed), stds)
        runs.append((one, out))
    (a, shown_a), (b, shown_b) = runs
    if shown_a != shown_b:
        return SHOWN
    if len(a.taken) != len(b.taken):
        return "count: how often is released depends on records or keys"
    if not _same(a.outputs, b.outputs):
        return "alone: upload or memory depends on records or keys"
    if not _same([_asked(t.op) for t in a.taken], [_asked(t.op) for t in b.taken]):
        return "asked: what is asked of the records depends on records or keys"
    return None


def _too_little_noise(priced: Priced, stds: jax.Array, whole: bool) -> str | None:
    """All clients in all rounds: KEYS rows of keys on the same records, then rows of neighbours under one key."""
    records, keys, near = _rows()
    with shown() as said:
        seen = together(priced, records, keys, stds, quiet=True)
        moved, drawn = _whole(priced, records, keys, stds) if whole else _apart(seen, near)
    if not _rows_same(seen.outputs):
        return "together: under vmap upload or memory depends on records or keys"
    if not _rows_same([_asked(t.op) for t in seen.taken]):
        return "asked: what is asked of the records depends on records or keys"
    if any(said) and _shows(priced, stds):
        return SHOWN
    if not seen.taken:
        return None
    if _repeats(seen):
        return "keys: two releases draw the same noise"
    return _compared(moved, drawn, priced) or _coarse(drawn[:2])


@lru_cache(maxsize=1)
def _rows() -> tuple[Records, jax.Array, Records]:
    base, near = records_with(), neighbours()
    pairs = zip(base, near, strict=True)
    records = Records(*(jnp.concatenate([jnp.broadcast_to(b, (KEYS, *b.shape)), n]) for b, n in pairs))
    keys = jax.random.split(jax.random.key(4), KEYS)
    return records, jnp.concatenate([keys, jnp.broadcast_to(keys[:1], (len(near.x),))]), near


def _apart(seen: Seen, near: Records) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Sums of the neighbours and noise under the keys, for every release."""
    moved, drawn = [], []
    for taken in seen.taken:
        pairs = sums(taken, slice(KEYS, None), near)
        moved += [pair.hi.astype(np.float64) + pair.lo for pair in pairs]
        drawn += noised(taken, slice(0, KEYS), [Pair(pair.hi[0], pair.lo[0]) for pair in pairs])
    return moved, drawn


def _whole(priced: Priced, records: Records, keys: jax.Array, stds: jax.Array) -> tuple[list, list]:
    """The same from the engine's own release, everything in one compiled program as a simulation has it."""
    released = jax.jit(lambda: together(priced, records, keys, stds, quiet=True, real=True).released)()
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(released)]
    return [leaf[KEYS:] for leaf in leaves], [leaf[:KEYS] for leaf in leaves]


def _shows(priced: Priced, stds: jax.Array) -> bool:
    """Per-record functions run on records: do they show any to people?"""
    logs = []
    for records in opposites():
        row = Records(*(a[None] for a in records))
        with shown() as out:
            seen = together(priced, row, jax.random.split(jax.random.key(5), 1), stds)
            for taken in seen.taken:
                sums(taken, slice(0, 1), row)
        logs.append(sorted(out))
    return logs[0] != logs[1]


def _compared(moved: list[np.ndarray], drawn: list[np.ndarray], priced: Priced) -> str | None:
    """mu that one record's replacement achieves, against the mu that is charged."""
    means, noise = _numbers(moved), _numbers(drawn)
    if noise.shape[1] > LARGEST:
        raise CannotRun(f"{noise.shape[1]} released numbers")
    if not np.isfinite(noise).all():
        return "finite: a release of finite records is not finite"
    each = multipliers(priced)
    charged = math.sqrt(sum(c.mu_squared(each[c.site]) for c in priced.charges))
    achieved, broken = measured_mu(means, noise)
    if not achieved <= charged * ROUNDING:
        return f"mu: at least {achieved:.3g} where {charged:.3g} is charged"
    if not broken <= charged * ROUNDING:
        return "broken: one record that is not finite spoils the sum"
    return None


def measured_mu(moved: np.ndarray, drawn: np.ndarray) -> tuple[float, float]:
    """A lower bound of max over pairs of sqrt(Dᵀ Σ⁻¹ D), too high with probability CHANCE; without the last row, with.

    For K Gaussian rows with sample covariance S in d dimensions, (K-1)·DᵀΣ⁻¹D / DᵀS⁻¹D is chi-squared with K-d degrees
    of freedom. A part of 1e-6 on the diagonal stands for the rounding of float32.
    """
    moved = moved - moved[0]
    unit = drawn.std(axis=0)
    unit = np.where(unit > 0, unit, np.abs(moved[:-1]).max(axis=0) * 1e-3)  # no noise at all: as good as a thousandth
    used = unit > 0
    moved, drawn = moved[:, used] / unit[used], (drawn[:, used] - drawn[:, used].mean(axis=0)) / unit[used]
    rows, columns = drawn.shape
    inverse = np.linalg.inv(drawn.T @ drawn / (rows - 1) + 1e-6 * np.eye(columns))
    inner = moved @ inverse @ moved.T
    square = (np.diag(inner)[:, None] + np.diag(inner)[None, :] - 2 * inner) * stats.chi2.ppf(CHANCE, rows - columns)
    pairs = np.sqrt(np.maximum(np.nan_to_num(square, nan=np.inf), 0.0) / (rows - 1))
    return float(pairs[:-1, :-1].max()), float(pairs.max())


def _coarse(drawn: list[np.ndarray]) -> str | None:
    """Noise with too few values: compare how many differ with a true Gaussian in float32."""
    for leaf in drawn:
        values = leaf.reshape(KEYS, -1)[:, 0]
        if (found := len(np.unique(values))) < 0.8 * KEYS:
            return f"coarse: {found} values of noise in {KEYS} draws"
    return None


def _numbers(leaves: list[np.ndarray]) -> np.ndarray:
    """Everything released over rounds, clients and sites, a row for each run."""
    return np.concatenate([leaf.astype(np.float64).reshape(len(leaf), -1) for leaf in leaves], axis=1)


def _repeats(seen: Seen) -> bool:
    """Are two releases of one run, over rounds and clients, drawn from the same key in the same round?"""
    words = [np.concatenate([t.op.key[0], np.asarray(t.op.round)[0][..., None]], axis=-1) for t in seen.taken]
    rows = np.concatenate([w.reshape(-1, w.shape[-1]) for w in words])
    return len(np.unique(rows, axis=0)) < len(rows)


def _asked(op) -> list:
    return [op.round, op.index, op.stds, *op.consts]


def _same(a: list, b: list) -> bool:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in pairs)


def _rows_same(values: list) -> bool:
    """Is every row the first one, bit for bit?"""
    for leaf in map(np.asarray, jax.tree.leaves(values)):
        bits = np.ascontiguousarray(leaf).view(np.uint8).reshape(len(leaf), -1)
        if not (bits == bits[0]).all():
            return False
    return True
