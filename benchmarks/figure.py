"""docs/performance.png: growth curves, and the peers."""

from collections.abc import Sequence
from pathlib import Path

from growth import EACH, ONE, Curve
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from results import PeerLine, Results
from server_step import ADAM

LOOKS = {
    ONE: ("#0072B2", "o", "-"),
    EACH: ("#D55E00", "s", "--"),
    "SOFIM, momentum form": ("#0072B2", "o", "-"),
    "SOFIM, gradient form": ("#D55E00", "s", "--"),
    ADAM: ("#555555", "^", ":"),
}
SHORT = {ONE: "one θ", EACH: "one θ per client"}
TITLES = {
    "records": "records",
    "features": "features",
    "classes": "classes",
    "clients": "clients (50,000 records in all)",
    "parameters": "parameters (server step alone)",
}


def draw(results: Results, path: Path) -> None:
    """Five growth curves and a bar for every peer."""
    figure = Figure(figsize=(11, 6.6), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.1)  # type: ignore[union-attr]
    axes = list(figure.subplots(2, 3).flat)
    for ax, (axis, title) in zip(axes, TITLES.items(), strict=False):
        growth_panel(ax, title, [c for c in results.curves if c.axis == axis])
    peers_panel(axes[-1], results.peers)
    figure.savefig(path)


def growth_panel(ax: Axes, title: str, curves: Sequence[Curve]) -> None:
    """Logarithmic both ways: the grey line is linear growth, and a line less steep is better than linear."""
    ax.set(xscale="log", yscale="log", xlabel=title, ylabel="time / reference round")
    for curve in curves:
        colour, marker, dash = LOOKS[curve.kind]
        label = f"{SHORT.get(curve.kind, curve.kind)}: {curve.exponent:.2f}"
        ax.plot(curve.sizes, curve.ratios, color=colour, marker=marker, ls=dash, ms=4, lw=1.5, label=label)
    if curves:
        guide(ax, curves)
        ax.set_xticks(curves[0].sizes, [short(n) for n in curves[0].sizes])
        ax.legend(frameon=False, fontsize=8, title="exponent", title_fontsize=8, loc="upper left", alignment="left")
    ax.xaxis.set_minor_locator(NullLocator())
    plain_numbers(ax)
    tidy(ax)


def guide(ax: Axes, curves: Sequence[Curve]) -> None:
    """Linear growth from the middle of the first curve's range, and room above for the legend."""
    sizes, values = curves[0].sizes, [v for c in curves for v in c.ratios]
    if max(values) / min(values) < 5:  # nothing grows: a slope would only mislead
        ax.set_ylim(min(values) / 3, max(values) * 8)
        return
    top = max(values)
    ax.plot(sizes, [top * n / sizes[-1] for n in sizes], color="#bbbbbb", lw=1, zorder=0)
    ax.set_ylim(min(values) / 1.6, top * 1.6)


def peers_panel(ax: Axes, peers: Sequence[PeerLine]) -> None:
    """How many of our rounds fit into one of theirs; a peer without a time keeps its row."""
    values = [p.ratio.median if p.ratio else 1.0 for p in peers]
    rows = range(len(peers))
    bars = ax.barh(rows, [v - 1 for v in values], left=1, color="#0072B2", height=0.35)
    ax.bar_label(bars, [bar_text(p) for p in peers], padding=3, fontsize=8)
    for row, peer in zip(rows, peers, strict=True):
        ax.text(1.03, row - 0.3, peer.name, fontsize=8, va="bottom")
    ax.set(xscale="log", xlabel="time of a round / ours", xlim=(1, 2.2 * max(values, default=5)), yticks=[])
    ax.set_ylim(len(peers) - 0.5, -0.9)
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    tidy(ax)


def bar_text(peer: PeerLine) -> str:
    if peer.ratio is None:
        return peer.reason.split(":")[0]
    return f"{peer.ratio.median:.1f}x" if peer.ratio.median < 10 else f"{peer.ratio.median:.0f}x"


def plain_numbers(ax: Axes) -> None:
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_locator(LogLocator(base=10, numticks=8))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))


def short(n: int) -> str:
    """
    >>> [short(n) for n in (20, 12_500, 10**8)]
    ['20', '12.5k', '100M']
    """
    for unit, name in ((10**6, "M"), (10**3, "k")):
        if n >= unit:
            return f"{n / unit:g}{name}"
    return str(n)


def tidy(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(True, which="major", color="#e5e5e5", lw=0.6)
    ax.set_axisbelow(True)
    ax.tick_params(labelsize=8)
