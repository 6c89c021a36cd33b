"""The translation of torch modules: the same values and gradients as torch, for every operation that is translated."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import torch_zoo as zoo

torch, nn, F = zoo.torch, zoo.nn, zoo.F

from fedsofim.models.adapters.torch_programs import ASSERT, PICK, TABLE  # noqa: E402
from torch_agreement import check_agreement, translated  # noqa: E402
from torch_operations_tried import FUNCTIONS  # noqa: E402


@pytest.mark.slow
@pytest.mark.parametrize("name", zoo.NETWORKS)
def test_a_network_has_the_values_and_gradients_of_torch(name: str):
    torch.manual_seed(0)
    make, shape = zoo.NETWORKS[name]
    check_agreement(make(), shape)


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_the_values_and_gradients_of_torch(name: str):
    torch.manual_seed(0)
    check_agreement(zoo.Then(FUNCTIONS[name]), (4, 6), records=1)


@pytest.mark.slow
@pytest.mark.longest
def test_every_operation_of_the_table_is_tried_above():
    nets = [*zoo.NETWORKS.values(), *((partial(zoo.Then, f), (4, 6)) for f in FUNCTIONS.values())]
    found = {step.name for make, shape in nets for step in translated(make().eval(), shape)[0].steps}
    assert found >= {ASSERT, PICK}
    assert sorted(set(TABLE) - found) == []


class Tie(nn.Module):
    """A function of parameters that are 0, or equal to each other, or at the ends of an interval."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function
        self.p = nn.Parameter(torch.tensor([0.0, 0.5, -0.5, 0.5, 0.0, 0.5, -0.5, 0.0]).repeat(4).reshape(1, 2, 4, 4))

    def forward(self, x: Any) -> Any:
        return self.function(self.p + 0 * x.sum())


TIES: dict[str, Callable[[Any], Any]] = {
    "clamp": lambda p: p.clamp(-0.5, 0.5) + p.clamp(min=torch.tensor(0.0)),
    "hardtanh": lambda p: F.hardtanh(p, -0.5, 0.5),
    "relu": lambda p: F.relu(p) + F.leaky_relu(p, 0.1) + F.elu(p) + F.relu6(p),
    "abs": lambda p: p.abs() + p.sign(),
    "pairs": lambda p: torch.maximum(p, p.detach() * 1) + torch.minimum(p, p.flip(3)),
    "largest": lambda p: p.amax(3) + p.amin((2, 3))[..., None],
    "where largest": lambda p: p.max(3)[0] + p.min(2)[0],
    "max pool": lambda p: F.max_pool2d(p, 2) + F.max_pool2d(p, 3, 2, 1) + F.adaptive_max_pool2d(p, 2),
    "norm": lambda p: (p * 0).norm(dim=3) + p.norm(1, 3) + p.norm(torch.inf, 3),
    "powers": lambda p: p**2 + p**3 + p**1.0 + p**0,
    "rounded": lambda p: p.floor() + p.ceil() * p + torch.div(p, 0.5, rounding_mode="floor") + torch.remainder(p, 0.3),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TIES)
def test_ties_have_the_slopes_of_torch(name: str):
    check_agreement(Tie(TIES[name]), (3,), records=1)


@pytest.mark.parametrize("name", ["softplus", "mish", "celu", "elu", "selu", "logsigmoid"])
def test_a_slope_is_a_number_where_an_exponential_overflows(name: str):
    function = getattr(torch.nn.functional, name)

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shift = torch.nn.Parameter(torch.zeros(2))

        def forward(self, x: Any) -> Any:
            return function(x + self.shift)

    program, start = translated(Net(), (2,))
    for size in (1.0, 50.0, 88.7, 88.8, 1e3, 1e6):
        x = np.array([[size, -size]], np.float32)
        net = Net()
        net(torch.from_numpy(x)).sum().backward()
        slopes = jax.grad(lambda params, x=x: jnp.sum(program(params, x)))(start)
        np.testing.assert_allclose(slopes["shift"], net.shift.grad.numpy(), rtol=1e-5, atol=1e-6)
