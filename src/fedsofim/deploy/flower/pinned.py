"""`fedsofim node`: a SuperNode that runs this installation's ClientApp, whatever code the server sends.

Flower ships the app's code from the server to the nodes: a plain SuperNode would run a server's program on the
node's records, and no policy could matter. SuperNode starts its workers by bare command names, so this one is started
with a folder first on its PATH that holds a `flwr-clientapp` of ours, which takes the message and ignores the code,
and refusals in place of every other worker. If a new Flower changes how that works, the worker stops with an error
and nothing is released.
"""

from collections.abc import Callable
from pathlib import Path


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
