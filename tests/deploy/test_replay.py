"""The same question has the same bits for ever, so asking again teaches nothing: on one node, and in a secure sum."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsofim.deploy.account import Account
from fedsofim.deploy.node import answer
from fedsofim.deploy.noise import request_secret
from fedsofim.deploy.order import Order
from fedsofim.deploy.packing import to_bytes
from fedsofim.deploy.policy import Policy
from fedsofim.deploy.secure_sum import trusted_among
from fedsofim.deploy.server import step
from fedsofim.errors import Refused
from node_sums import summing_nodes
from nodes import METHODS, ask_all, asked, charges, make_nodes, same_bits, spent, start, started
from toy import make_toy


def forgotten(policy: Policy) -> None:
    """The node no longer has any reply that it stored."""
    with closing(sqlite3.connect(policy.ledger)) as db, db:
        db.execute("UPDATE asks SET reply=NULL")
    db.close()


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_reply_that_is_no_longer_kept_is_computed_again_to_the_last_bit(tmp_path: Path, method: str):
    nodes = make_nodes(tmp_path)
    now = started(nodes, method, rounds=2)
    while True:
        first = ask_all(nodes, now)
        before = [charges(policy) for policy in nodes]
        for policy in nodes:
            forgotten(policy)
        assert same_bits(first, ask_all(nodes, now))
        assert [charges(policy) for policy in nodes] == before
        if (now := step(now, first)).finished:
            break


def test_a_crash_between_charge_and_reply_is_no_second_draw(nodes: list[Policy], monkeypatch):
    """What a killed process had computed, and what the next one sends: the same bits, one charge."""
    request, policy = asked(nodes), nodes[0]
    computed: list[Any] = []

    def killed(self: Account, number: int, reply: bytes, *a: Any) -> None:
        computed.append(reply)
        raise KeyboardInterrupt

    monkeypatch.setattr(Account, "close_ask", killed)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            answer(policy, request)
    monkeypatch.undo()
    sent = to_bytes(answer(policy, request))
    assert computed == [sent, sent]
    assert charges(policy) == 1


def test_asking_honest_peers_again_does_not_wear_their_noise_off(tmp_path: Path):
    """The attack: the sum of one victim's upload with others', over and over, to average the others' noise away."""
    policies = summing_nodes(tmp_path)
    now = start(policies, Order(method="fedgd", epsilon=1.0, rounds=2, trust="secure-sum", recipe="paper"))
    first = ask_all(policies, now)
    for _ in range(3):
        for policy in policies[1:]:
            forgotten(policy)
        assert same_bits(first, ask_all(policies, now))
    assert [charges(policy) for policy in policies] == [1, 1, 1]


def test_a_peer_with_a_new_ledger_takes_no_part_in_a_job_that_was_begun_with_another(tmp_path: Path):
    """Its old secret is gone, so it would draw other noise for the same question."""
    policies = summing_nodes(tmp_path)
    now = start(policies, Order(method="fedgd", epsilon=1.0, rounds=2, trust="secure-sum", recipe="paper"))
    ask_all(policies, now)
    moved = replace(policies[1], ledger=policies[1].ledger.with_name("another.db"))
    moved.account.create()
    with pytest.raises(Refused, match="another ledger"):
        answer(moved, now.request())


def test_requests_share_no_noise():
    job = bytes(range(32))
    found = {request_secret(job, digest) for digest in ("a" * 64, "b" * 64)} | {request_secret(bytes(32), "a" * 64)}
    assert len(found) == 3
    assert all(len(secret) == 32 and secret != job for secret in found)


# --- who is trusted in a sum --------------------------------------------------------------------------------


def test_the_worst_clients_that_a_server_can_pick_are_charged_for(tmp_path: Path):
    """Five known, three of them trusted: in a sum of three the other two may be both strangers to honesty."""
    five = make_toy(sizes=(8, 8, 8, 8, 8), features=3)
    policies = summing_nodes(tmp_path, trusted=3, data=five, epsilon=10.0)
    costs = []
    for n in (5, 4, 3):
        some = policies[:n]
        order = Order(method="fedgd", epsilon=1.0, rounds=1, trust="secure-sum", clients=n, recipe="paper")
        now = start(some, order)
        before = Account(policies[0].ledger).last()
        answer(some[0], now.request())
        ((_, line),) = Account(policies[0].ledger).entries()[before:]
        full = now.job.stds[now.phase][0] / now.job.clip
        costs.append((line.multiplier / full) ** 2 * n)  # how many of the n clients' noises it counts on
    np.testing.assert_allclose(costs, [3, 2, 1], rtol=1e-9)


def test_trust_among_those_who_sum():
    assert [trusted_among(n, known=5, trusted=3) for n in (5, 4, 3, 2)] == [3, 2, 1, 1]
    assert [trusted_among(n, known=3, trusted=3) for n in (3, 2)] == [3, 2]


def test_a_whole_job_of_such_a_subset_stays_within_the_cap(tmp_path: Path):
    five = make_toy(sizes=(8, 8, 8, 8, 8), features=3)
    policies = summing_nodes(tmp_path, trusted=3, data=five, epsilon=1.0)[:3]
    now = start(policies, Order(method="fedgd", epsilon=1.0, rounds=1, trust="secure-sum", recipe="paper"))
    with pytest.raises(Refused, match="above the cap"):
        answer(policies[0], now.request())
    assert spent(policies[0]) == 0
