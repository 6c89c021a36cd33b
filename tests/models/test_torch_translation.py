"""The translation of torch modules: the same values and gradients as torch, for every operation that is translated."""

from functools import partial

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
