"""Pictures: floors against ρ, β and ε; and what a plan has to expect."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedsofim.core.budget import Budget
from fedsofim.simulation.figures import drawing, looks
from fedsofim.theory.buffer import buffer_bound
from fedsofim.theory.constants import Constants, sigma_g_of
from fedsofim.theory.floors import Floor, fedgd_floor, gap_floor, stationarity_floor
from fedsofim.theory.uncoupled import uncoupled_floor

_PAPER, _OURS, _GD, _KNOWN = "the paper's", "ours", "DP-FedGD, step eta/rho", "known without running"


def draw_floors(k: Constants, path: str | Path, *, delta: float = 1e-5, delta_M: float = 0.05) -> None:
    """The floors as ρ, β and ε change: below the dashed line a bound says something."""
    epsilon = np.geomspace(0.1, 100, 61)
    with drawing(path, (10.5, 3.9)) as figure:
        panels = figure.subplots(1, 3, sharey=True)
        rho = np.geomspace(k.rho / 100, max(k.rho, buffer_bound(k)) * 1000, 81)
        _panel(panels[0], k, rho, lambda v: replace(k, rho=v, eta=k.eta * v / k.rho), "rho (eta/rho fixed)", delta_M)
        _panel(panels[1], k, np.linspace(0, 0.99, 61), lambda v: replace(k, beta=v), "beta", delta_M)
        _panel(panels[2], k, epsilon, lambda v: _at(k, v, delta), f"epsilon (delta {delta:g})", delta_M)
        for axes, here in ((panels[0], k.rho), (panels[1], k.beta)):
            axes.axvline(here, color="#999999", linewidth=0.8, linestyle=":")
        panels[0].set_xscale("log")
        panels[2].set_xscale("log")
        panels[0].set_ylabel("floor of F - F*" if k.mu else "floor of the mean |∇F|²")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)


def _at(k: Constants, epsilon: float, delta: float) -> Constants:
    return replace(k, sigma_g=sigma_g_of(Budget(float(epsilon), delta), k.rounds, k.n))


def _panel(
    axes: Any, k: Constants, values: np.ndarray, at: Callable[[float], Constants], label: str, delta_M: float
) -> None:
    lines: dict[str, list[float]] = {_PAPER: [], _OURS: [], _GD: [], _KNOWN: []}
    for v in values:
        for name, floor in _floors(at(float(v)), delta_M).items():
            lines[name].append(floor.value if np.isfinite(floor.value) else np.nan)
            if name == _PAPER:
                lines[_KNOWN].append(floor.trivial)
    look = looks(list(lines))
    for name, found in lines.items():
        if found:
            style = look[name]
            dash, every = ("--" if name == _KNOWN else style.dash), max(1, len(values) // 7)
            axes.plot(values, found, color="black" if name == _KNOWN else style.colour, linestyle=dash,
                      marker="" if name == _KNOWN else style.marker, markevery=every, markersize=4,
                      label=name)  # fmt: skip
    axes.set_yscale("log")
    axes.set_xlabel(label)


def _floors(k: Constants, delta_M: float) -> dict[str, Floor]:
    if k.mu is None:
        return {_PAPER: stationarity_floor(k)}
    ours = uncoupled_floor(k, delta_M).floor
    assert ours is not None
    return {_PAPER: gap_floor(k, k.mu), _OURS: ours, _GD: fedgd_floor(k, k.mu)}
