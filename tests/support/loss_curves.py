"""What releases on Poisson-sampled records reveal, from the definition, between two bounds; none of it the library's.

One release tells P = (1-q)·N(0, 1) + q·N(d, 1) from Q = (1-q)·N(0, 1) + q·N(-d, 1), d = mu/2. Its loss L = log P/Q
grows with x, and L(x) = l has a closed solution. All that matters of a pair is H(a) = sup P(S) - a·Q(S), convex in
a = e^l: a pair with the larger H is told apart better, also after any number of releases.

**Above.** Chords of H over a grid of l: what lies in a cell is split between its two ends so that its mass under P and
under Q is kept. **Below.** The same chords for a slightly smaller d, each of which lies below a tangent of H: a convex
function is above its tangents. That is looked up in every cell; a cell where it does not show counts for nothing, and
those around 0 as one, which tells nothing. (Then H of what is left is P' - a·Q' of one set there, at most H of the
smaller d, which is at most H, since H grows with d: its derivative is q·(φ(x-d) + a·φ(x+d)).)

So both are pairs with losses on a grid, whose sum over n releases is an n-fold convolution. What leaves its window, by
Chernoff's bound, and what FFT rounds is added above and taken off below.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

FAR = 8.2  # standard deviations, beyond which there is 1e-16 of a release
CELLS = 2**17  # at most, from 0 up
LOST = 1e-13  # of the mass of all releases together may leave the window
ROUNDED = 1e-11  # what FFT may round in delta
NODES, WEIGHTS = np.polynomial.legendre.leggauss(8)


class Pair(NamedTuple):
    q: float
    d: float

    def above(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """P and Q of everything beyond x."""
        rest = (1 - self.q) * ndtr(-x)
        return rest + self.q * ndtr(self.d - x), rest + self.q * ndtr(-x - self.d)

    def density(self, x: np.ndarray) -> np.ndarray:
        """Of P."""
        return ((1 - self.q) * np.exp(-x * x / 2) + self.q * np.exp(-((x - self.d) ** 2) / 2)) / math.sqrt(2 * math.pi)

    def loss(self, x: np.ndarray) -> np.ndarray:
        one, other = (np.log1p(self.q * np.expm1(s * self.d * x - self.d**2 / 2)) for s in (1, -1))
        return one - other

    def where(self, loss: np.ndarray) -> np.ndarray:
        """x with that loss: with u = e^(d·x) and c = q·e^(-d²/2), c·u² - (1-q)·(a-1)·u - a·c = 0; odd in the loss."""
        a, c = np.exp(np.abs(loss)), self.q * math.exp(-(self.d**2) / 2)
        half = (1 - self.q) * (a - 1) / 2
        return np.sign(loss) * np.log((half + np.sqrt(half**2 + a * c * c)) / c) / self.d

    def curve(self, loss: np.ndarray) -> np.ndarray:
        """H at e^loss, for losses of at least 0."""
        x, a = self.where(loss), np.exp(loss)
        return (1 - self.q) * (1 - a) * ndtr(-x) + self.q * (ndtr(self.d - x) - a * ndtr(-x - self.d))


def on_grid(pair: Pair, step: float, top: int, shown: np.ndarray | None = None) -> np.ndarray:
    """P of the losses -top..top, in steps: the mass of every cell, split between its ends.

    `shown`: which cells count, from 0 up and from 0 down. Those around 0 are made one, whose loss is 0.
    """
    ends = pair.where(step * np.arange(-top, top + 1))
    low, high = ends[:-1, None], ends[1:, None]
    x = (low + high) / 2 + (high - low) / 2 * NODES
    mass = pair.density(x) * (high - low) / 2 * WEIGHTS
    up = np.expm1(step * np.arange(-top, top)[:, None] - pair.loss(x)) / math.expm1(-step)
    first = 0 if shown is None else int(np.argmax(shown))
    middle = mass[top - first : top + first].sum()
    if shown is not None:
        mass *= np.concatenate([shown[::-1], shown])[:, None]
    found = np.zeros(2 * top + 1)
    found[1:] += (mass * up).sum(axis=1)
    found[:-1] += (mass * (1 - up)).sum(axis=1)
    found[top] += middle
    return found


def below(pair: Pair, smaller: Pair, step: float, top: int) -> np.ndarray:
    """Of the cells from 0 up: is the chord of the smaller one's H below a tangent of the pair's?"""
    loss = step * np.arange(top + 1)
    chord, middle = smaller.curve(loss), loss[:-1] + step / 2
    slope = -pair.above(pair.where(middle))[1]
    left, right = (pair.curve(middle) + slope * (np.exp(end) - np.exp(middle)) for end in (loss[:-1], loss[1:]))
    return (chord[:-1] <= left) & (chord[1:] <= right)


class Bounds(NamedTuple):
    low: float
    high: float


def deltas(mu: float, q: float, times: int, epsilons: Sequence[float], closeness: float = 3e-5) -> list[Bounds]:
    """delta at each epsilon of so many releases, each mu-GDP if it read all records, of which each is read with rate q.

    Chords are above their curve by about step²/(32·q²·d²·e^(-d²)) of what a whole d makes, so `smaller` is as much
    smaller, three times over. Where CELLS are too few for that, cells around 0 do not count, and bounds are less close.
    """
    pair = Pair(q, mu / 2)
    smaller = Pair(q, pair.d * (1 - closeness))
    reach = float(pair.loss(np.array(FAR + pair.d)))
    step = min(math.sqrt(32 * closeness / 3) * q * pair.d * math.exp(-(pair.d**2) / 2), 0.01)
    step = max(step, reach / CELLS)
    top = math.ceil(reach / step)
    shown = below(pair, smaller, step, top)
    high = summed(on_grid(pair, step, top), step, times)
    low = summed(on_grid(smaller, step, top, shown), step, times)
    lost = ROUNDED + 4 * LOST + times * 2 * float(ndtr(-FAR))
    return [Bounds(delta_at(*low, e) - lost, delta_at(*high, e) + lost) for e in epsilons]


def summed(probabilities: np.ndarray, step: float, times: int) -> tuple[np.ndarray, np.ndarray]:
    """Losses of all releases together, and their P."""
    top = len(probabilities) // 2
    loss = step * np.arange(-top, top + 1)
    first, last = (_edge(s * loss, probabilities, times) for s in (-1, 1))
    start = math.floor(-first / step)
    size = 1 << (math.ceil(last / step) - start).bit_length()
    folded = np.bincount(np.arange(-top, top + 1) % size, probabilities, size)
    together = np.fft.irfft(np.fft.rfft(folded) ** times, size)
    return step * np.arange(start, start + size), np.roll(together, -start)


def _edge(loss: np.ndarray, probabilities: np.ndarray, times: int) -> float:
    """What the sum exceeds with a probability of at most LOST: min over t of (n·log E e^(tL) - log LOST)/t."""
    loss, p = loss[probabilities > 0], probabilities[probabilities > 0]
    most = float(loss.max())
    tilted = ((t, t * most + math.log(p @ np.exp(t * (loss - most)))) for t in np.geomspace(0.5, 500, 24))
    return min((times * log - math.log(LOST)) / t for t, log in tilted)


def delta_at(loss: np.ndarray, probabilities: np.ndarray, epsilon: float) -> float:
    over = loss > epsilon
    return float(probabilities[over] @ -np.expm1(epsilon - loss[over]))
