"""Processes of a federation as the operating system shows them, by the folder that they name."""

import os
from pathlib import Path
from typing import NamedTuple


class Found(NamedTuple):
    pid: int
    parent: int
    command: list[str]

    @property
    def what(self) -> str:
        """`worker`, `node`, `server` or `link`; empty for others."""
        text = " ".join(self.command)
        for part, name in (
            ("fedsofim.deploy.flower.worker", "worker"),
            ("fedsofim.deploy.flower.node_loop", "node"),
            ("flwr-serverapp", "server"),
            ("flower-superlink", "link"),
            ("fedsofim.deploy.flower.front", "link"),
        ):
            if part in text:
                return name
        return ""


def about(folder: Path) -> list[Found]:
    """All processes but this one whose command line or environment names the folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            line, environment = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if line and str(folder).encode() in line + environment:
            command = [part.decode("utf-8", "replace") for part in line.split(b"\0")]
            found.append(Found(int(entry.name), parent, command))
    return found
