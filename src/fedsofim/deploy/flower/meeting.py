"""Who is here: the connected nodes' introductions, and a job's clients found again among them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from logging import WARNING, getLogger
from pathlib import Path
from typing import Any

from fedsofim.deploy.clients import Client, check_names, client_of
from fedsofim.deploy.flower.messages import query_message, recall_message
from fedsofim.deploy.flower.post import Post
from fedsofim.deploy.order import Conduct
from fedsofim.deploy.recall import keep, kept
from fedsofim.errors import InputError

_LOG = getLogger("flwr")
_PAUSE = 1.0  # seconds before looking for more nodes


Tell = Callable[[str], None]


def introductions(post: Post, wanted: int, conduct: Conduct, tell: Tell = lambda text: None) -> dict[int, Any]:
    """Every connected node's hello, once as many as wanted have said it, or when patience ends.

    `tell` hears who is here and how many are waited for.
    """
    known: dict[int, dict[str, Any]] = {}
    end = post.clock.monotonic() + conduct.patience
    while True:
        fresh = [n for n in post.grid.get_node_ids() if n not in known]
        asked = [query_message("hello", n) for n in fresh]
        for number, reply in post.exchange(asked, min(conduct.timeout, conduct.patience)).items():
            if "refused" in reply.facts:
                raise InputError(f"{reply.facts.get('node')} does not take part: {reply.facts['refused']}")
            if reply.error:
                _LOG.log(WARNING, "fedsofim: node %d did not introduce itself: %s", number, reply.error)
            elif isinstance(reply.facts.get("node"), str):
                known[number] = reply.facts
        names = sorted(h["node"] for h in known.values())
        if len(known) >= wanted:
            return known
        tell(f"waiting for nodes: {len(known)} of {wanted} are here ({', '.join(names) or 'none'}); start the others")
        if post.clock.monotonic() > end:
            raise InputError(
                f"{len(known)} nodes answered in {conduct.patience:g} s ({names}); the job is for {wanted}"
            )
        post.clock.sleep(_PAUSE)


def meet_again(
    post: Post, clients: tuple[Client, ...], conduct: Conduct, enough: int, tell: Tell = lambda text: None
) -> dict[str, int]:
    """Flower's number of each client, after a restart of theirs or ours; they must be who they were.

    All of them, unless fewer are `enough`.
    """
    hellos = introductions(post, enough, conduct, tell)
    check_names([h["node"] for h in hellos.values()])
    numbers = {h["node"]: number for number, h in hellos.items()}
    for client in clients:
        if client.name not in numbers and enough == len(clients):
            raise InputError(f"the job's client {client.name} is not connected; start its node and resume")
        if client.name in numbers and client != _as_before(client, client_of(hellos[numbers[client.name]])):
            raise InputError(f"{client.name} has other records, another schema or another ledger than when the job "
                             "began; start a new job")  # fmt: skip
    return {client.name: numbers[client.name] for client in clients if client.name in numbers}


def _as_before(client: Client, now: Client) -> Client:
    """What is left of a policy's budget changes while a job runs; the job was planned for what it was."""
    return replace(now, allows=client.allows)


def give_back(post: Post, nodes: Mapping[str, int], conduct: Conduct) -> None:
    """Give every node what it signed last, as a second witness of its ledger; whose ledger is older takes no part."""
    if not conduct.statements:
        return
    known = {name: kept(Path(conduct.statements), name) for name in nodes}
    asked = [recall_message(said, nodes[name]) for name, said in known.items() if said is not None]
    replies = post.exchange(asked, min(conduct.timeout, conduct.patience)) if asked else {}
    against = {n: r.facts["refused"] for n, i in nodes.items() if (r := replies.get(i)) and "refused" in r.facts}
    if against:
        reasons = "; ".join(f"{name}: {why}" for name, why in sorted(against.items()))
        raise InputError(f"nothing was asked and nothing spent: a ledger is not what its node signed ({reasons})")
    for name, number in nodes.items():
        said = replies[number].facts.get("recalled") if number in replies else None
        if said not in (None, "the ledger has it"):
            _LOG.log(WARNING, "fedsofim: %s, what it signed last: %s", name, said)


def remember(conduct: Conduct, statements: Mapping[str, Mapping[str, Any]]) -> None:
    """Keep what the nodes signed, for the next time; who states less than before is named in the log."""
    for said in keep(Path(conduct.statements), statements) if conduct.statements else ():
        _LOG.log(WARNING, "fedsofim: %s", said)
