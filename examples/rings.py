"""A dataset of one's own: points on two noisy rings, which no straight line tells apart.

A function of the file's own name gives it:

    fedsofim run --dataset examples/rings.py --model examples/two_layers.py --clients 2 --clip 1 --epsilon 10
"""

import numpy as np

from fedsofim import Dataset

RECORDS, TEST = 600, 120


def rings() -> Dataset:
    """Radius 1 or 2, at random angles; the same points every time."""
    random = np.random.default_rng(0)
    label = np.arange(RECORDS) % 2
    radius = 1 + label + 0.15 * random.normal(size=RECORDS)
    angle = random.uniform(0, 2 * np.pi, RECORDS)
    x = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return Dataset.of("rings", x_train=x[TEST:], y_train=label[TEST:], x_test=x[:TEST], y_test=label[:TEST])
