"""Who is here: the connected nodes' introductions, and a job's clients found again among them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from logging import WARNING, getLogger
from pathlib import Path
from typing import Any

from fedsofim.deploy.clients import Client, check_names, client_of
from fedsofim.deploy.flower.messages import Reply, query_message, recall_message
from fedsofim.deploy.flower.post import Post
from fedsofim.deploy.order import Conduct
from fedsofim.deploy.recall import keep, kept
from fedsofim.errors import InputError

_LOG = getLogger("flwr")
_PAUSE = 1.0  # seconds before looking for more nodes
_AWHILE = 10.0  # seconds for more nodes to come where those that were waited for are here and some of them refuse


Tell = Callable[[str], None]


def introductions(
    post: Post, wanted: int, conduct: Conduct, tell: Tell = lambda text: None, *, least: int | None = None
) -> dict[int, Any]:
    """Every connected node's hello, once as many as wanted have said it, or when patience ends.

    A node that refuses takes no part, and keeps nobody else from it.

    Args:
        post: To the nodes.
        wanted: How many are waited for.
        conduct: Patience, and which nodes are named.
        tell: Hears who is here, who refuses and how many are waited for.
        least: How many are enough where the others are here and refuse; as many as wanted if left out.

    Raises:
        InputError: If too few have said it.
    """
    known: dict[int, dict[str, Any]] = {}
    against: dict[int, str] = {}
    end, said = post.clock.monotonic() + conduct.patience, ""
    while True:
        fresh = [n for n in post.grid.get_node_ids() if n not in known and n not in against]
        asked = [query_message("hello", n) for n in fresh]
        for number, reply in post.exchange(asked, min(conduct.timeout, conduct.patience)).items():
            if why := _strange(number, reply):
                against[number] = why
                _LOG.log(WARNING, "fedsofim: %s", why)
            elif reply.error:
                _LOG.log(WARNING, "fedsofim: node %d did not introduce itself: %s", number, reply.error)
            elif not conduct.named or reply.facts["node"] in conduct.named:
                known[number] = reply.facts
        if len(known) >= wanted:
            return known
        names = ", ".join(sorted(h["node"] for h in known.values())) or "none"
        refusals = "".join(f"; {why}" for why in against.values())
        if (
            text := f"waiting for nodes: {len(known)} of {wanted} are here ({names}){refusals}; start the others"
        ) != said:
            tell(said := text)
        if against and len(known) + len(against) >= wanted:
            end = min(end, post.clock.monotonic() + _AWHILE)  # nobody else is expected
        if post.clock.monotonic() > end:
            if against and least is not None and len(known) >= least:
                return known
            here = {h["node"] for h in known.values()}
            missing = "".join(f"; {name} is not connected" for name in conduct.named if name not in here)
            raise InputError(
                f"{len(known)} nodes answered in time ({names}); the job is for {wanted}{refusals}{missing}"
            )
        post.clock.sleep(_PAUSE)


def _strange(number: int, reply: Reply) -> str:
    """Why a node does not take part, by its own word or because nobody can read it."""
    if reply.error:
        return ""
    name = reply.facts.get("node", f"node {number}")
    if "refused" in reply.facts:
        return f"{name} does not take part: {reply.facts['refused']}"
    try:
        client_of(reply.facts)
    except InputError as error:
        return f"{name} cannot take part: {error}"
    return ""


def chosen(hellos: dict[int, Any], wanted: int) -> dict[int, Any]:
    """As many of these nodes as a job is for: the first by name, so that the same nodes are chosen every time."""
    by_name = sorted(hellos.items(), key=lambda pair: pair[1]["node"])
    check_names([hello["node"] for _, hello in by_name])
    if left := [hello["node"] for _, hello in by_name[wanted:]]:
        taken = ", ".join(hello["node"] for _, hello in by_name[:wanted])
        text = "fedsofim: the job is for %d nodes and takes the first by name, %s; without %s. --nodes names others"
        _LOG.log(WARNING, text, wanted, taken, ", ".join(left))
    return dict(by_name[:wanted])


def meet_again(
    post: Post, clients: tuple[Client, ...], conduct: Conduct, enough: int, tell: Tell = lambda text: None
) -> dict[str, int]:
    """Flower's number of each client, after a restart of theirs or ours; they must be who they were.

    All of them, unless fewer are `enough`.
    """
    names = {client.name for client in clients}
    hellos = introductions(post, enough, replace(conduct, nodes=",".join(sorted(names))), tell)
    check_names([h["node"] for h in hellos.values()])
    numbers = {h["node"]: number for number, h in hellos.items()}
    for client in clients:
        if client.name not in numbers and enough == len(clients):
            raise InputError(f"the job's client {client.name} is not connected; start its node and resume")
        if client.name in numbers and client != _as_before(client, client_of(hellos[numbers[client.name]])):
            raise InputError(f"{client.name} has other records, another schema, ledger or mask key than when the job "
                             "began; start a new job")  # fmt: skip
    return {client.name: numbers[client.name] for client in clients if client.name in numbers}


def _as_before(client: Client, now: Client) -> Client:
    """What is left of a policy's budget changes while a job runs; the job was planned for what it was."""
    mask_key = now.mask_key if client.mask_key else ""  # of a checkpoint of before keys were stated
    return replace(now, allows=client.allows, mask_key=mask_key)


def give_back(post: Post, nodes: Mapping[str, int], conduct: Conduct, enough: int) -> dict[str, int]:
    """Give every node what it signed last, as a second witness of its ledger; whose ledger is older takes no part.

    Returns:
        The nodes that take part; InputError if fewer than `enough` are left.
    """
    if not conduct.statements:
        return dict(nodes)
    known = {name: kept(Path(conduct.statements), name) for name in nodes}
    asked = [recall_message(said, nodes[name]) for name, said in known.items() if said is not None]
    replies = post.exchange(asked, min(conduct.timeout, conduct.patience)) if asked else {}
    against = {n: r.facts["refused"] for n, i in nodes.items() if (r := replies.get(i)) and "refused" in r.facts}
    if against:
        reasons = "; ".join(f"{name}: {why}" for name, why in sorted(against.items()))
        if len(nodes) - len(against) < enough:
            raise InputError(f"nothing was asked and nothing spent: a ledger is not what its node signed ({reasons})")
        _LOG.log(WARNING, "fedsofim: does not take part, its ledger is not what it signed: %s", reasons)
    for name, number in nodes.items():
        said = replies[number].facts.get("recalled") if number in replies else None
        if said not in (None, "the ledger has it"):
            _LOG.log(WARNING, "fedsofim: %s, what it signed last: %s", name, said)
    return {name: number for name, number in nodes.items() if name not in against}


def remember(conduct: Conduct, statements: Mapping[str, Mapping[str, Any]]) -> None:
    """Keep what the nodes signed, for the next time; who states less than before is named in the log."""
    for said in keep(Path(conduct.statements), statements) if conduct.statements else ():
        _LOG.log(WARNING, "fedsofim: %s", said)
