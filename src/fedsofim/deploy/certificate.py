"""What was released from each client's data, and what it adds up to: derived from ledgers, checked against them.

A node states its account line by line and signs it; the certificate of a job is the statements of its nodes. `check`
needs nothing else: signatures, that every statement is about the job's end and nobody's is left out, and that every
epsilon follows from the lines stated. `verify` reads again the ledgers that are given, recomputes every line, and looks
whether their chains have the history that was signed; `unseen` says of whom none is given.
"""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsofim.core.budget import WITHOUT, stated
from fedsofim.deploy.account import Account
from fedsofim.deploy.certificate_arithmetic import arithmetic, close
from fedsofim.deploy.certificate_membership import SIGNED, membership
from fedsofim.deploy.certificate_words import cost, readable, unit_of
from fedsofim.deploy.charged_rounds import rounds_charged
from fedsofim.deploy.lines import Line, epsilon_of_lines
from fedsofim.deploy.policy import Policy
from fedsofim.deploy.sane import is_name
from fedsofim.deploy.signatures import is_signed, signed, trouble_with
from fedsofim.errors import InputError, is_number
from fedsofim.files import write_text
from fedsofim.formats import CERTIFICATE, check_format
from fedsofim.protection import PROTECTED, weakest

ACCOUNTING = (
    "replace-one, of whom each statement protects; releases of Gaussian noise on L2-clipped sums compose exactly "
    "(Gaussian differential privacy, mu² = Σ mu_r²), whatever was asked after which answer; sampled records count as "
    "if all had been read; noise is drawn exactly on a lattice, its tie probability taken off delta"
)


def statement(policy: Policy, key: Path | None = None) -> dict[str, Any]:
    """A node's account of its whole ledger, as plain data; signed, where the node has a key."""
    account = policy.account
    end = account.standing().last
    facts = account_of(account, account.last(), policy.delta) | {"node": policy.name, "cap": stated(policy.epsilon)}
    facts |= {"entries": end.number, "head": end.digest.hex()}
    return signed(facts, key) if key is not None else facts


def account_of(account: Account, through: int, delta: float) -> dict[str, Any]:
    """The ledger's content up to a charge: per job what was released, per job and altogether what it costs."""
    entries, terms = account.entries(through), account.terms()
    rounds, jobs = rounds_charged(account.path, through), []
    for job in dict.fromkeys(job for job, _ in entries):
        lines = [line for of, line in entries if of == job]
        jobs.append(
            {
                "job": job,
                "method": terms[job]["method"],
                "clients": terms[job]["clients"],
                "rounds_planned": terms[job]["rounds"],
                "rounds_charged": rounds.get(job, 0),
                "unit": unit_of(terms[job]),
                "epsilon": stated(epsilon_of_lines(lines, delta)),
                "released": _summed(lines),
            }
        )
    return {
        "ledger": account.identity(),
        "through": through,
        "delta": delta,
        "epsilon": stated(epsilon_of_lines([line for _, line in entries], delta)),
        "unit": weakest(job["unit"] for job in jobs),
        "jobs": jobs,
    }


def _summed(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Equal releases in one row; `unit_releases` is what they cost, in releases at that multiplier."""
    rows: dict[tuple, list[float]] = {}
    for line in lines:
        key = (line.label, line.clip, line.ratio, line.multiplier, line.sample, line.coordinates)
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
            "numbers": numbers,
        }
        for (label, clip, ratio, multiplier, sample, numbers), (releases, weight) in rows.items()
    ]


def document_of(
    job: str,
    statements: Mapping[str, Mapping[str, Any]],
    absent: Mapping[int, Sequence[str]] | None = None,
    silent: Collection[str] = (),
) -> dict[str, Any]:
    """The certificate of a job: the statements of its nodes, by name, under the accounting they were made by.

    `absent`: who was not in the average of a round, counted from 0 here and from 1 in the certificate;
    `silent`: of whom there is no statement.
    """
    missed = {name: [round + 1 for round, names in sorted((absent or {}).items()) if name in names]
              for name in sorted({n for names in (absent or {}).values() for n in names})}  # fmt: skip
    return {
        "certificate": CERTIFICATE.writes,
        "job": job,
        "accounting": ACCOUNTING,
        "clients": {k: dict(v) for k, v in statements.items()},
        **({"absent": missed} if missed else {}),
        **({"silent": sorted(silent)} if silent else {}),
    }


def write(document: Mapping[str, Any], folder: Path) -> tuple[Path, Path]:
    """certificate.json for machines and certificate.txt for people."""
    folder.mkdir(parents=True, exist_ok=True)
    machine, people = folder / "certificate.json", folder / "certificate.txt"
    write_text(machine, json.dumps(document, indent=2))
    write_text(people, readable(document))
    return machine, people


def read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        clients, named = document["clients"], [*document.get("silent", []), *document.get("absent", {})]
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise InputError(f"{path}: not a certificate ({error})") from error
    check_format(CERTIFICATE, document, path)
    if not isinstance(clients, dict):
        raise InputError(f"{path}: not a certificate: its clients are no table")
    if not all(map(is_name, [*clients, *named])):  # or one could look like a line of what is said of it
        raise InputError(f"{path}: not a certificate: it names somebody as no node is called")
    for name, claimed in clients.items():
        if not sound(claimed):
            raise InputError(f"{path}: the statement of {name} is damaged")
    return document


def sound(statement: Mapping[str, Any]) -> bool:
    """Has a statement the form of one? What it says is another question: `verify`."""
    try:
        jobs = statement["jobs"]
        numbers = [statement["through"], statement["delta"], *(r["releases"] for job in jobs for r in job["released"])]
        texts = [statement["ledger"], *(job["job"] for job in jobs), *(job["method"] for job in jobs)]
        epsilons = [statement["epsilon"], *(job["epsilon"] for job in jobs)]
        readable({"job": "", "accounting": "", "clients": {"": statement}})
        numbers += [e for e in epsilons if e != WITHOUT]
        finite = all(is_number(n) and math.isfinite(n) for n in numbers)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):  # InputError is a ValueError
        return False
    return finite and all(isinstance(t, str) for t in texts)


def verify(document: Mapping[str, Any], ledgers: Sequence[Path]) -> list[str]:
    """What does not hold, in words; empty if each ledger given is a client's, whose statement follows from it."""
    accounts: dict[str, Account] = {}
    problems = []
    for account in map(Account, ledgers):
        if (first := accounts.setdefault(account.identity(), account)) is not account:
            problems.append(f"{account.path}: the same ledger as {first.path}; give each once")
    stated = {str(claimed.get("ledger")) for claimed in document["clients"].values() if isinstance(claimed, Mapping)}
    problems += [
        f"{account.path}: no statement is of this ledger: its node is left out, or another ledger is stated in its name"
        for identity, account in accounts.items()
        if identity not in stated
    ]
    for name, claimed in document["clients"].items():
        account = accounts.get(str(claimed.get("ledger"))) if isinstance(claimed, Mapping) else None
        if not sound(claimed):
            problems.append(f"{name}: its statement is damaged")
        elif account is not None:
            problems += [f"{name}: {p}" for p in _against(document, claimed, account)]
    return _identities(document, None) + membership(document) + problems


def unseen(document: Mapping[str, Any], ledgers: Sequence[Path]) -> list[str]:
    """Clients of whom no ledger is given: what they state was not looked up anywhere."""
    given = {Account(path).identity() for path in ledgers}
    return [name for name, claimed in document["clients"].items() if str(claimed.get("ledger")) not in given]


def _against(document: Mapping[str, Any], claimed: Mapping[str, Any], account: Account) -> list[str]:
    """What a statement says otherwise than its ledger."""
    found = account_of(account, int(claimed["through"]), float(claimed["delta"]))
    return [
        *_differences(claimed, found),
        *_history(claimed, account),
        *_membership(document, account.terms()),
        *_later(document["job"], claimed, account),
    ]


def _later(job: str, claimed: Mapping[str, Any], account: Account) -> list[str]:
    """Was the job charged for after what is stated? A statement of before its end is signed, and says too little."""
    stated, charged = (
        sum(of == job for of, _ in account.entries(through)) for through in (int(claimed["through"]), None)
    )
    return [f"states {stated} charges for this job; its ledger has {charged}"] if charged > stated else []


def _history(claimed: Mapping[str, Any], account: Account) -> list[str]:
    """Has the ledger the chain that was stated?"""
    if "head" not in claimed:
        return []
    link = account.link(int(claimed["entries"])) if is_number(claimed.get("entries")) else None
    same = link is not None and link.digest.hex() == claimed["head"]
    return [] if same else ["its ledger has another history than it stated"]


def check(document: Mapping[str, Any], keys: Mapping[str, str] | None = None) -> list[str]:
    """What does not hold by the certificate alone: signatures, whether the statements are of the job's end and of all
    its clients, and the arithmetic of each.

    With the nodes' public `keys` every statement must be signed, by the key of its name.
    """
    wrong = [f"{name}: {p}" for name, claimed in document["clients"].items() for p in arithmetic(claimed)]
    return _identities(document, keys) + membership(document) + wrong


def _identities(document: Mapping[str, Any], keys: Mapping[str, str] | None) -> list[str]:
    """Is each statement its node's own, by its signature, and of a ledger of its own?"""
    problems = []
    owners: dict[str, str] = {}
    for name, claimed in document["clients"].items():
        if not isinstance(claimed, Mapping):
            continue
        if is_signed(claimed) or keys is not None:
            known = None if keys is None else keys.get(name)
            unknown_node = keys is not None and known is None
            why = "no public key is given for it" if unknown_node else trouble_with(claimed, known)
            problems += [f"{name}: {why}"] if why else []
        if claimed.get("node", name) != name:
            problems.append(f"{name}: its statement is that of {claimed['node']}")
        if (owner := owners.setdefault(str(claimed.get("ledger")), name)) != name:
            problems.append(f"{name}: states the same ledger as {owner}")
    return problems


def _membership(document: Mapping[str, Any], terms: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Is it about this ledger's job, with as many clients as that job had? Statements of version 1 do not say."""
    if document["job"] not in terms:
        return [f"its ledger knows no job {document['job']}"]
    wanted, named = terms[document["job"]]["clients"], len({*document["clients"], *document.get("silent", [])})
    return [] if wanted == named else [f"by its ledger the job had {wanted} clients; {named} are named"]


def _differences(claimed: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    out = []
    if not close(claimed["epsilon"], found["epsilon"]):
        out.append(f"states {cost(claimed['epsilon'])}; its ledger gives {cost(found['epsilon'])}")
    if unit_of(claimed) != found["unit"]:
        out.append(
            f"says that it protects {PROTECTED[unit_of(claimed)]}; by its ledger it is {PROTECTED[found['unit']]}"
        )
    theirs = {job.get("job"): job for job in claimed["jobs"]}
    for job in found["jobs"]:
        other = theirs.pop(job["job"], None)
        if other is None:
            out.append(f"leaves out job {job['job']}, which its ledger charged")
        elif not close(other["epsilon"], job["epsilon"]) or _described(other, job) != job | {"epsilon": 0}:
            out.append(f"describes job {job['job']} otherwise than its ledger does")
    return out + [f"states job {job}, which its ledger does not know" for job in theirs]


def _described(stated: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """A job without its epsilon; what older versions do not state is as they meant it, or as it was."""
    return {"unit": "record", **{key: found[key] for key in SIGNED}, **stated, "epsilon": 0}
