"""`fedsofim federation demo`: a real federation on one machine, from init to certificate, and nothing left running."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fedsofim.data import load
from fedsofim.data.npz import save_npz
from fedsofim.data.partition import split
from fedsofim.deploy import certificate, processes
from fedsofim.deploy.address import Address
from fedsofim.deploy.clients import clients_of
from fedsofim.deploy.following import follow
from fedsofim.deploy.handout import Terms, hand_out
from fedsofim.deploy.node import hello
from fedsofim.deploy.order import Conduct, Order
from fedsofim.deploy.policy import read_policy
from fedsofim.deploy.registration import register
from fedsofim.deploy.server import start_job
from fedsofim.errors import InputError

NODES = 3


def run_demo(out: Path, rounds: int, epsilon: float | str, method: str) -> None:
    """Three nodes with a third of the digits each; every node's cap is exactly this job."""
    order = Order(recipe="paper", method=method, epsilon=epsilon, rounds=rounds, clients=NODES)
    where, names = Address(port=processes.free_port()), [f"node-{i + 1}" for i in range(NODES)]
    multiplier = 0.1 if order.budget.private else 0.0
    hand_out(out, names, where, Terms(epsilon=epsilon, smallest_multiplier=multiplier, methods=(method,)))
    folders = [out / "nodes" / name for name in names]
    deal(folders)
    for folder in folders:
        read_policy(folder / "policy.toml").account.create()
    start_job(
        order, clients_of([hello(read_policy(f / "policy.toml")) for f in folders], NODES)
    )  # senseless? say so now
    print(f"starting one server and {NODES} nodes with TLS on port {where.port}; logs in {out}", flush=True)
    with federated(out, where, folders):
        follow(out / "server", order, Conduct(test="digits", folder=str((out / "job").absolute())))
    print((out / "job" / "certificate.txt").read_text())
    ledgers = [f / "ledger.db" for f in folders]
    if problems := certificate.verify(certificate.read(out / "job" / "certificate.json"), ledgers):
        raise InputError(f"the certificate does not follow from the ledgers: {problems}")
    print("certificate verified against the three ledgers; all processes are gone")


def deal(folders: list[Path]) -> None:
    """The shipped digits, split unevenly over the nodes."""
    dealt = split(load("digits"), clients=len(folders), alpha=0.5)
    for folder, part in zip(folders, dealt.parts, strict=True):
        x, y = dealt.dataset.x_train[part], np.asarray(dealt.dataset.y_train[part])
        save_npz(folder / "records.npz", {"x": x, "y": y})


@contextlib.contextmanager
def federated(out: Path, where: Address, folders: list[Path]) -> Iterator[None]:
    """A SuperLink and its nodes, up and registered; stopped on the way out, whatever happened."""
    server = out / "server"
    with contextlib.ExitStack() as stack:
        environment = processes.server_environment(server)
        link = processes.superlink_command(server, where)
        stack.enter_context(processes.running(link, environment, out / "superlink.log"))
        processes.wait_for(lambda: processes.listening(where.port), 60, "the SuperLink's start")
        register(server)
        for folder in folders:
            command = processes.node_start(folder, where)
            stack.enter_context(processes.running(command, os.environ, folder / "node.log"))
        yield
