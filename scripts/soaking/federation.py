"""A federation on this machine, whose processes are killed and started again: a SuperLink and its nodes, with TLS."""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedsofim.data import load
from fedsofim.data.npz import save_npz
from fedsofim.data.partition import split
from fedsofim.deploy import processes
from fedsofim.deploy.address import Address
from fedsofim.deploy.handout import Terms, hand_out
from fedsofim.deploy.policy import Policy, read_policy
from fedsofim.deploy.registration import register
from fedsofim.deploy.secure_sum import new_key

HOOKS = Path(__file__).parent / "hooks"
SUPPORT = Path(__file__).resolve().parents[2] / "tests" / "support"
LINK = "link"
METHODS = ("fedsofim", "fedgd", "fedadam", "scaffold")
TERMS = Terms(epsilon=60.0, smallest_multiplier=0.5, largest_clip=10.0, methods=METHODS)


@dataclass
class Federation:
    """Its processes by name (`link` and the nodes'), and when those that were killed are to come back."""

    folder: Path
    where: Address
    names: list[str]
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    due: dict[str, float] = field(default_factory=dict)

    @property
    def server(self) -> Path:
        return self.folder / "server"

    @property
    def taps(self) -> Path:
        return self.folder / "taps"

    def policy(self, name: str) -> Policy:
        return read_policy(self.folder / "nodes" / name / "policy.toml")

    def policies(self) -> dict[str, Policy]:
        return {name: self.policy(name) for name in self.names}

    def start(self, name: str) -> None:
        self.due.pop(name, None)
        if name == LINK:
            command, env = (
                processes.superlink_command(self.server, self.where),
                processes.server_environment(self.server),
            )
            self.running[name] = processes.start(command, env, self.folder / "link.log")
            return
        node = self.folder / "nodes" / name
        self.running[name] = processes.start(processes.node_start(node, self.where), os.environ, node / "node.log")

    def kill(self, name: str, back_in: float) -> bool:
        """kill -9 of what an operator started; whether it was there. It comes back after so many seconds."""
        process = self.running.pop(name, None)
        if process is None:
            return False
        process.kill()
        process.wait()
        self.due[name] = time.monotonic() + back_in
        return True

    def tend(self) -> list[str]:
        """Start again what is due, and what ended by itself; who did that."""
        ended = [name for name, process in self.running.items() if process.poll() is not None]
        for name in ended:
            self.kill(name, 2.0)
        for name in [name for name, at in self.due.items() if at < time.monotonic()]:
            self.start(name)
        return ended


@contextlib.contextmanager
def federated(folder: Path, nodes: int) -> Iterator[Federation]:
    """Set up and running; on the way out everything that was started is asked to end, children included."""
    found = _set_up(folder, nodes)
    environment = {
        "SOAK_TAPS": str(found.taps), "FEDSOFIM_STATE": str(folder / "state"), "TMPDIR": str(folder / "tmp"),
        "PYTHONPATH": os.pathsep.join([str(HOOKS), str(SUPPORT), os.environ.get("PYTHONPATH", "")]),
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
    }  # fmt: skip
    os.environ.update(environment)
    for name in found.names:
        found.policy(name).account.create()
    try:
        found.start(LINK)
        processes.wait_for(lambda: processes.listening(found.where.port), 120, "the SuperLink's start")
        register(found.server)
        for name in found.names:
            found.start(name)
        yield found
    finally:
        for process in reversed(list(found.running.values())):
            processes.stop(process)


def _set_up(folder: Path, nodes: int) -> Federation:
    names, where = [f"node-{i + 1}" for i in range(nodes)], Address(port=processes.free_port())
    hand_out(folder, names, where, TERMS)
    for name in ("taps", "tmp", "state", "jobs"):
        (folder / name).mkdir()
    dealt = split(load("digits"), clients=nodes, alpha=0.5)
    keys = {name: new_key(folder / "nodes" / name / "mask.key") for name in names}
    for name, part in zip(names, dealt.parts, strict=True):
        node = folder / "nodes" / name
        save_npz(node / "records.npz", {"x": dealt.dataset.x_train[part], "y": np.asarray(dealt.dataset.y_train[part])})
        text = (
            (node / "policy.toml")
            .read_text()
            .replace("secure_sum_min_clients = 0", f"secure_sum_min_clients = {nodes}")
        )
        text = text.replace("[node]\n", '[node]\nmask_key = "mask.key"\n', 1)
        peers = "".join(f'{other} = "{key}"\n' for other, key in keys.items() if other != name)
        (node / "policy.toml").write_text(f"{text}\n[peers]\n{peers}")
    return Federation(folder, where, names)
