"""How far a budget can go on given features: an idealised estimator, for research. It reads the records in the clear.

θ_λ minimises the mean cross-entropy of the prepared records plus λ/2·|θ|². An estimator that knew the curvature H
there, and spent the whole budget on one gradient at the optimum, would answer θ_λ + (H + λI)⁻¹·ξ, with ξ the noise of
that one release, N(0, (2c·a/mu)²) per coordinate, a the noise gain of the mean. An optimizer that releases gradients
with clip c should not beat its best λ, but for what clipping and a preparation change: a guide, not a theorem.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsofim.core.budget import NO_PRIVACY, Budget, stated
from fedsofim.core.plan import Trust
from fedsofim.data.partition import Split
from fedsofim.errors import InputError
from fedsofim.progress import SILENT, Progress
from fedsofim.simulation.preparing import prepare
from fedsofim.simulation.training import Given, choices_for, planned
from fedsofim.tasks import refuse_other_than_classes

RIDGES = (1e-5, 1e-4, 3e-4, 1e-3, 3e-3)
_LARGEST = 4000  # parameters: their Hessian is dense
_STEPS = 30  # of Newton, far more than it needs
_ENOUGH = 20_000  # records to take the curvature from; the slope is that of all of them


@dataclass(frozen=True, kw_only=True)
class Limit:
    """Test accuracy in percent of the idealised estimator, by ridge; mean over draws of the noise."""

    budget: Budget
    trust: Trust
    accuracy: dict[float, float]
    without_noise: float  # the best of all ridges

    @property
    def ridge(self) -> float:
        return max(self.accuracy, key=lambda ridge: self.accuracy[ridge])

    @property
    def best(self) -> float:
        return self.accuracy[self.ridge]

    def summary(self) -> dict[str, Any]:
        """As plain data: what `--json` prints."""
        return {
            "epsilon": stated(self.budget.epsilon),
            "delta": self.budget.delta,
            "trust": self.trust,
            "limit": round(self.best, 4),
            "ridge": self.ridge,
            "without_noise": round(self.without_noise, 4),
            "accuracy_by_ridge": {f"{k:g}": round(v, 4) for k, v in self.accuracy.items()},
            "private": False,
        }


def idealised(
    split: Split,
    budget: Budget,
    *,
    recipe: str = "auto",
    trust: Trust = "local",
    ridges: Sequence[float] = RIDGES,
    draws: int = 5,
    seed: int = 0,
    progress: Progress = SILENT,
) -> Limit:
    """The limit on the features that a recipe prepares for this budget, with moments known exactly. Not private."""
    refuse_other_than_classes("the limit", split.dataset.task)
    chosen = choices_for(split, budget, recipe=recipe, trust=trust)
    given = Given(preparation=chosen.preparation)
    plan, _ = planned(split, NO_PRIVACY, recipe=recipe, trust=trust, given=given)
    data = prepare(plan, split, seed)[0].dataset
    order = np.random.default_rng(seed).permutation(len(data.y_train))  # curvature is taken from the first of them
    x, y, test = _with_bias(data.x_train[order]), data.y_train[order], _with_bias(data.x_test)
    count = x.shape[1] * data.classes
    if count > _LARGEST:
        raise InputError(f"the head has {count} parameters, whose curvature is dense; expected at most {_LARGEST}")
    std = 2 * chosen.clip * plan.noise_gain / budget.mu if budget.private else 0.0
    random, theta = np.random.default_rng(seed), np.zeros((x.shape[1], data.classes))
    accuracy, bare = {}, []
    for done, ridge in enumerate(sorted(ridges, reverse=True), start=1):  # from the strongest: each starts the next
        theta, inverse = _minimum(x, y, theta, ridge)
        moved = [theta + std * (inverse @ random.standard_normal(count)).reshape(theta.shape) for _ in range(draws)]
        accuracy[ridge] = float(np.mean([_accuracy(test, data.y_test, m) for m in moved]))
        bare.append(_accuracy(test, data.y_test, theta))
        progress.at(done)
    return Limit(budget=budget, trust=trust, accuracy=accuracy, without_noise=max(bare))


def _with_bias(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x, np.ones((len(x), 1))], axis=1, dtype=np.float64)


def _probabilities(x: np.ndarray, theta: np.ndarray) -> np.ndarray:
    z = x @ theta
    p = np.exp(z - z.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def _minimum(x: np.ndarray, y: np.ndarray, theta: np.ndarray, ridge: float) -> tuple[np.ndarray, np.ndarray]:
    """θ_λ by Newton's steps, halved until the loss falls; and (H + λI)⁻¹ there."""
    inverse = np.eye(theta.size)
    value, slope = _loss(x, y, theta, ridge)
    for _ in range(_STEPS):
        inverse = np.linalg.inv(_hessian(x[:_ENOUGH], theta) + ridge * np.eye(theta.size))
        step = (inverse @ slope.ravel()).reshape(theta.shape)
        gain = float(np.sum(step * slope))  # twice what is left to fall, if the loss were a parabola
        if gain < 1e-7:
            break
        size = 1.0
        while (next_value := _loss(x, y, theta - size * step, ridge)[0]) > value - 0.1 * size * gain and size > 1e-3:
            size /= 2
        theta = theta - size * step
        value, slope = next_value, _loss(x, y, theta, ridge)[1]
    return theta, inverse


def _loss(x: np.ndarray, y: np.ndarray, theta: np.ndarray, ridge: float) -> tuple[float, np.ndarray]:
    """Mean cross-entropy with ridge, and its slope."""
    rows, p = np.arange(len(y)), _probabilities(x, theta)
    value = -float(np.mean(np.log(np.maximum(p[rows, y], 1e-300)))) + ridge / 2 * float(np.sum(theta**2))
    p[rows, y] -= 1
    return value, x.T @ p / len(y) + ridge * theta


def _hessian(x: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Of the mean cross-entropy, rows and columns in the order of theta.ravel()."""
    p, (width, classes) = _probabilities(x, theta), theta.shape
    out = np.empty((width, classes, width, classes))
    for a in range(classes):
        for b in range(a, classes):
            weight = p[:, a] * ((a == b) - p[:, b]) / len(x)
            out[:, a, :, b] = out[:, b, :, a] = x.T @ (x * weight[:, None])
    return out.reshape(width * classes, width * classes)


def _accuracy(x: np.ndarray, y: np.ndarray, theta: np.ndarray) -> float:
    return 100 * float(np.mean((x @ theta).argmax(axis=1) == y))
