"""What a run of mutants found: the journal it is resumed from, the JSON, and the tables of docs/mutation.md."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mutations.mutant import Mutant, explained, reason_for

WANTED = 95.0  # percent
_BEGIN, _END = "<!-- written by scripts/mutate.py -->", "<!-- until here -->"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the tests said of one mutant."""

    mutant: Mutant
    outcome: str  # killed, survived, timed out
    seconds: float
    cpu: float  # seconds
    by: str  # the test that noticed

    @property
    def noticed(self) -> bool:
        return self.outcome != "survived"


def read_journal(path: Path) -> dict[str, dict[str, Any]]:
    """Verdicts of an earlier run, by the key of their mutant; a line cut off by a crash is left out."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        found[entry["key"]] = entry
    return found


def append(path: Path, key: str, tests: str, verdict: Verdict) -> None:
    entry = {k: getattr(verdict, k) for k in ("outcome", "seconds", "cpu", "by")}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"key": key, "tests": tests, "name": verdict.mutant.name} | entry) + "\n")


def percent(verdicts: Sequence[Verdict]) -> float:
    return 100 * sum(v.noticed for v in verdicts) / len(verdicts) if verdicts else 0.0


def survivors(verdicts: Sequence[Verdict]) -> list[tuple[Verdict, str | None]]:
    """Who was not noticed, each with the reason if there is one."""
    known = explained()
    return [(v, reason_for(v.mutant, known)) for v in verdicts if not v.noticed]


def as_json(verdicts: Sequence[Verdict], tree: str) -> str:
    """Everything, for machines."""
    reasons = {v.mutant.name: why for v, why in survivors(verdicts)}
    rows = []
    for v in verdicts:
        mutant = {k: value for k, value in asdict(v.mutant).items() if k != "text"}
        row = mutant | {"outcome": v.outcome, "seconds": v.seconds, "cpu": v.cpu, "by": v.by}
        rows.append(row | ({"reason": reasons[v.mutant.name]} if v.mutant.name in reasons else {}))
    summary = {"tree": tree, "planted": len(verdicts), "percent": round(percent(verdicts), 2)}
    return json.dumps(summary | {"mutants": rows}, indent=1)


def tables(verdicts: Sequence[Verdict]) -> str:
    """For people: by kind of bug, by file, and every survivor with its reason."""
    parts = [
        f"{len(verdicts)} bugs planted, {sum(v.noticed for v in verdicts)} noticed: **{percent(verdicts):.1f} %**.",
        "",
    ]
    for source, title, column in (("own", "Our own list", "kind"), ("operators", "cosmic-ray's operators", "file")):
        mine = [v for v in verdicts if v.mutant.source == source]
        if mine:
            parts += [f"### {title}", "", *_table(mine, column), ""]
    left = survivors(verdicts)
    parts += ["### Not noticed", "", "| bug | in place of | why no test notices |", "|---|---|---|"]
    parts += [
        f"| `{v.mutant.file}`: `{_cell(v.mutant.after)}` | `{_cell(v.mutant.before)}` | {why or '**not explained**'} |"
        for v, why in left
    ]
    return "\n".join(parts) + "\n"


def _table(verdicts: Sequence[Verdict], column: str) -> list[str]:
    rows = [f"| {column} | planted | killed | timed out | survived | noticed |", "|---|--:|--:|--:|--:|--:|"]
    for group in [*sorted({v.mutant.group for v in verdicts}), "all"]:
        mine = [v for v in verdicts if group in (v.mutant.group, "all")]
        counts = [sum(v.outcome == o for v in mine) for o in ("killed", "timed out", "survived")]
        rows.append(f"| {group} | {len(mine)} | {' | '.join(map(str, counts))} | {percent(mine):.0f} % |")
    return rows


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("`", "'")


def write_tables(page: Path, text: str) -> None:
    """Between the marks of a page, the rest as it is."""
    whole = page.read_text(encoding="utf-8")
    before, rest = whole.split(_BEGIN)
    page.write_text(f"{before}{_BEGIN}\n\n{text}\n{_END}{rest.split(_END)[1]}", encoding="utf-8")
