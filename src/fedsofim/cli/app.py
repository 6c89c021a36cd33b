"""The command line. Each command is a function here, or in a cli_*.py beside what it drives."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn, cast

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from fedsofim.cli.app import deployment as cli_flower
from fedsofim.cli.app import experiments as cli_experiments
from fedsofim.cli.features import features
from fedsofim.errors import InputError

app = typer.Typer(
    help="Differentially private federated optimization: what leaves a client is priced by its own program.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

Epsilon = Annotated[float | None, typer.Option("--epsilon", help="Privacy budget of every record over the whole run.")]
Delta = Annotated[float, typer.Option(help="Probability the guarantee may fail; below 1/records.")]
Rounds = Annotated[int, typer.Option(help="Federated rounds T.")]
Clients = Annotated[int, typer.Option(help="Number of clients n.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="A method parameter, name=value; repeatable.")]
Method = Annotated[str, typer.Option(help="A method's name; see `fedsofim methods`.")]
Dataset = Annotated[str, typer.Option(help="A dataset's name, or a file: .npz, .csv, .parquet.")]
Partition = Annotated[str, typer.Option(help="How records are dealt to clients: iid or dirichlet.")]
Alpha = Annotated[float, typer.Option(help="Dirichlet concentration; small is uneven.")]
SplitSeed = Annotated[int, typer.Option(help="Seed of the partition.")]
Clip = Annotated[float, typer.Option(help="Clipping norm of each record's gradient.")]
Trust = Annotated[str, typer.Option(help="local: each upload is private; secure-sum: only their sum is seen.")]
Weights = Annotated[str, typer.Option(help="uniform (the paper) or size (the pooled objective).")]
Label = Annotated[str | None, typer.Option(help="The column of a table that holds the labels.")]
Drop = Annotated[list[str] | None, typer.Option(help="A column of a table to leave out; repeatable.")]
TestFile = Annotated[Path | None, typer.Option("--test", help="A file with the test set, for your own data.")]
Holdout = Annotated[float, typer.Option(help="Part of your own records held out where there is no test set.")]
ClientsFrom = Annotated[Path | None, typer.Option(help="A folder with one file per client, instead of a partition.")]
Source = Annotated[Path | None, typer.Option(help="A local copy of a dataset known by name.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout and nothing else.")]


@app.command()
def run(
    method: Method = "fedsofim",
    dataset: Dataset = "fashion",
    epsilon: Epsilon = None,
    delta: Delta = 1e-5,
    rounds: Rounds = 70,
    clients: Clients = 20,
    partition: Partition = "dirichlet",
    alpha: Alpha = 0.5,
    split_seed: SplitSeed = 42,
    seed: Annotated[int, typer.Option(help="Seed of the initial weights and of the noise.")] = 0,
    clip: Clip = 10.0,
    weights: Weights = "uniform",
    trust: Trust = "local",
    set_: Set = None,
    label: Label = None,
    drop: Drop = None,
    test: TestFile = None,
    holdout: Holdout = 0.2,
    clients_from: ClientsFrom = None,
    source: Source = None,
    standardize: Annotated[str, typer.Option(help="none, private (charged) or public (--stats).")] = "none",
    share: Annotated[float, typer.Option(help="Part of the budget for --standardize private.")] = 0.05,
    radius: Annotated[float, typer.Option(help="Public guess of a record's largest norm, for private.")] = 10.0,
    stats: Annotated[Path | None, typer.Option(help="Statistics of public images, for --standardize public.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for result.json, params.npz and curve.png.")] = None,
    json_: AsJson = False,
) -> None:
    """Train one method under one budget in the simulator."""
    from fedsofim import methods
    from fedsofim.core.budget import Budget
    from fedsofim.core.feature_moments import FeatureMoments
    from fedsofim.simulation.training import train

    budget = Budget(1.0 if epsilon is None else epsilon, delta)
    chosen = methods.make(method, settings(set_), budget.epsilon)
    own = {"label": label, "drop": drop or (), "test": test, "holdout": holdout}
    own |= {"clients_from": clients_from, "source": source}
    data = scaled(dealt(dataset, clients, partition, alpha, split_seed, own=own), standardize, stats)
    moments = FeatureMoments(share, radius) if standardize == "private" else None
    with bar(f"{method} on {split.dataset.name}", rounds) as advance:
        result = train(
            data,
            chosen,
            budget,
            rounds,
            clip=clip,
            trust=cast(Any, trust),
            weights=cast(Any, weights),
            seed=seed,
            standardize=moments,
            progress=advance,
        )
    if out is not None:
        result.save(out)
        result.plot(out / "curve.png")
    if json_:
        print(json.dumps(result.summary()))
    else:
        from fedsofim.cli.app import tables as console

        console.result(result)
        if out is not None:
            print(f"wrote {out}/result.json, params.npz, curve.png")


@app.command()
def privacy(
    epsilon: Epsilon = None,
    delta: Delta = 1e-5,
    rounds: Rounds = 70,
    clients: Clients = 20,
    method: Method = "fedsofim",
    set_: Set = None,
    sigma_g: Annotated[float | None, typer.Option(help="The paper's noise multiplier, to get epsilon back.")] = None,
    clip: Clip = 10.0,
    records: Annotated[int | None, typer.Option(help="Records per client, for the noise of the average.")] = None,
    trust: Trust = "local",
    json_: AsJson = False,
) -> None:
    """Price a method: the noise a budget needs, or (--sigma-g) the epsilon a noise level spends."""
    from fedsofim import methods
    from fedsofim.cli.app import tables as console
    from fedsofim.core.budget import Budget
    from fedsofim.core.models import softmax_head
    from fedsofim.core.summary import privacy_summary

    if (epsilon is None) == (sigma_g is None):
        raise InputError("give either --epsilon (to get the noise) or --sigma-g (to get epsilon back)")
    if clients < 1:
        raise InputError(f"clients is {clients}; expected at least 1")
    chosen = methods.make(method, settings(set_), epsilon)
    multiplier = None if sigma_g is None else sigma_g / clients**0.5
    priced = plan(
        chosen,
        softmax_head(),
        sizes=[records or 1] * clients,
        shape=(64,),
        classes=10,
        budget=Budget(1.0 if epsilon is None else epsilon, delta),
        rounds=rounds,
        clip=clip,
        trust=cast(Any, trust),
        multiplier=multiplier,
    )
    summary = {"method": method, "clients": clients, **privacy_summary(priced)}
    if records is None:
        summary["noise_std"] = None
    if json_:
        print(json.dumps(summary))
    else:
        console.prices(summary)


@app.command("methods")
def list_methods(json_: AsJson = False) -> None:
    """Every method with its parameters, what it releases and what a client keeps."""
    from fedsofim.cli.app import tables as console
    from fedsofim.cli.method_list import describe_all

    described = describe_all()
    if json_:
        print(json.dumps(described))
    else:
        console.methods(described)


@app.command()
def partition(
    dataset: Dataset = "fashion",
    clients: Clients = 20,
    partition: Partition = "dirichlet",
    alpha: Alpha = 0.5,
    split_seed: SplitSeed = 42,
    min_size: Annotated[int, typer.Option(help="Smallest number of records a client may hold.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Write the counts to this CSV file.")] = None,
    json_: AsJson = False,
) -> None:
    """Show who would hold how many records of each class, and how uneven that is."""
    from fedsofim.cli.app import tables as console
    from fedsofim.data.partition import statistics

    data = dealt(dataset, clients, partition, alpha, split_seed, min_size)
    stats = statistics(split.dataset.y_train, data.parts, split.dataset.classes)
    if out is not None:
        console.write_counts(stats, out)
    if json_:
        print(json.dumps(console.split_summary(data, stats)))
    else:
        console.split(data, stats)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the table, plot and report.")] = Path("demo"),
    seeds: Annotated[int, typer.Option(help="Runs per cell.")] = 3,
) -> None:
    """DP-FedSOFIM against DP-FedGD under the same budgets, on 60,000 real records shipped inside."""
    from fedsofim.experiments.demo import demo as show

    show(out, seeds, bar)


cli_experiments.register(app)
cli_flower.register_commands(app)
app.command()(features)


# --- shared by the commands ---------------------------------------------------------------------------------


def settings(pairs: list[str] | None) -> dict[str, str]:
    """['lr=0.1'] -> {'lr': '0.1'}.

    >>> settings(["lr=0.1", "direction=gradient"])
    {'lr': '0.1', 'direction': 'gradient'}
    """
    out = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals or not name or not value:
            raise InputError(f"--set {pair}: expected name=value, for example --set lr=0.1")
        out[name.strip()] = value.strip()
    return out


def dealt(
    dataset: str, clients: int, partition: str, alpha: float, seed: int, min_size: int = 1, own: Any = None
) -> Any:
    """A dataset loaded and dealt to clients as the options say; a real federation's files are dealt already."""
    from fedsofim.data import load
    from fedsofim.data.partition import by_owner, split
    from fedsofim.errors import unknown

    if partition not in ("iid", "dirichlet"):
        raise unknown("partition", partition, ("iid", "dirichlet"))
    own = own or {}
    data = load(None if own.get("clients_from") else dataset, **own)
    if data.owner is not None:
        return by_owner(data)
    return split(data, clients, alpha if partition == "dirichlet" else None, seed, min_size)


def scaled(data: Any, standardize: str, stats: Path | None) -> Any:
    """The split standardised by public statistics where that was asked for."""
    from dataclasses import replace

    from fedsofim.data.public_statistics import standardize_public
    from fedsofim.errors import unknown

    if standardize not in ("none", "private", "public"):
        raise unknown("standardize", standardize, ("none", "private", "public"))
    if (standardize == "public") != (stats is not None):
        raise InputError("--standardize public and --stats FILE go together; fedsofim features --public-stats makes it")
    return data if stats is None else replace(data, data=standardize_public(split.dataset, stats))


class bar:  # used as a function: `with bar("name", 70) as advance: advance(10)`
    """A progress bar on a terminal, nothing when piped; the value is told how much is done."""

    def __init__(self, label: str, total: int) -> None:
        self.console = Console(stderr=True)
        self.label, self.total = label, total

    def __enter__(self):
        if not self.console.is_terminal:
            return None
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TimeRemainingColumn(),
        )
        self.progress = Progress(*columns, console=self.console, transient=True)
        self.progress.start()
        task = self.progress.add_task(self.label, total=self.total)
        return lambda done: self.progress.update(task, completed=done)

    def __exit__(self, *error: object) -> None:
        if hasattr(self, "progress"):
            self.progress.stop()


def main() -> None:
    """Entry point: errors meant for the user come out as one line, without a traceback."""
    try:
        code = app(standalone_mode=False)
    except InputError as error:
        fail(str(error), 2)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except OSError as error:
        fail(f"{error.filename or ''}: {error.strerror or error}", 1)
    except Exception as error:  # click's own usage errors know how to show themselves
        if not hasattr(error, "show") or not hasattr(error, "exit_code"):
            raise
        error.show()  # type: ignore[attr-defined]
        sys.exit(error.exit_code)  # type: ignore[attr-defined]
    if code == 130:
        print("interrupted; no file was left half written", file=sys.stderr, flush=True)
        os._exit(130)  # an orderly exit would free buffers that a compiled run may still be writing
    sys.exit(code or 0)


def fail(message: str, code: int) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(code)
