"""`fedsofim certificate ...`: read and check what was released and what it cost."""

import json
import math
import time
from pathlib import Path
from typing import Annotated

import typer

from fedsofim.core.budget import in_words
from fedsofim.deploy import certificate
from fedsofim.deploy.policy import read_policy

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


@app.command("ledger")
def ledger_now(
    policy: Annotated[Path, typer.Option(help="the node's policy file")],
    as_json: Annotated[bool, typer.Option("--json", help="plain data")] = False,
) -> None:
    """What this node has released so far and what is left: for its operator."""
    read = read_policy(policy)
    facts = certificate.statement(read)
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    print(certificate.readable(certificate.document_of("(none)", {read.name: facts})))
    if math.isfinite(read.epsilon):
        print(f"spent {in_words(facts['epsilon'])} of {read.epsilon:g}, {time.strftime('%Y-%m-%d %H:%M')}")
