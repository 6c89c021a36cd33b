"""`fedsofim demo`, `compare`, `tune` and `report`: grids of runs, searches for settings, and what people read.

What draws and tests statistically is imported where it is used: it is slow to import.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsofim.cli.options import Json
from fedsofim.core.budget import in_words
from fedsofim.errors import InputError
from fedsofim.files import check_free
from fedsofim.progress import progress_bar
from fedsofim.trained.folder import FILES

if TYPE_CHECKING:
    from fedsofim.experiments.tuning import Search

File = Annotated[Path, typer.Argument(help="An experiment in TOML; see experiments/.")]
Source = Annotated[
    Path | None, typer.Option(help="Where features known by name are, if not in the data folder: a folder or a file.")
]


def _note(words: str) -> None:
    typer.echo(f"note: {words}", err=True)


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
    source: Source = None,
    models: Annotated[bool, typer.Option("--models", help="Keep the model of every run too, in models/.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Run anew what another version of the code made.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would run, how long, and at what epsilon; run nothing.")
    ] = False,
) -> None:
    """Run a grid of methods, budgets, seeds, datasets and partitions. Stopped? The same command goes on."""
    from fedsofim.experiments.grid_file import read_experiment
    from fedsofim.experiments.runner import Conduct, run_experiment

    described = read_experiment(experiment)
    out = out or Path("runs") / described.name
    conduct = Conduct(source=source, models=models, again=again, say=_note)
    if dry_run:
        from fedsofim.experiments.rehearsal import rehearse

        print("\n".join(rehearse(described, out, experiment.parent, conduct)))
        return
    done = run_experiment(described, out, experiment.parent, conduct)
    print(f"{done} runs done now, all of them in {out}/runs.jsonl; next: fedsofim report {out}")


def tune(
    experiment: File,
    out: Annotated[Path, typer.Option(help="The TOML file of winners; an experiment reads it by tuned = FILE.")],
    strategy: Annotated[
        str,
        typer.Option(help="paper (coarse, then fine), common (24 equal trials), random, or grid (your own)."),
    ] = "paper",
    trials: Annotated[int, typer.Option(help="At most this many per stage, chosen at random; 0: all.")] = 0,
    rounds: Annotated[
        int | None, typer.Option(show_default="the file's, else 50", help="Rounds of every trial.")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            show_default="0; --private: this machine's entropy", help="Seed of the held-out share and of every trial."
        ),
    ] = None,
    holdout: Annotated[float, typer.Option(help="Share of each client's training records to score on.")] = 0.1,
    source: Source = None,
    private: Annotated[
        bool, typer.Option("--private", help="One search for all; its cost is in the epsilon of the model it gives.")
    ] = False,
    json_: Json = False,
) -> None:
    """Search every method's settings on records held out of the training set. The test set is never read.

    With --private one model comes out, and its epsilon covers search and run.
    """
    from fedsofim.experiments.grid_file import read_experiment, read_toml
    from fedsofim.experiments.tuning import NOT_COVERED, ROUNDS, Search, search_settings

    described = read_experiment(experiment)
    if private:
        private_search = Search(strategy, rounds or 1, seed, holdout, trials)
        _tune_privately(experiment, out, private_search, rounds, source, json_)
        return
    if json_:
        raise InputError("--json is for --private; plain tune writes its winners and every trial into files")
    wanted = rounds if rounds is not None else described.rounds or ROUNDS
    search = Search(strategy, wanted, seed or 0, holdout, trials)
    grids = {k: v.get("search") for k, v in read_toml(experiment).get("methods", {}).items()}
    for w in search_settings(described, search, out, experiment.parent, grids, source):
        found = f"{w.said} on validation records, {w.settings}"
        print(f"{w.entry.label}, epsilon {in_words(w.epsilon)}: {found}")
    print(f"wrote {out}. {NOT_COVERED}")


def _tune_privately(
    experiment: Path, out: Path, search: "Search", rounds: int | None, source: Path | None, json_: bool
) -> None:
    from fedsofim.cli.tables import private_search
    from fedsofim.experiments.grid_file import read_experiment, read_toml
    from fedsofim.experiments.private_tuning import planned_search, search_privately, write_found

    folder = out.with_suffix("")
    check_free(out.parent, (out.name,), force=False)
    check_free(folder, FILES, force=False)
    described = read_experiment(experiment)
    grids = {k: v.get("search") for k, v in read_toml(experiment).get("methods", {}).items()}
    job = planned_search(described, search, grids, rounds or described.rounds)
    with progress_bar(f"private search, {described.name}", job.way.mean) as progress:
        found = search_privately(job, search, experiment.parent, source, progress)
    write_found(found, out, folder)
    if json_:
        print(json.dumps(found.summary(), default=str))
        return
    private_search(found.summary())
    print(f"wrote {out} (the settings) and the model into {folder}")


def report(
    folder: Annotated[Path, typer.Argument(help="A folder written by fedsofim compare.")],
    published: Annotated[Path | None, typer.Option(help="Folder of published tables as CSV, to set beside.")] = None,
    focus: Annotated[
        list[str] | None,
        typer.Option(
            show_default="the best under each budget", help="Test this method against all others; repeatable."
        ),
    ] = None,
) -> None:
    """Turn rows into tables (Markdown, LaTeX, CSV), statistics, figures and one HTML page."""
    from fedsofim.experiments.report.folder import write_report

    write_report(folder, published, focus or ())
    print(f"wrote {folder}/report.html, rows.csv, tables/, figures/")
