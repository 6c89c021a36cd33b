"""The deployment commands: node, serve, federation, certificate. Flower is imported only when one needs it."""

from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from fedsofim.errors import InputError, one_of


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
    from fedsofim.core.plan import Trust, Weights
    from fedsofim.deploy.checkpoint import CHECKPOINT, restore
    from fedsofim.deploy.following import follow
    from fedsofim.deploy.server import Order
    from fedsofim.methods import parse_settings

    chosen = tuple(sorted(parse_settings(setting or []).items()))
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
