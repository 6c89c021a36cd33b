"""The coordinator's page: rounds, who is present, accuracy, and what each client has spent, from the job's own files.

A client's epsilon is what its node stated: with its last answer while the job runs, signed in the certificate at the
end. The server computes none of it.
"""

import contextlib
import itertools
import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsofim.core.budget import WITHOUT
from fedsofim.deploy.checkpoint import OUTCOME, PROGRESS
from fedsofim.deploy.pages.view import (
    NONE,
    Cell,
    Curve,
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
from fedsofim.deploy.round_notes import rounds_noted
from fedsofim.errors import is_number, is_whole

SHOWN = 200  # rounds in the table
_STRIP = 24  # rounds of which presence is drawn
_POINTS = 400  # of a curve
_HERE, _AWAY = "●", "○"


def job_view(folder: Path) -> View:
    """The page of the job in a folder, as it stands there."""
    progress, outcome = _facts(folder / PROGRESS), _facts(folder / OUTCOME)
    rounds = rounds_noted(folder, str(progress.get("id", "")))
    return page_of(folder.name, progress, outcome, rounds, _facts(folder / "certificate.json"))


def _facts(path: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        found = json.loads(path.read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else {}
    return {}


# --- pure from here -----------------------------------------------------------------------------------------


def page_of(
    name: str, progress: Mapping[str, Any], outcome: Mapping[str, Any], rounds: Sequence[Mapping[str, Any]],
    certificate: Mapping[str, Any],
) -> View:  # fmt: skip
    """The page of a job whose files say so; any of them may say nothing yet, or nonsense."""
    certified = certificate.get("clients") if certificate.get("job") == progress.get("id") else None
    clients = [c for c in _list(progress.get("clients")) if isinstance(c, dict)]
    stated = certified if isinstance(certified, dict) else {}
    return View(
        title=words(name),
        about=words(progress.get("job") or "The job is being prepared."),
        state=_state(progress, outcome),
        notices=tuple(words(text) for text in (progress.get("waiting"), outcome.get("failed")) if text),
        gauge=_gauge(progress),
        figures=_figures(progress, rounds),
        curve=_curve(rounds),
        tables=(_clients(clients, stated, rounds), _rounds(rounds, len(clients))),
        at=moment(time.time()).text,
    )


def _state(progress: Mapping[str, Any], outcome: Mapping[str, Any]) -> Cell:
    if "failed" in outcome:
        return Cell("ended early", Tone.BAD)
    if "finished" in outcome:
        return Cell("finished", Tone.GOOD)
    if "waiting" in progress:
        return Cell("waiting for nodes", Tone.SOFT)
    return Cell("training", Tone.GOOD) if "round" in progress else Cell("starting", Tone.SOFT)


def _gauge(progress: Mapping[str, Any]) -> Gauge:
    done, planned = _number(progress.get("round")), _number(progress.get("rounds"))
    if not planned or done is None:
        return Gauge("Rounds", NONE, "", 0.0, ("0", NONE))
    left = int(planned - done)
    rest = "all done" if left <= 0 else f"{left:,} to go"
    return Gauge("Rounds", f"{int(done):,} of {int(planned):,}", rest, min(max(done / planned, 0.0), 1.0),
                 ("0", f"{int(planned):,}"))  # fmt: skip


def _figures(progress: Mapping[str, Any], rounds: Sequence[Mapping[str, Any]]) -> tuple[Figure, ...]:
    budget = progress.get("epsilon")
    last = rounds[-1] if rounds else {}
    ended = _number(last.get("at"))
    return (
        Figure("accuracy", "accuracy on test data", _percent(_metric(last, "accuracy"))),
        Figure("loss", "loss on test data", _decimal(_metric(last, "loss"))),
        Figure(
            "budget",
            "budget of the job",
            words(budget)
            if budget == WITHOUT
            else ("each node's own, at most " if progress.get("own_budgets") else "") + f"ε {_short(budget)}",
        ),
        Figure("delta", "delta", _short(progress.get("delta"))),
        Figure("pace", "seconds a round", _decimal(_pace(rounds), 1)),
        Figure("ended", "last round ended", moment(ended).text if ended is not None else NONE),
    )


def _pace(rounds: Sequence[Mapping[str, Any]]) -> float | None:
    """Median of the last twenty."""
    times = [t for t in (_number(note.get("at")) for note in rounds[-21:]) if t is not None]
    gaps = sorted(b - a for a, b in itertools.pairwise(times))
    return gaps[len(gaps) // 2] if gaps else None


def _curve(rounds: Sequence[Mapping[str, Any]]) -> Curve:
    """Accuracy by round, in a picture 100 wide and 30 high whose scale is its own range."""
    found = [(n["round"], a) for n in rounds if (a := _metric(n, "accuracy")) is not None]
    if len(found) < 2:
        return Curve("Accuracy by round", "", (NONE, NONE), "No accuracy yet: give public test data with --test.")
    low, high = min(a for _, a in found), max(a for _, a in found)
    first, last = found[0][0], found[-1][0]
    every = -(-len(found) // _POINTS)
    kept = [*found[:-1:every], found[-1]]
    spread, length = (high - low) or 1.0, (last - first) or 1
    points = " ".join(f"{100 * (r - first) / length:.2f},{29 - 28 * (a - low) / spread:.2f}" for r, a in kept)
    said = f"Accuracy went from {_percent(found[0][1])} after round {first} to {_percent(found[-1][1])} after {last}."
    return Curve("Accuracy by round", points, (_percent(low), _percent(high)), said)


# --- clients ------------------------------------------------------------------------------------------------


def _clients(
    clients: Sequence[Mapping[str, Any]], stated: Mapping[str, Any], rounds: Sequence[Mapping[str, Any]]
) -> Table:
    return Table(
        name="clients",
        title="Clients",
        columns=columns(
            "Client",
            "number: Records",
            "strip: Last rounds",
            "number: Present in",
            "number: Spent ε",
            "number: Cap ε",
            "number: Left ε",
            "wide: Stated",
        ),
        rows=tuple(_client(c, stated, rounds) for c in clients),
        note="Spent over the life of a client's data, as its node states it: with its answers while the job runs, "
        f"and signed in the certificate. {_HERE} in the average of a round, {_AWAY} not; newest last.",
        empty="No client has come yet.",
    )


def _client(
    client: Mapping[str, Any], stated: Mapping[str, Any], rounds: Sequence[Mapping[str, Any]]
) -> tuple[Cell, ...]:
    name = str(client.get("name"))
    signed = stated.get(name)
    said = signed if isinstance(signed, dict) else client
    away = [name in _list(note.get("absent")) for note in rounds]
    strip = "".join(_AWAY if gone else _HERE for gone in away[-_STRIP:])
    spent, cap = said.get("epsilon"), said.get("cap")
    source = "in the certificate" if said is signed else "with its answers" if spent is not None else NONE
    return (
        Cell(words(name)),
        Cell(f"{client['size']:,}" if is_whole(client.get("size")) else NONE),
        Cell(strip or NONE, whole=f"present in {len(away) - sum(away)} of {len(away)} rounds"),
        Cell(f"{len(away) - sum(away)} of {len(away)}" if away else NONE, Tone.BAD if any(away) else Tone.PLAIN),
        Cell(WITHOUT if spent == WITHOUT else _epsilon(spent)),
        Cell(words(cap) if cap == WITHOUT else _short(cap)),
        _left(spent, cap),
        Cell(source, Tone.SOFT),
    )


def _left(spent: Any, cap: Any) -> Cell:
    if _number(spent) is None or _number(cap) is None:
        return Cell(NONE, Tone.SOFT)
    return Cell(epsilon_down(cap - spent), Tone.BAD if spent > 0.9 * cap else Tone.PLAIN)


# --- rounds -------------------------------------------------------------------------------------------------


def _rounds(rounds: Sequence[Mapping[str, Any]], clients: int) -> Table:
    newest = list(reversed(rounds[-SHOWN:]))
    before = {note["round"]: _number(note.get("at")) for note in rounds}
    return Table(
        name="rounds",
        title="Rounds",
        columns=columns(
            "number: Round",
            "Ended",
            "number: Took s",
            "number: Present",
            "number: Accuracy",
            "number: Loss",
            "long: Without",
        ),
        rows=tuple(_round(note, before.get(note["round"] - 1), clients) for note in newest),
        note=f"The newest {SHOWN}; rounds.jsonl in the job's folder has all.",
        empty="No round has ended yet.",
    )


def _round(note: Mapping[str, Any], before: float | None, clients: int) -> tuple[Cell, ...]:
    ended, absent = _number(note.get("at")), [words(name) for name in _list(note.get("absent"))]
    took = None if before is None or ended is None else ended - before
    return (
        Cell(f"{note['round']:,}"),
        moment(ended) if ended is not None else Cell(NONE),
        Cell(_decimal(took, 1)),
        Cell(f"{clients - len(absent)} of {clients}", Tone.BAD if absent else Tone.PLAIN),
        Cell(_percent(_metric(note, "accuracy"))),
        Cell(_decimal(_metric(note, "loss"))),
        brief(", ".join(absent) or NONE, 60),
    )


# --- small things -------------------------------------------------------------------------------------------


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: Any) -> float | None:
    try:
        return value if is_number(value) and math.isfinite(value) else None
    except OverflowError:
        return None


def _metric(note: Mapping[str, Any], name: str) -> float | None:
    found = note.get("metrics")
    return _number(found.get(name)) if isinstance(found, dict) else None


def _percent(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f} %"


def _decimal(value: float | None, digits: int = 4) -> str:
    return NONE if value is None else f"{value:.{digits}f}"


def _epsilon(value: Any) -> str:
    return NONE if _number(value) is None else epsilon_up(value)


def _short(value: Any) -> str:
    return NONE if _number(value) is None else short(value)
