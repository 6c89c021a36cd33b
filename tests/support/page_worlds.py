"""A node and a job as their pages show them, without training: ledgers, dockets and files filled by hand."""

import json
from pathlib import Path
from typing import Any

from fedsofim.core.phase import Phase
from fedsofim.deploy.account import Ask
from fedsofim.deploy.checkpoint import OUTCOME, PROGRESS
from fedsofim.deploy.docket import Note, Verdict, Visit, enter
from fedsofim.deploy.lines import Line
from fedsofim.deploy.policy import Policy
from fedsofim.deploy.round_notes import ROUNDS
from nodes import X, Y, make_node

#: What would change the page if it were taken for markup; each also breaks out of an attribute or of a script.
HOSTILE = (
    "<img src=x onerror=\"document.title='owned'\">",
    "</script><script>document.title='owned'</script>",
    '"><svg onload="document.title=\'owned\'"></svg>',
    "' onmouseover='document.title=1' x='",
    "{{ 7 * 7 }}{% raw %}</td></tr></table><h1>owned</h1>",
    "javascript:document.title='owned'",
)
LINE = Line(label="gradient", clip=1.0, ratio=2.0, multiplier=40.0, releases=1, weight=1.0, sample=1.0, coordinates=12)


def charge(policy: Policy, job: str, round: int, *, answered: bool = True, line: Line = LINE, **terms: Any) -> None:
    """One request in the ledger, whoever would have asked for it, and in the docket."""
    told = {"method": "fedgd", "rounds": 5, "clients": 3, "trust": "local"} | terms
    ask = Ask(job=job, terms=json.dumps(told), data="d", phase=Phase.ROUND, round=round, digest=f"{job}{round}",
              in_order=False)  # fmt: skip
    opened = policy.account.open_ask(ask, [line], cap=policy.epsilon, delta=policy.delta, fresh_secret=b"s" * 32)
    note = Note(job=job, phase=Phase.ROUND, round=round)
    note.charged(opened)
    enter(
        policy.ledger, Visit(at=1.7e9 + round, who="run 71 of h:1", what="ask", verdict=Verdict.CHARGED, **vars(note))
    )
    if answered:
        policy.account.close_ask(opened.number, b"reply", b"")


def make_watched(folder: Path, **changed: Any) -> Policy:
    """A node that was asked three rounds, and for one thing too many."""
    policy = make_node(folder, X, Y, **changed)
    for round in range(3):
        charge(policy, "job-1", round, answered=round != 2)
    enter(policy.ledger, Visit(at=4e9, verdict=Verdict.REFUSED, who="run 72 of h:1", what="ask", job="job-2",
                               phase="round", round=6, why="it would cost too much"))  # fmt: skip
    return policy


def make_hostile(folder: Path) -> Policy:
    """The same, asked by somebody who puts markup wherever a word can be."""
    policy = make_watched(folder)
    for number, text in enumerate(HOSTILE):
        charge(policy, text, number, method=text, trust=text, clients=text, rounds=text)
        enter(policy.ledger, Visit(at=4.1e9, verdict=Verdict.REFUSED, who=text, what=text, job=text, method=text,
                                   phase=text, round=number, why=text))  # fmt: skip
    return policy


def make_job(folder: Path, rounds: int = 6, *, name: str = "n1", text: str = "fedgd, 10 rounds") -> Path:
    """A job of three clients of which one was away in round 2, not yet at its end."""
    folder.mkdir(parents=True)
    clients = [{"name": n, "size": 10 * i + 10, "epsilon": 0.25 * i + 0.125, "cap": 1.0}
               for i, n in enumerate(("n0", name, "n2"))]  # fmt: skip
    facts = {"round": rounds, "rounds": 10, "text": "", "job": text, "id": "j", "trust": "local", "epsilon": 1.0,
             "delta": 1e-5, "enough": 2, "clients": clients}  # fmt: skip
    (folder / PROGRESS).write_text(json.dumps(facts))
    notes = [{"job": "j", "round": r, "at": 1.7e9 + 2 * r, "absent": [name] if r == 2 else [],
              "metrics": {"accuracy": 40.0 + 5 * r, "loss": 2.0 - 0.1 * r}} for r in range(1, rounds + 1)]  # fmt: skip
    (folder / ROUNDS).write_text("".join(json.dumps(note) + "\n" for note in notes))
    return folder


def make_hostile_job(folder: Path) -> Path:
    """The same among nodes with such names, that failed for such a reason."""
    make_job(folder, name=HOSTILE[0], text=HOSTILE[1])
    facts = json.loads((folder / PROGRESS).read_text())
    facts["clients"] += [{"name": text, "size": text, "epsilon": text, "cap": text} for text in HOSTILE]
    facts["waiting"] = HOSTILE[2]
    (folder / PROGRESS).write_text(json.dumps(facts))
    (folder / OUTCOME).write_text(json.dumps({"failed": " ".join(HOSTILE)}))
    return folder
