"""What every peer's script shares: the problem, the server step, and taking turns with the others.

A script runs in an environment of its own, so it cannot import fedsofim. It is started with the problem's file and a
file for its clipped sums; writes those; says that it is ready; and then times as many rounds as each line of its
standard input asks for. So ours and a peer can be timed by turns, on the same machine in the same minute.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

MARK = "@@"  # what a library prints by itself is not an answer


class Problem(NamedTuple):
    """The reference problem as plain arrays, one block of records per client."""

    x: list[np.ndarray]  # (|D_i|, p) each
    y: list[np.ndarray]
    theta: np.ndarray  # (p+1, C), the bias last
    clip: float
    std: float  # of the noise on a client's sum
    lr: float
    rho: float
    beta: float


def read_problem(path: str | None = None) -> Problem:
    """The problem in a file: by default the one named on the command line."""
    with np.load(path or sys.argv[1]) as file:
        cuts = np.cumsum(file["sizes"])[:-1]
        numbers = {name: float(file[name]) for name in ("clip", "std", "lr", "rho", "beta")}
        x = [np.ascontiguousarray(part) for part in np.split(file["x"], cuts)]
        return Problem(x, np.split(file["y"], cuts), file["theta"], **numbers)


def sofim_step(problem: Problem, mean: Any, momentum: Any, theta: Any) -> tuple[Any, Any]:
    """M = βM + (1-β)G;  θ -= η·M/(ρ + |M|²): the server's part, in whatever arrays the peer has."""
    momentum = problem.beta * momentum + (1 - problem.beta) * mean
    return theta - problem.lr * momentum / (problem.rho + (momentum * momentum).sum()), momentum


def serve(version: str, sums: np.ndarray, one_round: Callable[[], object]) -> None:
    """Hand in the clipped sums, (clients, p+1, C) without noise; then time rounds on demand."""
    np.save(sys.argv[2], sums)
    _say({"version": version})
    for line in sys.stdin:
        _say({"seconds": [_seconds(one_round) for _ in range(int(line))]})


def _seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def _say(answer: dict[str, Any]) -> None:
    print(MARK + json.dumps(answer), flush=True)
