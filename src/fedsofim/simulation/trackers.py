"""Ready callbacks for `fs.train(on_round=...)`: what was measured goes to a tracker as the run goes on.

    with TensorBoard("runs/one") as watch:
        run = fs.train(split, budget=budget, on_round=watch)

Each has what it is called with: a round and {"accuracy": percent, "loss": ...}. What they write was computed on test
records without noise: a tracker that others can read publishes it.
"""

from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fedsofim.errors import InputError


class Tracker(ABC):
    """A callback that is closed at the end of a with block."""

    @abstractmethod
    def __call__(self, round_: int, measured: dict[str, float]) -> None:
        """What was measured after a round."""

    @abstractmethod
    def close(self) -> None:
        """Everything is written when this returns."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class TensorBoard(Tracker):
    """Scalars for TensorBoard, in a folder; needs the extra tensorboard."""

    def __init__(self, folder: str | Path) -> None:
        try:
            from tensorboard.compat.proto.event_pb2 import Event  # pyright: ignore
            from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore
            from tensorboard.summary.writer.event_file_writer import (  # pyright: ignore[reportMissingImports]
                EventFileWriter,
            )
        except ImportError:
            raise InputError(
                "this needs tensorboard, which is not installed: pip install 'fedsofim[tensorboard]'"
            ) from None
        self._event, self._summary = Event, Summary
        self._writer = EventFileWriter(str(folder))

    def __call__(self, round_: int, measured: dict[str, float]) -> None:
        import time

        values = [self._summary.Value(tag=name, simple_value=value) for name, value in measured.items()]
        event = self._event(wall_time=time.time(), step=round_, summary=self._summary(value=values))
        self._writer.add_event(event)

    def close(self) -> None:
        self._writer.close()


class MLflow(Tracker):
    """Metrics of MLflow's active run, or of a new one of this name; needs the extra mlflow."""

    def __init__(self, run_name: str | None = None) -> None:
        try:
            import mlflow  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise InputError("this needs mlflow, which is not installed: pip install 'fedsofim[mlflow]'") from None
        self._mlflow: Any = mlflow
        self._own = mlflow.active_run() is None
        if self._own:
            mlflow.start_run(run_name=run_name)

    def __call__(self, round_: int, measured: dict[str, float]) -> None:
        self._mlflow.log_metrics(measured, step=round_)

    def close(self) -> None:
        if self._own:
            self._mlflow.end_run()
