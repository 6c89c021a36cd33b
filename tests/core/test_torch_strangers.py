"""Torch modules by whoever wants the records. Each was accepted once, and gave them away or broke a sum's price."""

from typing import Any

import numpy as np
import pytest

import torch_nets as nets
from fedsofim.core.torch_models import from_torch
from fedsofim.errors import InputError, Refused

torch, nn = nets.torch, nets.nn


def read(module: Any, **how: Any) -> None:
    model: Any = from_torch(module, **how)
    model.gradient.network.check((2,), (), np.dtype(np.int32))


class Constant(nn.Module):
    """A trained layer that is given constants, whose "rows" would be means over the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Parameter(torch.ones(1, 1), requires_grad=False)
        self.first, self.second = nn.Linear(2, 3).requires_grad_(False), nn.Linear(1, 3)

    def forward(self, x: Any) -> Any:
        return self.first(x) + self.second(self.one.expand(x.shape[0], 1)).mean(0, keepdim=True)


def test_a_trained_layer_is_given_records_one_row_each():
    with pytest.raises(Refused, match="trained Linear is given other rows than records"):
        read(Constant())


class Keeps(nn.Module):
    """Writes records into a number of its own, for the next batch to see."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.kept = nn.Linear(2, 3), nn.Parameter(torch.zeros(0), requires_grad=False)

    def forward(self, x: Any) -> Any:
        before = self.kept.sum()
        torch.add(x, 0.0, out=self.kept)
        return self.layer(x) * torch.sign(before + 0.5)


def test_nothing_is_kept_from_one_batch_to_the_next():
    with pytest.raises(Refused, match="changes what all records share"):
        read(Keeps())


class Number(float):
    """Says of itself what torch.fx would write into the code that it runs on records."""

    def __repr__(self) -> str:
        return "print(x) or 1.0"


class Writes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 3)

    def forward(self, x: Any) -> Any:
        return self.layer(torch.mul(x, Number(1.0)))


def test_numbers_in_a_module_are_plain():
    with pytest.raises((Refused, InputError), match="plain numbers"):
        read(Writes())


def test_a_layer_holds_plain_numbers_only():
    layer = nn.Dropout(0.0)
    layer.p = Number(0.0)
    with pytest.raises(Refused):
        read(nn.Sequential(layer, nn.Linear(2, 3)))


def test_plain_layers_are_read():
    read(nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3)))


def test_a_network_is_copied_by_the_library_not_by_itself():
    """What it says of itself under the name of the method that copies it would have run on records."""
    model: Any = from_torch(nn.Sequential(nn.Linear(2, 3)))
    network = model.gradient.network
    network.own = lambda: "whatever sums records unclipped"
    assert type(model.gradient.own().network) is type(network)
    network.clipped_sum = lambda *given, **how: 1e9
    assert "clipped_sum" not in vars(model.gradient.own().network)
