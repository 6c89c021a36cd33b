"""Clients that take part by chance: each in each round with probability q, drawn by itself and told to nobody.

Under secure sum the server sees one sum a round; who is absent sends its share of the noise only, so that neither the
noise nor the number of uploads tells who was there. The mean divides by the expected weight, a public number:

    Σ_{i present} a_i·S_i/q + noise/q,    a_i = w_i/|D_i|, noise for the largest a_i of all n clients.

**A client that holds one unit** (unit "client", or one record): being present is being drawn. The round is a release on
Poisson-sampled units, and is priced as one (sampled.py). It is computed as one too: such a plan has no attendance, its
sites sample at q, so units keep their lanes and the guard is there twice (docs/clipping.md).

**A client that holds many.** When it is present its whole sum moves what is seen, however long that is, so whoever
knows its other records may see that it is there: q does not hide the one record among them. What q buys is that most
rounds do not read the record. Let the server see who is present, which can only tell it more. Given that, a record
of a client that is present in k of T rounds has k Gaussian releases of mu each, and k is binomial whatever the records
are. For events of what is seen, P - e^epsilon·Q is then a mean over k, so with all else that is released, mu_0,

    delta(epsilon) <= Σ_k Bin(k; T, q)·delta of sqrt(mu_0² + k·mu²) at epsilon,

with equality where a client's sum is long. A public schedule (participation.py) has k = q·T always instead of by
chance, which is cheaper: records gain from being asked in turn, clients from not being seen.
"""

import math
from typing import NamedTuple

from fedsofim.core.gaussian import delta_of, epsilon_of

_UNLIKELY = 1e-30  # of how often a client is present: counted as if all were then known
_HALVINGS = 60
_LOGS = 1e-13  # of a probability, for each round: far more than logarithms of factorials of so many round


class Attended(NamedTuple):
    """`times` rounds, in each of which a client is present with probability `rate` and releases mu-GDP."""

    mu: float
    rate: float
    times: int


def delta_of_attended(mu: float, drawn: Attended, epsilon: float) -> float:
    """delta at epsilon of releases that are mu-GDP together and of those in rounds that a client attends by chance."""
    delta = 0.0
    for k in range(drawn.times + 1):
        likely = _binomial(k, drawn.times, drawn.rate)
        known = 1.0 if likely < _UNLIKELY else delta_of(math.sqrt(mu * mu + k * drawn.mu * drawn.mu), epsilon)
        delta += likely * known
    return delta


def epsilon_of_attended(mu: float, drawn: Attended, delta: float) -> float:
    """The least epsilon at that delta, from above: found by halving, of which the upper end is given."""
    low, high = 0.0, epsilon_of(math.sqrt(mu * mu + drawn.times * drawn.mu * drawn.mu), delta)
    if not math.isfinite(high) or delta_of_attended(mu, drawn, 0.0) <= delta:
        return 0.0 if math.isfinite(high) else high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if high - low <= 1e-12 * high:
            break
        low, high = (low, middle) if delta_of_attended(mu, drawn, middle) <= delta else (middle, high)
    return high


def _binomial(k: int, n: int, q: float) -> float:
    """The chance of k of n, rounded up."""
    ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return math.exp(ways + k * math.log(q) + (n - k) * math.log1p(-q) + _LOGS * (n + 1e4))
