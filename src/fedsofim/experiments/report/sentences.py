"""The report in sentences, before any table: the data, the budget, who wins and whether that is more than chance."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from fedsofim.core.budget import in_words
from fedsofim.experiments.report.accuracy import final, within_budget
from fedsofim.experiments.report.results import Result, Results, Scale
from fedsofim.experiments.report.served import mean_recall
from fedsofim.experiments.report.statistics import interval

Place = tuple[str, str]


def in_sentences(results: Results) -> list[str]:
    """What a reader in a hurry needs, in the order of need."""
    return [*_data(results), _budget(results), *_winners(results), *_least_served(results), *_open(results)]


def _data(results: Results) -> Iterator[str]:
    for dealt in results.grid["partitions"]:
        name = dealt["dataset"]
        scale, task = Scale.of(results, name), results.task(name)
        if task.metric == "accuracy":
            of_what = "of them" if task.by_class else "of their labels"
            base = f"The commonest class alone is right for {scale.baseline:.1f} % {of_what}."
        else:
            base = f"The test records' mean alone has an RMSE of {scale.said(scale.baseline)}."
        what = f"{len(results.classes(name))} classes" if task.by_class else str(task)
        yield f"Data: {name}, {_held(dealt, what)}, {results.tested(name):,} test records. {base}"


def _held(dealt: dict[str, Any], what: str) -> str:
    """Who holds how much; where persons are protected, how many records there are is not told."""
    sizes = dealt["sizes"] if "sizes" in dealt else np.sum(dealt["counts"], axis=1)
    if sizes is None:
        return f"training records of {what} at {dealt['clients']} clients ({dealt['partition']})"
    return (
        f"{sum(sizes):,} training records of {what} at {len(sizes)} clients ({dealt['partition']}; {min(sizes):,} to "
        f"{max(sizes):,} records each)"
    )


def _budget(results: Results) -> str:
    first = results.runs[0].privacy
    epsilons = ", ".join(in_words(e) for e in results.epsilons)
    over = sorted({r.method for r in results.runs if not within_budget([r])})
    kept = f"Over budget, so never the winner: {', '.join(over)}." if over else "Every method stays within its budget."
    seeds = len({r.seed for r in results.runs})
    return f"Budgets: ε = {epsilons} at δ = {first['delta']:g}, {first['trust']} trust, {seeds} seeds. {kept}"


def _winners(results: Results) -> Iterator[str]:
    for place in results.places:
        for epsilon in results.epsilons:
            block = {m: runs for m in results.methods if (runs := results.select(place, m, epsilon))}
            honest = {m: runs for m, runs in block.items() if within_budget(runs)}
            if len(honest) > 1:
                told = winner(honest, Scale.of(results, place[0]))
                yield f"{place[0]}, {place[1]}, ε = {in_words(epsilon)}: {told}"


def winner(block: dict[str, list[Result]], scale: Scale) -> str:
    """Who is first, by how much, and whether the seeds let one say so."""
    order = sorted(block, key=lambda m: scale.sign * final(block[m])[0], reverse=True)
    first, second = order[:2]
    a, b = ({r.seed: r.final for r in block[m]} for m in (first, second))
    gaps = [a[s] - b[s] for s in sorted(a.keys() & b.keys())]
    beaten = scale.sign * (final(block[first])[0] - scale.baseline) > 0
    beside = "" if beaten else f", and a constant answer {scale.said(scale.baseline)}"
    scores = [scale.said(final(block[m])[0]) for m in (first, second)]
    reached = f"{first} reaches {'' if scale.higher else 'an RMSE of '}{scores[0]}, {second} {scores[1]}{beside}"
    found, points = interval(gaps), " points" if scale.higher else ""
    signed = f"+.{scale.digits}f"
    if found is None:
        mean = np.mean(gaps or [0.0])
        return f"{reached}: {mean:{signed}}{points}, from one seed, so nothing can be said about chance."
    ends = f"95 %: {found[0]:{signed}} to {found[1]:{signed}} over {len(gaps)} seeds"
    sure = found[0] > 0 if scale.higher else found[1] < 0
    said = f"{np.mean(gaps):{signed}}{points} ({ends})"
    return f"{reached}: {said}, {'more than chance' if sure else 'which may be chance'}."


def _least_served(results: Results) -> Iterator[str]:
    """How far the worst class is behind, at the smallest and at the largest budget."""
    for place in results.places:
        if not results.task(place[0]).by_class:
            continue
        told = []
        for epsilon in dict.fromkeys((results.epsilons[0], results.epsilons[-1])):
            gaps = {}
            for method in results.methods:
                if runs := results.select(place, method, epsilon):
                    known = [r for r in mean_recall(results, place, runs) if r is not None]
                    gaps[method] = max(known) - min(known)
            low = min(gaps, key=lambda m: gaps[m])
            told.append(f"{gaps[low]:.1f} points ({low}) to {max(gaps.values()):.1f} at ε = {in_words(epsilon)}")
        yield f"{place[0]}, {place[1]}: from the best to the worst recognised class it is {', and '.join(told)}."


def _open(results: Results) -> Iterator[str]:
    if results.missing:
        yield f"Not finished: {results.missing} of {len(results.grid['ids'])} runs."
