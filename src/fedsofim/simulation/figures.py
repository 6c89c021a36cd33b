"""Pictures of results: readable in print and on screen, and by readers who do not see all colours.

Lines differ in colour, dash and marker at once, so that none of the three alone has to tell them apart. Figures
are drawn without pyplot: nothing global is touched, and no window system is needed.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fedsofim.errors import InputError
from fedsofim.files import write_whole
from fedsofim.simulation.simulator import Trace

#: Okabe and Ito's palette (without its yellow, too light on white), then three of Tol's: eleven lines, eleven colours.
COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#7F7F7F", "#882255", "#999933",
    "#332288",
)  # fmt: skip
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "h")

_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "figure.dpi": 150,
    "svg.hashsalt": "fedsofim",  # equal rows give equal bytes
}


class Look(NamedTuple):
    colour: str
    dash: Any
    marker: str


def looks(names: Sequence[str]) -> dict[str, Look]:
    """A look for each name; the same names in the same order always look the same.

    >>> looks(["a", "b"])["a"].colour
    '#0072B2'
    """
    return {
        name: Look(COLOURS[i % len(COLOURS)], DASHES[i % len(DASHES)], MARKERS[i % len(MARKERS)])
        for i, name in enumerate(names)
    }


class Scale(NamedTuple):
    """What an axis of results is of: a task's one number, and what a constant answer has of it (None: not shown)."""

    metric: str = "accuracy"
    baseline: float | None = None

    @property
    def said(self) -> str:
        return "test accuracy (%)" if self.metric == "accuracy" else "test RMSE (lower is better)"


def curves(series: Mapping[str, Sequence[Trace]], path: str | Path, title: str = "", scale: Scale = Scale()) -> None:
    """Test accuracy, or RMSE, over rounds: the mean of each series' runs, with a band of one standard deviation."""
    with drawing(path, (6.2, 3.8)) as figure:
        _draw_all(figure, series, title, scale)


def curves_figure(series: Mapping[str, Sequence[Trace]], title: str = "", scale: Scale = Scale()) -> Figure:
    """The same as a figure: whoever runs a notebook sees it."""
    with rc_context(_STYLE):
        figure = Shown(figsize=(6.2, 3.8), layout="constrained")
        FigureCanvasAgg(figure)
        _draw_all(figure, series, title, scale)
    return figure


class Shown(Figure):
    """A figure that a notebook shows by itself, whether pyplot is there or not."""

    def _repr_png_(self) -> bytes:
        picture = io.BytesIO()
        self.savefig(picture, format="png", dpi=110)
        return picture.getvalue()


def _draw_all(figure: Figure, series: Mapping[str, Sequence[Trace]], title: str, scale: Scale) -> None:
    axes = figure.subplots()
    draw_curves(axes, series, looks(list(series)), scale)
    axes.set_title(title)
    axes.legend(loc="lower right" if scale.metric == "accuracy" else "upper right")


def draw_curves(
    axes: Any, series: Mapping[str, Sequence[Trace]], look: Mapping[str, Look], scale: Scale = Scale()
) -> None:
    """Mean lines with bands on given axes, and a thin line for a constant answer."""
    for name, traces in series.items():
        rounds = traces[0].rounds
        score = np.stack([t.score for t in traces])
        mean, style = score.mean(axis=0), look[name]
        every = max(1, len(rounds) // 7)
        axes.plot(
            rounds,
            mean,
            color=style.colour,
            linestyle=style.dash,
            marker=style.marker,
            markevery=every,
            markersize=4,
            linewidth=1.4,
            label=name,
        )
        if len(traces) > 1:
            spread = score.std(axis=0, ddof=1)
            axes.fill_between(rounds, mean - spread, mean + spread, color=style.colour, alpha=0.15, linewidth=0)
    axes.set_xlabel("round")
    axes.set_ylabel(scale.said)
    mark_baseline(axes, scale)


def mark_baseline(axes: Any, scale: Scale) -> None:
    """What a constant answer reaches, as a thin line."""
    if scale.baseline is not None:
        axes.axhline(scale.baseline, color="#555555", linewidth=0.8, linestyle=(0, (1, 2)), label="constant answer")


@contextmanager
def drawing(path: str | Path, size: tuple[float, float]) -> Iterator[Figure]:
    """A figure in the project's style, written whole to `path` (.png, .svg or .pdf) at the end."""
    path = Path(path)
    if path.suffix.lower() not in _KINDS:
        raise InputError(f"{path}: a picture of this kind cannot be written; expected .png, .svg or .pdf")
    path.parent.mkdir(parents=True, exist_ok=True)
    with rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        yield figure
        kind = path.suffix.lstrip(".").lower() or "png"
        write_whole(path, lambda file: figure.savefig(file, format=kind, metadata=_no_date(kind)))


_KINDS = ("", ".png", ".svg", ".pdf")


def _no_date(kind: str) -> dict[str, Any]:
    """Metadata without the time of writing, so that equal results are equal files."""
    return {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
