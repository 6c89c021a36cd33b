"""Flower's simulation engine: 20 clients as messages on its Ray backend, each in NumPy closed form.

A third argument is the time in seconds that the server sleeps between looking for replies (Flower's own: 0.1), so
that the engine's cost can be told from the cost of sleeping.
"""

import importlib.metadata
import os
import sys
import time
from pathlib import Path
from typing import Any

import flower_client
import numpy as np
from flwr.app import ArrayRecord, Context, Message, RecordDict  # pyright: ignore[reportMissingImports]
from flwr.serverapp import Grid, ServerApp  # pyright: ignore[reportMissingImports]
from flwr.simulation import run_simulation  # pyright: ignore[reportMissingImports]
from turns import read_problem, serve, sofim_step

server = ServerApp()


@server.main()
def drive(grid: Grid, context: Context) -> None:
    """The rounds, driven from inside the simulation."""
    problem = read_problem()
    if len(sys.argv) > 3:
        grid.pull_interval = float(sys.argv[3])  # type: ignore[attr-defined]
    while len(list(grid.get_node_ids())) < len(problem.x):  # nodes sign on while this thread starts
        time.sleep(0.1)
    state = [problem.theta, np.zeros_like(problem.theta)]

    def one_round() -> None:
        mean = ask(grid, state[0], noisy=True).mean(axis=0)
        state[:] = sofim_step(problem, mean, state[1], state[0])

    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("flwr", "ray")]
    serve(", ".join(versions), ask(grid, problem.theta, noisy=False), one_round)


def ask(grid: Grid, theta: np.ndarray, noisy: bool) -> np.ndarray:
    """Every client's answer, in their order."""
    content = RecordDict({"theta": ArrayRecord([theta, np.array(noisy)])})
    replies = grid.send_and_receive([Message(content, node, "train") for node in grid.get_node_ids()])
    uploads: list[Any] = [reply.content["upload"] for reply in replies]
    arrays = [upload.to_numpy_ndarrays() for upload in uploads]
    return np.stack([out for out, _ in sorted(arrays, key=lambda pair: int(pair[1][0]))])


if __name__ == "__main__":
    os.environ |= {flower_client.PROBLEM: sys.argv[1], "PYTHONPATH": str(Path(__file__).parent)}
    clients = len(read_problem().x)
    run_simulation(server, flower_client.app, clients, backend_config={"client_resources": {"num_cpus": 1}})
