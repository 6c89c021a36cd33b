"""`fedsofim theory`: what the paper's analysis says for given constants, and whether that says anything."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from fedsofim.cli.options import DataOptions, DealOptions, Json, grouped
from fedsofim.cli.tables import out
from fedsofim.core.budget import Budget, budget_of
from fedsofim.errors import InputError, one_of, shown
from fedsofim.theory.constants import Constants, sigma_g_of
from fedsofim.theory.descent import Taus
from fedsofim.theory.heads import HeadConstants, from_radius, from_records
from fedsofim.theory.released_moment import released_constants
from fedsofim.theory.statement import General, all_bounds

_SOURCES = ("given", "radius", "records", "released")


@dataclass(frozen=True, kw_only=True)
class ProblemOptions:
    constants: Annotated[
        str | None,
        typer.Option(
            help="Where L, mu, G_max and zeta_max come from: given (--L ...), radius (public), "
            "records (NOT PRIVATE: reads --dataset), released (a charged second moment of --dataset)."
        ),
    ] = None
    smooth: Annotated[float | None, typer.Option("--L", help="Smoothness of F.")] = None
    mu: Annotated[float | None, typer.Option(help="Strong convexity, or PL; none: stationarity only.")] = None
    g_max: Annotated[float | None, typer.Option(help="Bound of |grad F|; none: clip + zeta_max.")] = None
    zeta_max: Annotated[float, typer.Option(help="Bound of the clipping bias.")] = 0.0
    mu_pl: Annotated[float | None, typer.Option(help="The PL constant, where it is another than mu.")] = None
    bias: Annotated[float | None, typer.Option("--B", help="Bias bound of any other private update.")] = None
    largest: Annotated[float | None, typer.Option("--G0", help="And E|G|² <= G0² + d·nu² of it; none: clip.")] = None
    gap: Annotated[float | None, typer.Option(help="F at the start minus its least value.")] = None
    start_gradient: Annotated[float | None, typer.Option(help="|grad F| at the start.")] = None
    radius: Annotated[
        float | None, typer.Option(help="A public bound of a record's length, the bias's 1 included.")
    ] = None
    ridge: Annotated[float, typer.Option(help="lambda/2·|theta|² in a head's loss: its mu.")] = 1e-3
    d: Annotated[int | None, typer.Option(help="Parameters; none: (features + 1)·classes.")] = None
    features: Annotated[int, typer.Option(help="Features of a record.")] = 64
    classes: Annotated[int, typer.Option(help="Classes.")] = 10
    records: Annotated[int, typer.Option(help="Records of each client.")] = 2500
    sizes: Annotated[str | None, typer.Option(help="Records of each client where they differ: 100,250,90.")] = None

    def source(self) -> str:
        if self.constants is not None:
            return one_of("source of constants", self.constants, _SOURCES)
        if (self.smooth is None) == (self.radius is None):
            raise InputError(
                "give --L with the constants you know, or --radius R (public), or --constants records or released "
                "with --dataset"
            )
        return "given" if self.radius is None else "radius"


@dataclass(frozen=True, kw_only=True)
class StepOptions:
    clip: Annotated[float, typer.Option(help="C_g.")] = 10.0
    rho: Annotated[float, typer.Option(help="Regularization of the preconditioner.")] = 0.5
    beta: Annotated[float, typer.Option(help="Momentum.")] = 0.9
    eta: Annotated[float, typer.Option(help="Step size.")] = 0.8
    rounds: Annotated[int, typer.Option(help="Federated rounds T.")] = 70
    sigma_g: Annotated[float | None, typer.Option(help="The paper's noise multiplier, instead of --epsilon.")] = None
    bias_correction: Annotated[bool, typer.Option(help="Of the momentum form's buffer.")] = False


@dataclass(frozen=True, kw_only=True)
class NoiseOptions:
    epsilon: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="Privacy budget of every record over the whole run.")
    ] = None
    delta: Annotated[float, typer.Option(help="Probability the guarantee may fail; below 1/records.")] = 1e-5

    def budget(self) -> Budget:
        if self.epsilon is None:
            raise InputError("constants that are released cost a budget; give --epsilon")
        return budget_of(self.epsilon, self.delta)


@grouped
def theory(
    problem: ProblemOptions,
    step: StepOptions,
    budget: NoiseOptions,
    data: DataOptions,
    deal: DealOptions,
    tau_1: Annotated[
        float | None, typer.Option("--tau-1", help="Young's parameter of the bias; none: the best.")
    ] = None,
    tau_2: Annotated[float | None, typer.Option("--tau-2", help="And of the noise.")] = None,
    delta_m: Annotated[float, typer.Option(help="Probability that the buffer may be longer than its bound.")] = 0.05,
    picture: Annotated[Path | None, typer.Option(help="Floors against rho, beta and epsilon, as .png or .svg.")] = None,
    json_: Json = False,
) -> None:
    """The paper's bounds, ours, and the momentum form's, for given constants; a vacuous bound is called vacuous."""
    if (budget.epsilon is None) == (step.sigma_g is None):
        raise InputError("give either --epsilon or --sigma-g")
    if not 0 < delta_m < 1:
        raise InputError(f"delta_m is {shown(delta_m)}; expected a probability strictly between 0 and 1")
    sizes, head = _problem(problem, step, budget, data, deal)
    k = _constants(problem, step, budget, sizes, head)
    found = all_bounds(
        k,
        taus=_taus(tau_1, tau_2),
        delta_M=delta_m,
        corrected=step.bias_correction,
        general=None if problem.bias is None else General(problem.bias, problem.largest or step.clip),
        mu_pl=problem.mu_pl,
    )
    found["head"] = None if head is None else head.summary()
    if picture is not None:
        from fedsofim.theory.pictures import draw_floors

        draw_floors(k, picture, delta=budget.delta, delta_M=delta_m)
    if json_:
        print(json.dumps(found))
    else:
        show(found)


def _taus(tau_1: float | None, tau_2: float | None) -> Taus | None:
    if (tau_1 is None) != (tau_2 is None):
        raise InputError("give both --tau-1 and --tau-2, or neither for the best ones")
    if tau_1 is None or tau_2 is None:
        return None
    if not (tau_1 > 0 and tau_2 > 0):
        raise InputError(f"tau_1 and tau_2 are {tau_1:g} and {tau_2:g}; expected numbers above 0")
    return Taus(tau_1, tau_2)


def _problem(
    problem: ProblemOptions, step: StepOptions, budget: NoiseOptions, data: DataOptions, deal: DealOptions
) -> tuple[tuple[int, ...], HeadConstants | None]:
    """Client sizes, and a head's constants unless they were given."""
    source = problem.source()
    if source in ("records", "released"):
        split = deal.deal(data)
        if source == "records":
            return split.sizes, from_records(split, C_g=step.clip, ridge=problem.ridge)
        asked = budget.budget()
        return split.sizes, released_constants(split, asked, C_g=step.clip, ridge=problem.ridge).constants
    sizes = sizes_of(problem.sizes, problem.records, 20 if deal.clients is None else deal.clients)
    if source == "given":
        if problem.smooth is None:
            raise InputError("--constants given needs --L")
        return sizes, None
    if problem.radius is None:
        raise InputError("--constants radius needs --radius")
    shape = {"features": problem.features, "classes": problem.classes}
    return sizes, from_radius(problem.radius, **shape, C_g=step.clip, ridge=problem.ridge)


def sizes_of(given: str | None, records: int, clients: int) -> tuple[int, ...]:
    """Client sizes: as listed, or all alike."""
    if given is None:
        if clients < 1:
            raise InputError(f"clients is {clients}; expected at least 1")
        return (records,) * clients
    try:
        return tuple(int(size) for size in given.split(","))
    except ValueError:
        raise InputError(
            f"sizes are {shown(given)}; expected whole numbers with commas between, such as 100,250,90"
        ) from None


def _constants(
    problem: ProblemOptions,
    step: StepOptions,
    budget: NoiseOptions,
    sizes: tuple[int, ...],
    head: HeadConstants | None,
) -> Constants:
    sigma = sigma_g_of(budget.budget(), step.rounds, len(sizes)) if step.sigma_g is None else step.sigma_g
    same: dict[str, Any] = {"rho": step.rho, "beta": step.beta, "eta": step.eta, "rounds": step.rounds}
    same |= {"C_g": step.clip, "sizes": sizes, "sigma_g": sigma}
    if head is None:
        d = (problem.features + 1) * problem.classes if problem.d is None else problem.d
        known: dict[str, Any] = {
            "L": problem.smooth,
            "mu": problem.mu,
            "zeta_max": problem.zeta_max,
            "gap": problem.gap,
        }
        return Constants(**same, **known, d=d, G_max=problem.g_max, start_gradient=problem.start_gradient)
    names = ("L", "mu", "G_max", "zeta_max", "gap", "start_gradient", "d")
    return Constants(**same, **{name: getattr(head, name) for name in names})


# --- for people ---------------------------------------------------------------------------------------------


def show(found: dict[str, Any]) -> None:
    """What was found, as tables."""
    if found["head"] is not None:
        private = "costs nothing more" if found["head"]["private"] else "[bold]NOT PRIVATE[/]"
        out.print(
            f"constants from {found['head']['how']} ({private}); condition number {found['head']['condition']:.4g}"
        )
    _pairs("constants", found["constants"])
    _pairs("noise of the average, and the buffer", found["noise"] | found["buffer"] | found["preconditioner"])
    descent = dict(found["descent"])
    parts = descent.pop("Gamma_parts")
    _pairs("one step", descent | {f"Gamma: {name}": value for name, value in parts.items()})
    _floor_table(found["floors"])
    if found["general_update"] is not None:
        _pairs("any private update with this bias", found["general_update"])
    _pairs("the momentum form, which the published numbers come from", found["momentum_form"])
    _pairs("a round", found["round"])
    for c in found["conditions"]:
        out.print(f"{'holds' if c['holds'] else '[bold red]fails[/]'}: {c['condition']} ({c['how']})", highlight=False)
    for note in found["notes"]:
        out.print(f"note: {note}", highlight=False)


def _pairs(title: str, values: dict[str, Any]) -> None:
    table = Table(title=title, show_header=False, box=None, padding=(0, 2, 0, 0), title_justify="left")
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for name, value in values.items():
        table.add_row(name, _number(value))
    out.print(table)


_THEOREMS = {
    "stationarity": "stationarity, gradient form",
    "strong_convexity": "strong convexity, gradient form",
    "polyak_lojasiewicz": "PL, gradient form",
    "fedgd": "strong convexity, DP-FedGD at eta/rho",
    "ours": "strong convexity, gradient form, ours",
}


def _floor_table(floors: dict[str, Any]) -> None:
    table = Table(title="floors: what the iterates fall to", title_justify="left")
    table.add_column("theorem")
    for name in ("floor", "after T", "trivial", "rate", "says"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, words in _THEOREMS.items():
        if (f := floors.get(name)) is not None:
            says = "[bold red]vacuous[/]" if f["vacuous"] else "something"
            numbers = (f["floor"], f["after_all_rounds"], f["trivial"], f["rate"])
            table.add_row(words, *(_number(v, 4) for v in numbers), says)
    out.print(table)


def _number(value: Any, digits: int = 6) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, str | bool | int) else f"{value:.{digits}g}"
