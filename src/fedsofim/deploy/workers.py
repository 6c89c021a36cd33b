"""The commands by which a node's SuperNode starts its workers, and the environment in which it finds them.

SuperNode starts workers by bare command names. `fedsofim node` puts a folder first on its PATH that holds a
`flwr-clientapp` of ours, which hands the message over to the nursery (flower/nursery.py), and refusals in place of
every other worker. Nothing here imports Flower.
"""

import os
import shutil
import sys
from pathlib import Path

from fedsofim.errors import InputError

NURSERY = "nursery.sock"
_OTHERS = ("flwr-agentapp", "flwr-connector", "flwr-model", "flwr-serverapp", "flwr-simulation")

#: Run by `python -S`, so it may use the standard library only. The exit code comes back as one byte.
HAND_OVER = """
import json, os, socket, sys
s = socket.socket(socket.AF_UNIX)
os.chdir(os.path.dirname(sys.argv[1]))  # a socket's own path may have 100 letters only
try:
    s.connect(os.path.basename(sys.argv[1]))
except OSError:
    start = "from fedsofim.deploy.flower.pinned import worker; worker()"
    os.execv(sys.argv[2], [sys.argv[2], "-c", start, *sys.argv[3:]])
s.sendall(json.dumps(sys.argv[3:]).encode() + b"\\n")
code = s.recv(1)
sys.exit(code[0] if code else 1)
"""


def commands(folder: Path) -> Path:
    """A folder of worker commands for a node: ours, and refusals."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hand_over.py").write_text(HAND_OVER)
    python, socket = sys.executable, folder / NURSERY
    ours = f'#!/bin/sh\nexec "{python}" -S "{folder}/hand_over.py" "{socket}" "{python}" "$@"\n'
    _script(folder / "flwr-clientapp", ours)
    for name in _OTHERS:
        _script(folder / name, f'#!/bin/sh\necho "fedsofim: a node does not run {name}" >&2\nexit 1\n')
    return folder


def _script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def command(name: str) -> str:
    """One of Flower's commands, of this installation."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        raise InputError("Flower is not installed here; install it with: pip install 'fedsofim[flower]'")
    return found


def environment(folder: Path) -> dict[str, str]:
    """The environment of a node's SuperNode: our workers first, Flower's commands from this installation."""
    flower = str(Path(command("flower-supernode")).parent)
    path = os.pathsep.join([str(commands(folder / "workers")), flower, os.environ.get("PATH", "")])
    own = {"PATH": path, "FLWR_HOME": str(folder / "flwr"), "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled")}
    return {**os.environ, **FLOWER, **own}


#: No telemetry, no update check, no installation of what an app asks for; prompt workers, compiled code kept.
FLOWER = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
}
