"""`fedsofim privacy` and `methods`: what a method releases and costs, before any record is read."""

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any, cast

import typer

from fedsofim.cli import tables
from fedsofim.cli.method_list import describe_all
from fedsofim.cli.options import Json, MethodOptions, grouped
from fedsofim.cli.whom_options import TakingPart, UnitOption
from fedsofim.core.budget import WITHOUT, budget_of, stated
from fedsofim.core.budgets import AnyBudget, read_epsilons
from fedsofim.core.models import softmax_head
from fedsofim.core.plan import Plan, make_plan
from fedsofim.core.summary import privacy_summary
from fedsofim.errors import InputError, expect_whole

SEVERAL = 2  # units of a client, unless told: a client of one, drawn by chance, is cheaper (core/drawn_clients.py)


@grouped
def privacy(
    method: MethodOptions,
    part: TakingPart,
    epsilon: Annotated[
        str | None, typer.Option(metavar="NUMBER", help=f"Privacy budget of every record; {WITHOUT}: without noise.")
    ] = None,
    delta: Annotated[float, typer.Option(help="Probability the guarantee may fail; below 1/records.")] = 1e-5,
    rounds: Annotated[int, typer.Option(help="Federated rounds T.")] = 70,
    clients: Annotated[int, typer.Option(help="Number of clients n.")] = 20,
    sigma_g: Annotated[float | None, typer.Option(help="The paper's noise multiplier, to get epsilon back.")] = None,
    clip: Annotated[float, typer.Option(help="Clipping norm of each record's gradient.")] = 10.0,
    records: Annotated[
        int | None, typer.Option(help="Records (or persons) per client, for the noise of the average.")
    ] = None,
    trust: Annotated[str, typer.Option(help="local: each upload is private; secure-sum: only their sum is seen.")] = (
        "local"
    ),
    min_clients: Annotated[
        int | None, typer.Option(help="Under secure-sum: with how many clients a round can do; left out: all.")
    ] = None,
    epsilons: Annotated[
        str | None,
        typer.Option(metavar="0.5,1x3,rest", help="An epsilon for each client in turn; rest: at --epsilon."),
    ] = None,
    unit: UnitOption = "record",
    group: Annotated[
        int | None, typer.Option(help="Also what it says of a person with at most so many records (or other units).")
    ] = None,
    json_: Json = False,
) -> None:
    """Price a method: the noise a budget needs, or (--sigma-g) the epsilon a noise level spends."""
    if (epsilon is None and epsilons is None) == (sigma_g is None):
        raise InputError("give either --epsilon (to get the noise) or --sigma-g (to get epsilon back)")
    expect_whole("clients", clients, 1)
    asked: AnyBudget = budget_of("1" if epsilon is None else epsilon, delta)
    if epsilons is not None:
        asked = read_epsilons(epsilons, epsilon, delta, clients)
    plan = _plan(
        sigma_g,
        method=method.make(None if sigma_g is not None else asked.epsilon),
        model=softmax_head(),
        sizes=[1 if unit == "client" else records or SEVERAL] * clients,
        unit=cast(Any, unit),
        places=None if unit == "record" else 2,  # how many records of one count changes no price
        shape=(64,),
        classes=10,
        budget=asked,
        rounds=rounds,
        clip=clip,
        trust=cast(Any, trust),
        min_clients=min_clients,
        **asdict(part),
    )
    summary = {"method": plan.method.name, "clients": clients, **privacy_summary(plan)}
    if records is None and unit != "client":
        summary["noise_std"] = None
    if group is not None:
        summary["group"] = {"size": group, "epsilon": stated(plan.epsilon_for_group(group))}
    _told(summary, json_, tables.prices)


def _plan(sigma_g: float | None, **given: Any) -> Plan:
    """The plan that a budget needs, or the one with this `Plan.sigma_g`, which is proportional to the multiplier: in
    the paper's setting sqrt(n) times it, and less where fewer than all n take part or the noise is shared."""
    if sigma_g is None:
        return make_plan(**given)
    of_one = make_plan(**given, multiplier=1.0).sigma_g
    return make_plan(**given, multiplier=sigma_g / of_one if of_one else sigma_g)


def methods(json_: Json = False) -> None:
    """Every method with its parameters, what it releases and what a client keeps."""
    _told(describe_all(), json_, tables.methods)


def _told(found: Any, as_json: bool, for_people: Callable[[Any], None]) -> None:
    if as_json:
        print(json.dumps(found))
    else:
        for_people(found)
