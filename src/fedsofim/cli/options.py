"""Options that several commands share, as frozen records: a command takes records, the command line shows their fields.

    @grouped
    def run(method: MethodOptions, output: OutputOptions) -> None: ...

Each record also says what its options mean: the method, the data, the budget they describe.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, cast, get_args, get_type_hints

import typer

from fedsofim import methods
from fedsofim.cli.model_options import ModelOptions
from fedsofim.core.budget import WITHOUT, Budget, budget_of
from fedsofim.core.budgets import AnyBudget
from fedsofim.core.feature_moments import FeatureMoments
from fedsofim.core.method import Method
from fedsofim.core.plan import Trust, Weights
from fedsofim.data import Dataset, load
from fedsofim.data.partition import Split, by_owner, split
from fedsofim.data.public_statistics import standardize_public
from fedsofim.errors import InputError, one_of, shown
from fedsofim.recipes import Choices, settings_in
from fedsofim.settings import parse_pairs
from fedsofim.simulation.training import choices_for
from fedsofim.tasks import KINDS, NUMBERS, Task


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose records of options are spread out: every field becomes an option of its own."""
    taken = inspect.signature(command, eval_str=True).parameters
    records: dict[str, Any] = {n: p.annotation for n, p in taken.items() if is_dataclass(p.annotation)}
    flat = [spread for p in taken.values() for spread in _spread(p)]

    def run(**given: Any) -> None:
        made = {name: kind(**_values(kind, given)) for name, kind in records.items()}
        command(**made, **{name: given[name] for name in taken if name not in records})

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {p.name: p.annotation for p in flat}
    cast(Any, run).__signature__ = inspect.Signature(flat)
    return run


def _spread(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    """The fields of a record, or the parameter itself."""
    kind = parameter.annotation
    if not is_dataclass(kind):
        return [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
    hints = get_type_hints(kind, include_extras=True)
    return [_option(f, hints[f.name]) for f in _shown(kind)]


def _option(field: Field, hint: Any) -> inspect.Parameter:
    """A field as an option: typed for the command line already, or described by its metadata (deploy/order.py)."""
    how, default = field.metadata, field.default
    if "help" in how:
        option = typer.Option(*([how["flag"]] if "flag" in how else []), help=how["help"])
        hint, default = Annotated[how.get("typed", hint), option], how.get("shown", default)
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _values(kind: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given for the fields of a record, read as its metadata says."""
    return {f.name: f.metadata.get("read", _as_it_is)(given[f.name]) for f in _shown(kind)}


def _shown(kind: Any) -> list[Field]:
    return [f for f in fields(kind) if not f.metadata.get("hidden")]


def _as_it_is(value: Any) -> Any:
    return value


Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout and nothing else.")]


METHOD, DATASET = "fedsofim", "fashion"
_AS_CHOSEN = "as the recipe has it"
_SEED = "Seed of initial weights and noise, to repeat a run: whoever knows it can take the noise off."


@dataclass(frozen=True, kw_only=True)
class MethodOptions:
    method: Annotated[
        str | None,
        typer.Option(show_default=METHOD, help="A method's name (see `fedsofim methods`), or your own ./mine.py."),
    ] = None
    set_: Annotated[list[str] | None, typer.Option("--set", help="A method parameter, name=value; repeatable.")] = None

    @property
    def settings(self) -> dict[str, str]:
        return parse_pairs(self.set_ or [])

    def make(self, epsilon: float | None) -> Method:
        return methods.make(methods.spelled(self.method or METHOD), self.settings, epsilon)

    def make_in(self, chosen: Choices, epsilon: float) -> Method:
        """The method within a recipe: the one it chose unless another is named."""
        name = methods.spelled(self.method or chosen.method)
        return methods.make(name, settings_in(chosen, name, self.settings), epsilon)


@dataclass(frozen=True, kw_only=True)
class BudgetOptions:
    epsilon: Annotated[
        str,
        typer.Option(
            metavar="NUMBER", help=f"Privacy budget of every record over the whole run; {WITHOUT}: train without noise."
        ),
    ] = "1"
    delta: Annotated[float, typer.Option(help="Probability the guarantee may fail; below 1/records.")] = 1e-5

    def budget(self) -> Budget:
        return budget_of(self.epsilon, self.delta)


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    dataset: Annotated[
        str | None,
        typer.Option(
            show_default=DATASET, help="A dataset's name, or a file: .npz, .csv, .parquet; or your own ./mine.py."
        ),
    ] = None
    schema: Annotated[Path | None, typer.Option(help="What a table's columns mean; `fedsofim schema` drafts one.")] = (
        None
    )
    label: Annotated[
        list[str] | None,
        typer.Option(help="The column of a table that holds the labels; repeatable with --task labels."),
    ] = None
    task: Annotated[
        str | None,
        typer.Option(show_default="classes", help=f"What is learned of your own data: {', '.join(KINDS)}."),
    ] = None
    target_range: Annotated[
        str | None,
        typer.Option(metavar="LOW,HIGH", help="Public range of what is predicted, for --task numbers or counts."),
    ] = None
    huber: Annotated[
        float | None, typer.Option(help="For --task numbers: the error beyond which the loss is a straight line.")
    ] = None
    drop: Annotated[list[str] | None, typer.Option(help="A column of a table to leave out; repeatable.")] = None
    person_column: Annotated[
        str | None, typer.Option(help="The column of a table that says whose each record is; never a feature.")
    ] = None
    test: Annotated[Path | None, typer.Option(help="A file with the test set, for your own data.")] = None
    holdout: Annotated[float, typer.Option(help="Part of your own records held out where there is no test set.")] = 0.2
    clients_from: Annotated[
        Path | None, typer.Option(help="A folder with one file per client, instead of a partition.")
    ] = None
    source: Annotated[Path | None, typer.Option(help="A local copy of a dataset known by name.")] = None

    @property
    def asked(self) -> Task | None:
        """The task that was asked for; None: the schema's, or classes."""
        if self.task is None and self.target_range is None and self.huber is None:
            return None
        return Task(self.task or NUMBERS, read_range(self.target_range), self.huber)

    def load(self) -> Dataset:
        if self.dataset is not None and self.clients_from is not None:
            raise InputError("--dataset and --clients-from are two sources of records; give one of them")
        return load(
            None if self.clients_from else self.dataset or DATASET,
            schema=self.schema,
            label=self.label,
            task=self.asked,
            drop=self.drop or (),
            person=self.person_column,
            test=self.test,
            holdout=self.holdout,
            clients_from=self.clients_from,
            source=self.source,
        )


def read_range(text: str | None) -> tuple[float, float] | None:
    """LOW,HIGH as people write it.

    >>> read_range("-5,5")
    (-5.0, 5.0)
    """
    if text is None:
        return None
    try:
        low, high = (float(end) for end in text.split(","))
    except ValueError:
        raise InputError(f"--target-range is {shown(text)}; expected LOW,HIGH, for example 0,100") from None
    return low, high


@dataclass(frozen=True, kw_only=True)
class DealOptions:
    clients: Annotated[int | None, typer.Option(show_default="20", help="Number of clients n.")] = None
    partition: Annotated[
        str | None,
        typer.Option(
            show_default="dirichlet, or iid without classes", help="How records are dealt to clients: iid or dirichlet."
        ),
    ] = None
    alpha: Annotated[
        float | None, typer.Option(show_default="0.5", help="Dirichlet concentration; small is uneven.")
    ] = None
    split_seed: Annotated[int | None, typer.Option(show_default="42", help="Seed of the partition.")] = None

    @property
    def given(self) -> dict[str, Any]:
        """What was asked for, as `split` takes it."""
        found = {"clients": self.clients, "alpha": self.alpha, "seed": self.split_seed}
        return {name: value for name, value in found.items() if value is not None}

    def deal(self, data: DataOptions, min_size: int | None = None) -> Split:
        """The data at its clients; a real federation's files are dealt already."""
        if self.partition is not None:
            one_of("partition", self.partition, ("iid", "dirichlet"))
        if data.clients_from is not None:
            self.refuse()
        dataset = data.load()
        if dataset.owner is not None:
            self.refuse()
            return by_owner(dataset)
        return split(
            dataset, **self.given, min_size=min_size, iid=None if self.partition is None else self.partition == "iid"
        )

    def refuse(self) -> None:
        """Records that are at their clients already are not dealt again."""
        options = {"--clients": self.clients, "--partition": self.partition, "--alpha": self.alpha}
        options |= {"--split-seed": self.split_seed}
        if given := [name for name, value in options.items() if value is not None]:
            raise InputError(f"{' and '.join(given)}: the records are at their clients already, one file for each")


@dataclass(frozen=True, kw_only=True)
class TrainOptions(ModelOptions):
    recipe: Annotated[
        str,
        typer.Option(help="auto: the recommended choices for this budget; paper: the paper's protocol."),
    ] = "auto"
    rounds: Annotated[int | None, typer.Option(show_default=_AS_CHOSEN, help="Federated rounds T.")] = None
    clip: Annotated[
        float | None, typer.Option(show_default=_AS_CHOSEN, help="Clipping norm of each record's gradient.")
    ] = None
    trust: Annotated[str, typer.Option(help="local: each upload is private; secure-sum: only their sum is seen.")] = (
        "local"
    )
    weights: Annotated[
        str | None,
        typer.Option(
            show_default=_AS_CHOSEN,
            help="uniform (every client alike, the paper), size (every record alike) or quiet (the least noise).",
        ),
    ] = None
    seed: Annotated[int | None, typer.Option(show_default="this machine's entropy", help=_SEED)] = None

    def arguments(self) -> dict[str, Any]:
        """As `train` takes them."""
        same = {name: getattr(self, name) for name in ("recipe", "rounds", "clip", "trust", "weights", "seed")}
        return same | {"model": self.made}

    def chosen(self, dealt: Split, budget: AnyBudget) -> Choices:
        """What the recipe chooses for this data."""
        trust = cast(Trust, one_of("trust", self.trust, get_args(Trust)))
        weights = None if self.weights is None else cast(Weights, one_of("weights", self.weights, get_args(Weights)))
        return choices_for(dealt, budget, recipe=self.recipe, trust=trust, model=self.made, weights=weights)


@dataclass(frozen=True, kw_only=True)
class ScaleOptions:
    standardize: Annotated[
        str, typer.Option(help="recipe: prepared as the recipe has it; none, private (charged) or public (--stats).")
    ] = "recipe"
    share: Annotated[float, typer.Option(help="Part of the budget for --standardize private.")] = 0.05
    radius: Annotated[float, typer.Option(help="Public guess of a record's largest norm, for private.")] = 10.0
    stats: Annotated[Path | None, typer.Option(help="Statistics of public images, for --standardize public.")] = None

    def steps(self) -> tuple[FeatureMoments, ...] | None:
        """The preparation chosen by hand; None: the recipe's."""
        one_of("standardize", self.standardize, ("recipe", "none", "private", "public"))
        if self.standardize == "recipe":
            return None
        return (FeatureMoments(self.share, self.radius),) if self.standardize == "private" else ()

    def apply(self, dealt: Split) -> Split:
        """The split standardised by public statistics, where that was asked for."""
        if (self.standardize == "public") != (self.stats is not None):
            raise InputError(
                "--standardize public and --stats FILE go together; fedsofim features --public-stats makes it"
            )
        return dealt if self.stats is None else replace(dealt, dataset=standardize_public(dealt.dataset, self.stats))
