"""Is every statement of a certificate about its job: of its end, and of a job with as many clients as are named?

Each node signs what the job's terms said to it (how many clients, how many rounds) and for how many rounds it was
charged. So a statement of before the job, one of halfway through it, and one that was left out show without a ledger.
"""

from collections.abc import Mapping
from typing import Any

from fedsofim.errors import is_whole

SIGNED = ("clients", "rounds_charged")  # of a job, since version 2 of the certificate
SHARED = ("method", "rounds_planned", "clients")  # terms: the same for every node of a job


def membership(document: Mapping[str, Any]) -> list[str]:
    """What statements say of the certificate's job that cannot be so, in words."""
    entries = {name: entry_of(claimed, document["job"]) for name, claimed in document["clients"].items()}
    wrong = [f"{name}: {why}" for name, entry in entries.items() for why in _trouble(document, name, entry)]
    return wrong + _disagreements({name: entry for name, entry in entries.items() if entry is not None})


def entry_of(claimed: Any, job: str) -> Mapping[str, Any] | None:
    """What a statement says of a job."""
    jobs = claimed.get("jobs") if isinstance(claimed, Mapping) else None
    entries = [e for e in jobs if isinstance(e, Mapping)] if isinstance(jobs, list) else []
    return next((entry for entry in entries if entry.get("job") == job), None)


def unstated(document: Mapping[str, Any]) -> list[str]:
    """Whose statement of the job, by an older version, signs neither its clients nor the rounds charged."""
    entries = {name: entry_of(claimed, document["job"]) for name, claimed in document["clients"].items()}
    return [name for name, e in entries.items() if e is not None and not all(key in e for key in SIGNED)]


def charged_for(document: Mapping[str, Any]) -> dict[str, list[str]]:
    """Of how many of the planned rounds each client was charged for: who, by the words for it."""
    found: dict[str, list[str]] = {}
    for name, claimed in document["clients"].items():
        entry = entry_of(claimed, document["job"])
        if entry is not None and "rounds_charged" in entry:
            found.setdefault(rounds_in_words(entry), []).append(name)
    return found


def rounds_in_words(entry: Mapping[str, Any]) -> str:
    return f"{entry['rounds_charged']} of {entry['rounds_planned']} rounds"


def _trouble(document: Mapping[str, Any], name: str, entry: Mapping[str, Any] | None) -> list[str]:
    if entry is None:
        return [f"states nothing of job {document['job']}: its statement is of before it, or of others"]
    missing = [key for key in SIGNED if key not in entry]
    if missing:
        older = document.get("certificate") == 1
        return [] if older else [f"does not state {' and '.join(missing)} of the job, as version 2 has it"]
    if not all(is_whole(entry.get(key)) for key in (*SIGNED, "rounds_planned")):
        return ["its clients and rounds are no whole numbers"]
    return [*_clients(document, entry["clients"]), *_rounds(document, name, entry)]


def _clients(document: Mapping[str, Any], wanted: int) -> list[str]:
    named = {*document["clients"], *document.get("silent", [])}
    return [] if wanted == len(named) else [f"the job had {wanted} clients; {len(named)} are named"]


def _rounds(document: Mapping[str, Any], name: str, entry: Mapping[str, Any]) -> list[str]:
    """A certificate is of a job that ended: who was charged for fewer rounds was absent from the others."""
    charged, planned = entry["rounds_charged"], entry["rounds_planned"]
    away = len([r for r in range(1, planned + 1) if r in document.get("absent", {}).get(name, [])])
    if planned - away <= charged <= planned:
        return []
    beside = f", and was absent from {away}" if away else ""
    return [f"states {charged} of {planned} rounds of this job{beside}: it is of before the job's end, or false"]


def _disagreements(entries: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Nodes that were told different terms of one job."""
    first = next(iter(entries), "")
    return [
        f"{name}: states {key} {entry[key]} of the job, where {first} states {entries[first][key]}"
        for name, entry in entries.items()
        for key in SHARED
        if key in entry and key in entries[first] and entry[key] != entries[first][key]
    ]
