"""Read by every Python process of a soak at its start: wraps what is imported, without a hook in the library."""

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

FOLDER = os.environ.get("SOAK_TAPS", "")


def _wrap(module: ModuleType) -> None:
    from soak_taps import Taps, tap_fleet, tap_post, tapped_respond

    taps, last = Taps(Path(FOLDER)), module.__name__.rpartition(".")[2]
    if last == "client_app":
        module.__dict__["respond"] = tapped_respond(taps, module.respond)
    elif last == "fleet":
        tap_fleet(taps, module.Fleet)
    else:
        tap_post(taps, module.Post)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds nothing itself: it has the module loaded as usual, and wraps what came."""

    wanted = tuple(f"fedsofim.deploy.flower.{name}" for name in ("client_app", "fleet", "post"))

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self.wanted:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def executed(module: ModuleType) -> None:
                execute(module)
                _wrap(module)

            spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec


if FOLDER:
    sys.meta_path.insert(0, _Finder())
