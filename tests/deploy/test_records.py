"""A node's records stay where they are: what is wrong with them is its operator's matter, and no message quotes one."""

from pathlib import Path

import numpy as np
import pytest

from fedsofim.core.budget import WITHOUT
from fedsofim.deploy.node import answer, hello
from fedsofim.deploy.policy import Policy
from fedsofim.deploy.records import DataProblem
from nodes import REHEARSAL, X, Y, asked, charges, make_node

SECRETIVE = {
    "labels": (np.ones((2, 3)), np.array([0, 77])),
    "text": (np.array([["Meier", "1", "2"]]), np.array([0])),
}
UNFIT = {
    "no y": {"x": np.full((2, 3), 41.5)},
    "y is a table": {"x": np.full((2, 3), 41.5), "y": np.full((2, 2), 41)},
    "y is no integer": {"x": np.full((2, 3), 41.5), "y": np.full(2, 41.5)},
    "x is a list": {"x": np.full(3, 41.5), "y": np.full(3, 1)},
    "lengths": {"x": np.full((2, 3), 41.5), "y": np.full(3, 1)},
    "empty": {"x": np.zeros((0, 3)), "y": np.zeros(0, int)},
}


@pytest.mark.parametrize("arrays", UNFIT.values(), ids=UNFIT)
def test_unfit_records_are_a_matter_of_the_operators(tmp_path: Path, arrays: dict[str, np.ndarray]):
    policy = make_node(tmp_path / "n", X, Y)
    np.savez(policy.data, **arrays)  # type: ignore[arg-type]
    for act in (lambda: hello(policy), lambda: answer(policy, asked([make_node(tmp_path / "m", X, Y)]))):
        with pytest.raises(DataProblem, match="x") as caught:
            act()
        assert str(policy.data) in str(caught.value)
        assert "41" not in str(caught.value).replace(str(policy.data), "")
    assert charges(policy) == 0


@pytest.mark.parametrize("kind", ["missing", "no archive"])
def test_no_records_at_all(tmp_path: Path, kind: str):
    policy = make_node(tmp_path / "n", X, Y)
    policy.data.unlink()
    if kind == "no archive":
        policy.data.write_bytes(b"x,y\n1,2\n")
    with pytest.raises(DataProblem):
        hello(policy)


@pytest.mark.parametrize("kind", SECRETIVE)
def test_unfit_values_are_a_matter_of_the_operators(tmp_path: Path, kind: str):
    with pytest.raises(DataProblem):
        hello(make_node(tmp_path / "n", *SECRETIVE[kind]))


@pytest.mark.parametrize("kind, value", [("labels", "77"), ("text", "Meier")])
def test_not_even_the_operators_message_quotes_a_record(tmp_path: Path, kind: str, value: str):
    policy = make_node(tmp_path / "n", *SECRETIVE[kind])
    with pytest.raises(DataProblem) as caught:
        hello(policy)
    assert value not in str(caught.value).replace(str(policy.data), "")


def test_hello_tells_name_size_and_form(nodes: list[Policy]):
    facts = hello(nodes[1])
    assert (facts["node"], facts["size"], facts["shape"], facts["classes"]) == ("n1", 20, [3], 3)
    assert set(facts) <= {"node", "size", "unit", "shape", "classes", "allows", "ledger", "version"}


def test_records_that_are_not_finite_count_as_nothing(tmp_path: Path):
    x = X[:9].copy()
    x[3] = np.nan
    x[4, 0] = np.inf
    upload = answer(policy := make_node(tmp_path / "n", x, Y[:9], **REHEARSAL),
                    asked([policy], epsilon=WITHOUT))["upload0"]  # fmt: skip
    kept = [i for i in range(9) if i not in (3, 4)]
    without = answer(policy := make_node(tmp_path / "m", X[:9][kept], Y[:9][kept], **REHEARSAL),
                     asked([policy], epsilon=WITHOUT))["upload0"]  # fmt: skip
    np.testing.assert_allclose(upload * 9, without * 7, rtol=1e-5, atol=1e-6)
