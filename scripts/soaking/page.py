"""The table on docs/soak.md, between two marks, and the same as JSON beside the page."""

import json
import os
import platform
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- written by scripts/soak.py -->", "<!-- up to here -->"


def write_page(page: Path, result: Mapping[str, Any]) -> None:
    """The page with this result in the place of the last one."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    page.write_text(f"{before}{BEGIN}\n{table_of(result)}{END}{after}", encoding="utf-8")
    page.with_suffix(".json").write_text(json.dumps({**_machine(), **result}, indent=2) + "\n", encoding="utf-8")


def table_of(result: Mapping[str, Any]) -> str:
    lines = [
        f"{result['minutes']:g} minutes, {result['minutes of faults']:g} of them with faults, seed {result['seed']}; "
        f"{_in_words(_machine())}.",
        "",
        "| what | how often |",
        "|---|--:|",
    ]
    sections = ("faults", "messages", "figures")
    lines += [f"| {what} | {count:,} |" for part in sections for what, count in result[part].items()]
    lines.append(f"| ended by themselves and started again | {result['ended by themselves and started again']} |")
    lines.append(f"| **broken promises** | {len(result['broken promises'])} |")
    lines += ["", "| why jobs stopped on their way | how often |", "|---|--:|"]
    lines += [f"| {why} | {count} |" for why, count in result["why jobs stopped"].items()]
    return "\n".join(lines) + "\n"


def _machine() -> dict[str, Any]:
    return {
        "when": time.strftime("%Y-%m-%d"), "cores": os.cpu_count(), "python": platform.python_version(),
        "flwr": version("flwr"), "jax": version("jax"),
    }  # fmt: skip


def _in_words(machine: Mapping[str, Any]) -> str:
    return (f"{machine['when']}, {machine['cores']} cores, Python {machine['python']}, Flower {machine['flwr']}, "
            f"JAX {machine['jax']}")  # fmt: skip
