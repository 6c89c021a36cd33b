"""The report in sentences, before any table: the data, the budget, who wins and whether that is more than chance."""

from collections.abc import Iterator

import numpy as np

from fedsofim.core.budget import in_words
from fedsofim.experiments.report.accuracy import at, within_budget
from fedsofim.experiments.report.results import Result, Results
from fedsofim.experiments.report.served import mean_recall
from fedsofim.experiments.report.statistics import interval

Place = tuple[str, str]


def in_sentences(results: Results) -> list[str]:
    """What a reader in a hurry needs, in the order of need."""
    return [*_data(results), _budget(results), *_winners(results), *_least_served(results), *_open(results)]


def _data(results: Results) -> Iterator[str]:
    for dealt in results.grid["partitions"]:
        counts = np.array(dealt["counts"])
        sizes = counts.sum(axis=1)
        yield (
            f"Data: {dealt['dataset']}, {sizes.sum():,} training records of {counts.shape[1]} classes at {len(sizes)} "
            f"clients ({dealt['partition']}; {sizes.min():,} to {sizes.max():,} records each), "
            f"{len(results.labels(dealt['dataset'])):,} test records. The commonest class alone is right for "
            f"{results.majority(dealt['dataset']):.1f} % of them."
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
                yield f"{place[0]}, {place[1]}, ε = {in_words(epsilon)}: {winner(honest, results.rounds)}"


def winner(block: dict[str, list[Result]], rounds: int) -> str:
    """Who is first, by how much, and whether the seeds let one say so."""
    order = sorted(block, key=lambda m: at(block[m], rounds)[0], reverse=True)
    first, second = order[:2]
    a, b = ({r.seed: r.final for r in block[m]} for m in (first, second))
    gaps = [a[s] - b[s] for s in sorted(a.keys() & b.keys())]
    reached = f"{first} reaches {at(block[first], rounds)[0]:.2f} %, {second} {at(block[second], rounds)[0]:.2f} %"
    found = interval(gaps)
    if found is None:
        return f"{reached}: {np.mean(gaps or [0.0]):+.2f} points, from one seed, so nothing can be said about chance."
    said = f"{np.mean(gaps):+.2f} points (95 %: {found[0]:+.2f} to {found[1]:+.2f} over {len(gaps)} seeds)"
    return f"{reached}: {said}, {'more than chance' if found[0] > 0 else 'which may be chance'}."


def _least_served(results: Results) -> Iterator[str]:
    """How far the worst class is behind, at the smallest and at the largest budget."""
    for place in results.places:
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
