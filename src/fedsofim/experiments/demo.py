"""`fedsofim demo`: DP-FedSOFIM against DP-FedGD under equal budgets, on records shipped inside the package."""

from pathlib import Path

from rich.console import Console
from rich.table import Table as Printed

from fedsofim.core.budget import in_words
from fedsofim.errors import expect_whole
from fedsofim.experiments.grid import Entry, Experiment
from fedsofim.experiments.report.accuracy import at, footnotes
from fedsofim.experiments.report.folder import write_report
from fedsofim.experiments.report.pictures import convergence
from fedsofim.experiments.report.results import Results, read_results
from fedsofim.experiments.runner import run_experiment

_BASE, _OURS = "DP-FedGD", "DP-FedSOFIM"


def run_demo(out: Path, seeds: int) -> None:
    """Train both methods with their automatic settings, print the table, write curves, rows and report into `out`."""
    expect_whole("seeds", seeds, 1)
    experiment = Experiment(
        name="demo",
        about="DP-FedSOFIM against DP-FedGD with their default settings on Fashion-MNIST features: 20 clients, "
        "Dirichlet(0.5) split, 70 rounds, delta 1e-5. Nothing was tuned on these test records.",
        datasets=("fashion",),
        entries=(Entry(_BASE, "fedgd"), Entry(_OURS, "fedsofim")),
        epsilons=(0.5, 1.0, 5.0, 10.0),
        seeds=tuple(range(seeds)),
    )
    run_experiment(experiment, out)
    results = read_results(out)
    write_report(out)
    convergence(results, results.places[0], out / "curves.png")
    show(results)
    print(f"wrote {out}/curves.png, rows.csv, tables/, figures/, report.html")


def show(results: Results) -> None:
    """The table on the terminal, with who won each budget in words."""
    place = results.places[0]
    console = Console(soft_wrap=True)
    printed = Printed(title=f"test accuracy (%), {place[0]}, {place[1]}, {results.rounds} rounds")
    for name in ("epsilon", "spent*", _BASE, _OURS, "change", ""):
        printed.add_column(name, justify="left" if not name else "right", no_wrap=True)
    for epsilon in results.epsilons:
        base, ours = (results.select(place, m, epsilon) for m in (_BASE, _OURS))
        low, high = at(base, results.rounds), at(ours, results.rounds)
        printed.add_row(
            in_words(epsilon),
            in_words(ours[0].spent),
            _spread(*low),
            _spread(*high),
            f"{high[0] - low[0]:+.2f}",
            verdict(high[0] - low[0], low[1], high[1]),
        )
    console.print(printed)
    console.print("* epsilon of the ledger of what each client releases, at delta 1e-05; mean ± std over seeds")
    for note in footnotes(results):
        console.print(note)


def verdict(difference: float, *stds: float | None) -> str:
    """Is FedSOFIM ahead, in words; a difference within the seeds' spread is called that.

    >>> verdict(2.0, 0.1, 0.2), verdict(-2.0, 0.1, 0.2), verdict(0.1, 0.3, 0.2)
    ('ahead', 'behind', 'within spread')
    """
    if abs(difference) <= max((s or 0.0) for s in stds):
        return "within spread"
    return "ahead" if difference > 0 else "behind"


def _spread(mean: float, std: float | None) -> str:
    return f"{mean:.2f}" if std is None else f"{mean:.2f} ± {std:.2f}"
