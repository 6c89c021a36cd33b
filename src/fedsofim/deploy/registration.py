"""Which node keys the SuperLink knows: each in server/node-keys/, noted beside it once it was made known.

A key that was replaced is made known in the place of the old one, which is taken back: whoever still has it is no node
any more.
"""

import json
from pathlib import Path
from typing import Any

from fedsofim.deploy.processes import flwr, server_environment
from fedsofim.errors import InputError


def register(server: Path) -> list[str]:
    """Make every key known that the SuperLink does not know yet; what was done, in words."""
    done = []
    for key in sorted((server / "node-keys").glob("*.pub")):
        note = key.with_suffix(".registered")
        before, text = _noted(note), key.read_text(encoding="utf-8").strip()
        if before.get("key") == text:
            continue
        number = _make_known(server, key)
        if before.get("node"):
            _take_back(server, key.stem, str(before["node"]))
            done.append(f"the key of {key.stem} was replaced: the new one counts, the old one no longer")
        note.write_text(json.dumps({"key": text, "node": number}), encoding="utf-8")
    return done


def _noted(note: Path) -> dict[str, Any]:
    try:
        found = json.loads(note.read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else {}
    except (OSError, ValueError):
        return {}


def _make_known(server: Path, key: Path) -> str:
    arguments = ["supernode", "register", str(key), "federation", "--format", "json"]
    result = flwr(arguments, server_environment(server))
    if not result.get("success") and "already" not in str(result).lower():
        raise InputError(f"the SuperLink did not take the key of {key.stem}: {result.get('error-message', result)}")
    return str(result.get("node-id", ""))


def _take_back(server: Path, name: str, number: str) -> None:
    result = flwr(["supernode", "unregister", number, "federation", "--format", "json"], server_environment(server))
    if not result.get("success"):
        raise InputError(
            f"the new key of {name} is known, but the old one could not be taken back "
            f"({result.get('error-message', result)}); take it back by hand: flwr supernode unregister {number}"
        )
