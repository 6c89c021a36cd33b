"""What the peers' networks share: the problem with its parameters by name, and rows of them in the order of names."""

import sys
from typing import Any, NamedTuple

import numpy as np


class NetworkProblem(NamedTuple):
    x: list[np.ndarray]  # one block of records per client
    y: list[np.ndarray]
    params: dict[str, np.ndarray]
    clip: float
    std: float
    lr: float
    rho: float
    beta: float


def read_network() -> NetworkProblem:
    with np.load(sys.argv[1]) as file:
        cuts = np.cumsum(file["sizes"])[:-1]
        params = {name.removeprefix("params/"): file[name] for name in file.files if name.startswith("params/")}
        numbers = [float(file[name]) for name in ("clip", "std", "lr", "rho", "beta")]
        x = [np.ascontiguousarray(part) for part in np.split(file["x"], cuts)]
        return NetworkProblem(x, np.split(file["y"], cuts), params, *numbers)


def row(tree: dict[str, Any], join: Any) -> Any:
    """All parameters as one row, in the order of their names; `join` is the library's concatenate."""
    return join([tree[name].reshape(-1) for name in sorted(tree)])
