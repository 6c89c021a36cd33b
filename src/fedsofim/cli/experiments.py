"""`fedsofim demo`, `compare`, `tune` and `report`: grids of runs, searches for settings, and what people read.

What draws and tests statistically is imported where it is used: it is slow to import.
"""

from pathlib import Path
from typing import Annotated

import typer

from fedsofim.core.budget import in_words

File = Annotated[Path, typer.Argument(help="An experiment in TOML; see experiments/.")]


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the table, plot and report.")] = Path("demo"),
    seeds: Annotated[int, typer.Option(help="Runs of each method under each budget.")] = 3,
) -> None:
    """The recipe beside DP-FedSOFIM and DP-FedGD in the paper's protocol, same budgets, 60,000 real records inside."""
    from fedsofim.experiments.demo import run_demo

    run_demo(out, seeds)


def compare(
    experiment: File,
    out: Annotated[Path | None, typer.Option(help="Folder for the rows; default runs/NAME.")] = None,
) -> None:
    """Run a grid of methods, budgets, seeds, datasets and partitions. Stopped? The same command goes on."""
    from fedsofim.experiments.grid_file import read_experiment
    from fedsofim.experiments.runner import run_experiment

    described = read_experiment(experiment)
    out = out or Path("runs") / described.name
    done = run_experiment(described, out, experiment.parent)
    print(f"{done} runs done now, all of them in {out}/runs.jsonl; next: fedsofim report {out}")


def tune(
    experiment: File,
    out: Annotated[Path, typer.Option(help="The TOML file of winners; an experiment reads it by tuned = FILE.")],
    strategy: Annotated[
        str,
        typer.Option(help="paper (coarse, then fine), common (24 equal trials), random, or grid (your own)."),
    ] = "paper",
    trials: Annotated[int, typer.Option(help="At most this many per stage, chosen at random; 0: all.")] = 0,
    rounds: Annotated[int, typer.Option(help="Rounds of every trial.")] = 50,
    seed: Annotated[int, typer.Option(help="Seed of the held-out share and of every trial.")] = 0,
    holdout: Annotated[float, typer.Option(help="Share of each client's training records to score on.")] = 0.1,
) -> None:
    """Search every method's settings on records held out of the training set. The test set is never read."""
    from fedsofim.experiments.grid_file import read_experiment, read_toml
    from fedsofim.experiments.tuning import NOT_COVERED, Search, search_settings

    search = Search(strategy, rounds, seed, holdout, trials)
    grids = {k: v.get("search") for k, v in read_toml(experiment).get("methods", {}).items()}
    for w in search_settings(read_experiment(experiment), search, out, experiment.parent, grids):
        found = f"{w.accuracy:.2f} % on validation records, {w.settings}"
        print(f"{w.entry.label}, epsilon {in_words(w.epsilon)}: {found}")
    print(f"wrote {out}. {NOT_COVERED}")


def report(
    folder: Annotated[Path, typer.Argument(help="A folder written by fedsofim compare.")],
    published: Annotated[Path | None, typer.Option(help="Folder of published tables as CSV, to set beside.")] = None,
) -> None:
    """Turn rows into tables (Markdown, LaTeX, CSV), statistics, figures and one HTML page."""
    from fedsofim.experiments.report.folder import write_report

    write_report(folder, published)
    print(f"wrote {folder}/report.html, rows.csv, tables/, figures/")
