"""Options for a budget of each client's own: epsilons in a line, or a file of budgets."""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fedsofim.cli.options import BudgetOptions
from fedsofim.core.budget import Budget, budget_of
from fedsofim.core.budgets import AnyBudget, Budgets, read_epsilons, simplest
from fedsofim.errors import InputError

_COLUMNS = ("client", "epsilon", "delta")


@dataclass(frozen=True, kw_only=True)
class ClientBudgetOptions(BudgetOptions):
    epsilons: Annotated[
        str | None,
        typer.Option(
            metavar="0.5,1x3,rest", help="An epsilon for each client in turn; 1x3: three of them; rest: at --epsilon."
        ),
    ] = None
    budgets: Annotated[
        Path | None, typer.Option(help="A CSV with the columns client, epsilon, delta: a budget for each client.")
    ] = None

    def budget_for(self, clients: int) -> AnyBudget:
        """The budget of a run with so many clients."""
        if self.epsilons is not None and self.budgets is not None:
            raise InputError("--epsilons and --budgets both give each client a budget; give one of them")
        if self.budgets is not None:
            return simplest(read_budgets(self.budgets, clients))
        if self.epsilons is not None:
            return read_epsilons(self.epsilons, self.epsilon, self.delta, clients)
        return self.budget()


def read_budgets(path: Path, clients: int) -> Budgets:
    """The budgets in a file: every client once, by its number from 0 (as `fedsofim partition` lists them)."""
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected a CSV with the columns {', '.join(_COLUMNS)}")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file))
    except (UnicodeDecodeError, csv.Error):
        raise InputError(f"{path}: not a CSV in UTF-8; expected the columns {', '.join(_COLUMNS)}") from None
    found: dict[int, Budget] = {}
    for line, row in enumerate(rows, start=2):
        number, budget = _row(path, line, row)
        if number in found:
            raise InputError(f"{path}, line {line}: client {number} has a budget already; expected each client once")
        found[number] = budget
    if sorted(found) != list(range(clients)):
        wrong = sorted(set(found) ^ set(range(clients)))[:5]
        raise InputError(
            f"{path}: has {len(found)} clients, and the run has {clients}, numbered from 0; look at {wrong} and give "
            "every client one line"
        )
    return Budgets([found[i] for i in range(clients)])


def _row(path: Path, line: int, row: dict[str, str]) -> tuple[int, Budget]:
    if set(row) != set(_COLUMNS):
        raise InputError(f"{path}: has {len(row)} columns, not all of these names; expected {', '.join(_COLUMNS)}")
    try:
        return int(row["client"]), budget_of(row["epsilon"], float(row["delta"]))
    except (TypeError, ValueError) as error:
        why = error if isinstance(error, InputError) else "expected a client's number, an epsilon and a delta"
        raise InputError(f"{path}, line {line}: {why}") from None
