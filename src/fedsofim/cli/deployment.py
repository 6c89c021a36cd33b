"""`fedsofim node` and `serve`: a node that answers what its policy allows, and a job that is trained on nodes."""

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fedsofim.cli.options import grouped
from fedsofim.data.schema import read_schema
from fedsofim.deploy.checkpoint import CHECKPOINT, restore
from fedsofim.deploy.docket import Verdict
from fedsofim.deploy.following import follow
from fedsofim.deploy.node import hello
from fedsofim.deploy.order import Conduct, Order
from fedsofim.deploy.pages.coordinators import job_view
from fedsofim.deploy.pages.loopback import Page, announced
from fedsofim.deploy.pages.operators import change
from fedsofim.deploy.policy import read_policy
from fedsofim.deploy.processes import run_node
from fedsofim.deploy.readiness import findings
from fedsofim.deploy.server import check_order
from fedsofim.deploy.testing import read_test
from fedsofim.errors import InputError

nodes = typer.Typer(help="Run a node, or check it before it joins.", invoke_without_command=True)
PolicyFile = Annotated[Path | None, typer.Option(help="the operator's policy file")]
SuperLink = Annotated[str | None, typer.Option(help="host:port of the coordinator's SuperLink")]
Certificates = Annotated[Path | None, typer.Option(help="the federation's ca.crt")]
Key = Annotated[Path | None, typer.Option(help="this node's key")]
ShowPage = Annotated[bool, typer.Option("--page", help="show a page of it in a browser on this machine")]
PagePort = Annotated[int | None, typer.Option(min=1, max=65535, show_default="any", help="port of the page")]


@nodes.callback()
def node(
    context: typer.Context,
    policy: PolicyFile = None,
    superlink: SuperLink = None,
    root_certificates: Certificates = None,
    key: Key = None,
    work: Annotated[Path, typer.Option(help="folder for the node's own files")] = Path("state"),
    insecure: Annotated[bool, typer.Option(help="no encryption and no authentication: for rehearsals")] = False,
    page: ShowPage = False,
    page_port: PagePort = None,
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
    print(f"{facts['node']}: {facts['size']} {facts['unit']}s, connecting to {superlink}", flush=True)
    run_node(policy, superlink, root_certificates, key, work, _port(page, page_port))


@nodes.command("check")
def check(
    policy: Annotated[Path, typer.Option(help="the operator's policy file")],
    superlink: SuperLink = None,
    root_certificates: Certificates = None,
    key: Key = None,
) -> None:
    """Everything that is wrong with policy, data, ledger, key and connection, and what the budget would allow."""
    found = list(findings(policy, superlink, root_certificates, key))
    for finding in found:
        print(f"{finding.mark:6} {finding.text}")
    if not all(finding.right for finding in found):
        raise typer.Exit(1)


@nodes.command("stop")
def stop(policy: Annotated[Path, typer.Option(help="the operator's policy file")]) -> None:
    """Stop answering, at once and for good: every request is refused until `fedsofim node resume`."""
    read = read_policy(policy)
    was = "" if change(read, Verdict.STOPPED, "the command") else " already"
    print(f"{read.name}: stopped{was}; every request is refused until you lift it: fedsofim node resume")


@nodes.command("resume")
def resume(policy: Annotated[Path, typer.Option(help="the operator's policy file")]) -> None:
    """Lift a stop: requests are answered again as the policy allows."""
    read = read_policy(policy)
    lifted = change(read, Verdict.RESUMED, "the command")
    print(f"{read.name}: answers again" if lifted else f"{read.name}: was not stopped; nothing is changed")


@grouped
def serve(
    server: Annotated[Path, typer.Argument(help="the server folder that `federation init` wrote")],
    order: Order,
    conduct: Conduct,
    job: Annotated[Path, typer.Option(help="folder of this job: checkpoint, model, certificate")] = Path("job"),
    page: ShowPage = False,
    page_port: PagePort = None,
) -> None:
    """Train a job on the connected nodes and follow it to its certificate; --resume after any interruption."""
    if conduct.resume:
        order = restore(job / CHECKPOINT).order
    else:
        check_order(order)
    conduct = replace(_checked(conduct), folder=str(job.absolute()), statements=_statements(server))
    port = _port(page, page_port)
    shown = Page(kind="job", view=lambda: job_view(job.absolute()))
    with contextlib.nullcontext() if port is None else announced(shown, port, linger=3.0):
        follow(server, order, conduct)


def _port(page: bool, port: int | None) -> int | None:
    """Where the page is to be; None: nowhere."""
    return (port or 0) if page or port is not None else None


def _statements(server: Path) -> str:
    """Beside the nodes' keys: what each signed last (deploy/recall.py)."""
    return str((server / "statements").absolute())


def _checked(conduct: Conduct) -> Conduct:
    """Files as the server's process finds them, whose folder is another; read here once: an error is told now."""
    found = replace(conduct, test=_absolute(conduct.test), schema=_absolute(conduct.schema))
    if found.schema:
        read_schema(found.schema)
    if found.test:
        read_test(found.test, found.schema)
    return found


def _absolute(name: str) -> str:
    return str(Path(name).expanduser().absolute()) if name and Path(name).expanduser().exists() else name
