"""`fedsofim federation init`: everything N nodes and one server need, in folders to hand out.

DIR/server/             for the coordinator: certificate, node keys' public halves, start scripts
DIR/nodes/node-1/ ...   for each operator: node key, the authority's certificate, a policy to fill in, start script
DIR/authority/ca.key    signs server certificates; keep it offline
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from fedsofim.core.budget import budget_of
from fedsofim.data.schema import read_schema
from fedsofim.deploy import credentials
from fedsofim.deploy.address import Address
from fedsofim.deploy.policy import check_lists_classes
from fedsofim.errors import InputError

_POLICY = """# What this node allows. Read for every request; change it at any time. Paths are relative to this file.
format = 1

[node]
name = "{name}"
{data}
ledger = "ledger.db"          # what was released so far. Keep it as long as the data; never delete it, nor restore
                              # an older copy: both would forget what has left
# test = "held-out.csv"       # records that no round sees, on which right answers are counted
# mask_key = "mask.key"       # for secure sums: fedsofim federation mask-key {name}
witness = "{witness}"  # the file in which the node remembers how its ledger ended, whoever
                              # starts it: beside this folder, never in it. Restore no backup of both together

[budget]                      # over the life of the data: all jobs, runs and servers together
epsilon = {epsilon}
delta = {delta}
# unit = "person"             # whom epsilon protects: a person with all records, by the schema's column of kind person,
                              # or "client": all that is here. Left out: one record. Choose before the first job: a
                              # ledger that was charged for records cannot promise more later
# records_per_person = 10     # with person or client: how many records of one may count, at most

[limits]
smallest_multiplier = {multiplier}     # noise std over clip, of every single release
largest_clip = {clip}           # largest norm a record may have in a sum
methods = [{methods}]  # of what `fedsofim methods` lists
models = ["linear"]           # of what `fedsofim models` lists
secure_sum_min_clients = 0    # 0: never share noise. Else how many clients, this one included, you trust to draw
                              # their share of it; needs mask_key above and [peers] below

[work]                        # how much anybody may keep this node busy, whatever it costs in epsilon
rounds = 10000                # of one job
local_steps = 1000            # releases in one round
requests = 20000              # over the life of the ledger
requests_an_hour = 10000
message_mb = 256              # arrays of one request, or of its answer
stored_mb = 256               # answers kept for being asked again
seconds = 600                 # for one message

# [peers]                     # for secure sums: each other node, and the public half of its mask key, as its operator
# other-node = "k3Zr...="     # gave it to you and not as the coordinator did
"""

_TABLE = """data = "records.csv"          # your table: .csv, .tsv or .parquet
schema = "schema.toml"        # public, the same at every node: what the columns mean, and the classes"""
_ARRAYS = """data = "records.npz"          # arrays x (records x features, float) and y (whole labels, 0..classes-1);
                              # or a table (.csv, .parquet), with schema = "schema.toml" in the place of classes
classes = {classes}                  # public: stated here so that no record decides it"""

_FIND_PYTHON = """cd "$(dirname "$0")" || exit 1
for python in "${{PYTHON:-}}" .venv/bin/python ../.venv/bin/python "{python}" python3; do
    if [ -n "$python" ] && "$python" -c "import fedsofim" 2>/dev/null; then break; fi
    python=""
done
if [ -z "$python" ]; then
    echo "no Python here has fedsofim: pip install 'fedsofim[flower]', or set PYTHON to one that has it" >&2
    exit 1
fi
"""

_START_NODE = """#!/bin/sh
# Starts this node; `./start.sh check` looks for everything that is wrong, and starts nothing; `./start.sh --page` shows
# a page of it in a browser on this machine (its address: state/page), with the budget left and a stop switch.
# It answers only what policy.toml allows, with the fedsofim installed here; no environment need be active.
{find}if [ "${{1:-}}" = check ]; then
    shift
    exec "$python" -m fedsofim node check --policy policy.toml --superlink {address} {checked} "$@"
fi
exec "$python" -m fedsofim node --policy policy.toml --superlink {address} {security} --work state "$@"
"""

_UNIT = """# systemd: copy to /etc/systemd/system, set User and paths, then: systemctl enable --now {name}
{hint}[Unit]
Description={what}
After=network-online.target
Wants=network-online.target

[Service]
User=fedsofim
WorkingDirectory={folder}
ExecStart={folder}/{script}
Restart=always
RestartSec=2
KillMode=control-group
NoNewPrivileges=true
ProtectSystem=strict
ReadWritePaths={writes}

[Install]
WantedBy=multi-user.target
"""

_CONTAINER = """# podman build -t {name} .
# podman run -d --name {name} -v "$PWD":/data {options}{name}
# The folder is mounted, not copied: records and keys are in no image.
{hint}FROM python:3.12-slim
RUN pip install --no-cache-dir "fedsofim[flower]=={version}"
ENV PYTHON=/usr/local/bin/python3
WORKDIR /data
VOLUME ["/data"]
ENTRYPOINT ["/data/{script}"]
"""

#: For a unit, and for a container.
_PAGE_HINTS = (
    "# A page of the node on this machine: append --page --page-port 8711 to ExecStart; its address: state/page.\n",
    "# A page of the node: run with --network host and append --page to the command; its address: state/page.\n",
)

#: The same for the SuperLink.
_LINK_HINTS = (
    "",
    "# Only this container reaches the SuperLink, so jobs are ordered inside it:\n"
    '# podman exec superlink fedsofim serve "$PWD" --job "$PWD/jobs/first" ...\n',
)

_START_LINK = """#!/bin/sh
# Starts Flower's SuperLink, which connects server and nodes. Its database keeps nodes and runs over restarts.
# The SuperLink listens on this machine only (127.0.0.1:{inner}), where `fedsofim serve` submits runs. Nodes reach a
# front at port {port}, which passes what nodes say and nothing else. Never let the SuperLink itself listen for others:
# whoever reaches it can run code here.
{find}export FLWR_HOME="$PWD/flwr" FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
exec "$python" -m fedsofim.deploy.flower.front --server . --host {bind} --port {port} --inner {inner} {security}"$@"
"""

_README = """This folder was written by `fedsofim federation init`.

server/          for the coordinator: ./start-superlink.sh, then `fedsofim serve {server}`
nodes/NAME/      for each operator: fill in policy.toml, put the records beside it, make the ledger once
                 (fedsofim ledger create --policy policy.toml), look (./start.sh check), then ./start.sh
                 NAME-witness/ beside the folder remembers how the ledger ended (policy.toml: witness); the user who
                 runs the node must be able to write there
                 (./start.sh --page shows what is asked and spent; fedsofim node stop --policy policy.toml halts it)
                 NAME.service and Containerfile start it with the machine; adapt their first lines
authority/       ca.key signs new server certificates. Keep it offline; nobody needs it to run the federation.

Send each node's folder to its operator over a channel you trust: node.key is its identity. An operator who prefers
may make a key of their own (ssh-keygen -t ecdsa -b 384 -N "" -f node.key) and send only node.key.pub, which goes to
server/node-keys/NAME.pub.
{warning}"""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What the policy templates start from; each operator changes them."""

    epsilon: float | str = 2.0  # room for three jobs of 1. Or `no-privacy`, with a smallest multiplier of 0
    delta: float = 1e-5
    smallest_multiplier: float = 1.0
    largest_clip: float = 10.0
    classes: int = 10
    schema: Path | None = None  # what the nodes' tables mean; a copy for each
    methods: tuple[str, ...] = ("fedsofim", "fedgd", "fedadam")


def hand_out(folder: Path, names: list[str], where: Address, terms: Terms = Terms()) -> None:
    """Write the folders; an existing one is left alone."""
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder}: the folder is not empty; keys are never overwritten, choose another")
    if len(set(names)) != len(names) or not names:
        raise InputError(f"node names are {names}; expected at least one, each different")
    budget_of(terms.epsilon, terms.delta)  # senseless? say so before anything is written
    if terms.schema is not None:
        check_lists_classes(terms.schema, read_schema(terms.schema))
    server = folder / "server"
    for path in (folder, server, server / "node-keys", server / "flwr", folder / "authority"):
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not where.insecure:
        ca = credentials.authority(folder / "authority")
        hosts = list(dict.fromkeys([where.host, "localhost", "127.0.0.1"]))
        credentials.server_certificate(server, hosts, ca)
        _copy(folder / "authority" / "ca.crt", server / "ca.crt")
    _script(server / "start-superlink.sh", _start_link(where))
    # the port of the front: the SuperLink is reached from inside the container only, by the paths that serve knows
    options = f'-v "$PWD":"$PWD" -p {where.port}:{where.port} '
    _services(server, "superlink", "start-superlink.sh", "fedsofim SuperLink", options, hints=_LINK_HINTS)
    (server / "flwr" / "config.toml").write_text(_connection(server, where))
    for name in names:
        _node(folder, name, where, terms)
    warning = "\nINSECURE: nothing is encrypted and any process may call itself a node.\n" if where.insecure else ""
    (folder / "README.txt").write_text(_README.format(server=server, warning=warning))


def _node(folder: Path, name: str, where: Address, terms: Terms) -> None:
    node = folder / "nodes" / name
    node.mkdir(parents=True, mode=0o700)
    security = "--insecure"
    if not where.insecure:
        (folder / "server" / "node-keys" / f"{name}.pub").write_bytes(credentials.node_key(node, name))
        _copy(folder / "authority" / "ca.crt", node / "ca.crt")
        security = "--root-certificates ca.crt --key node.key"
    (node / "policy.toml").write_text(policy_text(name, terms))
    if terms.schema is not None:
        _copy(terms.schema, node / "schema.toml")
    checked = "" if where.insecure else security
    script = _START_NODE.format(address=where, security=security, checked=checked, find=_find_python())
    _script(node / "start.sh", script)
    beside = witness_of(name).parent.name  # where the container's policy looks for it too: beside its folder
    _services(node, name, "start.sh", f"fedsofim node {name}", f'-v "$PWD/../{beside}":"/{beside}" ', _PAGE_HINTS,
              writes=[f"-{node.absolute().parent / beside}"])  # fmt: skip


def witness_of(name: str) -> Path:
    """Where a node remembers how its ledger ended, from its policy's folder: the same for every user and service."""
    return Path("..") / f"{name}-witness" / "ledger.json"


def policy_text(name: str, terms: Terms) -> str:
    """A policy template filled in."""
    data = _ARRAYS.format(classes=terms.classes) if terms.schema is None else _TABLE
    return _POLICY.format(
        name=name, data=data, witness=witness_of(name), epsilon=json.dumps(terms.epsilon), delta=terms.delta,
        multiplier=terms.smallest_multiplier, clip=terms.largest_clip,
        methods=", ".join(f'"{m}"' for m in terms.methods),
    )  # fmt: skip


def _start_link(where: Address) -> str:
    bind = where.host if where.host in ("127.0.0.1", "localhost") else "0.0.0.0"
    security = "--insecure " if where.insecure else ""
    return _START_LINK.format(security=security, bind=bind, port=where.port, inner=where.inner, find=_find_python())


def _find_python() -> str:
    return _FIND_PYTHON.format(python=sys.executable)


def _services(
    folder: Path, name: str, script: str, what: str, options: str = "", hints: tuple[str, str] = ("", ""), *,
    writes: Sequence[str] = (),
) -> None:  # fmt: skip
    """What starts it with the machine: a unit for systemd and a container's recipe, each with a hint. `writes`: what it
    writes to beside its folder."""
    where = " ".join(_quoted(path) for path in (str(folder.absolute()), *writes))
    unit = _UNIT.format(name=name, what=what, folder=folder.absolute(), script=script, hint=hints[0], writes=where)
    (folder / f"{name}.service").write_text(unit)
    container = _CONTAINER.format(name=name, script=script, options=options, version=version("fedsofim"), hint=hints[1])
    (folder / "Containerfile").write_text(container)


def _connection(server: Path, where: Address) -> str:
    """Flower's own configuration: where `flwr run` finds the SuperLink."""
    how = "insecure = true" if where.insecure else f'root-certificates = "{server.absolute() / "ca.crt"}"'
    near = f"127.0.0.1:{where.inner}"  # behind the front: nodes cannot submit runs, this machine can
    return f'[superlink]\ndefault = "federation"\n\n[superlink.federation]\naddress = "{near}"\n{how}\n'


def _copy(source: Path, target: Path) -> None:
    target.write_bytes(source.read_bytes())


def _script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)  # the folder is its owner's alone


def _quoted(path: str) -> str:
    """A path in a list of systemd's."""
    return f'"{path}"' if " " in path else path
