"""`fedsofim run`: one method under one budget in the simulator."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedsofim.cli import tables
from fedsofim.cli.options import (
    BudgetOptions,
    DataOptions,
    DealOptions,
    Json,
    MethodOptions,
    ScaleOptions,
    TrainOptions,
    grouped,
)
from fedsofim.progress import progress_bar
from fedsofim.simulation.training import Run, train


@grouped
def run(
    method: MethodOptions,
    data: DataOptions,
    budget: BudgetOptions,
    deal: DealOptions,
    training: TrainOptions,
    scale: ScaleOptions,
    out: Annotated[Path | None, typer.Option(help="Folder for result.json, params.npz and curve.png.")] = None,
    json_: Json = False,
) -> None:
    """Train under one budget in the simulator; what is not given follows from the recipe and public numbers."""
    asked = budget.budget()
    steps, split = scale.steps(), scale.apply(deal.deal(data))
    chosen = training.chosen(split, asked)
    made = method.make_in(chosen, asked.epsilon)
    with progress_bar(f"{made.name} on {split.dataset.name}", training.rounds or chosen.rounds) as progress:
        result = train(split, made, asked, **training.arguments(), preparation=steps, progress=progress)
    if out is not None:
        write(result, out)
    if json_:
        print(json.dumps(result.summary()))
        return
    tables.result(result)
    if out is not None:
        print(f"wrote {out}/result.json, params.npz, curve.png")


def write(result: Run, out: Path) -> None:
    result.save(out)
    result.plot(out / "curve.png")
