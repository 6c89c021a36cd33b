"""The section of docs/performance.md about many clients and drawn records, from docs/crowd.json."""

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[1] / "docs" / "crowd.json"

TEXT = """
## Few of many
`python benchmarks/crowd.py`. **Records that are drawn** (`--batch-rate q`): a round of the reference problem over one
that reads all records, both in turns. The fused pass computes the drawn ones only ([clipping](clipping.md)); drawing
itself takes a number for each record. Other models compute all records and weigh the others by 0, so their rounds take
as long at any rate.

{drawn}

**Clients that take turns** (`--participants k`): DP-FedSOFIM under secure sum, {records} made-up records of {features}
features at each client, every federation in a process of its own. A round reads the records of those who take part, and
takes as long as these are many; what grows with all clients is dealing, pricing and laying out, once.

{federations}

{machine}
"""


def section(path: Path = FILE) -> str:
    """Empty if nothing was measured."""
    if not path.exists():
        return ""
    found = json.loads(path.read_text(encoding="utf-8"))
    about = found["machine"]
    return TEXT.format(
        drawn=_drawn(found["drawn"]),
        federations=_federations(found["federations"]),
        records=3,
        features=64,
        machine=f"{about['processor']}; load when it began {about['load at start']}.",
    )


def _drawn(rates: dict[str, dict[str, float]]) -> str:
    rows = [f"| {float(q):g} | {r['median']:.2f} | {r['minimum']:.2f} |" for q, r in rates.items()]
    return "\n".join(["| q | median | minimum |", "|--:|--:|--:|", *rows])


def _federations(lines: list[dict[str, Any]]) -> str:
    head = "| clients | a round | ms a round: median | fastest | s dealing | s pricing | s layout, compiling | GB |"
    return "\n".join([head, "|--:" * 8 + "|", *map(_federation, lines)])


def _federation(f: dict[str, Any]) -> str:
    numbers = [f"{f['clients']:,}", f"{f['participants']:,}"]
    numbers += [f"{1e3 * f[key]:.2f}" for key in ("a round, median", "a round")]
    numbers += [f"{f[key]:.1f}" for key in ("dealing", "pricing", "laying out and compiling")]
    return f"| {' | '.join([*numbers, format(f['GB'], '.2f')])} |"
