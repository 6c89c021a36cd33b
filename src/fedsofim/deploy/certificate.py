"""What was released from each client's data, and what it adds up to: derived from ledgers, checked against them.

A node states its account line by line; the certificate of a job is the statements of its nodes. `verify` reads the
ledgers again and recomputes every line and every epsilon.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsofim.deploy.account import Account, Line, epsilon_of_lines, finite
from fedsofim.deploy.policy import Policy
from fedsofim.errors import InputError
from fedsofim.files import write_whole

ACCOUNTING = (
    "record level, replace-one; releases of Gaussian noise on L2-clipped sums compose exactly (Gaussian differential "
    "privacy, mu² = Σ mu_r²; privacy loss distributions where records were sampled); noise drawn exactly on a lattice, "
    "its tie probability taken off delta"
)


def statement(policy: Policy) -> dict[str, Any]:
    """A node's account of its whole ledger, as plain data."""
    account = Account(policy.ledger)
    account.create()
    return account_of(account, account.last(), policy.delta) | {"cap": finite(policy.epsilon)}


def account_of(account: Account, through: int, delta: float) -> dict[str, Any]:
    """The ledger's content up to a charge: per job what was released, per job and altogether what it costs."""
    entries, terms = account.entries(through), account.terms()
    jobs = []
    for job in dict.fromkeys(job for job, _ in entries):
        lines = [line for of, line in entries if of == job]
        jobs.append(
            {
                "job": job,
                "method": terms[job]["method"],
                "rounds_planned": terms[job]["rounds"],
                "epsilon": finite(epsilon_of_lines(lines, delta)),
                "released": _summed(lines),
            }
        )
    return {
        "ledger": account.identity(),
        "through": through,
        "delta": delta,
        "epsilon": finite(epsilon_of_lines([line for _, line in entries], delta)),
        "jobs": jobs,
    }


def _summed(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Equal releases in one row; `unit_releases` is what they cost, in releases at that multiplier."""
    rows: dict[tuple, list[float]] = {}
    for line in lines:
        key = (line.label, line.clip, line.ratio, line.multiplier, line.sample)
        row = rows.setdefault(key, [0, 0.0])
        row[0] += line.releases
        row[1] += line.weight
    return [
        {
            "what": label,
            "releases": int(releases),
            "unit_releases": weight,
            "clip": clip,
            "sensitivity": ratio * clip,
            "multiplier": multiplier,
            "sampled": sample,
        }
        for (label, clip, ratio, multiplier, sample), (releases, weight) in rows.items()
    ]


def certificate(job: str, statements: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The statements of a job's nodes, by name, under the accounting they were made by."""
    return {
        "certificate": 1,
        "job": job,
        "accounting": ACCOUNTING,
        "clients": {k: dict(v) for k, v in statements.items()},
    }


def write(document: Mapping[str, Any], folder: Path) -> tuple[Path, Path]:
    """certificate.json for machines and certificate.txt for people."""
    folder.mkdir(parents=True, exist_ok=True)
    machine, people = folder / "certificate.json", folder / "certificate.txt"
    write_whole(machine, lambda f: f.write(json.dumps(document, indent=2).encode()))
    write_whole(people, lambda f: f.write(readable(document).encode()))
    return machine, people


def readable(document: Mapping[str, Any]) -> str:
    """The certificate in words."""
    lines = [f"Privacy certificate of job {document['job']}", "", f"Accounting: {document['accounting']}.", ""]
    for name, s in sorted(document["clients"].items()):
        if "epsilon" not in s:
            raise InputError(f"the statement of {name} is damaged: it states no epsilon")
        cap = f", cap {s['cap']:g}" if s.get("cap") is not None else ""
        lines.append(f"{name}: epsilon {_words(s['epsilon'])} at delta {s['delta']:g} over the life of its data{cap}")
        for job in s["jobs"]:
            mark = "this job" if job["job"] == document["job"] else "another job"
            lines.append(f"  {job['method']} ({mark}, {job['job'][:8]}): epsilon {_words(job['epsilon'])} by itself")
            lines += [
                f"    {r['releases']} x {r['what']}: sum clipped at {r['clip']:g} per record, noise std "
                f"{r['multiplier'] * r['clip']:.6g} (multiplier {r['multiplier']:.6g})"
                + (f", each record sampled with probability {r['sampled']:g}" if r["sampled"] < 1 else "")
                for r in job["released"]
            ]
        lines.append("")
    lines.append("An epsilon holds for one record of one client against whoever sees everything that was released.")
    return "\n".join(lines) + "\n"


def _words(epsilon: float | None) -> str:
    return "without bound (no noise)" if epsilon is None else f"{epsilon:.6g}"


def read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        sane = document["certificate"] == 1 and isinstance(document["clients"], dict)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not a certificate ({error})") from error
    if not sane:
        raise InputError(f"{path}: a certificate of another version")
    for name, stated in document["clients"].items():
        if not sound(stated):
            raise InputError(f"{path}: the statement of {name} is damaged")
    return document


def sound(statement: Mapping[str, Any]) -> bool:
    """Has a statement the form of one? What it says is another question: `verify`."""
    try:
        jobs = statement["jobs"]
        numbers = [statement["through"], statement["delta"], *(r["releases"] for job in jobs for r in job["released"])]
        texts = [statement["ledger"], *(job["job"] for job in jobs), *(job["method"] for job in jobs)]
        readable({"job": "", "accounting": "", "clients": {"": statement}})
    except (KeyError, TypeError, ValueError, AttributeError):  # InputError is a ValueError
        return False
    return all(isinstance(n, int | float) for n in numbers) and all(isinstance(t, str) for t in texts)


def verify(document: Mapping[str, Any], ledgers: Sequence[Path]) -> list[str]:
    """What does not hold, in words; empty if every client's statement follows from its ledger, and none is left out."""
    accounts = {account.identity(): account for account in map(Account, ledgers)}
    problems = []
    for name, stated in document["clients"].items():
        account = accounts.get(str(stated.get("ledger"))) if isinstance(stated, Mapping) else None
        if account is None or not sound(stated):
            problems.append(f"{name}: no ledger given has the identity it states, or its statement is damaged")
            continue
        found = account_of(account, int(stated["through"]), float(stated["delta"]))
        problems += [f"{name}: {p}" for p in _differences(stated, found)]
        problems += [f"{name}: {p}" for p in _membership(document, account.terms())]
    return problems


def _membership(document: Mapping[str, Any], terms: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Is it about this ledger's job, with as many clients as that job had?"""
    if document["job"] not in terms:
        return [f"its ledger knows no job {document['job']}"]
    wanted, stated = terms[document["job"]]["clients"], len(document["clients"])
    return [] if wanted == stated else [f"the job had {wanted} clients; {stated} are stated"]


def _differences(stated: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    out = []
    if not _close(stated.get("epsilon"), found["epsilon"]):
        out.append(f"states epsilon {_words(stated.get('epsilon'))}; its ledger gives {_words(found['epsilon'])}")
    theirs = {job.get("job"): job for job in stated.get("jobs", [])}
    for job in found["jobs"]:
        other = theirs.pop(job["job"], None)
        if other is None:
            out.append(f"leaves out job {job['job']}, which its ledger charged")
        elif not _close(other.get("epsilon"), job["epsilon"]) or other | {"epsilon": 0} != job | {"epsilon": 0}:
            out.append(f"describes job {job['job']} otherwise than its ledger does")
    return out + [f"states job {job}, which its ledger does not know" for job in theirs]


def _close(a: float | None, b: float | None) -> bool:
    return a is b is None or (a is not None and b is not None and math.isclose(a, b, rel_tol=1e-9))
