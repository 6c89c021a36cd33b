"""The problems that are timed: synthetic numbers with the shape of the paper's frozen CIFAR-10 features."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedsofim.data.dataset import Dataset
from fedsofim.data.partition import Split, split

CLIP, LR, RHO, BETA = 10.0, 0.8, 0.5, 0.9


@dataclass(frozen=True)
class Shape:
    """How large a problem is; the defaults are the reference problem, 20 clients of 891 to 3,498 records."""

    records: int = 50_000
    features: int = 64
    classes: int = 10
    clients: int = 20
    iid: bool = False  # clients of equal size, not the paper's
    test: int = 10_000
    counts: tuple[int, ...] = ()  # records of each class, where they are not balanced


#: PathMNIST's class counts: the paper's other split, with clients of up to 9,986 records.
PATHMNIST = Shape(89_996, 64, 9, counts=(9366, 9509, 10360, 10401, 8006, 12182, 7886, 9401, 12885))


def make(shape: Shape = Shape()) -> Split:
    """Records with non-negative features, scaled so that the clip of 10 cuts some gradients and not others.

    Labels are balanced, as CIFAR-10's are: then the paper's split gives the paper's sizes.
    """
    random = np.random.default_rng(0)
    x = np.abs(random.standard_normal((shape.records, shape.features), np.float32))
    x *= np.float32(10 / np.sqrt(shape.features))
    y = np.repeat(np.arange(shape.classes), shape.counts) if shape.counts else np.arange(shape.records) % shape.classes
    y = random.permutation(y).astype(np.int32)
    test = min(shape.test, shape.records)
    data = Dataset.of("synthetic", x_train=x, y_train=y, x_test=x[:test], y_test=y[:test])
    return split(data, shape.clients, iid=shape.iid)


def initial_theta(data: Split) -> np.ndarray:
    """A head far enough from zero that its softmax is not flat, so that gradients differ in size."""
    shape = (data.dataset.x_train.shape[1] + 1, data.dataset.classes)
    return 0.1 * np.random.default_rng(1).standard_normal(shape, np.float32)


def write(data: Split, std: float, path: Path) -> None:
    """The problem as the peers read it: records in the order of their clients."""
    order = np.concatenate(data.parts)
    np.savez(
        path, x=data.dataset.x_train[order], y=data.dataset.y_train[order], sizes=np.array(data.sizes),
        theta=initial_theta(data), clip=CLIP, std=std, lr=LR, rho=RHO, beta=BETA,
    )  # fmt: skip
