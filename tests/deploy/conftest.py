"""What the tests of deployment start from: three small nodes, and a job among nodes that nobody changes."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fedsofim.deploy.job_state import JobState
from fedsofim.deploy.order import Order
from fedsofim.deploy.policy import Policy
from node_sums import FIVE, order_of_five, summing_nodes
from nodes import make_nodes, start


@pytest.fixture
def nodes(tmp_path: Path) -> list[Policy]:
    """n0, n1 and n2, of this test alone."""
    return make_nodes(tmp_path / "nodes")


@pytest.fixture(scope="module")
def shared_nodes(tmp_path_factory: pytest.TempPathFactory) -> list[Policy]:
    """The same for all tests of a file."""
    return make_nodes(tmp_path_factory.mktemp("nodes"))


@pytest.fixture(scope="module")
def now(shared_nodes: list[Policy]) -> JobState:
    """Two rounds of DP-FedGD among them, not yet asked for."""
    return start(shared_nodes, Order(recipe="paper", method="fedgd", epsilon=1.0, rounds=2))


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> list[Policy]:
    """n0 to n4, which sum securely, for all tests of a file."""
    return summing_nodes(tmp_path_factory.mktemp("five"), trusted=5, data=FIVE)


@pytest.fixture(scope="module")
def job(five: list[Policy]) -> Callable[[], JobState]:
    """A job among them that can do with three: whoever calls it has a round that nobody else asks for."""
    first, rounds = start(five, order_of_five(rounds=100)), itertools.count()
    return lambda: replace(first, round=next(rounds))
