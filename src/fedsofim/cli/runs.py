"""`fedsofim run`: one method under one budget in the simulator."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedsofim.cli import tables
from fedsofim.cli.budget_options import ClientBudgetOptions
from fedsofim.cli.options import (
    DataOptions,
    DealOptions,
    Json,
    MethodOptions,
    ScaleOptions,
    TrainOptions,
    grouped,
)
from fedsofim.cli.whom_options import WhomOptions
from fedsofim.files import check_free
from fedsofim.progress import progress_bar
from fedsofim.simulation.run import RESULT
from fedsofim.simulation.training import train
from fedsofim.trained.folder import FILES

CURVE = "curve.png"
WRITTEN = (*FILES, RESULT, CURVE)


@grouped
def run(
    method: MethodOptions,
    data: DataOptions,
    budget: ClientBudgetOptions,
    deal: DealOptions,
    training: TrainOptions,
    scale: ScaleOptions,
    whom: WhomOptions,
    out: Annotated[Path | None, typer.Option(help="Folder for the model, result.json and curve.png.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what --out holds already.")] = False,
    json_: Json = False,
) -> None:
    """Train under a budget in the simulator; what is not given follows from the recipe and public numbers."""
    if out is not None:
        check_free(out, WRITTEN, force)
    steps, split = scale.steps(), whom.protecting(scale.apply(deal.deal(data)))
    asked = budget.budget_for(len(split.parts))
    chosen = training.chosen(split, asked)
    made = method.make_in(chosen, asked.epsilon)
    with progress_bar(f"{made.name} on {split.dataset.name}", training.rounds or chosen.rounds) as progress:
        result = train(
            split, made, asked, **training.arguments(), preparation=steps, participants=whom.participants,
            batch_rate=whom.batch_rate, client_rate=whom.client_rate, progress=progress,
        )  # fmt: skip
    if out is not None:
        result.save(out, force=True, also={CURVE: result.plot})  # looked at before training
    if json_:
        print(json.dumps(result.summary(), default=str))
        return
    tables.result(result)
    if out is not None:
        print(f"wrote {', '.join(WRITTEN)} into {out}; next: fedsofim predict {out} TABLE --out predictions.csv")
