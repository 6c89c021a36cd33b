"""The coordinator's side: equal to the simulator at zero noise, whoever takes part, and senseless orders are errors."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsofim.core.budget import NO_PRIVACY, WITHOUT
from fedsofim.core.feature_moments import FeatureMoments
from fedsofim.deploy.clients import clients_of
from fedsofim.deploy.job_state import JobState
from fedsofim.deploy.order import Order
from fedsofim.deploy.policy import read_policy
from fedsofim.deploy.server import check_order, start_job, step, with_params
from fedsofim.errors import InputError
from fedsofim.methods import make
from fedsofim.simulation.preparing import prepare
from fedsofim.simulation.simulator import simulate
from fedsofim.simulation.training import plan_for
from nodes import METHODS, REHEARSAL, SMALL, ask_all, leaves, make_nodes, same_bits, start

# --- the same training --------------------------------------------------------------------------------------


def deployed(folder: Path, order: Order) -> JobState:
    """The job's end; between the rounds nodes keep nothing but what is on their disks."""
    nodes = make_nodes(folder, **REHEARSAL)
    now = start(nodes, order)
    while not now.finished:
        fresh = [read_policy(policy.data.parent / "policy.toml") for policy in nodes]
        now = step(now, ask_all(fresh, now))
    return now


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_without_noise_it_is_the_simulators_training(tmp_path: Path, name: str):
    order = Order(recipe="paper", method=name, epsilon=WITHOUT, rounds=3)
    now = deployed(tmp_path, order)
    wanted, _ = simulate(plan_for(SMALL, make(name), NO_PRIVACY, 3), SMALL, 0, every=3)
    before = start(make_nodes(tmp_path, **REHEARSAL), order).params
    for ours, theirs, first in zip(leaves(now.params), leaves(wanted), leaves(before), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)  # they clip a little differently (GUARD)
        assert np.abs(ours - first).max() > 0.01  # something was learnt


FORMS = [
    ("fedsofim", {"local_steps": 3, "lr": 0.1}),
    ("fedsofim", {"curvature": "kronecker", "lr": 0.1}),
    ("fedgd", {"clip_quantile": 0.5, "lr": 0.1}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "settings"), FORMS, ids=str)
def test_forms_of_the_methods_too(tmp_path: Path, name: str, settings: dict[str, Any]):
    """Pseudo-gradients, structured curvature, and a clip that finds itself, which is part of the server's state."""
    words = tuple((k, str(v)) for k, v in settings.items())
    now = deployed(tmp_path, Order(recipe="paper", method=name, settings=words, epsilon=WITHOUT, rounds=2))
    wanted, _ = simulate(plan_for(SMALL, make(name, settings), NO_PRIVACY, 2), SMALL, 0, every=2)
    for ours, theirs in zip(leaves(now.params), leaves(wanted), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_under_other_terms_too(tmp_path: Path):
    changed: dict[str, Any] = {"weights": "size", "clip": 0.7}
    order = Order(
        recipe="paper", method="fedsofim", settings=(("lr", "0.5"),), epsilon=WITHOUT, rounds=2, seed=3, **changed
    )
    plan = plan_for(SMALL, make("fedsofim", {"lr": 0.5}), NO_PRIVACY, 2, **changed)
    wanted, _ = simulate(plan, SMALL, 3, every=2)
    # nodes and the simulator clip a little differently (core/clipping.py GUARD)
    np.testing.assert_allclose(deployed(tmp_path, order).params, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_private_moments_too(tmp_path: Path):
    now = deployed(tmp_path, Order(recipe="paper", method="fedgd", epsilon=WITHOUT, rounds=2, standardize=0.1))
    plan = plan_for(SMALL, make("fedgd"), NO_PRIVACY, 2, preparation=(FeatureMoments(share=0.1),))
    wanted, _ = simulate(plan, prepare(plan, SMALL, 0)[0], 0, every=2)
    np.testing.assert_allclose(now.params, wanted, rtol=1e-3, atol=1e-3)  # they clip a little differently (GUARD)


def test_from_parameters_of_ones_own(tmp_path: Path):
    nodes = make_nodes(tmp_path, **REHEARSAL)
    now = start(nodes, Order(recipe="paper", method="fedgd", settings=(("lr", "0.5"),), epsilon=WITHOUT, rounds=1))
    mine = np.full_like(now.params, 0.25)
    moved = step(changed := with_params(now, mine), ask_all(nodes, changed)).params
    assert same_bits(changed.params, mine)
    assert 0 < np.abs(np.asarray(moved) - mine).max() < 5
    for wrong in (mine[:-1], mine.astype(np.float64)):
        with pytest.raises(InputError, match="initial parameters"):
            with_params(now, wrong)


# --- what is ordered ----------------------------------------------------------------------------------------


def test_a_plan_becomes_noise_in_one_place(tmp_path: Path):
    now = start(make_nodes(tmp_path), Order(recipe="paper", method="fedfc", epsilon=1.0, rounds=2, standardize=0.1))
    assert list(now.job.stds) == list(now.plan.programs)
    assert all(now.job.stds[phase] == now.plan.stds(phase) for phase in now.plan.programs)
    assert all(std > 0 for stds in now.job.stds.values() for std in stds)


@pytest.mark.parametrize(
    "changed, said",
    [({"epsilon": -1.0}, "epsilon"), ({"epsilon": float("inf")}, "no-privacy"), ({"epsilon": "none"}, "no-privacy"),
     ({"delta": 2.0}, "delta"), ({"rounds": 0}, "rounds"), ({"clip": 0.0}, "clip"), ({"clients": 0}, "clients"),
     ({"method": "fedgo"}, "fedgd"), ({"settings": (("lrr", "1"),)}, "lrr"), ({"standardize": 2.0}, "share")],
    ids=str,
)  # fmt: skip
def test_a_senseless_order_is_an_error_before_any_node_is_asked(changed: dict[str, Any], said: str):
    check_order(Order())
    with pytest.raises(InputError, match=said):
        check_order(Order(**changed))


# --- who takes part -----------------------------------------------------------------------------------------


def facts(**changed: Any) -> dict[str, Any]:
    return {"node": "a", "size": 5, "shape": [3], "classes": 3} | changed


def test_clients_are_sorted_and_checked():
    found = clients_of([facts(node="c"), facts(node="a", size=9), facts(node="b")], 3)
    assert [c.name for c in found] == ["a", "b", "c"]
    assert (found[0].size, found[0].shape) == (9, (3,))


@pytest.mark.parametrize(
    "hellos, said",
    [
        ([facts(), facts(), facts(node="b")], "two nodes call themselves a"),
        ([facts(), facts(node="b")], "2 nodes are here"),
        ([facts(), facts(node="b"), facts(node="c"), facts(node="d")], "4 nodes are here"),
        ([facts(), facts(node="b", shape=[4]), facts(node="c")], "b of shape"),
        ([facts(), facts(node="b"), facts(node="c", classes=2)], "c of shape"),
        ([facts(), facts(node="b"), {"node": "c"}], "introduction"),
        ([facts(), facts(node="b"), facts(node="c", size="many")], "introduction"),
        ([facts(), facts(node="b"), facts(node="c", shape=3)], "introduction"),
    ],
)
def test_nodes_that_do_not_make_a_job(hellos: list[dict[str, Any]], said: str):
    with pytest.raises(InputError, match=said):
        clients_of(hellos, 3)


@pytest.mark.parametrize("size", [0, -4])
def test_a_client_without_records(size: int):
    with pytest.raises(InputError, match="size"):
        start_job(Order(recipe="paper", method="fedgd", clients=1), clients_of([facts(size=size)], 1))
