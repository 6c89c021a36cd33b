"""Accuracy, or RMSE, by round, method and budget; how soon a target is reached; what a round costs in time."""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from fedsofim.core.budget import in_words
from fedsofim.experiments.report.results import Result, Results, Scale
from fedsofim.experiments.report.statistics import interval
from fedsofim.experiments.report.table import Cell, Table, budget_cell, number, spread, text

FINAL = None  # in place of a round: the end of each run
REFERENCE = "fedgd"  # the method whose final accuracy sets the target


def accuracy_table(results: Results, place: tuple[str, str]) -> Table:
    """Mean ± std over seeds at every tenth round, the best mean of each budget and round in bold.

    Where runs differ in length, cells after the end of a run stay empty, and a last column has every run's final value.
    """
    rounds, scale = tens(results), Scale.of(results, place[0])
    last = [] if results.same_length else [FINAL]
    rows = []
    for epsilon in results.epsilons:
        block = [(m, results.select(place, m, epsilon)) for m in results.methods]
        block = [(m, runs) for m, runs in block if runs]
        honest = {m: runs for m, runs in block if within_budget(runs)}
        for method, runs in block:
            others = [theirs for m, theirs in honest.items() if m != method]
            when = [*rounds, *last]
            best = [method in honest and clearly_best(runs, others, t, scale.sign) for t in when]
            cells = [_cell(at(runs, t), b, scale.digits) for t, b in zip(when, best, strict=True)]
            name = marked(results, method) + _fewer(results, runs)
            rows.append((budget_cell(epsilon), text(name), *cells, spent_cell(runs)))
    columns = ("ε", "method", *(f"round {t}" for t in rounds), *(["final"] if last else []), "ε spent (ledger)")
    how = f"mean ± sample std over {seeds_of(results)} seeds"
    what = "Test accuracy in percent" if scale.higher else "Test RMSE, of which less is better"
    ended = "Empty: the run had ended. Final: after each method's own last round. " if last else ""
    note = (
        f"{what}, {how}. Bold: ahead of every other within its budget, by a 95 % interval of the "
        f"difference over seeds. {ended}{scale.alone}"
    )
    return Table(
        f"{scale.metric}-{slug(place)}",
        f"{scale.name[0].upper()}{scale.name[1:]}: {place[0]}, {place[1]}",
        columns,
        tuple(rows),
        " ".join([note, *footnotes(results)]),
    )


def _cell(found: tuple[float, float | None] | None, bold: bool, digits: int) -> Cell:
    return Cell("", -np.inf) if found is None else spread(*found, bold=bold, digits=digits)


def clearly_best(runs: Sequence[Result], others: Sequence[Sequence[Result]], round_: int | None, sign: int = 1) -> bool:
    """Is the difference to every other real: does its interval over seeds, paired, leave out 0?

    Nothing is best at a round that another method did not reach. `round_` is FINAL for the end of each run; with
    `sign` -1 less is better.
    """
    mine = {r.seed: _value(r, round_) for r in runs}
    return bool(others) and all(_ahead(mine, {r.seed: _value(r, round_) for r in theirs}, sign) for theirs in others)


def _value(run: Result, round_: int | None) -> float | None:
    return run.final if round_ is None else run.at(round_)


def _ahead(mine: Mapping[int, float | None], theirs: Mapping[int, float | None], sign: int) -> bool:
    pairs = [(mine[s], theirs[s]) for s in mine.keys() & theirs.keys()]
    found = interval([sign * (a - b) for a, b in pairs if a is not None and b is not None])
    return found is not None and found[0] > 0


def _fewer(results: Results, runs: Sequence[Result]) -> str:
    """Says so where a mean is over fewer seeds than others are."""
    return f" ({len(runs)} of {seeds_of(results)} seeds)" if len(runs) < seeds_of(results) else ""


def rounds_to_target(results: Results, place: tuple[str, str], share: float = 0.95) -> Table | None:
    """The first round at which the mean accuracy reaches 95 % of DP-FedGD's final one, or the mean RMSE 105 %."""
    rows, scale = [], Scale.of(results, place[0])
    part = share if scale.higher else 2 - share
    for epsilon in results.epsilons:
        runs = results.select(place, epsilon=epsilon)
        reference = [r for r in runs if r.factory == REFERENCE]
        if not reference:
            continue
        target = part * float(np.mean([r.final for r in reference if r.method == reference[0].method]))
        for method in results.methods:
            mine = [r for r in runs if r.method == method]
            if mine:
                first = first_round(mine, target, scale.sign)
                rows.append(
                    (
                        budget_cell(epsilon),
                        text(marked(results, method)),
                        number(target, scale.digits),
                        Cell("not reached", np.inf) if first is None else Cell(str(first), first),
                    )
                )
    note = f"Target: {part:.0%} of DP-FedGD's mean {scale.name} after the last round, under the same budget."
    if not rows:
        return None
    return Table(
        f"rounds-to-target-{slug(place)}",
        f"Rounds to target: {place[0]}, {place[1]}",
        ("ε", "method", f"target{' (%)' if scale.higher else ''}", "rounds"),
        tuple(rows),
        note,
    )


def time_table(results: Results) -> Table:
    """Wall clock per round over that of DP-FedGD in the same folder; the first run of a setting compiles."""
    fastest = {key: min(r.seconds / len(r.trace.rounds) for r in runs) for key, runs in _by_time_key(results).items()}
    rows = []
    for (place, method, epsilon), seconds in fastest.items():
        base = min(
            (s for (p, m, e), s in fastest.items() if p == place and _factory(results, m) == REFERENCE),
            default=None,
        )
        rows.append(
            (
                text(f"{place[0]}, {place[1]}"),
                text(method),
                budget_cell(epsilon),
                number(None if base is None else seconds / base),
            )
        )
    note = (
        "Fastest run of each method and budget over the fastest of DP-FedGD, measured in this one experiment; seconds "
        "are not given because they describe the machine and its other load."
    )
    return Table(
        "runtime",
        "Wall clock per round, as a ratio",
        ("data", "method", "ε", "over DP-FedGD"),
        tuple(rows),
        note,
    )


def at(runs: Sequence[Result], round_: int | None) -> tuple[float, float | None] | None:
    """Mean and sample std of the task's one number after a round, or at the end (FINAL); None if no run got there."""
    values = [a for a in (_value(r, round_) for r in runs) if a is not None]
    return _mean_and_std(values) if values else None


def final(runs: Sequence[Result]) -> tuple[float, float | None]:
    """Mean and sample std of the task's one number after each run's own last round."""
    return _mean_and_std([r.final for r in runs])


def _mean_and_std(values: Sequence[float]) -> tuple[float, float | None]:
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None


def first_round(runs: Sequence[Result], target: float, sign: int = 1) -> int | None:
    """The first round at which the mean over the runs is at least the target; at most, with `sign` -1."""
    mean = np.mean([r.trace.score for r in runs], axis=0)
    reached = np.flatnonzero(sign * mean >= sign * target)
    return int(runs[0].trace.rounds[reached[0]]) if len(reached) else None


def tens(results: Results) -> list[int]:
    """Every tenth round and the last."""
    last = results.rounds
    return [t for t in range(1, last + 1) if t % 10 == 0 or t == last]


def spent_cell(runs: Sequence[Result]) -> Cell:
    """The ledger's epsilon of these runs."""
    run = runs[0]
    return Cell(run.spent_in_words, run.spent) if run.spent_by_each else budget_cell(run.spent, digits=4)


def within_budget(runs: Sequence[Result]) -> bool:
    """Does the ledger spend no more than was asked for? What spends more wins nothing."""
    return runs[0].spent <= runs[0].epsilon * (1 + 1e-6)


def marked(results: Results, method: str) -> str:
    """A method's label, starred where it has a note."""
    return f"{method} *" if method in results.notes else method


def footnotes(results: Results) -> list[str]:
    """The notes of all methods that have one, and what did not stay finite."""
    broken = sorted({f"{r.method} at ε = {in_words(r.epsilon)}" for r in results.runs if not r.finite})
    said = [f"* {method}: {note}." for method, note in results.notes.items()]
    if any(r.spent_by_each for r in results.runs):
        said.append("Where ε spent is a range, each client has a budget of its own, and ε is that of the others.")
    return said + ([f"Parameters overflowed in: {', '.join(broken)}."] if broken else [])


def seeds_of(results: Results) -> int:
    return len({r.seed for r in results.runs})


def slug(place: tuple[str, ...]) -> str:
    """A file name for a place; a dash parts dataset and split, so a dataset's own becomes an underscore.

    >>> slug(("cifar10-resnet20", "dirichlet(0.5)")), slug(("cifar10_resnet20", "iid"))
    ('cifar10_resnet20-dirichlet-0.5', 'cifar10_resnet20-iid')
    """
    dataset, *rest = place
    return re.sub(r"[^A-Za-z0-9._=-]+", "-", "-".join((dataset.replace("-", "_"), *rest))).strip("-")


def _by_time_key(results: Results) -> dict[tuple, list[Result]]:
    out: dict[tuple, list[Result]] = {}
    for r in results.runs:
        out.setdefault(((r.dataset, r.partition), r.method, r.epsilon), []).append(r)
    return out


def _factory(results: Results, method: str) -> str:
    return next(r.factory for r in results.runs if r.method == method)
