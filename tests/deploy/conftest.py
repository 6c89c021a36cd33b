"""What the tests of deployment start from: three small nodes, and a job among nodes that nobody changes."""

from pathlib import Path

import pytest

from fedsofim.deploy.job_state import JobState
from fedsofim.deploy.order import Order
from fedsofim.deploy.policy import Policy
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
