"""`fedsofim compare`, `tune` and `report`: grids of runs, searches for settings, and what people read."""

from pathlib import Path
from typing import Annotated

import typer

File = Annotated[Path, typer.Argument(help="An experiment in TOML; see experiments/.")]


def compare(
    experiment: File,
    out: Annotated[Path | None, typer.Option(help="Folder for the rows; default runs/NAME.")] = None,
) -> None:
    """Run a grid of methods, budgets, seeds, datasets and partitions. Stopped? The same command goes on."""
    from fedsofim.cli import bar
    from fedsofim.experiment_file import read_experiment
    from fedsofim.runner import run_experiment

    described = read_experiment(experiment)
    out = out or Path("runs") / described.name
    done = run_experiment(described, out, bar, experiment.parent)
    print(f"{done} runs done now, all of them in {out}/runs.jsonl; next: fedsofim report {out}")


def report(
    folder: Annotated[Path, typer.Argument(help="A folder written by fedsofim compare.")],
    published: Annotated[
        Path | None, typer.Option(help="Folder of published tables as CSV, to set beside.")
    ] = None,
) -> None:
    """Turn rows into tables (Markdown, LaTeX, CSV), statistics, figures and one HTML page."""
    from fedsofim.report.write import write_report

    write_report(folder, published)
    print(f"wrote {folder}/report.html, rows.csv, tables/, figures/")


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    for command in (compare, report):
        app.command()(command)
