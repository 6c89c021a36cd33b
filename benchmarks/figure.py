"""docs/performance.png: growth curves, and the peers."""

from collections.abc import Sequence
from pathlib import Path

from growth import EACH, ONE, Curve
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from results import PeerLine, Results
from server_step import ADAM

LOOKS = {
    ONE: ("#0072B2", "o", "-"),
    EACH: ("#D55E00", "s", "--"),
    "SOFIM, momentum form": ("#0072B2", "o", "-"),
    "SOFIM, gradient form": ("#D55E00", "s", "--"),
    ADAM: ("#555555", "^", ":"),
}
TITLES = {
    "records": "records",
    "features": "features",
    "classes": "classes",
    "clients": "clients (50,000 records in all)",
    "parameters": "parameters, server step alone",
}


def draw(results: Results, path: Path) -> None:
    """Five growth curves and a bar for every peer."""
    figure = Figure(figsize=(11, 6.4), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(2, 3).flat)
    for ax, (axis, title) in zip(axes, TITLES.items(), strict=False):
        growth_panel(ax, title, [c for c in results.curves if c.axis == axis])
    peers_panel(axes[-1], [p for p in results.peers if p.ratio])
    figure.savefig(path)


def growth_panel(ax: Axes, title: str, curves: Sequence[Curve]) -> None:
    """Both axes in logarithms, so that a straight line of slope 1 (grey) is linear growth."""
    for curve in curves:
        colour, marker, dash = LOOKS[curve.kind]
        label = f"{curve.kind}: {curve.exponent:.2f}"
        ax.plot(curve.sizes, curve.ratios, color=colour, marker=marker, ls=dash, ms=4, lw=1.5, label=label)
    if curves:
        sizes, top = curves[0].sizes, max(c.ratios[-1] for c in curves)
        if title != TITLES["clients"]:
            ax.plot(sizes, [top * n / sizes[-1] for n in sizes], color="#bbbbbb", lw=1, zorder=0)
    ax.set(xscale="log", yscale="log", title=f"against {title}")
    ax.set_ylabel("time / reference round")
    ax.legend(frameon=False, fontsize=8, title="exponent", title_fontsize=8)
    tidy(ax)


def peers_panel(ax: Axes, peers: Sequence[PeerLine]) -> None:
    """How many of our rounds fit into one of theirs."""
    names = [p.name.replace(", ", ",\n", 1) for p in peers]
    values = [p.ratio.median for p in peers if p.ratio]
    bars = ax.barh(names, values, color="#0072B2", height=0.6)
    ax.bar_label(bars, [f"{v:.1f}x" if v < 10 else f"{v:.0f}x" for v in values], padding=3, fontsize=8)
    ax.set(xscale="log", title="time of a round / ours")
    ax.invert_yaxis()
    ax.tick_params(axis="y", labelsize=8)
    tidy(ax)


def tidy(ax: Axes) -> None:
    ax.title.set_fontsize(10)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(True, which="major", color="#e5e5e5", lw=0.6)
    ax.set_axisbelow(True)
