"""The section of docs/performance.md about a federation's rounds, from docs/federation_rounds.json."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[1] / "docs" / "federation_rounds.json"
SIZES = ("small", "large")

TEXT = """
## A federation's rounds
One server and three nodes on one machine, TLS and node keys on (`python benchmarks/rounds.py`). A round is counted
from one checkpoint to the next: question, three answers, step. Seconds are told beside how busy the machine was; CPU
seconds, of all processes of the federation, depend on that less.

{table}

{machine}

**What the time is made of.** CPU seconds of one round, by process:

{work}

A node works some 30 ms on a round of 650 parameters; the SuperLink takes most of it. Each record, array and chunk of
a message is a call of its own to it, at the server and at every node, and for each it writes to its database several
times, most of all to look whether tasks have expired and whether the run is alive
(`flwr/supercore/corestate/sql_corestate.py` `_cleanup_expired_task_tokens`, `flwr/server/superlink/utils.py`
`check_abort`). That is Flower's floor. What goes around it by its public interfaces: small arrays travel in the
record of the facts (3 calls for a message in the place of 6); nodes and server look for messages the less often the
longer none came, and are late by a tenth of that at most. Nodes no longer look through every installed package at
every look, which had taken a node 37 ms, ten times a second.
"""


def section(path: Path = FILE) -> str:
    """Empty if nothing was measured."""
    if not path.exists():
        return ""
    found = json.loads(path.read_text(encoding="utf-8"))
    sizes = [found[name] for name in SIZES if name in found]
    return TEXT.format(table=_table(sizes), work=_work(sizes), machine=_machine(found))


def _table(sizes: list[Mapping[str, Any]]) -> str:
    lines = ["| parameters | seconds a round: median | fastest | slowest | at most | up to the end of round 1 "
             "| MB of an idle node | of its worker |", "|--:|--:|--:|--:|--:|--:|--:|--:|"]  # fmt: skip
    keys = ("seconds a round, median", "seconds a round, fastest", "seconds a round, slowest", "at most",
            "seconds from submission to the end of round 1", "MB of an idle node",
            "MB of a node's worker beside it, during a job")  # fmt: skip
    return "\n".join(
        [*lines, *(f"| {s['parameters']:,} | " + " | ".join(f"{s[k]:g}" for k in keys) + " |" for s in sizes)]
    )


def _work(sizes: list[Mapping[str, Any]]) -> str:
    kinds = list(dict.fromkeys(kind for s in sizes for kind in s["CPU seconds a round"]))
    lines = [f"| parameters | {' | '.join(kinds)} |", "|--:" * (len(kinds) + 1) + "|"]
    rows = [[f"{s['parameters']:,}", *(f"{s['CPU seconds a round'].get(k, 0):g}" for k in kinds)] for s in sizes]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def _machine(found: Mapping[str, Any]) -> str:
    machine = found["machine"]
    return f"{machine['processor']}; load when it began {machine['load at start']}."
