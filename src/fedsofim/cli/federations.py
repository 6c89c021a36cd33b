"""`fedsofim federation ...`: set up a federation, or watch one on this machine.

What makes keys and certificates is imported where it is used: it comes with the extra flower.
"""

import time
from pathlib import Path
from typing import Annotated

import typer

from fedsofim.core.budget import budget_of, stated
from fedsofim.data.schema import read_schema
from fedsofim.deploy.address import Address
from fedsofim.deploy.processes import command
from fedsofim.errors import InputError, expect_whole

app = typer.Typer(help="Set up a federation, or watch one on this machine.", no_args_is_help=True)


@app.command("init")
def init(
    folder: Annotated[Path, typer.Argument(help="new folder to write")],
    nodes: Annotated[int, typer.Option(help="number of nodes")] = 3,
    host: Annotated[str, typer.Option(help="name or address by which nodes reach the server")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="port of the SuperLink")] = 9092,
    epsilon: Annotated[str, typer.Option(metavar="NUMBER", help="cap in the policy templates")] = "2.0",
    delta: Annotated[float, typer.Option(help="delta in the policy templates")] = 1e-5,
    classes: Annotated[int, typer.Option(help="classes in the policy templates")] = 10,
    schema: Annotated[Path | None, typer.Option(help="what the nodes' tables mean: a copy for each node")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="no certificates: for rehearsals only")] = False,
) -> None:
    """Write certificates, keys, policy templates and start scripts for a server and its nodes."""
    command("flwr")  # without Flower there is nothing to set up
    from fedsofim.deploy.handout import Terms, hand_out

    expect_whole("nodes", nodes, 1)
    names = [f"node-{i + 1}" for i in range(nodes)]
    cap = budget_of(epsilon, delta)
    multiplier = 1.0 if cap.private else 0.0  # a cap of no-privacy is for rehearsals, which have no noise
    terms = Terms(
        epsilon=stated(cap.epsilon), delta=delta, smallest_multiplier=multiplier, classes=classes, schema=schema
    )
    hand_out(folder, names, Address(host, port, insecure), terms)
    print(f"wrote {folder}: read {folder / 'README.txt'}")
    if schema is not None and (leaks := read_schema(schema).leaks_in_words):
        typer.echo(
            f"warning: {schema}: {leaks} were read off somebody's records (from_records). Epsilon does not cover it, "
            "and every node gets a copy. Replace it by what anybody may know, delete the from_records lines, and give "
            "the new file to every node before it starts",
            err=True,
        )


@app.command("mask-key")
def mask_key(
    name: Annotated[str, typer.Argument(help="this node's name, as in its policy")],
    out: Annotated[Path, typer.Option(help="where the secret half goes")] = Path("mask.key"),
    replace: Annotated[bool, typer.Option("--replace", help="put the old key aside and make a new one")] = False,
) -> None:
    """Make a node's key for secure sums. Every operator makes their own; the coordinator must never have it."""
    from fedsofim.deploy.secure_sum import new_key

    _make_room(out, replace)
    public = new_key(out)
    print(f'in your policy, section [node]:    mask_key = "{out}"')
    print(f'in the others\' policies, [peers]:  {name} = "{public}"')


@app.command("node-key")
def node_key(
    name: Annotated[str, typer.Argument(help="this node's name, as in its policy")],
    folder: Annotated[Path, typer.Option(help="the node's folder, for node.key and node.pub")] = Path(),
    replace: Annotated[bool, typer.Option("--replace", help="put the old key aside and make a new one")] = False,
) -> None:
    """Make the key by which the server knows a node, and by which the node signs. Only node.pub leaves the machine."""
    from fedsofim.deploy import credentials

    _make_room(folder / "node.key", replace)
    credentials.node_key(folder, name)
    print(f"send {folder / 'node.pub'} to the coordinator, who puts it in place of server/node-keys/{name}.pub;")
    print("the next `fedsofim serve` makes it known and takes the old one back")


def _make_room(path: Path, replace: bool) -> None:
    """A key is never overwritten: the old one is put aside, if its owner says so."""
    if not path.exists():
        return
    if not replace:
        raise InputError(f"{path}: there is a key already; it is never overwritten. To replace it: --replace")
    aside = path.with_name(f"{path.name}.{time.strftime('%Y%m%d-%H%M%S')}")
    path.rename(aside)
    print(f"the old key is now {aside}; delete it when nobody needs it any more")


@app.command("demo")
def demo(
    out: Annotated[Path, typer.Option(help="folder to write")] = Path("federation-demo"),
    rounds: Annotated[int, typer.Option(help="rounds to train")] = 5,
    epsilon: Annotated[str, typer.Option(metavar="NUMBER", help="budget of the job, and cap of every node")] = "5.0",
    method: Annotated[str, typer.Option(help="see `fedsofim methods`")] = "fedsofim",
) -> None:
    """One server and three nodes on this machine, with TLS, on the shipped digits: trains, certifies, ends."""
    command("flwr")
    from fedsofim.deploy.demo import run_demo

    run_demo(out, rounds, stated(budget_of(epsilon, 1e-5).epsilon), method)
