"""The search that the recipe is measured against: each of the nine methods, steps over three decades and more.

Steps are searched from a natural scale of the protocol outwards: seven of half a decade each, three or six more where
the best is the last one, then three around the best. The automatic step is one of the trials. Scored on records held
out of the training records; nothing of this is charged, so it is more than a user under the same budget could do.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fedsofim.core.budget import Budget
from fedsofim.data.partition import Split
from fedsofim.simulation import sweep

FIRST = [10 ** (k / 2) for k in range(-3, 4)]
FURTHER = [10**0.5, 10.0, 10**1.5]  # from the last one outwards, twice at most
BETWEEN = [10**-0.25, 10**0.125, 10**0.25]  # around the best, at the end


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


def best_of(form: Form, split: Split, budget: Budget, seeds: tuple[int, ...], how: dict[str, Any]) -> Found:
    """The best step of a form on the held-out records of `split`."""
    known: dict[float, float] = {}

    def ask(factors: list[float]) -> None:
        settings = [{**form.fixed, **form.step(form.scale * f)} for f in factors]
        scores = np.nan_to_num(sweep.scores(split, form.method, settings, budget, seeds=seeds, **how)).mean(axis=1)
        known.update(zip(factors, map(float, scores), strict=True))

    def top() -> float:
        return max(known, key=lambda f: known[f])

    ask(FIRST)
    for _ in range(2):
        if top() in (min(known), max(known)):
            outwards = 1 if top() == max(known) else -1
            ask([top() * f**outwards for f in FURTHER])
    ask([top() * f for f in BETWEEN])
    found = Found(form.method, {**form.fixed, **form.step(form.scale * top())}, known[top()], len(known))
    return _or_automatic(found, split, budget, seeds, how)


def _or_automatic(found: Found, split: Split, budget: Budget, seeds: tuple[int, ...], how: dict[str, Any]) -> Found:
    """The method's own automatic step, if it is better still."""
    drop = ("lr", "client_lr", "server_lr")
    settings = {k: v for k, v in found.settings.items() if k not in drop}
    score = float(np.nan_to_num(sweep.scores(split, found.method, [settings], budget, seeds=seeds, **how)).mean())
    trials = found.trials + 1
    if score <= found.accuracy:
        return found._replace(trials=trials)
    return Found(found.method, settings, score, trials)
