"""How the noise of one release site is laid out over the rounds, and how many unit releases that is worth.

A mechanism draws the noise of round t in units of the site's std, and states its `cost`: the squared
sensitivity of everything the site releases over the run, for records that move each sum by one unit and noise
of unit std. Independent noise of unit std over T rounds costs T.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import jax

from fedsofim.errors import InputError


class Mechanism(Protocol):
    """Frozen and hashable: it is part of the traced program."""

    def cost(self, rounds: int) -> float:
        """Squared sensitivity over noise variance of the whole run, in units of (record's move / site's std)²."""
        ...

    def draw(self, key: jax.Array, round: jax.Array, shape: Sequence[int], dtype) -> jax.Array:
        """Noise added at this round. The key is the site's own and the same in every round."""
        ...


@dataclass(frozen=True)
class Independent:
    """Fresh noise every round, `scale` times the site's std.

    >>> Independent().cost(rounds=70), Independent(scale=2.0).cost(rounds=70)
    (70.0, 17.5)
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        if not self.scale > 0:
            raise InputError(f"noise scale is {self.scale}; a release needs noise, so expected a number above 0")

    def cost(self, rounds: int) -> float:
        return rounds / self.scale**2

    def draw(self, key: jax.Array, round: jax.Array, shape: Sequence[int], dtype) -> jax.Array:
        return self.scale * jax.random.normal(jax.random.fold_in(key, round), tuple(shape), dtype)


def draw_tree(mechanism: Mechanism, key: jax.Array, round: jax.Array, like: Sequence) -> list[jax.Array]:
    """Noise for several leaves released together: each leaf has its own key."""
    if len(like) == 1:
        return [mechanism.draw(key, round, like[0].shape, like[0].dtype)]
    keys = jax.random.split(key, len(like))
    return [mechanism.draw(k, round, leaf.shape, leaf.dtype) for k, leaf in zip(keys, like, strict=True)]


def as_mechanism(noise: "float | Mechanism") -> Mechanism:
    """A plain number means independent noise of that relative size."""
    return Independent(float(noise)) if isinstance(noise, int | float) else noise

