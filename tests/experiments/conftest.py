"""A small experiment on disk."""

from pathlib import Path

import pytest

from toy import write_blobs

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
    write_blobs(folder / "toy.npz")
    (folder / "small.toml").write_text(TEXT)
    return folder / "small.toml"
