"""The deployment commands: node, serve, federation, certificate. Flower is imported only when one needs it."""

import json
import math
import time
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from fedsofim.errors import InputError, one_of

federation_app = typer.Typer(help="Set up a federation, or watch one on this machine.", no_args_is_help=True)
certificate_app = typer.Typer(help="Read and check what was released and what it cost.", no_args_is_help=True)


def register_commands(app: typer.Typer) -> None:
    """Add the deployment commands to the program's."""
    app.command()(node)
    app.command()(serve)
    app.add_typer(federation_app, name="federation")
    app.add_typer(certificate_app, name="certificate")


def node(
    policy: Annotated[Path, typer.Option(help="the operator's policy file")],
    superlink: Annotated[str, typer.Option(help="host:port of the coordinator's SuperLink")],
    root_certificates: Annotated[Path | None, typer.Option(help="the federation's ca.crt")] = None,
    key: Annotated[Path | None, typer.Option(help="this node's key")] = None,
    work: Annotated[Path, typer.Option(help="folder for the node's own files")] = Path("state"),
    insecure: Annotated[bool, typer.Option(help="no encryption and no authentication: for rehearsals")] = False,
) -> None:
    """Run a node: answers what its policy allows, with the fedsofim installed here, never with code a server sends."""
    from fedsofim.deploy.node import hello
    from fedsofim.deploy.policy import read_policy
    from fedsofim.deploy.processes import keep_running, node_command, node_environment, nursery_command

    facts = hello(read_policy(policy))  # says now, not in the first round, what is wrong with policy or data
    if insecure == (root_certificates is not None or key is not None) or (root_certificates is None) != (key is None):
        raise InputError("give --root-certificates and --key, or --insecure if you mean it")
    for path in (root_certificates, key):
        if path is not None and not path.is_file():
            raise InputError(f"{path}: no such file")
    print(f"{facts['node']}: {facts['size']} records, connecting to {superlink}", flush=True)
    environment = node_environment(work)
    keep_running([nursery_command(work), node_command(policy, superlink, root_certificates, key)], environment)
    print(f"{facts['node']}: stopped")


def serve(
    server: Annotated[Path, typer.Argument(help="the server folder that `federation init` wrote")],
    job: Annotated[Path, typer.Option(help="folder of this job: checkpoint, model, certificate")] = Path("job"),
    method: Annotated[str, typer.Option(help="see `fedsofim methods`")] = "fedsofim",
    setting: Annotated[list[str] | None, typer.Option("--set", help="a parameter of the method, name=value")] = None,
    epsilon: Annotated[float, typer.Option(help="budget for the whole job; inf: no noise")] = 1.0,
    delta: Annotated[float, typer.Option(help="delta of the budget")] = 1e-5,
    rounds: Annotated[int, typer.Option(help="rounds of the job")] = 70,
    clip: Annotated[float, typer.Option(help="largest norm of a record's gradient")] = 10.0,
    clients: Annotated[int, typer.Option(help="nodes that take part: every round needs all of them")] = 3,
    weights: Annotated[str, typer.Option(help="uniform, or size")] = "uniform",
    trust: Annotated[str, typer.Option(help="local, or secure-sum: masked uploads that share the noise")] = "local",
    standardize_share: Annotated[float, typer.Option(help="share of the budget for feature moments; 0: none")] = 0.0,
    seed: Annotated[int, typer.Option(help="of the initial parameters")] = 0,
    test: Annotated[str, typer.Option(help="public test data of the coordinator")] = "",
    patience: Annotated[float, typer.Option(help="seconds to wait for nodes")] = 120.0,
    resume: Annotated[bool, typer.Option("--resume", help="go on from the job's checkpoint")] = False,
) -> None:
    """Train a job on the connected nodes and follow it to its certificate; --resume after any interruption."""
    from fedsofim.cli.app import settings
    from fedsofim.core.plan import Trust, Weights
    from fedsofim.deploy.checkpoint import CHECKPOINT, restore
    from fedsofim.deploy.following import follow
    from fedsofim.deploy.server import Order

    chosen = tuple(sorted(settings(setting).items()))
    public = (one_of("weights", weights, get_args(Weights)), one_of("trust", trust, get_args(Trust)))
    order = Order(method, chosen, epsilon, delta, rounds, clip, clients, *public, standardize_share, seed)
    if resume:
        order = restore(job / CHECKPOINT).order
    else:
        _check_order(order)
    config = {
        "method": order.method, "settings": " ".join(f"{k}={v}" for k, v in order.settings), "epsilon": order.epsilon,
        "delta": order.delta, "rounds": order.rounds, "clip": order.clip, "clients": order.clients,
        "weights": order.weights, "trust": order.trust, "standardize": order.standardize, "seed": order.seed,
        "test": test, "patience": patience, "folder": str(job.absolute()), "resume": resume,
    }  # fmt: skip
    follow(server, job, config)


def _check_order(order: Any) -> None:
    """A senseless order is an error here, before any node is asked: begun with clients of some size."""
    from fedsofim.deploy.server import Client, begin

    if order.clients < 1:
        raise InputError(f"clients is {order.clients}; expected at least 1")
    begin(order, tuple(Client(f"{i}", 100, (8,), 2) for i in range(order.clients)))


@federation_app.command("init")
def init(
    folder: Annotated[Path, typer.Argument(help="new folder to write")],
    nodes: Annotated[int, typer.Option(help="number of nodes")] = 3,
    host: Annotated[str, typer.Option(help="name or address by which nodes reach the server")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="port of the SuperLink")] = 9092,
    epsilon: Annotated[float, typer.Option(help="cap in the policy templates")] = 1.0,
    delta: Annotated[float, typer.Option(help="delta in the policy templates")] = 1e-5,
    classes: Annotated[int, typer.Option(help="classes in the policy templates")] = 10,
    insecure: Annotated[bool, typer.Option("--insecure", help="no certificates: for rehearsals only")] = False,
) -> None:
    """Write certificates, keys, policy templates and start scripts for a server and its nodes."""
    from fedsofim.deploy import handout as federation
    from fedsofim.deploy.processes import command

    command("flwr")  # without Flower there is nothing to set up
    if nodes < 1:
        raise InputError(f"nodes is {nodes}; expected at least 1")
    names = [f"node-{i + 1}" for i in range(nodes)]
    where = federation.Federation(host, port, insecure)
    federation.init(folder, names, where, federation.Terms(epsilon=epsilon, delta=delta, classes=classes))
    print(f"wrote {folder}: read {folder / 'README.txt'}")


@federation_app.command("mask-key")
def mask_key(
    name: Annotated[str, typer.Argument(help="this node's name, as in its policy")],
    out: Annotated[Path, typer.Option(help="where the secret half goes")] = Path("mask.key"),
) -> None:
    """Make a node's key for secure sums. Every operator makes their own; the coordinator must never have it."""
    from fedsofim.deploy.secure_sum import new_key

    if out.exists():
        raise InputError(f"{out}: there is a key already; it is never overwritten")
    public = new_key(out)
    print(f'in your policy, section [node]:    mask_key = "{out}"')
    print(f'in the others\' policies, [peers]:  {name} = "{public}"')


@federation_app.command("demo")
def demo(
    out: Annotated[Path, typer.Option(help="folder to write")] = Path("federation-demo"),
    rounds: Annotated[int, typer.Option(help="rounds to train")] = 5,
    epsilon: Annotated[float, typer.Option(help="budget of the job, and cap of every node")] = 5.0,
    method: Annotated[str, typer.Option(help="see `fedsofim methods`")] = "fedsofim",
) -> None:
    """One server and three nodes on this machine, with TLS, on the shipped digits: trains, certifies, ends."""
    from fedsofim.deploy.demo import run_demo

    run_demo(out, rounds, epsilon, method)


@certificate_app.command("show")
def show(file: Annotated[Path, typer.Argument(help="certificate.json")]) -> None:
    """The certificate in words."""
    from fedsofim.deploy import certificate

    print(certificate.readable(certificate.read(file)))


@certificate_app.command("verify")
def verify(
    file: Annotated[Path, typer.Argument(help="certificate.json")],
    ledger: Annotated[list[Path], typer.Option(help="a node's ledger.db; repeat for each node")],
) -> None:
    """Recompute every line and epsilon from the ledgers; exit 1 if anything differs."""
    from fedsofim.deploy import certificate

    problems = certificate.verify(document := certificate.read(file), ledger)
    for problem in problems:
        print(f"WRONG  {problem}")
    if problems:
        raise typer.Exit(1)
    print(f"holds: {len(document['clients'])} clients, recomputed from their ledgers")


@certificate_app.command("ledger")
def ledger_now(
    policy: Annotated[Path, typer.Option(help="the node's policy file")],
    as_json: Annotated[bool, typer.Option("--json", help="plain data")] = False,
) -> None:
    """What this node has released so far and what is left: for its operator."""
    from fedsofim.deploy.certificate import certificate, readable, statement
    from fedsofim.deploy.policy import read_policy

    read = read_policy(policy)
    facts = statement(read)
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    print(readable(certificate("(none)", {read.name: facts})))
    if facts["epsilon"] is not None and math.isfinite(read.epsilon):
        print(f"spent {facts['epsilon']:.6g} of {read.epsilon:g}, {time.strftime('%Y-%m-%d %H:%M')}")
