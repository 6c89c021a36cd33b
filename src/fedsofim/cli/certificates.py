"""`fedsofim certificate ...`: read and check what was released and what it cost."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fedsofim.deploy import certificate
from fedsofim.deploy.certificate_membership import charged_for, unstated
from fedsofim.deploy.signatures import is_signed, known_keys

app = typer.Typer(help="Read and check what was released and what it cost.", no_args_is_help=True)


@app.command("show")
def show(file: Annotated[Path, typer.Argument(help="certificate.json")]) -> None:
    """The certificate in words."""
    print(certificate.readable(certificate.read(file)))


@app.command("verify")
def verify(
    file: Annotated[Path, typer.Argument(help="certificate.json")],
    ledger: Annotated[list[Path] | None, typer.Option(help="a node's ledger.db, or several: repeat it")] = None,
    keys: Annotated[Path | None, typer.Option(help="folder of the nodes' public keys: server/node-keys")] = None,
) -> None:
    """Check signatures, that every statement is of this job's end and nobody's is left out, and arithmetic; of nodes
    whose ledgers are given, recompute every line from these. Exit 1 if anything differs, or if a ledger is nobody's; of
    whom none was given is said."""
    document, ledgers = certificate.read(file), ledger or []
    problems = certificate.check(document, known_keys(keys) if keys is not None else None)
    problems += [p for p in certificate.verify(document, ledgers) if p not in problems] if ledgers else []
    for problem in problems:
        print(f"WRONG  {problem}")
    if problems:
        raise typer.Exit(1)
    for line in _rests_on(document, ledgers, keys is not None):
        print(line)


def _rests_on(document: Mapping[str, Any], ledgers: Sequence[Path], known: bool) -> Iterator[str]:
    """That it holds, and what that rests on: whose signatures, and whose ledgers."""
    clients = list(document["clients"])
    if unsigned := sorted(name for name in clients if not is_signed(document["clients"][name])):
        yield f"not signed: {', '.join(unsigned)}"
    elif known:
        yield "every statement is signed by its node's key"
    else:
        yield "every statement is signed, by a key that it names itself; --keys looks whether that is its node's"
    for rounds, names in charged_for(document).items():
        yield f"charged for {rounds}: {', '.join(names)}"
    if older := unstated(document):
        yield f"not signed, in an older version's form: how many clients and rounds the job had for {', '.join(older)}"
    if silent := document.get("silent"):
        yield f"nothing is stated of {', '.join(silent)}"
    unseen = certificate.unseen(document, ledgers)
    seen = [name for name in clients if name not in unseen]
    if not ledgers:
        yield f"holds: {len(clients)} clients, 0 of {len(clients)} recomputed from ledgers, all from what they state"
        return
    if unseen:
        yield f"not looked at: {', '.join(unseen)}, of which no ledger was given"
    yield f"holds: {len(clients)} clients, {len(seen)} of {len(clients)} recomputed from ledgers ({', '.join(seen)})"
