"""What was measured after each evaluated round, as a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from fedsofim.simulation.simulator import Trace


@dataclass(frozen=True, repr=False)
class History(Sequence[dict[str, float]]):
    """A run's measurements on the test records, one row for each evaluated round.

    A row is `{"round": 10, "accuracy": 81.2, "loss": 0.61}`; for numbers and counts it has `rmse` in place of
    `accuracy`. Accuracies are in percent. `pandas.DataFrame(run.history)` and `run.history.to_pandas()` are the same.

    Attributes:
        metric: `accuracy` or `rmse`.
        trace: The rounds, the values of the metric and the mean loss, as arrays.
    """

    metric: str
    trace: Trace

    @property
    def rounds(self) -> np.ndarray:
        """The rounds after which it was measured."""
        return self.trace.rounds

    def __len__(self) -> int:
        return len(self.trace.rounds)

    @overload
    def __getitem__(self, at: int) -> dict[str, float]: ...
    @overload
    def __getitem__(self, at: slice) -> list[dict[str, float]]: ...
    def __getitem__(self, at: int | slice) -> dict[str, float] | list[dict[str, float]]:
        if isinstance(at, slice):
            return [self[i] for i in range(len(self))[at]]
        t, score, loss = (column[at] for column in self.trace)
        return {"round": int(t), self.metric: float(score), "loss": float(loss)}

    def to_pandas(self) -> Any:
        """Return the rows as a pandas data frame, with the round as its index."""
        import pandas  # pyright: ignore[reportMissingImports]

        return pandas.DataFrame(list(self)).set_index("round")

    def __repr__(self) -> str:
        """The first and the last rounds as a small table."""
        rows = list(self) if len(self) <= 8 else [*self[:4], None, *self[-3:]]
        lines = [f"{'round':>5}  {self.metric:>9}  {'loss':>9}"]
        for row in rows:
            lines.append("  ..." if row is None else f"{row['round']:5d}  {row[self.metric]:9.4g}  {row['loss']:9.4g}")
        return "\n".join(lines)
