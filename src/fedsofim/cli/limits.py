"""`fedsofim limit`: what an idealised estimator would reach under a budget, to see whether more work can pay."""

import json
from typing import Annotated, cast, get_args

import typer

from fedsofim.cli.options import BudgetOptions, DataOptions, DealOptions, Json, grouped
from fedsofim.cli.tables import out
from fedsofim.core.plan import Trust
from fedsofim.errors import one_of
from fedsofim.progress import progress_bar
from fedsofim.simulation.limit import RIDGES, idealised


@grouped
def limit(
    data: DataOptions,
    budget: BudgetOptions,
    deal: DealOptions,
    recipe: Annotated[str, typer.Option(help="Whose preparation of the features: auto or paper.")] = "auto",
    trust: Annotated[str, typer.Option(help="local or secure-sum.")] = "local",
    seed: Annotated[int, typer.Option(help="Seed of the noise.")] = 0,
    json_: Json = False,
) -> None:
    """The accuracy that an idealised estimator would reach under a budget. NOT PRIVATE: it reads the records."""
    trust = cast(Trust, one_of("trust", trust, get_args(Trust)))
    split, asked = deal.deal(data), budget.budget()
    with progress_bar(f"limit on {split.dataset.name}", len(RIDGES)) as progress:
        found = idealised(split, asked, recipe=recipe, trust=trust, seed=seed, progress=progress)
    if json_:
        print(json.dumps(found.summary()))
        return
    out.print(f"{split.dataset.name} ({split.description}), {asked}, {trust} trust, features of recipe {recipe}:")
    out.print(f"  limit {found.best:.2f} % (ridge {found.ridge:g}); without noise {found.without_noise:.2f} %")
    out.print("[bold]not private[/]: the records were read in the clear, and the ridge was chosen by the test records")
