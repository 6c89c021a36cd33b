"""`fedsofim partition`: who would hold how many records of each class."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedsofim.cli import tables
from fedsofim.cli.options import DataOptions, DealOptions, Json, grouped
from fedsofim.data.partition import statistics_of


@grouped
def partition(
    data: DataOptions,
    deal: DealOptions,
    min_size: Annotated[
        int | None, typer.Option(show_default="1", help="Smallest number of records a client may hold.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the counts to this CSV file.")] = None,
    json_: Json = False,
) -> None:
    """Show who would hold how many records of each class, and how uneven that is. NOT PRIVATE: it counts records."""
    split = deal.deal(data, min_size)
    stats = statistics_of(split)
    if out is not None:
        tables.write_counts(stats, out)
    if json_:
        print(json.dumps(tables.split_summary(split, stats)))
    else:
        tables.split(split, stats)
