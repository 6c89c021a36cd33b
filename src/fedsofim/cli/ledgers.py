"""`fedsofim ledger ...`: make a node's ledger, once; look at it; bring it to another machine."""

import json
import math
import time
from pathlib import Path
from typing import Annotated

import typer

from fedsofim.core.budget import in_words
from fedsofim.deploy import certificate, ledger_file
from fedsofim.deploy.policy import read_policy

app = typer.Typer(help="Make a node's ledger, once; look at it; bring it to another machine.", no_args_is_help=True)
Policy = Annotated[Path, typer.Option(help="the node's policy file")]


@app.command("create")
def create(policy: Policy) -> None:
    """Make the ledger that the policy names. Once in the life of the data: it is never overwritten."""
    read = read_policy(policy)
    read.account.create()
    print(f"wrote {read.ledger}: nothing is spent. Keep it as long as the data; it is never made anew")


@app.command("adopt")
def adopt(policy: Policy) -> None:
    """Use a ledger that was brought here from another machine. You say that it is its newest copy."""
    read = read_policy(policy)
    last = ledger_file.adopt(read.ledger, read.witness)
    print(f"{read.ledger}: whole, {last.number} entries; from now on this machine remembers how it ends")


@app.command("show")
def show(
    policy: Policy,
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
