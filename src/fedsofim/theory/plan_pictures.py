"""The picture of a plan: how loud the noise is against the gradient, and what was measured at that loudness."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from fedsofim.core.budget import Budget
from fedsofim.core.plan import Trust
from fedsofim.simulation.figures import drawing, looks
from fedsofim.theory.cells import Cell, loudness
from fedsofim.theory.outlook import Outlook, Planned


def draw_plan(found: Planned, cells: Sequence[Cell], path: str | Path) -> None:
    """Left: noise of a round by budget, for both trust modes. Right: the measured cells, and where this plan is."""
    with drawing(path, (10.0, 4.2)) as figure:
        left, right = figure.subplots(1, 2)
        _noise(left, found.modes)
        _measured(right, found.modes, cells)


def _noise(axes: Any, modes: Sequence[Outlook]) -> None:
    asked = modes[0].situation.budget
    epsilons = np.geomspace(min(0.1, asked.epsilon / 3), max(10.0, 3 * asked.epsilon), 60)
    look = looks(list(get_args(Trust)))
    for mode in modes:
        s = mode.situation
        scale = mode.noise_in_buffer / loudness(s)  # noise goes with 1/mu: the recipe's choices are kept
        length = [scale * loudness(replace(s, budget=Budget(float(e), asked.delta))) for e in epsilons]
        style = look[s.trust]
        axes.plot(epsilons, length, color=style.colour, linestyle=style.dash, label=f"noise in the buffer, {s.trust}")
        axes.plot([asked.epsilon], [mode.noise_in_buffer], color=style.colour, marker=style.marker, markersize=7)
    low, high = modes[0].gradient_at_start
    axes.axhspan(low, high, color="#E69F00", alpha=0.25, linewidth=0, label="gradient at the start")
    axes.axhline(modes[0].gradient_later, color="#E69F00", linewidth=1.2, label="gradient later")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(f"epsilon (delta {asked.delta:g}); marked: as asked")
    axes.set_ylabel("length")
    axes.legend(fontsize=7.5)


def _measured(axes: Any, modes: Sequence[Outlook], cells: Sequence[Cell]) -> None:
    names = [e.dataset for e in modes[0].expected] or sorted({c.dataset for c in cells})
    look = looks(names)
    for name in names:
        some = sorted((c for c in cells if c.dataset == name and np.isfinite(c.epsilon)), key=_loud)
        style = look[name]
        axes.errorbar([_loud(c) for c in some], [c.accuracy for c in some], yerr=[c.spread for c in some],
                      color=style.colour, linestyle=style.dash, marker=style.marker, markersize=4, capsize=2,
                      linewidth=1.1, label=name)  # fmt: skip
        for c in cells:
            if c.dataset == name and not np.isfinite(c.epsilon):
                axes.axhline(c.accuracy, color=style.colour, linewidth=0.7, linestyle=":")
    for mode in modes:
        x = loudness(mode.situation)
        axes.axvline(x, color="#333333", linewidth=0.9, linestyle="--")
        where = {"xycoords": ("data", "axes fraction"), "ha": "center", "va": "bottom", "fontsize": 8}
        axes.annotate(mode.situation.trust, (x, 1.0), **where)
    axes.set_xscale("log")
    axes.set_xlabel("loudness of the noise (dotted: without noise; dashed: this plan)")
    axes.set_ylabel("test accuracy of the recipe (%)")
    axes.legend(fontsize=7.5)


def _loud(cell: Cell) -> float:
    return loudness(cell.situation)
