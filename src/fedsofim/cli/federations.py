"""`fedsofim federation ...`: set up a federation, or watch one on this machine."""

from pathlib import Path
from typing import Annotated

import typer

from fedsofim.errors import InputError

app = typer.Typer(help="Set up a federation, or watch one on this machine.", no_args_is_help=True)


@app.command("init")
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


@app.command("mask-key")
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


@app.command("demo")
def demo(
    out: Annotated[Path, typer.Option(help="folder to write")] = Path("federation-demo"),
    rounds: Annotated[int, typer.Option(help="rounds to train")] = 5,
    epsilon: Annotated[float, typer.Option(help="budget of the job, and cap of every node")] = 5.0,
    method: Annotated[str, typer.Option(help="see `fedsofim methods`")] = "fedsofim",
) -> None:
    """One server and three nodes on this machine, with TLS, on the shipped digits: trains, certifies, ends."""
    from fedsofim.deploy.demo import run_demo

    run_demo(out, rounds, epsilon, method)
