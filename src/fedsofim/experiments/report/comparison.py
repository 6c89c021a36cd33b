"""One method against all others: paired tests on the test records, and intervals over seeds."""

from fedsofim.experiments.report.accuracy import marked, slug
from fedsofim.experiments.report.results import Result, Results, Scale, distinct
from fedsofim.experiments.report.statistics import McNemar, holm, interval, paired
from fedsofim.experiments.report.table import Cell, Table, budget_cell, number, text

LEVEL = 0.05


def focus(results: Results) -> list[str]:
    """The methods to compare with the others: every entry made by the fedsofim factory, else the last one."""
    ours = distinct(r.method for r in results.runs if r.factory == "fedsofim")
    return ours if ours and len(ours) < len(results.methods) else results.methods[-1:]


def opponents(results: Results, ours: str) -> list[str]:
    """Whom a method in focus is compared with: every other, but each pair once."""
    done = focus(results)[: focus(results).index(ours) + 1]
    return [method for method in results.methods if method not in done]


def mcnemar_table(results: Results, place: tuple[str, str]) -> Table | None:
    """McNemar's test of each method in focus against each other method, seed by seed, Holm over the family."""
    pairs = _pairs(results, place)
    if not pairs or not results.task(place[0]).by_class:
        return None
    truth = results.labels(place[0])
    said = [(a.predictions, b.predictions) for a, b in pairs]
    tests = [paired(a, b, truth) for a, b in said if a is not None and b is not None]
    adjusted = holm([t.p for t in tests])
    rows = [_row(results, a, b, t, p) for (a, b), t, p in zip(pairs, tests, adjusted, strict=True)]
    columns = ("ε", "seed", "method", "against", "n10", "n01", "χ²", "p", "p (Holm)", "better at 5 %")
    note = (
        "n10: records only the method gets right, n01: only the other. McNemar's χ² with continuity correction, exact "
        f"binomial below 25 disagreements; Holm's correction over these {len(tests)} tests. A test compares two "
        "trained models on these test records; it does not see how results vary between seeds."
    )
    return Table(f"mcnemar-{slug(place)}", f"McNemar's test: {place[0]}, {place[1]}", columns, tuple(rows), note)


def wins_table(results: Results, place: tuple[str, str]) -> Table | None:
    """Difference of mean final accuracy, or RMSE, with its interval over seeds, for each method in focus against each
    other."""
    rows, scale = [], Scale.of(results, place[0])
    for ours in focus(results):
        for epsilon in results.epsilons:
            mine = {r.seed: r for r in results.select(place, ours, epsilon)}
            for other in opponents(results, ours):
                theirs = {r.seed: r for r in results.select(place, other, epsilon)}
                seeds = sorted(mine.keys() & theirs.keys())
                if not seeds:
                    continue
                gaps = [mine[s].final - theirs[s].final for s in seeds]
                rows.append(_gap_row(results, epsilon, ours, other, gaps, scale))
    if not rows:
        return None
    note = (
        f"Difference in final test {scale.name}, {_points(scale)}; the interval is Student's 95 % over seeds "
        "(paired by seed), so it covers initial weights and noise but not the choice of test records or of settings."
    )
    columns = ("ε", "method", "against", "difference", "95 % low", "95 % high", "verdict")
    return Table(f"differences-{slug(place)}", f"Differences: {place[0]}, {place[1]}", columns, tuple(rows), note)


def _points(scale: Scale) -> str:
    return "in percentage points" if scale.higher else "of which less is better"


def verdict(gaps: list[float]) -> str:
    """Ahead or behind where the interval leaves out 0; more is better.

    >>> verdict([1.0, 1.1, 0.9]), verdict([-1.0, 1.0, 0.1]), verdict([2.0])
    ('ahead', 'no clear difference', 'one seed only')
    """
    found = interval(gaps)
    if found is None:
        return "one seed only"
    if found[0] > 0:
        return "ahead"
    return "behind" if found[1] < 0 else "no clear difference"


def _gap_row(
    results: Results, epsilon: float, ours: str, other: str, gaps: list[float], scale: Scale
) -> tuple[Cell, ...]:
    low, high = interval(gaps) or (None, None)
    mean = sum(gaps) / len(gaps)
    return (budget_cell(epsilon), text(marked(results, ours)), text(marked(results, other)),
            *(number(v, scale.digits, signed=True) for v in (mean, low, high)),
            text(verdict([scale.sign * gap for gap in gaps])))  # fmt: skip


def _pairs(results: Results, place: tuple[str, str]) -> list[tuple[Result, Result]]:
    return [
        (a, b)
        for ours in focus(results)
        for epsilon in results.epsilons
        for a in results.select(place, ours, epsilon)
        for b in results.select(place, epsilon=epsilon)
        if b.method in opponents(results, ours) and b.seed == a.seed
    ]


def _row(results: Results, a: Result, b: Result, test: McNemar, adjusted: float) -> tuple[Cell, ...]:
    better = {"first": a.method, "second": b.method, "none": "neither"}
    decided = McNemar(test.n10, test.n01, test.chi2, adjusted, test.exact).direction(LEVEL)
    return (budget_cell(a.epsilon), Cell(str(a.seed), a.seed), text(marked(results, a.method)),
            text(marked(results, b.method)), Cell(str(test.n10), test.n10), Cell(str(test.n01), test.n01),
            number(test.chi2), _p(test.p, test.exact), _p(adjusted), text(better[decided]))  # fmt: skip


def _p(p: float, exact: bool = False) -> Cell:
    words = "<0.0001" if p < 1e-4 else f"{p:.4f}"
    return Cell(words + (" (exact)" if exact else ""), p)
