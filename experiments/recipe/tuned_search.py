"""The search that the recipe is measured against: each of the nine methods, steps over three or four decades.

Steps are a third of a decade apart around a natural scale of the protocol, for large data where runs are long half a
decade. Scored on records held out of the training records; nothing of this is charged, so it is more than a user under
the same budget could do.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fedsofim.core.budget import Budget
from fedsofim.data.partition import Split
from fedsofim.simulation import sweep

STEPS = [10 ** (k / 3) for k in range(-6, 7)]
FEWER = [10 ** (k / 2) for k in range(-3, 4)]


class Form(NamedTuple):
    """A method with all settings but its step, which is `scale` times a factor."""

    method: str
    scale: float
    step: Callable[[float], dict[str, Any]]
    fixed: dict[str, Any]


class Found(NamedTuple):
    """The best settings of a method on held-out records, and how many were tried."""

    method: str
    settings: dict[str, Any]
    accuracy: float
    trials: int


def forms(protocol: str, length: float) -> list[Form]:
    """What is searched; `length` is a record's typical norm as the head sees it.

    A head θ of size 1/length gives logits of size 1, so steps go with 1/length; the constants are the scale of the
    best steps on the paper's features (docs/results/tuned-cifar10) and of the recipe's own.
    """
    prepared = protocol == "auto"
    plain = 4.0 if prepared else 0.2 * 15 / length
    signs = 0.04 if prepared else 0.03 * 15 / length
    square = length**2 / 225

    def lr(value: float) -> dict[str, Any]:
        return {"lr": value}

    def local(steps: int) -> Callable[[float], dict[str, Any]]:
        return lambda value: {"client_lr": value / steps, "server_lr": 1.0, "local_steps": steps}

    sofim = {"bias_correction": True, "weight_decay": 0.0}
    rhos = [(0.09, 0.1), (1.0, 1.0)] if prepared else [(0.5, 2.0), (10.0, 40.0)]
    adam = [{"beta1": 0.9, "beta2": 0.99, "tau": 1e-3}, {"beta1": 0.9, "beta2": 0.999, "tau": 0.01}]
    return [
        Form("fedgd", plain, lr, {}),
        Form("fedavg", plain, local(3), {}),
        Form("scaffold", plain, local(1), {}),
        Form("adafedprox", plain, local(1), {"mu0": 0.05}),
        *(Form(name, signs, lr, fixed) for name in ("fedadam", "fedyogi") for fixed in adam),
        *(Form("fedfc", 1.0, lr, {"gamma": g * square}) for g in (0.5, 5.0)),
        Form("ftrl", plain, lr, {"noise": "diagonal"}),
        *(Form("fedsofim", plain * size, lr, {"rho": rho, "beta": 0.9, **sofim}) for rho, size in rhos),
    ]


def best_of(
    some: list[Form],
    steps: list[float],
    split: Split,
    budget: Budget,
    seeds: tuple[int, ...],
    how: dict[str, Any],
) -> Found:
    """The best of one method's forms and their steps on the held-out records of `split`."""
    settings = [{**form.fixed, **form.step(form.scale * f)} for form in some for f in steps]
    scores = np.nan_to_num(sweep.scores(split, some[0].method, settings, budget, seeds=seeds, **how)).mean(axis=1)
    top = int(np.argmax(scores))
    return Found(some[0].method, settings[top], round(float(scores[top]), 3), len(settings))
