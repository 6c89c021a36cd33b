"""A small experiment on disk."""

from pathlib import Path

import numpy as np
import pytest

TEXT = """
name = "small"
datasets = ["toy.npz"]
epsilons = [1, 10]
seeds = [0, 1]
rounds = 6
partitions = [{ kind = "iid", clients = 3, seed = 1 }]
[methods]
DP-FedGD = { method = "fedgd", lr = 0.5 }
DP-FedSOFIM = { method = "fedsofim", "1" = { lr = 0.5 }, "10" = { lr = 1 } }
"""


@pytest.fixture(scope="session")
def small(tmp_path_factory) -> Path:
    """The path of the experiment's TOML file, its dataset beside it."""
    folder = tmp_path_factory.mktemp("small")
    random = np.random.default_rng(0)
    y = np.arange(960) % 3
    x = (2 * random.normal(size=(3, 5))[y] + random.normal(size=(960, 5))).astype(np.float32)
    np.savez(folder / "toy.npz", x_train=x[:900], y_train=y[:900], x_test=x[900:], y_test=y[900:])
    (folder / "small.toml").write_text(TEXT)
    return folder / "small.toml"
