"""A coordinator and three hospitals, each in a network of its own, with TLS; one hospital sends garbage.

    python scripts/walk_hosts.py

Each machine is a network namespace of Linux on a bridge of its own, which takes the right to make them (root). Without
it the script says so and ends with 77. The job must finish without the third hospital, which also tries to submit a
run, and to reach the SuperLink behind the front. Nothing is left running and no namespace stays.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fedsofim.core.budget import WITHOUT
from fedsofim.data import load
from fedsofim.data.npz import save_npz
from fedsofim.data.partition import split
from fedsofim.deploy import processes
from fedsofim.deploy.address import Address
from fedsofim.deploy.handout import Terms, hand_out
from fedsofim.deploy.policy import read_policy

SKIPPED = 77
NAMES = ["node-1", "node-2", "node-3"]
WHERE = Address("10.99.0.1", 9092)
TERMS = Terms(epsilon=WITHOUT, smallest_multiplier=0, methods=("fedgd",))
ROUNDS, LIMIT = 3, 300.0
EVIL = """
import sys
if "fedsofim.deploy.flower.worker" in " ".join(sys.orig_argv):
    import itertools, json
    import numpy as np
    from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
    from fedsofim.deploy.flower import messages
    honest, turn = messages.reply_message, itertools.count()
    def evil(facts, arrays, to):
        if not arrays:
            return honest(facts, arrays, to)
        said = json.dumps({**facts})
        match next(turn) % 3:
            case 0:
                forms = '{"upload0": ["f4,(2", [1]]}'
                parts = {"facts": ConfigRecord({"json": said, "forms": forms, "array upload0": b"1"})}
            case 1:
                array = Array(dtype="f4", shape=(1,), stype="numpy.ndarray", data=b"PK\\x03\\x04" + bytes(50))
                parts = {"facts": ConfigRecord({"json": said}), "arrays": ArrayRecord({"upload0": array})}
            case _:
                return honest(facts, {**arrays, "more": np.random.default_rng(0).random(5_000_000)}, to)
        return Message(content=RecordDict(parts), reply_to=to)
    messages.reply_message = evil
"""


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@contextlib.contextmanager
def hosts(count: int) -> Iterator[list[str]]:
    """So many machines on a bridge, by the names of their namespaces; 10.99.0.1 and so on."""
    stem = f"fs{os.getpid() % 100_000}"
    bridge, names = f"{stem}b", [f"{stem}h{i}" for i in range(count)]
    made: list[str] = []
    try:
        for name in (bridge, *names):
            ip("netns", "add", name)
            made.append(name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", bridge, "link", "add", "br0", "type", "bridge")
        ip("-n", bridge, "link", "set", "br0", "up")
        for i, name in enumerate(names):
            ip("link", "add", "e0", "netns", name, "type", "veth", "peer", "name", f"p{i}", "netns", bridge)
            ip("-n", name, "addr", "add", f"10.99.0.{i + 1}/24", "dev", "e0")
            ip("-n", name, "link", "set", "e0", "up")
            ip("-n", bridge, "link", "set", f"p{i}", "master", "br0")
            ip("-n", bridge, "link", "set", f"p{i}", "up")
        yield names
    finally:
        for name in reversed(made):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def set_up(folder: Path) -> None:
    """Folders of a federation, digits dealt to the nodes."""
    hand_out(folder, NAMES, WHERE, TERMS)
    dealt = split(load("digits"), clients=3, alpha=0.5)
    for name, part in zip(NAMES, dealt.parts, strict=True):
        node = folder / "nodes" / name
        save_npz(node / "records.npz", {"x": dealt.dataset.x_train[part], "y": np.asarray(dealt.dataset.y_train[part])})
        read_policy(node / "policy.toml").account.create()


def tried_from(host: str, folder: Path) -> None:
    """What the third hospital tries with all that it was given; each must fail."""
    home = folder / "outside"
    home.mkdir()
    certificate = folder / "nodes" / "node-3" / "ca.crt"
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "x"\n[superlink.x]\naddress = "{WHERE}"\nroot-certificates = "{certificate}"\n'
    )
    asked = ["ip", "netns", "exec", host, processes.command("flwr"), "run", str(processes.APP), "x", "--format", "json"]
    done = subprocess.run(
        asked, env={**os.environ, "FLWR_HOME": str(home)}, capture_output=True, text=True, timeout=LIMIT
    )
    assert "403 Forbidden" in done.stdout + done.stderr, done
    for port in (WHERE.inner, 8000):
        reach = f"import socket; socket.create_connection(('{WHERE.host}', {port}), timeout=5)"
        done = subprocess.run(
            ["ip", "netns", "exec", host, sys.executable, "-c", reach], capture_output=True, text=True
        )
        assert "refused" in done.stderr, done
    print("the third hospital submits no run and does not reach the SuperLink")


def walked(folder: Path, machines: list[str]) -> None:
    server, coordinator = folder / "server", machines[0]
    (folder / "evil").mkdir()
    (folder / "evil" / "sitecustomize.py").write_text(EVIL)
    evil = os.pathsep.join([str(folder / "evil"), os.environ.get("PYTHONPATH", "")])
    environment = processes.server_environment(server)
    with contextlib.ExitStack() as stack:

        def run(host: str, command: list[str], env: dict[str, str], log: Path) -> None:
            stack.enter_context(processes.running(["ip", "netns", "exec", host, *command], env, log))

        run(coordinator, processes.superlink_command(server, WHERE), environment, folder / "link.log")
        processes.wait_for(lambda: "nodes are served" in (folder / "link.log").read_text(), LIMIT, "the front's start")
        for host, name in zip(machines[1:], NAMES, strict=True):
            node = folder / "nodes" / name
            env = {**os.environ, "PYTHONPATH": evil} if name == "node-3" else dict(os.environ)
            run(host, processes.node_start(node, WHERE), env, node / "node.log")
        tried_from(machines[3], folder)
        options = [
            "--epsilon",
            WITHOUT,
            "--recipe",
            "paper",
            "--method",
            "fedgd",
            "--rounds",
            str(ROUNDS),
            "--clients",
            "3",
        ]
        command = [sys.executable, "-m", "fedsofim", "serve", str(server), "--job", str(folder / "job"), *options]
        asked = ["ip", "netns", "exec", coordinator, *command, "--min-clients", "2", "--patience", "60"]
        done = subprocess.run(asked, env=environment, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stdout + done.stderr + (folder / "link.log").read_text()[-3000:]
    notes = [json.loads(line) for line in (folder / "job" / "rounds.jsonl").read_text().splitlines()]
    assert [note["absent"] for note in notes if note.get("round")] == [["node-3"]] * ROUNDS, notes
    print(f"{ROUNDS} rounds done; node-3 sent garbage, was named in each, and was done without")


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        os.environ["FEDSOFIM_STATE"] = str(Path(folder) / "state")
        try:
            machines = stack.enter_context(hosts(4))
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"skipped: no network namespaces can be made here ({getattr(error, 'stderr', '') or error})".strip())
            return SKIPPED
        set_up(Path(folder) / "fed")
        walked(Path(folder) / "fed", machines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
