"""`fedsofim federation demo`: a real federation on one machine, from init to certificate, and nothing left running."""

import contextlib
import os
from pathlib import Path

import numpy as np

from fedsofim.data import load
from fedsofim.data.npz import save_npz
from fedsofim.data.partition import split
from fedsofim.deploy import certificate, processes
from fedsofim.deploy import handout as federation
from fedsofim.deploy.following import follow
from fedsofim.deploy.node import hello
from fedsofim.deploy.policy import read_policy
from fedsofim.deploy.server import Order, begin, clients_of
from fedsofim.errors import InputError

NODES = 3


def run_demo(out: Path, rounds: int, epsilon: float, method: str) -> None:
    """Three nodes with a third of the digits each; every node's cap is exactly this job."""
    where = federation.Federation(port=processes.free_port())
    terms = federation.Terms(epsilon=epsilon, smallest_multiplier=0.1, methods=(method,))
    names = [f"node-{i + 1}" for i in range(NODES)]
    federation.init(out, names, where, terms)
    folders = [out / "nodes" / name for name in names]
    deal(folders)
    order = Order(method=method, epsilon=epsilon, rounds=rounds, clients=NODES)
    begin(order, clients_of([hello(read_policy(f / "policy.toml")) for f in folders], order))  # senseless? say so now
    print(f"starting one server and {NODES} nodes with TLS on port {where.port}; logs in {out}", flush=True)
    with federated(out, where, folders):
        config = {"method": method, "epsilon": epsilon, "rounds": rounds, "clients": NODES, "test": "digits"}
        follow(out / "server", out / "job", {**config, "folder": str((out / "job").absolute())})
    print((out / "job" / "certificate.txt").read_text())
    ledgers = [f / "ledger.db" for f in folders]
    if problems := certificate.verify(certificate.read(out / "job" / "certificate.json"), ledgers):
        raise InputError(f"the certificate does not follow from the ledgers: {problems}")
    print("certificate verified against the three ledgers; all processes are gone")


def deal(folders: list[Path]) -> None:
    """The shipped digits, split unevenly over the nodes."""
    data = split(load("digits"), clients=len(folders), alpha=0.5)
    for folder, part in zip(folders, data.parts, strict=True):
        save_npz(
            folder / "records.npz", {"x": split.dataset.x_train[part], "y": np.asarray(split.dataset.y_train[part])}
        )


@contextlib.contextmanager
def federated(out: Path, where: federation.Federation, folders: list[Path]):
    """A SuperLink and its nodes, up and registered; stopped on the way out, whatever happened."""
    server = out / "server"
    with contextlib.ExitStack() as stack:
        environment = processes.server_environment(server)
        link = processes.superlink_command(server, where)
        stack.enter_context(processes.running(link, environment, out / "superlink.log"))
        processes.wait_for(lambda: processes.listening(where.port), 60, "the SuperLink's start")
        processes.register(server)
        for folder in folders:
            stack.enter_context(node(folder, where))
        yield


def node(folder: Path, where: federation.Federation):
    """One node of a federation on this machine."""
    return processes.running(processes.node_start(folder, where.address), os.environ, folder / "node.log")
