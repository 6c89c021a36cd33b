"""How often a model is right on records that nobody may see: a noisy count, charged like any other release.

**What is summed.** A record gives right - 1/2: 1/2 where the model predicts its label, -1/2 where not. Its length is
1/2 whatever the record is, so the clip, (1 + 2^-10)/2, never shortens it, the guard of clipping.py included. Replacing
one record moves the sum by at most 1. That is what `queries.PerRecord` proves for any vector, 2·clip; nothing tighter
is claimed here: the shift by a half, which no record decides, is what makes 2·clip the count's own sensitivity, where
`right` itself, clipped at 1, would be charged twice as much. How many records there are is public: right = sum + n/2.

**What it costs.** A fixed part of the budget's mu², `share`, for all evaluations of a run together: noise of std
s = 2·clip·sqrt(times/share)/mu on each client's sum, so the rounds get the rest and the run's epsilon includes it.

**What is known.** An accuracy over N records at k clients, each with noise of its own, has the standard error
s·sqrt(k)/N; where the clients share their noise (secure sums), s/N. That is the noise alone: the records are a sample
too, of standard deviation sqrt(p·(1 - p)/N) if they were drawn independently.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from fedsofim.core.models import Model
from fedsofim.core.preparation import check_share
from fedsofim.errors import expect_whole

CLIP = 0.5 * (1 + 2.0**-10)
LABEL = "right answers"


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """How often a run counts right answers, and the part of the budget for all of these counts."""

    times: int = 1
    share: float = 0.05

    def __post_init__(self) -> None:
        expect_whole("evaluations", self.times, 1)
        check_share(self.share)

    def client(self, model: Model) -> Callable:
        """The client's program: its sum over the number of its records, as a preparation gives it."""

        def answered(params: Any, x: Any, y: Any) -> Any:
            predicted = jnp.argmax(model.logits(params, x[None])[0], axis=-1)
            return jnp.where(predicted.astype(y.dtype) == y, 0.5, -0.5).astype(jnp.float32)[None]

        def client(door: Any, params: Any, state: Any, memory: Any) -> tuple[Any, Any]:
            total = door.sum(lambda x, y: answered(params, x, y), clip=CLIP, share=self.share, label=LABEL)
            return {"right": total / door.size}, ()

        return client


@dataclass(frozen=True, kw_only=True)
class Measured:
    """An accuracy that was counted privately: percent, with the standard error that its noise gives it."""

    after: int  # rounds
    accuracy: float
    error: float
    records: int
    held_out: bool  # on records that no round has seen
    clients: tuple[str, ...] = ()
    unit: str = "record"  # what was counted: of a person, the part of their records that is answered rightly

    def __str__(self) -> str:
        """
        >>> str(Measured(after=3, accuracy=87.31, error=1.234, records=600, held_out=True))
        'accuracy 87.3 ± 1.2 % (private count on 600 held-out records)'
        """
        digits = max(0, min(4, 1 - math.floor(math.log10(self.error)))) if self.error > 0 else 2
        digits = min(digits, 2) if self.error >= 0.01 else digits
        kind = f"held-out {self.unit}s" if self.held_out else f"{self.unit}s, some of which it was trained on"
        value, error = f"{self.accuracy:.{digits}f}", f" ± {self.error:.{digits}f}" if self.error > 0 else ""
        return f"accuracy {value}{error} % (private count on {self.records} {kind})"
