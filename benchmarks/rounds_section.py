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

Of a small model the SuperLink takes most. That is Flower's floor: each record, array and chunk of a message is a call
of its own to it, by the server and by every node. py-spy says of what a call consists: the way of a request through
nine layers of HTTP middleware, before and after anything is done for it, and its database, where SQLAlchemy looks at
every call whether tasks have expired and whether the run is alive (`flwr/supercore/corestate/sql_corestate.py`
`_cleanup_expired_task_tokens`, `flwr/server/superlink/utils.py` `check_abort`), and writes objects, sessions and
traffic. With its state in memory (no `--database`) it would take less; then it forgets the nodes' keys when it is
restarted, so that is not how it is started.

What goes around that floor:

- **An answer is fetched as its parts come.** It is announced before it is whole, and Flower's grid then sleeps for a
  second, two, four, ...: longer than a round takes now. `deploy/flower/arrivals.py` keeps the announced answer and
  looks for the others meanwhile.
- **Fewer calls.** Small arrays travel in the record of the facts, and two of a message's three parts follow from what
  the SuperLink tells when it announces it (`deploy/flower/edge.py` `known`): one part is fetched.
- **Looks in the rounds' rhythm.** Nodes and server look again when 0.6 of the time has passed that it took last, then
  every 50 ms, and the less often the longer nothing came: late by a tenth of that at most. Looking later makes rounds
  longer: everybody then waits for everybody's waiting.
- What is confirmed to the SuperLink is confirmed while nobody waits.

Of a million parameters most is the nodes' noise, which is exact, from integers ([seconds](node.md#the-noise)).
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
    priority = f"; {machine['priority']}" if "priority" in machine else ""
    return f"{machine['processor']}; load when it began {machine['load at start']}{priority}."
