"""`fedsofim certificate ...`: read and check what was released and what it cost."""

from pathlib import Path
from typing import Annotated

import typer

from fedsofim.deploy import certificate
from fedsofim.deploy.signatures import is_signed, known_keys

app = typer.Typer(help="Read and check what was released and what it cost.", no_args_is_help=True)


@app.command("show")
def show(file: Annotated[Path, typer.Argument(help="certificate.json")]) -> None:
    """The certificate in words."""
    print(certificate.readable(certificate.read(file)))


@app.command("verify")
def verify(
    file: Annotated[Path, typer.Argument(help="certificate.json")],
    ledger: Annotated[list[Path] | None, typer.Option(help="a node's ledger.db; repeat for each node")] = None,
    keys: Annotated[Path | None, typer.Option(help="folder of the nodes' public keys: server/node-keys")] = None,
) -> None:
    """Check signatures and arithmetic; with ledgers, recompute every line from them. Exit 1 if anything differs."""
    document = certificate.read(file)
    problems = certificate.check(document, known_keys(keys) if keys is not None else None)
    problems += [p for p in certificate.verify(document, ledger) if p not in problems] if ledger else []
    for problem in problems:
        print(f"WRONG  {problem}")
    if problems:
        raise typer.Exit(1)
    unsigned = sorted(name for name, s in document["clients"].items() if not is_signed(s))
    source = "recomputed from their ledgers" if ledger else "recomputed from what they state"
    print(f"holds: {len(document['clients'])} clients, {source}")
    print(f"not signed: {', '.join(unsigned)}" if unsigned else "every statement is signed by its node's key")
