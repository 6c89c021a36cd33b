"""From one unit to several at once: what a ledger says of a person with at most k records, wherever they are.

**All records read.** With k records replaced every sum moves by at most k·ratio·clip, as if its multiplier were k times
smaller: what was mu-GDP for one is k·mu-GDP for k, and no less can be said of the worst case (all k alike). Where the k
are at several clients, client i sees k_i of them, and Σ (k_i·mu)² <= (k·mu)². Where all clients make one noise
(banded.py) their moves may meet in it, and |Σ C·d_i| <= Σ |C·d_i| <= Σ k_i·mu is k·mu again.

**Sampled records, or clients that take part by chance.** Two bounds, of which the smaller counts:
* as if all were read: which of the k take part is a mixture, and no draw reveals more than the one that takes all k
  (sampled.py has that argument for one);
* one after another: k replacements of one record each. If each is (e, d)-DP, P(S) <= e^(k·e)·Q(S) + d·Σ_{j<k} e^(j·e),
  by induction. So k·e is an epsilon at delta wherever the ledger's own epsilon at delta/Σ_{j<k} e^(j·e) is at most e.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedsofim.core.accounting import Charge, spent
from fedsofim.errors import expect_whole

_STEPS = 10  # of a bisection, each a ledger priced anew


def epsilon_for_group(charges: Sequence[Charge], multipliers: Mapping[Any, float], delta: float, k: int) -> float:
    """An epsilon at delta for k units replaced at once: exact where all records are read, else a bound.

    >>> site = Charge(site=0, label="gradient", clip=1.0, ratio=2.0, releases=4, weight=4.0)
    >>> one = epsilon_for_group([site], {0: 20.0}, 1e-5, 5)
    >>> one == spent([site], {0: 4.0}, 1e-5)
    True
    """
    expect_whole("the records of a person", k, 1)
    closer = {site: multiplier / k for site, multiplier in multipliers.items()}
    whole = spent([replace(c, sample=1.0, attendance=1.0) for c in charges], closer, delta)
    if k == 1 or all(c.chance == 1 for c in charges):
        return spent(charges, closer, delta)
    return min(whole, _one_by_one(lambda d: spent(charges, multipliers, d), delta, k))


def _one_by_one(epsilon_at: Callable[[float], float], delta: float, k: int) -> float:
    """k·e for about the smallest e whose ledger holds at the delta that k steps leave it."""

    def holds(e: float) -> bool:
        left = delta * _part(e, k)
        return left > 0 and epsilon_at(left) <= e

    low = epsilon_at(delta)
    high = next((h for h in (low * 1.5**i for i in range(1, 12)) if holds(h)), math.inf)
    for _ in range(_STEPS if math.isfinite(high) else 0):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return k * high


def _part(e: float, k: int) -> float:
    """1/Σ_{j<k} e^(j·e).

    >>> _part(0.0, 4), round(_part(math.log(2), 3), 6)
    (0.25, 0.142857)
    """
    return 1 / k if e == 0 else math.exp(-(k - 1) * e) * math.expm1(-e) / math.expm1(-k * e)
