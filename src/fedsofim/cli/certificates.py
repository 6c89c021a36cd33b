"""`fedsofim certificate ...`: read and check what was released and what it cost."""

from pathlib import Path
from typing import Annotated

import typer

from fedsofim.deploy import certificate

app = typer.Typer(help="Read and check what was released and what it cost.", no_args_is_help=True)


@app.command("show")
def show(file: Annotated[Path, typer.Argument(help="certificate.json")]) -> None:
    """The certificate in words."""
    print(certificate.readable(certificate.read(file)))


@app.command("verify")
def verify(
    file: Annotated[Path, typer.Argument(help="certificate.json")],
    ledger: Annotated[list[Path], typer.Option(help="a node's ledger.db; repeat for each node")],
) -> None:
    """Recompute every line and epsilon from the ledgers; exit 1 if anything differs."""
    problems = certificate.verify(document := certificate.read(file), ledger)
    for problem in problems:
        print(f"WRONG  {problem}")
    if problems:
        raise typer.Exit(1)
    print(f"holds: {len(document['clients'])} clients, recomputed from their ledgers")
