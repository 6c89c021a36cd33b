"""Secure sums: masks cancel only over all nodes asked the same; noise shares add up; a node charges what it trusts."""

import math
from dataclasses import replace
from importlib.metadata import EntryPoint
from typing import Any

import jax
import numpy as np
import pytest

pytest.importorskip("cryptography")

import fedsofim as fs
from fedsofim.core.budget import WITHOUT
from fedsofim.deploy.node import answer, consider
from fedsofim.deploy.order import Order
from fedsofim.deploy.policy import read_policy
from fedsofim.deploy.secure_sum import Shares, masks, new_key, pair_secrets
from fedsofim.deploy.server import step
from fedsofim.errors import InputError, Refused
from node_sums import summing_nodes
from nodes import SMALL, ask_all, finish, make_nodes, spent, start


def order(**changed: Any) -> Order:
    usual: dict = {
        "recipe": "paper",
        "method": "fedgd",
        "epsilon": 1.0,
        "rounds": 2,
        "trust": "secure-sum",
        "settings": (("lr", "1.0"),),
    }
    return Order(**(usual | changed))


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["uniform", "size"])
def test_the_sum_is_the_weighted_mean_of_clipped_gradients(tmp_path, weights) -> None:
    """With little noise the step is the simulator's without noise."""
    policies = summing_nodes(tmp_path, epsilon=1e9, smallest_multiplier=1e-6)
    now = finish(policies, start(policies, order(epsilon=1e8, weights=weights)))
    how = {"weights": weights, "recipe": "paper"}
    expected = fs.train(SMALL, fs.make("fedgd", {"lr": 1.0}), fs.NO_PRIVACY, rounds=2, **how).params
    np.testing.assert_allclose(np.asarray(now.params), np.asarray(expected), atol=1e-2)


@pytest.mark.slow
def test_a_clip_that_finds_itself_is_voted_on_inside_the_sum(tmp_path) -> None:
    """The votes are numbers of the same masked release, so one sum a round is all that is seen."""
    policies = summing_nodes(tmp_path, epsilon=1e9, smallest_multiplier=1e-6)
    settings = (("lr", "1.0"), ("clip_quantile", "0.5"))
    now = finish(policies, start(policies, order(epsilon=1e8, settings=settings)))
    method = fs.fedgd(lr=1.0, clip_quantile=0.5)
    expected = fs.train(SMALL, method, fs.NO_PRIVACY, rounds=2, recipe="paper").params
    np.testing.assert_allclose(np.asarray(now.params), np.asarray(expected), atol=1e-2)
    assert float(now.state.scale) != 1.0


@pytest.mark.slow
def test_noise_of_the_average_is_as_planned(tmp_path) -> None:
    policies = summing_nodes(tmp_path, epsilon=1000.0)
    first = start(policies, order(rounds=60, epsilon=1.0))
    clean = np.asarray(fs.train(SMALL, fs.make("fedgd", {"lr": 1.0}), fs.NO_PRIVACY, rounds=1, recipe="paper").params)
    noise: list[np.ndarray] = []
    for _ in range(30):  # thirty jobs' first rounds
        job = replace(first, job=replace(first.job, id=f"job{len(noise)}"))
        noise.append(np.asarray(step(job, ask_all(policies, job)).params) - clean)
    measured, planned = np.std(noise), first.plan.noise_std
    assert planned / 1.35 < measured < planned * 1.35  # 360 draws: a standard error of 4%


def test_one_upload_alone_says_nothing_and_two_say_nothing(tmp_path) -> None:
    policies = summing_nodes(tmp_path)
    uploads = ask_all(policies, start(policies, order()))
    words = np.stack([uploads[p.name]["upload0"] for p in policies])
    for partial in (words[0], words[0] + words[1]):
        high = partial >> np.uint64(60)  # uniform masks: the sign and size of what is inside cannot be seen
        assert len(np.unique(high)) > 4
    whole = (words[0] + words[1] + words[2]).view(np.int64)
    assert np.abs(whole).max() < 2**40


def test_masks_do_not_cancel_where_nodes_were_asked_different_things(tmp_path) -> None:
    policies = summing_nodes(tmp_path)
    now = start(policies, order())
    uploads = ask_all(policies, now)
    other = replace(now, params=now.params + 1.0)
    uploads["n0"] = answer(policies[0], other.request())
    with pytest.raises(InputError, match="masks do not cancel"):
        step(now, uploads)


def test_fewer_uploads_are_never_summed(tmp_path) -> None:
    policies = summing_nodes(tmp_path)
    now = start(policies, order())
    uploads = ask_all(policies, now)
    del uploads["n1"]
    with pytest.raises(InputError, match="missing: \\['n1'\\]"):
        step(now, uploads)


def test_every_node_spends_at_most_the_budget_and_less_where_its_records_count_less(tmp_path) -> None:
    policies = summing_nodes(tmp_path)
    finish(policies, start(policies, order()))
    found = [spent(p) for p in policies]
    sizes = [len(part) for part in SMALL.parts]
    assert max(found) == pytest.approx(1.0, rel=1e-6)
    assert found[int(np.argmin(sizes))] == max(found)
    assert found[int(np.argmax(sizes))] < 0.5


def test_a_node_that_trusts_fewer_charges_more(tmp_path) -> None:
    shares = Shares.of([("a", 10), ("b", 10), ("c", 10), ("d", 10)], "uniform")
    assert shares.multiplier("a", 8.0, honest=4) == pytest.approx(8.0)
    assert shares.multiplier("a", 8.0, honest=1) == pytest.approx(8.0 * math.sqrt(1 / 4))
    policies = summing_nodes(tmp_path, trusted=2)
    now = start(policies, order())
    smallest = int(np.argmin([len(part) for part in SMALL.parts]))
    with pytest.raises(Refused, match="above the cap"):
        consider(policies[smallest], now.job)


def test_refusals(tmp_path) -> None:
    plain = make_nodes(tmp_path / "plain")
    now = start(plain, order())
    with pytest.raises(Refused, match="secure sums are not allowed"):
        answer(plain[0], now.request())

    policies = summing_nodes(tmp_path / "summing")
    request = start(policies, order()).request()
    for change, reason in (
        ({"peers": request.job.peers[:2], "clients": 2}, "the fewest allowed here is 3"),
        ({"peers": (*request.job.peers[1:], ("n9", 3))}, "and not over n0"),
        ({"peers": (*request.job.peers[:2], ("n9", 3))}, "n9 is not among this node's peers"),
        ({"peers": (("n0", 8), *request.job.peers[1:])}, "which is wrong"),
        ({"method": "scaffold", "settings": {}}, "needs full noise"),
    ):
        with pytest.raises(Refused, match=reason):
            answer(policies[0], request._replace(job=replace(request.job, **change)))
    assert [spent(p) for p in policies] == [0.0] * 3


def test_noise_of_another_size_than_the_plans_is_not_summed(tmp_path, monkeypatch) -> None:
    """Nodes draw their shares of the plan's noise, so a method that says it draws more would be charged too little."""
    offered = [EntryPoint("loud", "offered_method:loud", "fedsofim.methods")]
    monkeypatch.setattr("fedsofim.extensions.entry_points", lambda group: offered if "methods" in group else [])
    policies = summing_nodes(tmp_path, methods=["fedgd", "loud"])
    with pytest.raises(InputError, match="a secure sum needs"):
        start(policies, order(method="loud", settings=()))
    request = start(policies, order(method="fedgd", settings=())).request()
    with pytest.raises(Refused, match="needs full noise"):
        answer(policies[0], request._replace(job=replace(request.job, method="loud", settings={})))
    assert spent(policies[0]) == 0.0


def test_ties_of_every_draw_that_a_sum_relies_on_are_taken_off_delta(tmp_path) -> None:
    policies = summing_nodes(tmp_path)
    now = start(policies, order())
    answer(policies[0], now.request())
    ((_, line),) = policies[0].account.entries()
    assert line.coordinates == 3 * sum(np.size(leaf) for leaf in jax.tree.leaves(now.params))


@pytest.mark.parametrize("changed", [{"method": "scaffold", "settings": ()}, {"method": "fedfc", "settings": ()},
                                     {"epsilon": WITHOUT}, {"method": "ftrl", "settings": ()}])  # fmt: skip
def test_the_server_plans_only_what_can_be_summed(tmp_path, changed) -> None:
    policies = summing_nodes(tmp_path)
    with pytest.raises(InputError, match="a secure sum needs"):
        start(policies, order(**changed))


def test_masks_of_all_nodes_cancel_and_differ_by_request(tmp_path) -> None:
    names = ("a", "b", "c")
    public = {n: new_key(tmp_path / n) for n in names}
    secrets = {n: pair_secrets(n, tmp_path / n, public, names) for n in names}
    assert secrets["a"]["b"] == secrets["b"]["a"]
    total = sum((masks(n, secrets[n], "digest", 50) for n in names), np.zeros(50, np.uint64))
    assert not total.any()
    assert (masks("a", secrets["a"], "digest", 50) != masks("a", secrets["a"], "other", 50)).all()


def test_a_policy_must_name_its_mask_key_and_enough_peers(tmp_path) -> None:
    policies = summing_nodes(tmp_path)
    path = policies[0].ledger.parent / "policy.toml"
    path.write_text(path.read_text().split("[peers]")[0])
    with pytest.raises(InputError, match=r"\[peers\] the key of every other client"):
        read_policy(path)
