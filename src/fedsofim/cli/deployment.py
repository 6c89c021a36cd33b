"""`fedsofim node` and `serve`: a node that answers what its policy allows, and a job that is trained on nodes."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fedsofim.cli.options import grouped
from fedsofim.data import load
from fedsofim.deploy.checkpoint import CHECKPOINT, restore
from fedsofim.deploy.following import follow
from fedsofim.deploy.node import hello
from fedsofim.deploy.order import Conduct, Order
from fedsofim.deploy.policy import read_policy
from fedsofim.deploy.processes import run_node
from fedsofim.deploy.readiness import findings
from fedsofim.deploy.server import check_order
from fedsofim.errors import InputError

nodes = typer.Typer(help="Run a node, or check it before it joins.", invoke_without_command=True)
PolicyFile = Annotated[Path | None, typer.Option(help="the operator's policy file")]
SuperLink = Annotated[str | None, typer.Option(help="host:port of the coordinator's SuperLink")]
Certificates = Annotated[Path | None, typer.Option(help="the federation's ca.crt")]
Key = Annotated[Path | None, typer.Option(help="this node's key")]


@nodes.callback()
def node(
    context: typer.Context,
    policy: PolicyFile = None,
    superlink: SuperLink = None,
    root_certificates: Certificates = None,
    key: Key = None,
    work: Annotated[Path, typer.Option(help="folder for the node's own files")] = Path("state"),
    insecure: Annotated[bool, typer.Option(help="no encryption and no authentication: for rehearsals")] = False,
) -> None:
    """Run a node: answers what its policy allows, with the fedsofim installed here, never with code a server sends."""
    if context.invoked_subcommand is not None:
        return
    if policy is None or superlink is None:
        raise InputError("a node needs --policy and --superlink; `fedsofim node check` says what else is missing")
    facts = hello(read_policy(policy))  # says now, not in the first round, what is wrong with policy or data
    if insecure == (root_certificates is not None or key is not None) or (root_certificates is None) != (key is None):
        raise InputError("give --root-certificates and --key, or --insecure if you mean it")
    for path in (root_certificates, key):
        if path is not None and not path.is_file():
            raise InputError(f"{path}: no such file")
    print(f"{facts['node']}: {facts['size']} records, connecting to {superlink}", flush=True)
    run_node(policy, superlink, root_certificates, key, work)


@nodes.command("check")
def check(
    policy: Annotated[Path, typer.Option(help="the operator's policy file")],
    superlink: SuperLink = None,
    root_certificates: Certificates = None,
    key: Key = None,
) -> None:
    """Everything that is wrong with policy, data, ledger, key and connection, and what the budget would allow."""
    found = list(findings(policy, superlink, root_certificates, key))
    for right, text in found:
        print(f"{'ok    ' if right else 'WRONG '} {text}")
    if not all(finding.right for finding in found):
        raise typer.Exit(1)


@grouped
def serve(
    server: Annotated[Path, typer.Argument(help="the server folder that `federation init` wrote")],
    order: Order,
    conduct: Conduct,
    job: Annotated[Path, typer.Option(help="folder of this job: checkpoint, model, certificate")] = Path("job"),
) -> None:
    """Train a job on the connected nodes and follow it to its certificate; --resume after any interruption."""
    if conduct.resume:
        order = restore(job / CHECKPOINT).order
    else:
        check_order(order)
    follow(server, order, replace(conduct, folder=str(job.absolute()), test=_test_data(conduct.test)))


def _test_data(name: str) -> str:
    """Test data as the server's process finds it, whose folder is another; read here once: an error is told now."""
    if name:
        load(name)
    return str(Path(name).expanduser().absolute()) if name and Path(name).expanduser().exists() else name
