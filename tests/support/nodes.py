"""Nodes in folders of their own, and a job among them in one process: what the tests of deployment share."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedsofim.data.partition import Split
from fedsofim.deploy import server
from fedsofim.deploy.account import Account, epsilon_of_lines
from fedsofim.deploy.node import answer, hello
from fedsofim.deploy.policy import Policy, read_policy
from fedsofim.deploy.server import Order, Progress
from fedsofim.deploy.wire import Arrays
from fedsofim.methods import registry
from toy import make_toy

METHODS = sorted(registry())
SMALL = make_toy(sizes=(7, 20, 12), features=3)
REHEARSAL: Mapping[str, Any] = {"epsilon": "inf", "smallest_multiplier": 0}


def policy_toml(name: str = "n0", classes: int = 3, **changed: Any) -> str:
    """A policy; `changed` fields replace the defaults, which allow every method within epsilon 1."""
    fields: dict[str, Any] = {
        "epsilon": 1.0,
        "delta": 1e-5,
        "smallest_multiplier": 0.01,
        "largest_clip": 10.0,
        "methods": METHODS,
    } | changed
    return (
        f'[node]\nname = "{name}"\ndata = "records.npz"\nclasses = {classes}\nledger = "ledger.db"\n\n'
        f"[budget]\nepsilon = {fields['epsilon']}\ndelta = {fields['delta']}\n\n"
        f"[limits]\nsmallest_multiplier = {fields['smallest_multiplier']}\n"
        f"largest_clip = {fields['largest_clip']}\nmethods = {list(fields['methods'])}\n"
    )


def write_records(folder: Path, x: Any, y: Any) -> None:
    np.savez(folder / "records.npz", x=x, y=y)


def make_node(folder: Path, x: Any, y: Any, name: str = "n0", classes: int = 3, **changed: Any) -> Policy:
    """A node's folder with records and policy."""
    folder.mkdir(parents=True, exist_ok=True)
    write_records(folder, x, y)
    (folder / "policy.toml").write_text(policy_toml(name, classes, **changed))
    return read_policy(folder / "policy.toml")


def make_nodes(folder: Path, data: Split = SMALL, **changed: Any) -> list[Policy]:
    """One node for each client of a split: n0, n1, ..."""
    x, y = data.dataset.x_train, data.dataset.y_train
    return [
        make_node(folder / f"n{i}", x[part], y[part], f"n{i}", data.dataset.classes, **changed)
        for i, part in enumerate(data.parts)
    ]


def begin(policies: Sequence[Policy], order: Order) -> Progress:
    return server.begin(order, server.clients_of([hello(p) for p in policies], order))


def ask_all(policies: Sequence[Policy], progress: Progress) -> dict[str, Arrays]:
    request = progress.request()
    return {p.name: answer(p, request) for p in policies}


def finish(policies: Sequence[Policy], progress: Progress) -> Progress:
    """The job to its end."""
    while not progress.finished:
        progress = server.advance(progress, ask_all(policies, progress))
    return progress


def spent(policy: Policy) -> float:
    """Epsilon in a node's ledger, read from disk."""
    return epsilon_of_lines([line for _, line in _entries(policy)], policy.delta)


def charges(policy: Policy) -> int:
    """Lines in a node's ledger."""
    return len(_entries(policy))


def _entries(policy: Policy) -> list:
    Account(policy.ledger).create()
    return Account(policy.ledger).entries()


def leaves(tree: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def same_bits(a: Any, b: Any) -> bool:
    """Are two trees equal bit by bit?"""
    pairs = list(zip(leaves(a), leaves(b), strict=True))
    return all(x.dtype == y.dtype and x.tobytes() == y.tobytes() for x, y in pairs)
