"""Nodes in folders of their own, and a job among them in one process: what the tests of deployment share."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from fedsofim.core.budget import WITHOUT
from fedsofim.data.partition import Split
from fedsofim.deploy.clients import clients_of
from fedsofim.deploy.job_state import JobState
from fedsofim.deploy.lines import epsilon_of_lines
from fedsofim.deploy.node import answer, hello
from fedsofim.deploy.order import Order
from fedsofim.deploy.policy import Policy, read_policy
from fedsofim.deploy.records import DataProblem
from fedsofim.deploy.server import start_job, step
from fedsofim.deploy.wire import Arrays, Job, Request
from fedsofim.errors import InputError, Refused
from fedsofim.methods import PUBLISHED
from toy import make_toy

METHODS: list[str] = list(PUBLISHED)
SMALL = make_toy(sizes=(7, 20, 12), features=3)
X, Y = SMALL.dataset.x_train, SMALL.dataset.y_train
REHEARSAL: Mapping[str, Any] = {"epsilon": WITHOUT, "smallest_multiplier": 0}


# --- nodes --------------------------------------------------------------------------------------------------


def policy_toml(name: str = "n0", classes: int = 3, **changed: Any) -> str:
    """A policy; `changed` fields replace the defaults, which allow every method within epsilon 1."""
    fields: dict[str, Any] = {
        "epsilon": 1.0,
        "delta": 1e-5,
        "smallest_multiplier": 0.01,
        "largest_clip": 10.0,
        "methods": METHODS,
        "data": "records.npz",
    } | changed
    epsilon = f'"{WITHOUT}"' if fields["epsilon"] == WITHOUT else fields["epsilon"]
    return (
        f'[node]\nname = "{name}"\ndata = "{fields["data"]}"\n{_form(classes, fields)}ledger = "ledger.db"\n\n'
        f"[budget]\nepsilon = {epsilon}\ndelta = {fields['delta']}\n\n"
        f"[limits]\nsmallest_multiplier = {fields['smallest_multiplier']}\n"
        f"largest_clip = {fields['largest_clip']}\nmethods = {list(fields['methods'])}\n"
    )


def _form(classes: int, fields: Mapping[str, Any]) -> str:
    """How records are described: by a schema's file, or by the number of classes alone."""
    found = f'schema = "{fields["schema"]}"\n' if "schema" in fields else f"classes = {classes}\n"
    return found + (f'test = "{fields["test"]}"\n' if "test" in fields else "")


def table_node(folder: Path, table: Path, schema: Path, name: str, **changed: Any) -> Policy:
    """A node whose records are a table, read by its schema."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "policy.toml").write_text(policy_toml(name, data=table, schema=schema, **changed))
    policy = read_policy(folder / "policy.toml")
    if not policy.ledger.exists():
        policy.account.create()
    return policy


def write_records(folder: Path, x: Any, y: Any) -> None:
    np.savez(folder / "records.npz", x=x, y=y)


def records_of(client: int, data: Split = SMALL) -> tuple[np.ndarray, np.ndarray]:
    part = data.parts[client]
    return data.dataset.x_train[part], data.dataset.y_train[part]


def make_node(folder: Path, x: Any, y: Any, name: str = "n0", classes: int = 3, **changed: Any) -> Policy:
    """A node's folder with records and policy."""
    folder.mkdir(parents=True, exist_ok=True)
    write_records(folder, x, y)
    (folder / "policy.toml").write_text(policy_toml(name, classes, **changed))
    policy = read_policy(folder / "policy.toml")
    if not policy.ledger.exists():
        policy.account.create()
    return policy


def make_nodes(folder: Path, data: Split = SMALL, **changed: Any) -> list[Policy]:
    """One node for each client of a split: n0, n1, ..."""
    return [
        make_node(folder / f"n{i}", *records_of(i, data), f"n{i}", data.dataset.classes, **changed)
        for i in range(len(data.parts))
    ]


def allowing(folder: Path, names: list[str], **changed: Any) -> list[Policy]:
    """Nodes that allow these models."""
    nodes = make_nodes(folder, **changed)
    for node in nodes:
        path = node.ledger.parent / "policy.toml"
        path.write_text(path.read_text().replace("[limits]", f"[limits]\nmodels = {names}"))
    return [read_policy(node.ledger.parent / "policy.toml") for node in nodes]


# --- a job among them ---------------------------------------------------------------------------------------


def start(policies: Sequence[Policy], order: Order) -> JobState:
    return start_job(order, clients_of([hello(p) for p in policies], order.clients))


def started(nodes: Sequence[Policy], method: str = "fedgd", **order: Any) -> JobState:
    """A job of two rounds under epsilon 1, unless told otherwise."""
    usual = {"epsilon": 1.0, "rounds": 2, "clients": len(nodes)}
    return start(nodes, Order(method=method, recipe="paper", **usual | order))


def asked(nodes: Sequence[Policy], method: str = "fedgd", **order: Any) -> Request:
    """The first request of such a job."""
    return started(nodes, method, **order).request()


def ask_all(policies: Sequence[Policy], now: JobState) -> dict[str, Arrays]:
    request = now.request()
    return {p.name: answer(p, request) for p in policies}


def finish(policies: Sequence[Policy], now: JobState) -> JobState:
    """The job to its end."""
    while not now.finished:
        now = step(now, ask_all(policies, now))
    return now


def with_terms(request: Request, **changed: Any) -> Request:
    """The request of a job under other terms, as a server may send it."""
    return request._replace(job=Job.read(replace(request.job, **changed).text()))


def refusal(policy: Policy, request: Request) -> str:
    """Why a request is refused; nothing may be charged for it."""
    before = charges(policy)
    with pytest.raises((Refused, InputError)) as caught:
        answer(policy, request)
    assert not isinstance(caught.value, DataProblem)
    assert charges(policy) == before
    return str(caught.value)


# --- ledgers and numbers ------------------------------------------------------------------------------------


def spent(policy: Policy) -> float:
    """Epsilon in a node's ledger, read from disk."""
    return epsilon_of_lines([line for _, line in _entries(policy)], policy.delta)


def charges(policy: Policy) -> int:
    """Lines in a node's ledger."""
    return len(_entries(policy))


def _entries(policy: Policy) -> list:
    return policy.account.entries()


def leaves(tree: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def same_bits(a: Any, b: Any) -> bool:
    """Are two trees equal bit by bit?"""
    pairs = list(zip(leaves(a), leaves(b), strict=True))
    return all(x.dtype == y.dtype and x.tobytes() == y.tobytes() for x, y in pairs)
