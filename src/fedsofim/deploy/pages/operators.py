"""The operator's page: what is left of the budget, every request with its price and verdict, and who asked.

What is charged comes from the ledger, with the checks that the node itself makes; what is not, refusals above all, from
the docket. The price of a request is its epsilon by itself; together requests cost less than the sum of their prices,
so the gauge is the ledger's composed epsilon and nothing else.
"""

import math
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from fedsofim.core.budget import WITHOUT
from fedsofim.core.phase import Phase
from fedsofim.deploy.docket import Verdict, Visit, enter, visits
from fedsofim.deploy.lines import Line, epsilon_of_lines
from fedsofim.deploy.pages.ledger_look import Asked, JobSeen, Look, look_at
from fedsofim.deploy.pages.view import (
    NONE,
    Cell,
    Figure,
    Gauge,
    Table,
    Tone,
    View,
    brief,
    columns,
    epsilon_down,
    epsilon_up,
    moment,
    short,
    words,
)
from fedsofim.deploy.policy import Policy, read_policy
from fedsofim.deploy.stopping import lift, stop, stopped_since
from fedsofim.errors import InputError
from fedsofim.protection import PROTECTED

SHOWN = 200  # requests, and as many jobs
_EASE = 20.0  # a look that took a second is not taken again for so many: the node's work comes first

_QUESTIONS = {"consider": "would you allow this job?", "account": "your account, stated", "hello": "introduction",
              "holding": "do you hold my question?", "ask": "a sum", "": ""}  # fmt: skip
_SAID = {
    Verdict.CHARGED: Cell("answered", Tone.GOOD),
    Verdict.FREE: Cell("answered again, free"),
    Verdict.ALLOWED: Cell("yes, nothing spent"),
    Verdict.STATED: Cell("told, nothing spent"),
    Verdict.STOPPED: Cell("stopped by you", Tone.BAD),
    Verdict.RESUMED: Cell("resumed by you", Tone.GOOD),
    Verdict.NOT_LISTED: Cell("not listed"),
}


class Operators:
    """The pages of one node, one after another; what the ledger said is kept while it does not change."""

    def __init__(self, policy: Path, doing: Callable[[], str] = lambda: "") -> None:
        self.policy, self.doing = policy, doing
        self._look: tuple[object, Look | InputError] | None = None
        self._again = 0.0

    def view(self) -> View:
        try:
            policy = read_policy(self.policy)
        except InputError as error:
            return _without_policy(self.policy, str(error))
        look = self._looked(policy)
        return page_of(policy, look, visits(policy.ledger, SHOWN), self.doing(), stopped_since(policy.ledger))

    def _looked(self, policy: Policy) -> Look | InputError:
        """The ledger now; a long one is looked at less often while it grows."""
        now = (policy.ledger, policy.witness, _signature(policy.ledger))
        if self._look is not None and (self._look[0] == now or time.monotonic() < self._again):
            return self._look[1]
        began = time.monotonic()
        try:
            found: Look | InputError = look_at(policy, SHOWN)
        except InputError as error:
            found = error
        self._look, self._again = (now, found), began + _EASE * (time.monotonic() - began)
        return found

    def stop(self) -> None:
        change(read_policy(self.policy), Verdict.STOPPED, "the page")

    def resume(self) -> None:
        change(read_policy(self.policy), Verdict.RESUMED, "the page")


def change(policy: Policy, to: Verdict, by: str) -> bool:
    """Stop a node or lift that, and note it; False if it was so already."""
    changed = stop(policy.ledger) if to is Verdict.STOPPED else lift(policy.ledger)
    if changed:
        enter(policy.ledger, Visit(at=time.time(), verdict=to, who=by))
    return changed


# --- pure from here -----------------------------------------------------------------------------------------


def page_of(policy: Policy, look: Look | InputError, seen: list[Visit], doing: str, since: float | None) -> View:
    """The page of a node whose ledger looks so, or cannot be looked at."""
    broken = isinstance(look, InputError)
    found = _EMPTY if isinstance(look, InputError) else look
    tables = (_jobs(found, policy.delta), _requests(found, seen, policy.delta))
    return View(
        title=words(policy.name),
        about="What this node was asked for, what it cost and what is left. Only this machine can open this page.",
        state=_state(broken, since),
        doing=words(doing),
        notices=(words(look),) if broken else (),
        gauge=_gauge(policy, None if broken else epsilon_of_lines(found.lines, policy.delta)),
        figures=_figures(policy, found),
        tables=tables,
        stopped=since is not None,
        at=moment(time.time()).text,
    )


_EMPTY = Look(ledger="", entries=0, lines=(), asked=(), requests=0, jobs=())


def _without_policy(path: Path, why: str) -> View:
    return View(
        title=words(path.parent.name), about="The policy cannot be read, so nothing is answered.",
        state=Cell("nothing is answered", Tone.BAD), notices=(words(why),), gauge=_gauge(None, None), figures=(),
        tables=(_jobs(_EMPTY, 1e-5), _requests(_EMPTY, [], 1e-5)), at=moment(time.time()).text,
    )  # fmt: skip


def _state(broken: bool, since: float | None) -> Cell:
    if since is not None:
        return Cell(f"stopped since {moment(since).text}", Tone.BAD, moment(since).whole)
    return Cell("nothing is answered", Tone.BAD) if broken else Cell("answering", Tone.GOOD)


def _gauge(policy: Policy | None, spent: float | None) -> Gauge:
    label = "Budget spent over the life of the data"
    if policy is None or spent is None:
        return Gauge(label, "unknown", "", 0.0, ("0", NONE), Tone.BAD)
    if not math.isfinite(policy.epsilon):
        return Gauge(label, WITHOUT, "a rehearsal: nothing is protected", 1.0, ("0", WITHOUT), Tone.BAD)
    part = min(spent / policy.epsilon, 1.0)
    rest = f"{epsilon_down(policy.epsilon - spent)} left"
    tone = Tone.BAD if part > 0.9 else Tone.PLAIN
    return Gauge(label, f"ε {epsilon_up(spent)}", rest, part, ("0", f"cap {policy.epsilon:g}"), tone)


def _figures(policy: Policy, look: Look) -> tuple[Figure, ...]:
    return (
        Figure("protects", "protects", PROTECTED[policy.unit]),
        Figure("requests", "charged requests", f"{look.requests:,}"),
        Figure("delta", "delta", short(policy.delta)),
        Figure("multiplier", "least noise multiplier", f"{policy.smallest_multiplier:g}"),
        Figure("clip", "largest clip", f"{policy.largest_clip:g}"),
        Figure("entries", "entries in the ledger", f"{look.entries:,}"),
    )


@lru_cache(maxsize=1000)
def price_of(lines: tuple[Line, ...], delta: float) -> float:
    """Epsilon of these releases by themselves; rounds of a job are alike, so few are ever computed."""
    return epsilon_of_lines(lines, delta)


# --- requests -----------------------------------------------------------------------------------------------


def _requests(look: Look, seen: list[Visit], delta: float) -> Table:
    noted = {v.ask: v for v in reversed(seen) if v.ask is not None and v.spent is not None}
    terms = {job.job: job for job in look.jobs}
    rows = [(a.at, _charged(a, noted.get(a.number), terms.get(a.job), delta)) for a in look.asked]
    rows += [(v.at, _free(v)) for v in seen if v.ask is None or v.spent is None]
    rows.sort(key=lambda row: row[0], reverse=True)
    return Table(
        name="requests",
        title="Requests",
        columns=columns(
            "When", "wide: Asked by", "Job", "Question", "number: Price ε", "number: Spent after ε", "long: Verdict"
        ),
        rows=tuple(cells for _, cells in rows[:SHOWN]),
        note=f"The newest {SHOWN}. A price is the request's own epsilon; together requests cost less than the sum of "
        "their prices. Refused requests cost nothing. Charged ones are kept in the ledger for ever, the others for a "
        "while.",
        empty="Nobody has asked for anything yet.",
    )


def _charged(asked: Asked, visit: Visit | None, job: JobSeen | None, delta: float) -> tuple[Cell, ...]:
    said = _SAID[Verdict.CHARGED] if asked.answered else Cell("charged; no answer was made", Tone.BAD)
    if visit is not None and visit.verdict is not Verdict.CHARGED:
        said = Cell(f"charged, not sent: {words(visit.why)}", Tone.BAD)
    elif visit is not None and visit.why:
        said = Cell(f"answered; {words(visit.why)}")
    rounds = job.terms.get("rounds") if job is not None else None
    return (
        moment(asked.at),
        _who(visit.who if visit is not None else ""),
        brief(asked.job),
        Cell(_question(asked.phase, asked.round, rounds)),
        Cell(epsilon_up(price_of(asked.lines, delta))),
        Cell(NONE if visit is None or visit.spent is None else epsilon_up(visit.spent)),
        said,
    )


def _free(visit: Visit) -> tuple[Cell, ...]:
    asked = _question(visit.phase, visit.round, None) if visit.phase and visit.round is not None else ""
    said = _SAID.get(visit.verdict) or Cell(f"{visit.verdict}: {words(visit.why)}", Tone.BAD)
    question = asked or _QUESTIONS.get(visit.what, f"an unknown one: {words(visit.what)[:40]}")
    return (moment(visit.at), _who(visit.who), brief(visit.job or NONE), Cell(question or NONE), Cell(NONE, Tone.SOFT),
            Cell(NONE, Tone.SOFT), said)  # fmt: skip


def _question(phase: str, round: int, rounds: object) -> str:
    if phase != Phase.ROUND:
        return f"{words(phase)}, before round 1"
    return f"round {round + 1}" + (f" of {rounds}" if isinstance(rounds, int) else "")


def _who(who: str) -> Cell:
    """Flower's numbers of runs are long; the end of one tells it from others."""
    number, _, where = words(who).removeprefix("run ").partition(" of ")
    if not where:
        return Cell(words(who) or NONE, Tone.PLAIN if who else Tone.SOFT)
    return Cell(f"run {number if len(number) <= 8 else '…' + number[-6:]}, {where}", whole=words(who))


# --- jobs ---------------------------------------------------------------------------------------------------


def _jobs(look: Look, delta: float) -> Table:
    return Table(
        name="jobs",
        title="Jobs",
        columns=columns(
            "Job",
            "Method",
            "Trust",
            "Protects",
            "number: Clients",
            "number: Rounds planned",
            "number: Requests",
            "number: Price ε",
        ),
        rows=tuple(_job(job, delta) for job in look.jobs),
        note="Each job's epsilon by itself, at this node's delta.",
        empty="No job has asked for anything yet.",
    )


def _job(job: JobSeen, delta: float) -> tuple[Cell, ...]:
    named = [words(job.terms.get(name, NONE)) for name in ("method", "trust", "unit", "clients", "rounds")]
    price = epsilon_up(price_of(job.lines, delta))
    return (brief(job.job), *map(Cell, named), Cell(f"{job.requests:,}"), Cell(price))


def _signature(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_ino, found.st_mtime_ns, found.st_size
