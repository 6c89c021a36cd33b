"""A strategy over a grid in memory, with a clock of its own: what the tests of the coordinator's loop share."""

from pathlib import Path
from typing import Any

import numpy as np

from fake_grid import FakeClock, FakeGrid
from fedsofim.deploy.flower.strategy import MethodStrategy
from fedsofim.deploy.order import Conduct, Order
from fedsofim.deploy.policy import Policy
from fedsofim.deploy.server import step
from nodes import start

ORDER = Order(recipe="paper", method="fedsofim", epsilon=1.0, rounds=3)


def strategy(tmp_path: Path, order: Order = ORDER, *, clock: FakeClock | None = None, **more: Any) -> MethodStrategy:
    """A job in the folder `job`, with patience that costs no time."""
    conduct = Conduct(**{"folder": str(tmp_path / "job"), "attempts": 2} | more)
    return MethodStrategy(order, conduct, clock=clock or FakeClock())


def theta(result: Any) -> np.ndarray:
    return result.arrays["params0"].numpy()


def replayed(order: Order, nodes: list[Policy], grid: FakeGrid) -> np.ndarray:
    """The parameters after every upload that was sent, in one go."""
    now = start(nodes, order)
    while not now.finished:
        now = step(now, grid.uploads[now.phase, now.round])
    return np.asarray(now.params)
