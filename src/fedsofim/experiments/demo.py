"""`fedsofim demo`: the recipe, and the paper's protocol, under equal budgets, on records shipped inside the package."""

from pathlib import Path

from rich.console import Console
from rich.table import Table as Printed

from fedsofim.core.budget import in_words
from fedsofim.errors import expect_whole
from fedsofim.experiments.grid import Entry, Experiment
from fedsofim.experiments.report.accuracy import final, footnotes
from fedsofim.experiments.report.folder import write_report
from fedsofim.experiments.report.pictures import convergence
from fedsofim.experiments.report.results import Results, read_results
from fedsofim.experiments.runner import run_experiment

_BASE, _SECOND, _RECIPE = "DP-FedGD", "DP-FedSOFIM", "recipe"


def run_demo(out: Path, seeds: int) -> None:
    """Train all three with nothing tuned, print the table, write curves, rows and report into `out`."""
    expect_whole("seeds", seeds, 1)
    experiment = Experiment(
        name="demo",
        about="What a budget buys on Fashion-MNIST features, with nothing tuned: the recommended recipe, and "
        "DP-FedSOFIM and DP-FedGD in the paper's protocol with automatic steps. 20 clients, Dirichlet(0.5) split, "
        "delta 1e-5, local trust; every epsilon covers everything that leaves a client.",
        datasets=("fashion",),
        entries=(Entry(_BASE, "fedgd"), Entry(_SECOND, "fedsofim"), Entry(_RECIPE, "fedsofim", recipe="auto")),
        epsilons=(0.5, 1.0, 5.0, 10.0),
        seeds=tuple(range(seeds)),
    )
    run_experiment(experiment, out)
    results = read_results(out)
    write_report(out)
    convergence(results, results.places[0], out / "curves.png", across=2)
    show(results)
    print(f"wrote {out}/curves.png, rows.csv, tables/, figures/, report.html")


def show(results: Results) -> None:
    """The table on the terminal: what each reaches, and how far the recipe is from the better of the other two."""
    place = results.places[0]
    console = Console(soft_wrap=True)
    printed = Printed(title=f"test accuracy (%), {place[0]}, {place[1]}: the paper's protocol, and the recipe")
    for name in ("epsilon", "spent*", _BASE, _SECOND, _RECIPE, "change"):
        printed.add_column(name, justify="right", no_wrap=True)
    for epsilon in results.epsilons:
        runs = {m: results.select(place, m, epsilon) for m in (_BASE, _SECOND, _RECIPE)}
        reached = {m: final(found) for m, found in runs.items()}
        better, ours = max(reached[_BASE], reached[_SECOND]), reached[_RECIPE]
        printed.add_row(
            in_words(epsilon),
            in_words(max(found[0].spent for found in runs.values())),
            *(_spread(*reached[m]) for m in (_BASE, _SECOND, _RECIPE)),
            verdict(ours[0] - better[0], better[1], ours[1]),
        )
    console.print(printed)
    console.print(
        "* the largest epsilon of their ledgers of what each client releases, at delta 1e-05; mean ± std over seeds; "
        "change: of the recipe over the better of the other two"
    )
    for note in footnotes(results):
        console.print(note)


def verdict(difference: float, *stds: float | None) -> str:
    """How far the recipe is ahead; a difference within the seeds' spread is called that.

    >>> verdict(2.0, 0.1, 0.2), verdict(-2.0, 0.1, 0.2), verdict(0.1, 0.3, 0.2)
    ('+2.00', '-2.00', 'within spread')
    """
    return "within spread" if abs(difference) <= max((s or 0.0) for s in stds) else f"{difference:+.2f}"


def _spread(mean: float, std: float | None) -> str:
    return f"{mean:.2f}" if std is None else f"{mean:.2f} ± {std:.2f}"
