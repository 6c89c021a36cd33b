"""Pictures of attacks: the promised curve of error rates, and the measured points."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedsofim.attack.claims import Claim
from fedsofim.attack.everything import Line
from fedsofim.attack.verdicts import Verdict, error_rates
from fedsofim.simulation.figures import drawing, looks

_POINTS = 40
_LABELS = ('says "+" though it is "-" (alpha)', 'says "-" though it is "+" (beta)')


def draw_verdict(verdict: Verdict, path: str | Path) -> None:
    """One attack: below the promised curve nothing may lie."""
    with drawing(path, (5.4, 4.6)) as figure:
        axes = figure.subplots()
        _promise(axes, verdict.claim)
        _measured(axes, verdict, "#D55E00", "o", "measured")
        if verdict.rates is not None:
            axes.plot(
                [verdict.rates.alpha],
                [verdict.rates.beta],
                marker="P",
                markersize=9,
                color="black",
                linestyle="none",
                label=f"upper bounds, {100 * verdict.confidence:g} % sure",
            )
        axes.set_title(f"{verdict.what}: {'CLAIM BROKEN' if verdict.broken else 'consistent with the claim'}")
        axes.legend(loc="upper right")


def draw_all(lines: Sequence[Line], path: str | Path) -> None:
    """All attacks under the common budget: mechanisms as they are on the left, broken engines on the right."""
    with drawing(path, (11.0, 5.2)) as figure:
        for axes, broken in zip(figure.subplots(1, 2), (False, True), strict=True):
            shown = [line for line in lines if line.row.broken == broken and _common(line, lines)]
            style = looks([line.row.what for line in shown])
            _promise(axes, lines[0].verdict.claim)
            for line in shown:
                look = style[line.row.what]
                _measured(axes, line.verdict, look.colour, look.marker, line.row.what)
            axes.set_title("broken engines" if broken else "mechanisms as they are")
            axes.legend(loc="upper right", fontsize=7)


def _common(line: Line, lines: Sequence[Line]) -> bool:
    """Is it promised what the first one is? Others would need a curve of their own."""
    return abs(line.verdict.claim.epsilon - lines[0].verdict.claim.epsilon) < 0.01 * lines[0].verdict.claim.epsilon


def _promise(axes: Any, claim: Claim) -> None:
    """The curve, and the ground under it that no attack may reach."""
    alpha = np.linspace(1e-4, 1 - 1e-4, 500)
    beta = claim.least_beta(alpha)
    axes.fill_between(alpha, 0, beta, color="#cccccc", alpha=0.5, linewidth=0)
    axes.plot(alpha, beta, color="black", linewidth=1.4, zorder=5, label=f"promised: epsilon {claim.epsilon:.4g}")
    axes.plot([0, 1], [1, 0], color="#999999", linewidth=0.8, linestyle=":", label="guessing blindly")
    axes.set_xlabel(_LABELS[0])
    axes.set_ylabel(_LABELS[1])
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)


def _measured(axes: Any, verdict: Verdict, colour: str, marker: str, label: str) -> None:
    alpha, beta = error_rates(verdict.scores, _POINTS)
    axes.plot(alpha, beta, color=colour, marker=marker, markersize=3, linewidth=0.6, label=label)
