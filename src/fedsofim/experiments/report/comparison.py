"""Who is better: paired tests on the test records, and over seeds, of every pair that was asked for."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from fedsofim.experiments.report.accuracy import final, marked, slug, within_budget
from fedsofim.experiments.report.results import Result, Results, Scale
from fedsofim.experiments.report.statistics import McNemar, holm, interval, paired, paired_t
from fedsofim.experiments.report.table import Cell, Table, budget_cell, number, text

LEVEL = 0.05

Place = tuple[str, str]


def pairs(results: Results, place: Place, epsilon: float) -> list[tuple[str, str]]:
    """Return the pairs of methods to compare under one budget.

    Each method that was asked for (`fedsofim report --focus`) is compared with every other one, each pair once. If none
    was asked for, the method with the best mean is compared with all others.
    """
    present = [m for m in results.methods if results.select(place, m, epsilon)]
    first = [m for m in present if m in results.focus] if results.focus else _best(results, place, epsilon, present)
    return [(a, b) for i, a in enumerate(first) for b in present if b not in first[: i + 1]]


def _best(results: Results, place: Place, epsilon: float, present: list[str]) -> list[str]:
    """The method with the best mean within its budget; none if nothing stayed finite."""
    sign = Scale.of(results, place[0]).sign
    runs = {m: results.select(place, m, epsilon) for m in present}
    means = {m: sign * final(found)[0] for m, found in runs.items() if within_budget(found)}
    finite = {m: mean for m, mean in means.items() if math.isfinite(mean)}
    return [max(finite, key=lambda m: finite[m])] if finite else []


def mcnemar_table(results: Results, place: Place) -> Table | None:
    """McNemar's test of each pair, seed by seed, with Holm's correction over the table."""
    if not results.task(place[0]).by_class:
        return None
    truth = results.labels(place[0])
    compared = list(_predictions(results, place))
    if not compared:
        return None
    tests = [paired(a.predictions, b.predictions, truth) for a, b in compared]  # type: ignore[arg-type]
    adjusted = holm([t.p for t in tests])
    rows = [_row(results, a, b, t, p) for (a, b), t, p in zip(compared, tests, adjusted, strict=True)]
    columns = ("ε", "seed", "method", "against", "n10", "n01", "χ²", "p", "p (Holm)", "better at 5 %")
    note = (
        "n10: records only the method gets right, n01: only the other. McNemar's χ² with continuity correction, exact "
        f"binomial below 25 disagreements; Holm's correction over these {len(tests)} tests. A test compares two "
        f"trained models on these test records; it does not see how results vary between seeds. {_whom(results)}"
    )
    return Table(f"mcnemar-{slug(place)}", f"McNemar's test: {place[0]}, {place[1]}", columns, tuple(rows), note)


def _predictions(results: Results, place: Place) -> Iterator[tuple[Result, Result]]:
    """Runs of both methods of a pair with equal seeds, where both have predictions."""
    for epsilon in results.epsilons:
        for ours, other in pairs(results, place, epsilon):
            theirs = {r.seed: r for r in results.select(place, other, epsilon)}
            for a in results.select(place, ours, epsilon):
                b = theirs.get(a.seed)
                if b is not None and a.predictions is not None and b.predictions is not None:
                    yield a, b


class _Gap(NamedTuple):
    """Differences of final values between two methods under one budget, by seed."""

    epsilon: float
    ours: str
    other: str
    gaps: list[float]


def wins_table(results: Results, place: Place) -> Table | None:
    """Difference of mean final accuracy, or RMSE, of each pair, with its interval and test over seeds."""
    scale = Scale.of(results, place[0])
    found = list(_gaps(results, place))
    if not found:
        return None
    adjusted = holm([paired_t(gap.gaps) for gap in found])
    rows = [_gap_row(results, gap, p, scale) for gap, p in zip(found, adjusted, strict=True)]
    note = (
        f"Difference in final test {scale.name}, {_points(scale)}; the interval is Student's 95 % over seeds "
        "(paired by seed), so it covers initial weights and noise but not the choice of test records or of settings. "
        f"p: the paired t-test, with Holm's correction over these {len(found)} pairs. {_whom(results)}"
    )
    columns = ("ε", "method", "against", "difference", "95 % low", "95 % high", "p (Holm)", "verdict")
    return Table(f"differences-{slug(place)}", f"Differences: {place[0]}, {place[1]}", columns, tuple(rows), note)


def _gaps(results: Results, place: Place) -> Iterator[_Gap]:
    for epsilon in results.epsilons:
        for ours, other in pairs(results, place, epsilon):
            mine = {r.seed: r.final for r in results.select(place, ours, epsilon)}
            theirs = {r.seed: r.final for r in results.select(place, other, epsilon)}
            if seeds := sorted(mine.keys() & theirs.keys()):
                yield _Gap(epsilon, ours, other, [mine[s] - theirs[s] for s in seeds])


def _whom(results: Results) -> str:
    """Which pairs the table has."""
    if results.focus:
        return "Compared with all others: " + ", ".join(results.focus) + "."
    return (
        "Under each budget the method with the best mean is compared with all others; it was chosen by these same "
        "runs, which favours it slightly. Choose the pairs yourself with --focus."
    )


def _points(scale: Scale) -> str:
    return "in percentage points" if scale.higher else "of which less is better"


def verdict(gaps: list[float], p: float) -> str:
    """Ahead or behind where the corrected test says so; more is better.

    >>> verdict([1.0, 1.1, 0.9], 0.01), verdict([-1.0, 1.0, 0.1], 0.9), verdict([2.0], 1.0)
    ('ahead', 'no clear difference', 'one seed only')
    """
    if len(gaps) < 2:
        return "one seed only"
    if not p < LEVEL:
        return "no clear difference"
    return "ahead" if sum(gaps) > 0 else "behind"


def _gap_row(results: Results, gap: _Gap, p: float, scale: Scale) -> tuple[Cell, ...]:
    low, high = interval(gap.gaps) or (None, None)
    mean = sum(gap.gaps) / len(gap.gaps)
    return (budget_cell(gap.epsilon), text(marked(results, gap.ours)), text(marked(results, gap.other)),
            *(number(v, scale.digits, signed=True) for v in (mean, low, high)),
            number(None) if len(gap.gaps) < 2 else _p(p),
            text(verdict([scale.sign * g for g in gap.gaps], p)))  # fmt: skip


def _row(results: Results, a: Result, b: Result, test: McNemar, adjusted: float) -> tuple[Cell, ...]:
    better = {"first": a.method, "second": b.method, "none": "neither"}
    decided = McNemar(test.n10, test.n01, test.chi2, adjusted, test.exact).direction(LEVEL)
    return (budget_cell(a.epsilon), Cell(str(a.seed), a.seed), text(marked(results, a.method)),
            text(marked(results, b.method)), Cell(str(test.n10), test.n10), Cell(str(test.n01), test.n01),
            number(test.chi2), _p(test.p, test.exact), _p(adjusted), text(better[decided]))  # fmt: skip


def _p(p: float, exact: bool = False) -> Cell:
    words = "<0.0001" if p < 1e-4 else f"{p:.4f}"
    return Cell(words + (" (exact)" if exact else ""), p)
