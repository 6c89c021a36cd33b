"""The section of docs/performance.md about many clients and drawn records, from docs/crowd.json."""

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[1] / "docs" / "crowd.json"

TEXT = """
## Few of many
`python benchmarks/crowd.py`. **Records that are drawn** (`--batch-rate q`): a round over one that reads all
records, both in turns. Of few only the drawn ones are computed ([clipping](clipping.md)); drawing itself takes a number
for each record. The head has the reference problem, in the fused pass; the MLP 20,000 records of 256 features, the CNN
4,000 of 28 x 28, by XLA.

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


def _drawn(models: dict[str, dict[str, dict[str, float]]]) -> str:
    """A row for each rate: median and minimum of each model."""
    head = " | ".join(f"{kind}: median | minimum" for kind in models)
    rates = next(iter(models.values()))
    rows = [" | ".join(f"{of[q][part]:.2f}" for of in models.values() for part in ("median", "minimum")) for q in rates]
    lines = [f"| {float(q):g} | {row} |" for q, row in zip(rates, rows, strict=True)]
    return "\n".join([f"| q | {head} |", "|--:" * (1 + 2 * len(models)) + "|", *lines])


def _federations(lines: list[dict[str, Any]]) -> str:
    head = "| clients | a round | ms a round: median | fastest | s dealing | s pricing | s layout, compiling | GB |"
    return "\n".join([head, "|--:" * 8 + "|", *map(_federation, lines)])


def _federation(f: dict[str, Any]) -> str:
    numbers = [f"{f['clients']:,}", f"{f['participants']:,}"]
    numbers += [f"{1e3 * f[key]:.2f}" for key in ("a round, median", "a round")]
    numbers += [f"{f[key]:.1f}" for key in ("dealing", "pricing", "laying out and compiling")]
    return f"| {' | '.join([*numbers, format(f['GB'], '.2f')])} |"
