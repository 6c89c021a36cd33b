"""The client of the Flower peer, in a file of its own because Ray's workers import it."""

import functools
import os
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message, RecordDict  # pyright: ignore[reportMissingImports]
from flwr.clientapp import ClientApp  # pyright: ignore[reportMissingImports]
from numpy_closed_form import clipped_sum, upload
from turns import Problem, read_problem

PROBLEM = "FLOWER_PEER_PROBLEM"  # workers get no command line: the file's name travels in the environment
app = ClientApp()


@functools.lru_cache(maxsize=1)
def world() -> tuple[Problem, np.random.Generator]:
    """The records, read once per worker and not once per message."""
    return read_problem(os.environ[PROBLEM]), np.random.default_rng()


@app.train()
def answer(message: Message, context: Context) -> Message:
    """A client's upload, or its clipped sum where no noise is asked for."""
    problem, random = world()
    asked: Any = message.content["theta"]
    theta, noisy = asked.to_numpy_ndarrays()
    client = int(context.node_config["partition-id"])
    if noisy:
        out = upload(problem, theta, client, random)
    else:
        out = clipped_sum(theta, problem.x[client], problem.y[client], problem.clip)
    return Message(RecordDict({"upload": ArrayRecord([out, np.array([client])])}), reply_to=message)
