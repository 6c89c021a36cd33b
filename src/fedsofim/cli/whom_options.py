"""Options for whom a run protects and who takes part in it."""

from dataclasses import dataclass
from typing import Annotated, cast

import typer

from fedsofim.data.partition import Split
from fedsofim.protection import Unit

UnitOption = Annotated[
    str, typer.Option(help="Whom epsilon protects: a record, a person with all of theirs, or a whole client.")
]


@dataclass(frozen=True, kw_only=True)
class TakingPart:
    """Who takes part in a round, and which records are read."""

    participants: Annotated[
        int | None, typer.Option(show_default="all", help="Clients that take part in a round, in turn.")
    ] = None
    batch_rate: Annotated[float, typer.Option(help="Part of the records in a gradient, drawn in secret.")] = 1.0
    client_rate: Annotated[
        float, typer.Option(help="Part of the clients in a round, drawn in secret; under --trust secure-sum.")
    ] = 1.0


@dataclass(frozen=True, kw_only=True)
class WhomOptions(TakingPart):
    unit: Annotated[
        str,
        typer.Option(help="Whom epsilon protects: a record, a person (--person-column, or the schema's), a client."),
    ] = "record"
    records_per_person: Annotated[
        int | None,
        typer.Option(
            show_default="none: needed with --unit person or client",
            help="Of one with more records the first so many count.",
        ),
    ] = None

    def protecting(self, dealt: Split) -> Split:
        """The split with the unit that was asked for."""
        return dealt.protecting(cast(Unit, self.unit), self.records_per_person)
