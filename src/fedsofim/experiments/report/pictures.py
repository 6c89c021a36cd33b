"""The figures of a report, each from results to one file. How lines look is in figures.py."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.ticker import NullFormatter

from fedsofim.core.budget import in_words
from fedsofim.experiments.report.accuracy import final
from fedsofim.experiments.report.results import Results, Scale, distinct
from fedsofim.experiments.report.table import Table
from fedsofim.simulation import figures
from fedsofim.simulation.figures import draw_curves, drawing, looks, mark_baseline

Place = tuple[str, str]
WIDTH, HEIGHT = 4.8, 3.2  # inches: one size and font for all, readable at the width of a phone


def convergence(results: Results, place: Place, path: Path, across: int = 1) -> None:
    """Accuracy, or RMSE, over rounds, one panel per budget, mean with a band of one std over seeds; so many panels
    across."""
    epsilons, scale = results.epsilons, scale_of(results, place)
    look = looks(results.methods)
    down = math.ceil(len(epsilons) / across)
    with drawing(path, (WIDTH + 3.2 * (across - 1), 2.3 * down + 0.8)) as figure:
        panels = figure.subplots(down, across, squeeze=False, sharey=across > 1)
        for axes in panels.flat[len(epsilons) :]:
            axes.remove()
        for axes, epsilon in zip(panels.flat, epsilons, strict=False):
            series = {m: [r.trace for r in results.select(place, m, epsilon)] for m in results.methods}
            draw_curves(axes, {m: traces for m, traces in series.items() if traces}, look, scale)
            axes.set_title(f"ε = {in_words(epsilon)}")
        _legend_below(figure, panels.flat[0])


def privacy_utility(results: Results, place: Place, path: Path) -> None:
    """Final accuracy over the budget's epsilon, one line per method."""
    look = looks(results.methods)
    with drawing(path, (WIDTH, HEIGHT + 0.6)) as figure:
        axes = figure.subplots()
        for method in results.methods:
            points = [(e, *final(runs)) for e in results.epsilons
                      if np.isfinite(e) and (runs := results.select(place, method, e))]  # fmt: skip
            if points:
                e, mean, std = zip(*points, strict=True)
                style = look[method]
                axes.errorbar(e, mean, yerr=[s or 0.0 for s in std], color=style.colour, linestyle=style.dash,
                              marker=style.marker, markersize=5, capsize=2, linewidth=1.3, label=method)  # fmt: skip
        axes.set_xscale("log")
        finite = [e for e in results.epsilons if np.isfinite(e)]  # no-privacy has no place on this axis
        axes.set_xticks(finite, [f"{e:g}" for e in finite])
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("ε of the budget")
        _name_axis(axes, results, place)
        _legend_below(figure, axes)


def bars(results: Results, place: Place, path: Path) -> None:
    """Final accuracy by budget as grouped bars: for few entries, such as an ablation."""
    hatches = ("", "//", "..", "xx", "\\\\", "++", "oo", "--")
    look, width = looks(results.methods), 0.8 / len(results.methods)
    with drawing(path, (WIDTH, HEIGHT + 0.6)) as figure:
        axes = figure.subplots()
        lows = []
        for i, method in enumerate(results.methods):
            found = [(k, *final(runs)) for k, e in enumerate(results.epsilons)
                     if (runs := results.select(place, method, e))]  # fmt: skip
            if not found:
                continue
            k, mean, std = (np.array([v or 0.0 for v in column]) for column in zip(*found, strict=True))
            axes.bar(k + (i - (len(results.methods) - 1) / 2) * width, mean, width, yerr=std, color=look[method].colour,
                     edgecolor="white", hatch=hatches[i % len(hatches)], capsize=2, label=method)  # fmt: skip
            lows.append(float((mean - std).min()))
        percent = Scale.of(results, place[0]).metric == "accuracy"
        bottom = min(lows) - 5 if percent and min(lows) > 30 else 0.0  # cut the axis only where all bars are long
        axes.set_ylim(bottom=bottom)
        axes.set_xticks(range(len(results.epsilons)), [f"ε = {in_words(e)}" for e in results.epsilons])
        axes.set_ylabel(scale_of(results, place).said + ("; the axis does not start at 0" if bottom else ""))
        mark_baseline(axes, scale_of(results, place)._replace(baseline=_unless_below(results, place, bottom)))
        axes.grid(axis="x", visible=False)
        _legend_below(figure, axes)


def rho_curve(results: Results, place: Place, path: Path) -> None:
    """Final accuracy over rho, one line per budget."""
    names = [f"ε = {in_words(e)}" for e in results.epsilons]
    look = looks(names)
    with drawing(path, (WIDTH, HEIGHT)) as figure:
        axes = figure.subplots()
        for name, epsilon in zip(names, results.epsilons, strict=True):
            runs = [r for r in results.select(place, epsilon=epsilon) if "rho" in r.settings]
            rhos = sorted({r.settings["rho"] for r in runs})
            points = [final([r for r in runs if r.settings["rho"] == rho]) for rho in rhos]
            mean, std = np.array([p[0] for p in points]), np.array([p[1] or 0.0 for p in points])
            style = look[name]
            axes.errorbar(rhos, mean, yerr=std, color=style.colour, linestyle=style.dash, marker=style.marker,
                          markersize=5, capsize=2, label=name)  # fmt: skip
        axes.set_xscale("log")
        axes.set_xlabel("rho")
        _name_axis(axes, results, place)
        axes.legend()


def partition_heatmap(dealt: dict[str, Any], path: Path, classes: list[str] | None = None) -> None:
    """Records per client and class, dark for many; numbers in the cells where there is room for them."""
    counts = np.array(dealt["counts"])
    names = classes or [str(c) for c in range(counts.shape[1])]
    with drawing(path, (WIDTH, min(0.2 * len(counts), 7) + 1.6)) as figure:
        axes = figure.subplots()
        axes.grid(visible=False)
        image = axes.imshow(counts, cmap="Blues", aspect="auto")
        for (i, c), n in np.ndenumerate(counts) if counts.shape[1] <= 10 and len(counts) <= 30 else ():
            axes.text(c, i, str(n), ha="center", va="center", fontsize=6,
                      color="white" if n > 0.55 * counts.max() else "black")  # fmt: skip
        turned = sum(map(len, names)) > 30
        axes.set_xticks(range(len(names)), names, rotation=90 if turned else 0)
        axes.set_yticks(range(0, len(counts), max(1, len(counts) // 20)))
        axes.set_xlabel("class")
        axes.set_ylabel("client")
        axes.set_title(f"{dealt['dataset']}, {dealt['partition']}")
        figure.colorbar(image, ax=axes, label="records")


def rounds_bars(results: Results, table: Table, path: Path) -> None:
    """Rounds to target by method, one panel per budget; a hatched full bar was not reached."""
    epsilons = sorted({row[0].value or 0.0 for row in table.rows})
    names = distinct(row[1].text for row in table.rows)
    with drawing(path, (WIDTH, (0.24 * len(names) + 0.9) * len(epsilons))) as figure:
        panels = figure.subplots(len(epsilons), 1, squeeze=False)[:, 0]
        for axes, epsilon in zip(panels, epsilons, strict=True):
            rows = [row for row in table.rows if row[0].value == epsilon]
            for row in rows:
                i = names.index(row[1].text)
                value = row[3].value if row[3].value is not None else np.inf
                reached = np.isfinite(value)
                axes.barh(i, value if reached else results.rounds, color="#0072B2" if reached else "#ffffff",
                          edgecolor="#0072B2", hatch="" if reached else "///")  # fmt: skip
                axes.text(value if reached else results.rounds, i, f" {row[3].text if reached else 'not'}", va="center",
                          fontsize=7)  # fmt: skip
            axes.set_yticks(range(len(names)), names)
            axes.set_xlim(0, results.rounds * 1.15)
            axes.set_xlabel("rounds")
            axes.set_title(f"ε = {in_words(epsilon)}")
            axes.grid(axis="y", visible=False)
            axes.invert_yaxis()


def scale_of(results: Results, place: Place) -> figures.Scale:
    """What an axis of this data is of, and where a constant answer is on it."""
    return figures.Scale(results.task(place[0]).metric, results.baseline(place[0]))


def _name_axis(axes: Any, results: Results, place: Place) -> None:
    """The task's one number after the last round, and a constant answer's."""
    scale = Scale.of(results, place[0])
    unit = " (%)" if scale.higher else " (lower is better)"
    when = f"after round {results.rounds}" if results.same_length else "at the end of each run"
    axes.set_ylabel(f"{scale.axis} {when}{unit}")
    mark_baseline(axes, scale_of(results, place))


def _unless_below(results: Results, place: Place, bottom: float) -> float | None:
    """A constant answer's number, where the axis reaches down to it."""
    base = results.baseline(place[0])
    return base if base > bottom else None


def _legend_below(figure: Any, axes: Any) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3 if max(map(len, labels)) < 14 else 2)
