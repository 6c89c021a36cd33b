"""Rounds without every client: the average, its weights and noise are those of who was there; nobody pays for more."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedsofim.core.budget import WITHOUT
from fedsofim.deploy import certificate
from fedsofim.deploy.checkpoint import restore, save
from fedsofim.deploy.order import Order
from fedsofim.deploy.policy import Policy
from fedsofim.deploy.presence import fewest, noise_std_of, weights_of
from fedsofim.deploy.server import check_order, step
from fedsofim.deploy.uploads import mean
from fedsofim.errors import InputError
from nodes import REHEARSAL, ask_all, charges, make_nodes, same_bits, started


@pytest.mark.parametrize("weights, expected", [("uniform", [0.5, 0.5]), ("size", [7 / 19, 12 / 19])])
def test_weights_are_those_of_who_is_there(nodes: list[Policy], weights: str, expected: list[float]):
    now = started(nodes, weights=weights, min_clients=2)
    np.testing.assert_allclose(weights_of(now, ["n0", "n2"]), expected)
    np.testing.assert_allclose(weights_of(now, ["n0", "n1", "n2"]), now.plan.client_weights)


def test_noise_is_that_of_who_is_there(nodes: list[Policy]):
    now = started(nodes, min_clients=1)
    std = now.plan.sum_std
    assert noise_std_of(now, ["n0"]) == pytest.approx(std / 7)
    assert noise_std_of(now, ["n0", "n2"]) == pytest.approx(std * np.hypot(0.5 / 7, 0.5 / 12))
    assert noise_std_of(now, ["n0", "n1", "n2"]) == now.plan.noise_std


def test_a_round_without_one_of_them_is_the_mean_of_the_others(tmp_path: Path):
    nodes = make_nodes(tmp_path, **REHEARSAL)
    now = started(nodes, epsilon=WITHOUT, min_clients=2, settings=(("lr", "1.0"),))
    uploads = ask_all(nodes, now)
    both = {name: uploads[name] for name in ("n0", "n2")}
    after = step(now, both)
    average = (both["n0"]["upload0"] + both["n2"]["upload0"]) / 2
    np.testing.assert_allclose(np.asarray(mean(now, list(both.values()), np.array([0.5, 0.5]))), average, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(after.params), np.asarray(now.params) - average, atol=1e-6)
    assert after.absent == {0: ("n1",)}
    assert step(now, uploads).absent == {}


def test_fewer_than_enough_are_not_averaged(nodes: list[Policy]):
    now = started(nodes, min_clients=2)
    uploads = ask_all(nodes, now)
    with pytest.raises(InputError, match=r"2 clients; missing: \['n1', 'n2'\]"):
        step(now, {"n0": uploads["n0"]})
    assert fewest(now) == 2


def test_what_is_released_once_needs_everybody(nodes: list[Policy]):
    now = started(nodes, standardize=0.1, min_clients=2)
    uploads = ask_all(nodes, now)
    assert fewest(now) == 3
    with pytest.raises(InputError, match="every client"):
        step(now, {name: uploads[name] for name in ("n0", "n1")})


def test_who_was_absent_is_in_the_checkpoint_and_in_the_certificate(nodes: list[Policy], tmp_path: Path):
    now = started(nodes, min_clients=1)
    uploads = ask_all(nodes, now)
    now = step(now, {"n0": uploads["n0"]})
    save(now, tmp_path / "c.npz")
    again = restore(tmp_path / "c.npz")
    assert again.absent == {0: ("n1", "n2")}
    assert same_bits(again.params, now.params)
    document = certificate.document_of(now.job.id, {}, {0: ("n1", "n2"), 4: ("n1",)})
    assert document["absent"] == {"n1": [1, 5], "n2": [1]}
    assert "n1 was not in the average of rounds 1, 5." in certificate.readable(document)


def test_a_client_pays_for_what_it_released_only(nodes: list[Policy]):
    now = started(nodes, min_clients=2, rounds=2)
    now = step(now, ask_all(nodes, now))
    now = step(now, ask_all(nodes[:2], now))
    assert now.finished
    assert [charges(policy) for policy in nodes] == [2, 2, 1]


USUAL = Order(method="fedgd", recipe="paper", epsilon=1.0, rounds=2)


@pytest.mark.parametrize(
    "order, said",
    [
        (replace(USUAL, min_clients=4), "at most the job's 3 clients"),
        (replace(USUAL, min_clients=0), "min-clients is 0"),
        (replace(USUAL, min_clients=1, trust="secure-sum"), "needs more than half of them, 2 to 3"),
        (replace(USUAL, min_clients=2, method="ftrl"), "needs every client in every round"),
        (replace(USUAL, min_clients=2, method="scaffold"), "needs every client in every round"),
    ],
    ids=["more", "none", "secure sum", "tree", "memory"],
)
def test_what_cannot_do_without_a_client_says_so_before_any_is_asked(order: Order, said: str):
    with pytest.raises(InputError, match=said):
        check_order(order)
    check_order(replace(order, min_clients=3) if order.trust == "local" else replace(order, min_clients=None))
