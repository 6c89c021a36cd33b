"""Where `fedsofim tune` looks: the paper's coarse and fine grids, and one common grid for all methods.

A space is a list of boxes; a box maps each setting to its values, and all their combinations are tried. A setting
named "total_step" is client_lr · server_lr · local_steps, the distance a unit gradient moves the server in a round;
it is turned into client_lr, so that methods with local steps are searched on the same scale as those without.
"""

import itertools
import math
from typing import Any

import numpy as np

Box = dict[str, list[Any]]

_ADAM_TAU = ([1e-5, 1e-3, 0.01, 0.1], [1e-5, 0.01, 0.05, 0.1])

#: (coarse, fine) for every method, from the paper's table of search grids. FedAvg's client step is not in it; 0.1.
PAPER: dict[str, tuple[Box, Box]] = {
    "fedgd": (
        {"lr": [1e-4, 1e-3, 0.01, 0.1, 1.0, 5.0, 10.0]},
        {"lr": [0.03, 0.05, 0.08, 0.1, 0.3]},
    ),
    "fedavg": (
        {"server_lr": [1e-3, 0.01, 0.1, 0.5, 1.0], "local_steps": [1, 3, 5, 10, 20], "client_lr": [0.1]},
        {"server_lr": [0.3, 0.5, 0.6, 0.8, 1.0], "local_steps": [1, 2, 5, 7, 10], "client_lr": [0.1]},
    ),
    "fedfc": (
        {"lr": [1e-4, 1e-3, 0.01, 0.1, 1.0, 5.0], "gamma": [0.01, 0.1, 1.0, 10.0, 100.0]},
        {"lr": [0.1, 0.15, 0.3, 0.4, 0.5, 2.0], "gamma": [0.5, 1.0, 2.0, 5.0, 10.0]},
    ),
    "scaffold": (
        {
            "server_lr": [0.01, 0.1, 0.5, 1.0, 5.0],
            "client_lr": [0.001, 0.01, 0.1, 0.5],
            "local_steps": [1, 5, 10],
        },
        {
            "server_lr": [0.3, 0.5, 0.7, 1.0, 2.0],
            "client_lr": [0.05, 0.1, 0.2, 0.3],
            "local_steps": [1, 3, 5, 7, 10],
        },
    ),
    "fedadam": (
        {
            "lr": [1e-4, 1e-3, 0.01, 0.1, 1.0],
            "beta1": [0.0, 0.8, 0.9],
            "beta2": [0.8, 0.9, 0.999],
            "tau": _ADAM_TAU[0],
        },
        {
            "lr": [0.01, 0.02, 0.05, 0.1],
            "beta1": [0.8, 0.9, 0.95],
            "beta2": [0.8, 0.999, 0.9999],
            "tau": _ADAM_TAU[1],
        },
    ),
    "fedyogi": (
        {
            "lr": [1e-4, 1e-3, 0.01, 0.1, 1.0],
            "beta1": [0.0, 0.5, 0.9],
            "beta2": [0.5, 0.9, 0.999],
            "tau": _ADAM_TAU[0],
        },
        {
            "lr": [0.01, 0.02, 0.05, 0.1, 0.2],
            "beta1": [0.5, 0.9, 0.95],
            "beta2": [0.5, 0.9, 0.999],
            "tau": _ADAM_TAU[1],
        },
    ),
    "ftrl": ({"lr": [0.5, 1.0, 3.0, 5.0, 7.0, 10.0]}, {"lr": [3.0, 3.5, 5.0, 7.0, 8.0, 9.0]}),
    "adafedprox": (
        {
            "server_lr": [0.1, 0.3, 0.5, 1.0, 3.0],
            "client_lr": [0.001, 0.01, 0.05, 0.1, 0.5],
            "mu0": [0.001, 0.01, 0.1, 0.5, 1.0],
            "local_steps": [1, 3, 5, 7],
        },
        {
            "server_lr": [0.5, 0.6, 0.8, 1.0, 1.5],
            "client_lr": [0.05, 0.1, 0.2, 0.3],
            "mu0": [0.01, 0.05, 0.1, 0.2],
            "local_steps": [1, 3, 5],
        },
    ),
    "fedsofim": (
        {"lr": [1e-3, 0.01, 0.1, 1.0, 5.0], "rho": [0.01, 0.1, 1.0, 5.0, 10.0], "beta": [0.8, 0.9, 0.99]},
        {
            "lr": [0.1, 0.2, 0.5, 1.0, 3.0, 4.0],
            "rho": [0.5, 1.0, 5.0, 10.0, 20.0],
            "beta": [0.8, 0.85, 0.9, 0.95],
        },
    ),
}

TRIALS = 24  # of every method in the common grid


def ladder(low: float, high: float, steps: int) -> list[float]:
    """Log-spaced step sizes.

    >>> ladder(0.1, 10, 3)
    [0.1, 1.0, 10.0]
    """
    return [float(f"{v:.3g}") for v in np.geomspace(low, high, steps)]


#: 24 trials for every method, each step size over the same factor of 100 around its own scale.
COMMON: dict[str, list[Box]] = {
    "fedgd": [{"lr": ladder(0.02, 2.0, 24)}],
    "fedavg": [{"total_step": ladder(0.02, 2.0, 12), "local_steps": [1, 3], "server_lr": [1.0]}],
    "scaffold": [{"total_step": ladder(0.02, 2.0, 12), "local_steps": [1, 3], "server_lr": [1.0]}],
    "adafedprox": [{"total_step": ladder(0.02, 2.0, 12), "local_steps": [1, 3], "server_lr": [1.0], "mu0": [0.05]}],
    "fedfc": [{"lr": ladder(0.05, 5.0, 6), "gamma": [0.5, 2.0, 5.0, 20.0]}],
    "fedadam": [
        {"lr": ladder(0.003, 0.3, 6), "beta1": [0.9], "beta2": [0.99], "tau": [1e-3, 0.1]},
        {"lr": ladder(0.003, 0.3, 6), "beta1": [0.9], "beta2": [0.999], "tau": [1e-3]},
        {"lr": ladder(0.003, 0.3, 6), "beta1": [0.95], "beta2": [0.999], "tau": [0.01]},
    ],
    "fedyogi": [
        {"lr": ladder(0.003, 0.3, 6), "beta1": [0.9], "beta2": [0.99], "tau": [1e-3, 0.1]},
        {"lr": ladder(0.003, 0.3, 6), "beta1": [0.9], "beta2": [0.999], "tau": [1e-3]},
        {"lr": ladder(0.003, 0.3, 6), "beta1": [0.95], "beta2": [0.999], "tau": [0.01]},
    ],
    "ftrl": [{"lr": ladder(0.02, 2.0, 8), "noise": ["tree", "honaker", "diagonal"]}],
    "fedsofim": [
        {"lr": ladder(0.04, 4.0, 6), "rho": [0.5], "beta": [0.9, 0.95], "bias_correction": [True]},
        {"lr": ladder(0.16, 16.0, 6), "rho": [2.0], "beta": [0.9], "bias_correction": [True]},
        {"lr": ladder(0.8, 80.0, 6), "rho": [10.0], "beta": [0.9], "bias_correction": [True]},
    ],
}


def combinations(boxes: list[Box]) -> list[dict[str, Any]]:
    """Every setting of a space.

    >>> combinations([{"lr": [0.1, 0.2], "local_steps": [1]}])
    [{'lr': 0.1, 'local_steps': 1}, {'lr': 0.2, 'local_steps': 1}]
    """
    found = (dict(zip(box, values, strict=True)) for box in boxes for values in itertools.product(*box.values()))
    return [_written_out(s) for s in found]


def random_settings(boxes: list[Box], trials: int, seed: int | None) -> list[dict[str, Any]]:
    """Settings drawn from a space: numbers log-uniformly between a box's ends, everything else among its values."""
    random = np.random.default_rng(seed)
    drawn = []
    for _ in range(trials):
        box = boxes[random.integers(len(boxes))]
        drawn.append(_written_out({name: _draw(random, values) for name, values in box.items()}))
    return drawn


def _draw(random: np.random.Generator, values: list[Any]) -> Any:
    numbers = all(isinstance(v, float) and v > 0 for v in values)
    if not numbers or len(set(values)) == 1:
        return values[random.integers(len(values))]
    low, high = math.log(min(values)), math.log(max(values))
    return float(f"{math.exp(random.uniform(low, high)):.4g}")


def _written_out(settings: dict[str, Any]) -> dict[str, Any]:
    out = dict(settings)
    if "total_step" in out:
        total = out.pop("total_step")
        out["client_lr"] = float(f"{total / (out['server_lr'] * out['local_steps']):.6g}")
    return out
