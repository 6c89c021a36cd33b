"""`fedsofim plan`: what a practitioner asks before the first round, answered from public numbers."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer
from rich.table import Table

from fedsofim.cli.analysis import sizes_of
from fedsofim.cli.model_options import ModelOptions
from fedsofim.cli.options import BudgetOptions, Json, grouped
from fedsofim.cli.tables import out
from fedsofim.cli.whom_options import UnitOption
from fedsofim.core.plan import Trust
from fedsofim.errors import InputError, expect_whole, one_of, shown
from fedsofim.protection import Unit, check_unit
from fedsofim.recipes import Situation
from fedsofim.theory.cells import measured_cells, read_cells
from fedsofim.theory.outlook import Planned, planned


@dataclass(frozen=True, kw_only=True)
class FederationOptions:
    clients: Annotated[int, typer.Option(help="Number of clients n.")] = 20
    records: Annotated[int, typer.Option(help="Records of each client; persons, with --unit person.")] = 2500
    sizes: Annotated[str | None, typer.Option(help="Records of each client where they differ: 100,250,90.")] = None
    features: Annotated[int, typer.Option(help="Features of a record.")] = 64
    classes: Annotated[int, typer.Option(help="Classes.")] = 10
    trust: Annotated[str, typer.Option(help="local: each upload is private; secure-sum: only their sum is seen.")] = (
        "local"
    )
    unit: UnitOption = "record"

    def situation(self, budget: BudgetOptions) -> Situation:
        expect_whole("features", self.features, 1)
        expect_whole("classes", self.classes, 2)
        check_unit(self.unit)
        sizes = (1,) * self.clients if self.unit == "client" else sizes_of(self.sizes, self.records, self.clients)
        if min(sizes) < 1:
            raise InputError(f"client sizes are {list(sizes)}; expected at least one record each")
        trust = cast(Trust, one_of("trust", self.trust, get_args(Trust)))
        return Situation(budget=budget.budget(), sizes=sizes, shape=(self.features,), classes=self.classes, trust=trust)


@grouped
def plan(
    federation: FederationOptions,
    budget: BudgetOptions,
    model: ModelOptions,
    ceiling: Annotated[
        float | None, typer.Option(help="Accuracy in percent without noise, if you know it from public data.")
    ] = None,
    mbit: Annotated[float, typer.Option(help="A client's bandwidth in Mbit/s, for the time of a round.")] = 10.0,
    cells: Annotated[Path | None, typer.Option(help="Your own table of measured cells instead of ours (CSV).")] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Noise against gradient, and what was measured: .png or .svg.")
    ] = (None),
    json_: Json = False,
) -> None:
    """Before the first round: noise against gradient, rounds, accuracy to expect, time and bytes. Reads no records."""
    if not mbit > 0:
        raise InputError(f"mbit is {shown(mbit)}; expected a number above 0")
    if ceiling is not None and not 0 < ceiling <= 100:
        raise InputError(f"ceiling is {shown(ceiling)}; expected an accuracy in percent")
    table = measured_cells() if cells is None else read_cells(cells)
    unit = cast(Unit, federation.unit)
    found = planned(federation.situation(budget), table, ceiling, model.made, unit)
    if picture is not None:
        from fedsofim.theory.plan_pictures import draw_plan

        draw_plan(found, table, picture)
    summary: dict[str, Any] = found.summary() | {"mbit": mbit}
    for mode in summary["modes"]:
        mode["seconds_of_transfer_a_round"] = 8e-6 * (mode["bytes_up"] + mode["bytes_down"]) / mbit
    if json_:
        print(json.dumps(summary))
    else:
        show(found, summary)


def show(found: Planned, summary: dict[str, Any]) -> None:
    s = found.modes[0].situation
    out.print(
        f"{len(s.sizes)} clients, {_held(found)} of {s.shape[0]} features, {s.classes} classes, {s.budget}; "
        f"recipe auto, no record read; epsilon protects {summary['modes'][0]['protects']}"
    )
    if (how := summary["modes"][0]["formed"].get("gradient")) is not None:
        out.print(f"model {summary['model']}: {how}", highlight=False)
    _modes(summary)
    _changes(found, summary)
    if not summary["modes"][0]["expected"]["by_dataset"]:
        louder = "this is louder than anything that was measured, so expect little"
        other = "accuracy, and what gradients to expect, were measured for the linear model only (docs/models.md)"
        units = (
            "accuracy was measured where records are protected (docs/protection.md has some cells of persons, clients)"
        )
        of_records = found.modes[0].plan.unit == "record"
        out.print(f"[bold]no range[/]: {units if not of_records else louder if s.head else other}")
        return
    out.print("the range is that of the nearest shapes measured; what accuracy is left depends on your data:")
    for e in summary["modes"][0]["expected"]["by_dataset"]:
        lost = "" if e["lost"] is None else f", {e['lost']:.1f} below the same without noise"
        beyond = "" if e["measured"] else " (beyond what was measured: the nearest cell)"
        out.print(f"  {e['dataset']}: {e['accuracy']:.1f} ± {e['spread']:.1f}{lost}{beyond}", highlight=False)


def _held(found: Planned) -> str:
    """How many of whom epsilon protects there are."""
    s, unit = found.modes[0].situation, found.modes[0].plan.unit
    return {"record": f"{sum(s.sizes):,} records", "person": f"{sum(s.sizes):,} persons with records"}.get(
        unit, "each with records"
    )


def _modes(summary: dict[str, Any]) -> None:
    table = Table(title="a round", title_justify="left")
    table.add_column("")
    for mode in summary["modes"]:
        table.add_column(mode["trust"], justify="right")
    lines = {
        "epsilon of the ledger": lambda m: f"{m['epsilon']:.6g}",
        "parameters": lambda m: f"{m['parameters']:,}",
        "noise of the average (length)": lambda m: f"{m['noise_of_a_round']:.3g}",
        "  of it in the momentum": lambda m: f"{m['noise_in_the_buffer']:.3g}",
        "gradient expected at the start": lambda m: "{:.2g} to {:.2g}".format(*m["gradient_at_start"]),
        "gradient expected later": lambda m: f"{m['gradient_later']:.2g}",
        "noise in the momentum / later gradient": lambda m: f"{m['noise_over_gradient_later']:.2g}",
        "rounds, by the recipe": lambda m: str(m["rounds"]),
        "rounds until noise is the limit": lambda m: _worth(m["rounds_until_noise_is_the_limit"]),
        "accuracy range": lambda m: _range(m["expected"]["accuracy"]),
        "lost to noise": lambda m: _range(m["expected"]["lost_to_noise"]),
        "bytes up, bytes down": lambda m: f"{m['bytes_up']:,}, {m['bytes_down']:,}",
        f"seconds of transfer at {summary['mbit']:g} Mbit/s": lambda m: f"{m['seconds_of_transfer_a_round']:.3g}",
        "seconds of products, largest client": lambda m: _seconds(summary["seconds_of_products_a_round_here"]),
    }
    for name, told in lines.items():
        table.add_row(name, *(told(m) for m in summary["modes"]))
    out.print(table)


def _changes(found: Planned, summary: dict[str, Any]) -> None:
    table = Table(title="what a change would buy", title_justify="left")
    table.add_column("", no_wrap=True)
    left = "accuracy there" if found.ceiling is None else f"left of {found.ceiling:g}"
    for name in ("noise", "rounds", "lost to noise", left):
        table.add_column(name, justify="right", no_wrap=True)
    for name, c in summary["changes"].items():
        reached = c["accuracy"] if found.ceiling is None else c["of_ceiling"]
        cells = (f"x {c['noise_times']:.2f}", str(c["rounds"]), _range(c["lost_to_noise"]), _range(reached))
        table.add_row(name, *cells)
    out.print(table)


def _range(pair: list[float] | None) -> str:
    return "-" if pair is None else f"{pair[0]:.1f} to {pair[1]:.1f}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"


def _worth(rounds: float | None) -> str:
    return "-" if rounds is None else f"{max(rounds, 1):.0f}"
