"""The figures of a report, each from results to one file. How lines look is in figures.py."""

from pathlib import Path

from fedsofim.figures import draw_curves, drawing, looks
from fedsofim.report.results import Results


def convergence(results: Results, place: tuple[str, str], path: Path) -> None:
    """Accuracy over rounds, one panel per budget, mean with a band of one std over seeds."""
    epsilons = results.epsilons
    columns = min(2, len(epsilons))
    rows = -(-len(epsilons) // columns)
    look = looks(results.methods)
    with drawing(path, (4.2 * columns, 2.9 * rows + 0.5)) as figure:
        panels = figure.subplots(rows, columns, squeeze=False, sharex=True)
        for axes, epsilon in zip(panels.flat, epsilons, strict=False):
            series = {m: [r.trace for r in results.select(place, m, epsilon)] for m in results.methods}
            draw_curves(axes, {m: traces for m, traces in series.items() if traces}, look)
            axes.set_title(f"ε = {epsilon:g}")
        for axes in panels.flat[len(epsilons) :]:
            axes.set_visible(False)
        handles, labels = panels.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(5, len(labels)))
