"""`fedsofim schema`: draft what a table's columns mean."""

from pathlib import Path
from typing import Annotated

import typer

from fedsofim.data.cells import TABLES, read_cells
from fedsofim.data.proposal import propose
from fedsofim.errors import InputError


def schema(
    table: Annotated[Path, typer.Argument(help="a .csv, .tsv or .parquet file")],
    label: Annotated[
        list[str] | None,
        typer.Option(show_default="label", help="The column that holds the labels; several: labels at once."),
    ] = None,
) -> None:
    """Draft a schema of a table on stdout, to be completed; what was read off the records is marked."""
    if not table.is_file():
        raise InputError(f"{table}: no such file")
    if table.suffix.lower() not in TABLES:
        raise InputError(f"{table}: cannot read files of kind '{table.suffix}'; expected {', '.join(TABLES)}")
    draft = propose(read_cells(table), label)
    print(draft.toml(), end="")
    if marked := draft.schema.leaks:
        typer.echo(
            f"note: {len(marked)} columns have values that were read off the records (from_records); replace them by "
            "public knowledge before you publish the schema or a model",
            err=True,
        )
