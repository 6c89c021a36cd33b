"""Torch modules as an installed package offers them, by entry points in the group fedsofim.models."""

import fedsofim as fs


def net() -> fs.Model:
    return _of(3)


def narrow() -> fs.Model:
    """For two classes."""
    return _of(2)


def _of(classes: int) -> fs.Model:
    import torch  # pyright: ignore[reportMissingImports]
    from torch import nn  # pyright: ignore[reportMissingImports]

    torch.manual_seed(3)
    return fs.from_torch(nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, classes)))
