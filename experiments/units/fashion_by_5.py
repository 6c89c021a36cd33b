"""Fashion-MNIST dealt to made-up persons, 5 records each, at random: nobody knows who wore what."""

from dataclasses import replace

import numpy as np

import fedsofim as fs


def fashion_by_5() -> fs.Dataset:
    data = fs.load("fashion")
    order = np.random.default_rng(5).permutation(len(data.y_train))
    return replace(data, name="fashion by 5", person=(order // 5).astype(str))
