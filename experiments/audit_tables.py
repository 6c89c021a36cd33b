"""The attacker's tables, of right mechanisms and of broken ones: docs/results/audit, and docs/audit.md.

fedsofim audit --all --out docs/results/audit
python experiments/audit_tables.py
"""

import json
from pathlib import Path
from typing import Any

import pages  # pyright: ignore[reportMissingImports]

NAMES = {"audit": "as they are", "audit/broken": "broken on purpose"}
LARGE = 1000  # a measured mu beyond it is not told apart


def markdown(document: dict[str, Any], name: str) -> str:
    """One of the two tables."""
    rows = [row for row in document["rows"] if row["built_broken"] == (name == "audit/broken")]
    return pages.markdown([NAMES[name], "epsilon", "mu", "measured mu", "epsilon at least", "verdict"], map(line, rows))


def line(row: dict[str, Any]) -> list[str]:
    verdict = "**CLAIM BROKEN**" if row["broken"] else "consistent"
    mu = "none" if row["mu"] is None else f"{row['mu']:.3g}"
    return [row["method"], f"{row['epsilon']:.3g}", mu, measured(row), f"{row['epsilon_lower']:.3g}", verdict]


def measured(row: dict[str, Any]) -> str:
    """An estimate with half the width of its interval."""
    value, high = row["mu_estimate"], row["mu_interval"][1]
    return f"> {LARGE}" if abs(value) >= LARGE else f"{value:.3g} ± {high - value:.2g}"


if __name__ == "__main__":
    audit: Path = pages.path_of("audit").with_name("audit.json")
    for name in NAMES:
        pages.keep(name, markdown(json.loads(audit.read_text()), name))
