"""A node's records stay where they are: what is wrong with them is its operator's matter, and no message quotes one."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedsofim.core.queries import SoftmaxGradient
from fedsofim.deploy.exact_sums import exact_sum
from fedsofim.deploy.node import answer, hello
from fedsofim.deploy.policy import Policy
from fedsofim.deploy.records import DataProblem, read_data
from nodes import X, Y, asked, charges, make_node

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


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 4e38])
def test_features_that_are_not_finite_are_refused(tmp_path: Path, value: float):
    """As in a table; what float32 cannot hold is infinite in it. Said: how many, never which."""
    x = X[:9].astype(np.float64)
    x[3, :2] = x[4, 0] = value
    policy = make_node(tmp_path / "n", X, Y[:9])
    np.savez(policy.data, x=x, y=Y[:9])
    for act in (lambda: hello(policy), lambda: answer(policy, asked([make_node(tmp_path / "m", X, Y)]))):
        with pytest.raises(DataProblem, match=r"3 features are not finite numbers of 32 bits.*remove or fill"):
            act()
    assert charges(policy) == 0


def test_records_that_are_held_out_are_asked_the_same(tmp_path: Path):
    policy = make_node(tmp_path / "n", X, Y)
    test = replace(policy, test=policy.data.with_name("test.npz"))
    np.savez(test.test, x=np.full_like(X, np.nan), y=Y)  # type: ignore[arg-type]
    with pytest.raises(DataProblem, match=r"test\.npz: \d+ features are not finite"):
        read_data(test)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_records_whose_vectors_are_not_finite_count_as_nothing(value: float):
    """Whatever a file may hold: a function can make an infinity of a finite number."""
    x, theta = X[:9].copy(), np.zeros((X.shape[1] + 1, 3), np.float32)
    x[3], kept = value, [i for i in range(9) if i != 3]
    of_all, of_others = (exact_sum(SoftmaxGradient(), [theta], a, b, 1.0, 2.0**-20)
                         for a, b in ((x, Y[:9]), (x[kept], Y[:9][kept])))  # fmt: skip
    assert np.array_equal(of_all, of_others)
