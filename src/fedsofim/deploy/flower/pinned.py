"""`fedsofim node`: a SuperNode that runs this installation's ClientApp, whatever code the server sends.

Flower ships the app's code from the server to the nodes: a plain SuperNode would run a server's program on the
node's records, and no policy could matter. SuperNode starts its workers by bare command names, so this one is started
with a folder first on its PATH that holds a `flwr-clientapp` of ours, which takes the message and ignores the code,
and refusals in place of every other worker. If a new Flower changes how that works, the worker stops with an error
and nothing is released.
"""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from fedsofim.deploy.flower.nursery import HAND_OVER
from fedsofim.errors import InputError

NURSERY = "nursery.sock"
_OTHERS = ("flwr-agentapp", "flwr-connector", "flwr-model", "flwr-serverapp", "flwr-simulation")


def patched() -> Callable[[], None]:
    """Flower's worker, with the server's code neither installed nor loaded."""
    from flwr.supernode.cli import flwr_clientapp
    from flwr.supernode.runtime import run_clientapp as runtime

    from fedsofim.deploy.flower.client_app import app

    stand_ins = {
        "install_from_fab": lambda *a, **k: None,
        "get_project_dir": lambda *a, **k: Path(),
        "install_app_dependencies": _refuse,
        "get_load_client_app_fn": lambda **k: lambda *a: app,
    }
    for name, stand_in in stand_ins.items():
        if not hasattr(runtime, name):
            raise SystemExit(f"fedsofim: this version of Flower has no {name}; the node does not run, see docs/node.md")
        setattr(runtime, name, stand_in)
    return flwr_clientapp


def worker() -> None:
    """What stands in for `flwr-clientapp`."""
    patched()()


def _refuse(*a: object, **k: object) -> None:
    raise RuntimeError("a node installs nothing that a server asks for")


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


def environment(folder: Path) -> dict[str, str]:
    """The environment of a node's SuperNode: our workers first, Flower's commands from this installation."""
    found = shutil.which("flower-supernode", path=str(Path(sys.executable).parent)) or shutil.which("flower-supernode")
    if found is None:
        raise InputError("Flower is not installed here; install it with: pip install 'fedsofim[flower]'")
    path = os.pathsep.join([str(commands(folder / "workers")), str(Path(found).parent), os.environ.get("PATH", "")])
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
