"""Tables for people: what the commands print on a terminal."""

import csv
import io
import itertools
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fedsofim.core.budget import WITHOUT
from fedsofim.core.budget import in_words as budget_in_words
from fedsofim.data.partition import Split, Statistics
from fedsofim.files import write_text
from fedsofim.protection import PROTECTED
from fedsofim.trained.measures import SAID, in_words

out = Console(soft_wrap=True)


def result(run: Any) -> None:
    """One run: accuracy, or RMSE, by round and what it cost."""
    summary = run.summary()
    score = summary[summary["metric"]]
    table = Table(title=f"{summary['method']} on {summary['dataset']} ({summary['partition']}){_seed(summary)}")
    shown = spread_out(list(score), max(1, (out.width - 1) // 12))
    for t in shown:
        table.add_column(f"round {t}", justify="right", no_wrap=True)
    table.add_row(*(in_words(summary["metric"], score[t]).removesuffix(" %") for t in shown))
    out.print(table)
    served(summary)
    choices(summary)
    prices(summary)


def _seed(summary: dict[str, Any]) -> str:
    return "" if summary["seed"] is None else f", seed {summary['seed']}"


def spread_out(values: list[Any], most: int) -> list[Any]:
    """At most so many of them, evenly, the last always.

    >>> spread_out([10, 20, 30, 40, 50], 3), spread_out([10, 20], 3), spread_out([10, 20], 1)
    ([10, 30, 50], [10, 20], [20])
    """
    if len(values) <= most:
        return values
    places = [round(i * (len(values) - 1) / max(most - 1, 1)) for i in range(most)] if most > 1 else [len(values) - 1]
    return [values[i] for i in places]


def served(summary: dict[str, Any]) -> None:
    """The one number of the task in a line of its own, beside what costs nothing; every other measure in the same way;
    and who is served worst."""
    metric, kind = summary["metric"], summary["task"]["kind"]
    alone = "the commonest class alone" if metric == "accuracy" else "their mean alone"
    name = "accuracy" if metric == "accuracy" else "RMSE"
    out.print(
        f"[bold]final {name} {in_words(metric, summary[f'final_{metric}'])}[/] after round {summary['rounds']}; "
        f"{alone}: {in_words(metric, summary['baseline'][metric])}",
        highlight=False,
    )
    rest = [k for k in summary["measures"] if k != metric]
    told = ", ".join(f"{SAID[k][0].removesuffix(' (%)')} {_beside(summary, k)}" for k in rest)
    out.print(f"{told} (in brackets: of a constant answer)", highlight=False)
    known = {k: r for k, r in summary["recall"].items() if r is not None}
    if known:
        worst, best = min(known, key=lambda k: known[k]), max(known, key=lambda k: known[k])
        by = "by label, of those that have it" if kind == "labels" else "by class"
        out.print(f"{by}: from {known[worst]:.2f} % ({worst}) to {known[best]:.2f} % ({best})", highlight=False)
    for column, values in summary["groups"].items():
        told = ", ".join(f"{group} {in_words(metric, a)} of {n}" for group, (a, n) in values.items())
        out.print(f"by {column}: {told}", highlight=False)


def _beside(summary: dict[str, Any], measure: str) -> str:
    return f"{in_words(measure, summary['measures'][measure])} ({in_words(measure, summary['baseline'][measure])})"


def choices(summary: dict[str, Any]) -> None:
    """What the recipe chose, in words."""
    out.print(f"recipe {summary['recipe']}:")
    for what, why in summary["chosen"].items():
        out.print(f"  {what}: {why}", highlight=False)
    if summary["by_hand"]:
        out.print(f"  set by hand: {', '.join(summary['by_hand'])}", highlight=False)


def prices(summary: dict[str, Any]) -> None:
    """The ledger and what it adds up to."""
    table = Table(title="ledger: everything that leaves a client")
    for name in (
        "released",
        "times",
        "part of mu²",
        "cost in unit releases",
        "L2 sensitivity",
        "noise std / clip",
        "std on the sum",
    ):
        table.add_column(name, justify="left" if name == "released" else "right")
    for c in summary["ledger"]:
        cost = f"{c['unit_releases']:g}" + ("" if c["charged_as"] is None else f" (charged as {c['charged_as']:g})")
        numbers = (c["sensitivity"], c["multiplier"], c["std"])
        part = "-" if c["of_mu2"] is None else f"{c['of_mu2']:.1%}"
        table.add_row(c["what"], str(c["releases"]), part, cost, *("-" if v is None else f"{v:.6g}" for v in numbers))
    out.print(table)
    _spent(summary)
    if (group := summary.get("group")) is not None and summary["epsilon"] != WITHOUT:
        out.print(_grouped(summary, group), highlight=False)
    std, sigma = summary.get("noise_std"), summary["sigma_g"]
    noise = [] if std is None else [f"noise per coordinate of the average = {std:.6g}"]
    noise = [*([] if sigma is None else [f"sigma_g = {sigma:.4f} (paper's convention)"]), *noise]
    if noise:
        out.print(", ".join(noise))
    for what, how in summary["formed"].items():
        out.print(f"{what}: {how}", highlight=False)
    if summary["note"]:
        out.print(f"[bold red]note:[/] {summary['note']}")


def _spent(summary: dict[str, Any]) -> None:
    """What is promised, and to whom: to each client its own, where budgets are unequal."""
    protected = summary.get("protects", PROTECTED["record"])
    whom = f"(replace {protected}, {summary['trust']} trust)"
    if summary["epsilon"] == WITHOUT:
        out.print(f"{WITHOUT}: nothing is promised")
    elif "each_client" in summary:
        _each_client(summary)
        out.print(f"each client's epsilon is its own {whom}; the largest of any is {summary['epsilon']:.6g}")
    else:
        mu = "" if summary["mu"] is None else f", mu = {summary['mu']:.6f}"
        out.print(f"epsilon = {budget_in_words(summary['epsilon'])} at delta = {summary['delta']:g}{mu} {whom}")


def _each_client(summary: dict[str, Any]) -> None:
    """A row for each client, or for neighbours that are alike."""
    table = Table(title="each client's own budget")
    labels = [f"noise std / clip: {c['what']}" for c in summary["ledger"]]
    for name in ("clients", "epsilon", "delta", *labels, "part of the average"):
        table.add_column(name, justify="left" if name == "clients" else "right")
    for first, last, alike in alike_clients(summary["each_client"]):
        name = str(first) if first == last else f"{first} to {last}"
        noise = (f"{m:.6g}" for m in alike[0]["multipliers"])
        part = sum(c["weight"] for c in alike)
        table.add_row(name, f"{alike[0]['epsilon']:.6g}", f"{alike[0]['delta']:g}", *noise, f"{part:.3%}")
    out.print(table)


def alike_clients(clients: list[dict[str, Any]]) -> list[tuple[int, int, list[dict[str, Any]]]]:
    """Clients side by side with equal epsilon, delta and noise: the first's number, the last's, and all of them."""

    def kind(c: dict[str, Any]) -> tuple:
        return (f"{c['epsilon']:.6g}", c["delta"], *(f"{m:.6g}" for m in c["multipliers"]))

    groups = [list(found) for _, found in itertools.groupby(clients, key=kind)]
    return [(g[0]["client"], g[-1]["client"], g) for g in groups]


def private_search(summary: dict[str, Any]) -> None:
    """What a private search released: its winner, one trial's ledger, and what all of it costs."""
    search, settings = summary["search"], summary["settings"]
    given = ", ".join(f"{k} = {v}" for k, v in settings.items()) or "its own settings"
    out.print(f"[bold]{summary['label']}[/]: {given}", highlight=False)
    out.print(f"score of the winner: {summary['score']}; it was the best, so it is a little too good", highlight=False)
    out.print(f"{search['settings']} settings, {search['way']}; one trial has mu = {search['trial_mu']:.6f}, epsilon "
              f"{search['trial_epsilon']:.6g} by itself", highlight=False)  # fmt: skip
    out.print(f"trained again: {search['trained_again']}", highlight=False)
    out.print("the ledger below is one trial's; the epsilon under it is of search and model together")
    prices(summary)


def _grouped(summary: dict[str, Any], group: dict[str, Any]) -> str:
    """What the same ledger says of several at once (core/group.py)."""
    whom = f"{group['size']} {summary['unit']}s" if summary["unit"] != "record" else (
        f"a person with at most {group['size']} records, wherever they are"
    )  # fmt: skip
    bound = "" if summary["mu"] is not None else ", a bound"
    return f"for {whom}: epsilon = {budget_in_words(group['epsilon'])} at delta = {summary['delta']:g}{bound}"


def methods(described: list[dict[str, Any]]) -> None:
    """Each method as a short paragraph: a table would cut its parameters off."""
    for m in described:
        out.print(f"[bold]{m['name']}[/]: {m['about']}", highlight=False)
        values = ", ".join(f"{k}={'auto' if v is None else v}" for k, v in m["parameters"].items())
        out.print(f"    parameters: {values}", highlight=False)
        released = "; ".join(f"{r['releases']} x {r['what']}" for r in m["ledger"])
        out.print(f"    releases in 70 rounds: {released}; client memory: {m['memory']}", highlight=False)
        if m["presets"]:
            out.print(f"    presets: {', '.join(m['presets'])}", highlight=False)


def models(described: list[dict[str, Any]]) -> None:
    """Each model as a short paragraph."""
    for m in described:
        out.print(f"[bold]{m['name']}[/]: {m['about']}", highlight=False)
        values = ", ".join(f"{k}={_setting(v)}" for k, v in m["parameters"].items())
        out.print(f"    parameters: {values or 'none'}", highlight=False)
        if m["numbers"] is not None:
            out.print(f"    for 64 features and 10 classes: {m['numbers']:,} numbers; {m['formed']}", highlight=False)


def _setting(value: Any) -> str:
    """As --set-model takes it."""
    return "auto" if value is None else ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def split(dealt: Split, stats: Statistics) -> None:
    table = Table(
        title=f"{dealt.dataset.name}: {dealt.description}; records per client and class", box=None, padding=(0, 1, 0, 0)
    )
    for name in ("client", *map(str, range(stats.counts.shape[1])), "total", "KL", "absent"):
        table.add_column(name, justify="right", no_wrap=True)
    for i, row in enumerate(stats.counts):
        table.add_row(str(i), *map(str, row), str(row.sum()), f"{stats.kl[i]:.3f}", str(stats.absent[i]))
    out.print(table)
    s = split_summary(dealt, stats)
    out.print(
        f"sizes {s['smallest']}..{s['largest']} (mean {s['mean_size']:.1f}, std {s['std_size']:.1f}); KL from uniform: "
        f"mean {s['mean_kl']:.3f}, max {s['max_kl']:.3f}; absent classes: mean {s['mean_absent']:.2f}"
    )


def split_summary(dealt: Split, stats: Statistics) -> dict[str, Any]:
    """A split's statistics as plain data."""
    sizes = stats.sizes
    return {
        "dataset": dealt.dataset.name,
        "partition": dealt.description,
        "clients": len(sizes),
        "counts": stats.counts.tolist(),
        "smallest": int(sizes.min()),
        "largest": int(sizes.max()),
        "mean_size": float(sizes.mean()),
        "std_size": float(sizes.std(ddof=0)),
        "kl": [round(float(k), 6) for k in stats.kl],
        "mean_kl": float(stats.kl.mean()),
        "max_kl": float(stats.kl.max()),
        "absent": stats.absent.tolist(),
        "mean_absent": float(stats.absent.mean()),
    }


def write_counts(stats: Statistics, path: Path) -> None:
    """The counts as CSV: client, class0.., total."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["client", *(f"class{c}" for c in range(stats.counts.shape[1])), "total"])
    writer.writerows([i, *row, row.sum()] for i, row in enumerate(stats.counts))
    write_text(path, text.getvalue())
