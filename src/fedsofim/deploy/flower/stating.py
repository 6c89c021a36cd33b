"""The end of a job: every client's signed statement of its account, for the certificate."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from fedsofim.deploy.certificate import sound
from fedsofim.deploy.clients import Client
from fedsofim.deploy.flower.meeting import introductions
from fedsofim.deploy.flower.messages import query_message
from fedsofim.deploy.flower.post import Post
from fedsofim.deploy.order import Conduct
from fedsofim.errors import InputError

_PAUSE = 1.0  # seconds before those who said nothing are looked for again


def statements_of(
    post: Post,
    clients: tuple[Client, ...],
    nodes: Mapping[str, int],
    conduct: Conduct,
    tell: Callable[[str], None],
    late: Mapping[str, Sequence[int]],
) -> dict[str, dict[str, Any]]:
    """What each client states, by its name. One that is away, or whose answer gets lost, is asked again until
    `patience` ends: rounds can do without somebody, but a certificate is about everybody who ever took part. Whose
    answers came `late` for some rounds is told so.
    """
    end, names = post.clock.monotonic() + conduct.patience, {c.name for c in clients}
    stated: dict[str, dict[str, Any]] = {}
    while True:
        connected, left = set(post.grid.get_node_ids()), names - set(stated)
        asked = {number: name for name, number in nodes.items() if name in left and number in connected}
        unused = {number: len(late.get(name, ())) for number, name in asked.items()}
        messages = [query_message("account", number, unused=unused[number]) for number in asked]
        replies = post.exchange(messages, min(conduct.timeout, conduct.patience)) if messages else {}
        stated |= {asked[n]: reply.facts for n, reply in replies.items() if sound(reply.facts)}
        if not (left := names - set(stated)) or post.clock.monotonic() > end:
            return stated
        tell(f"waiting for what {', '.join(sorted(left))} state of their accounts")
        post.clock.sleep(_PAUSE)
        nodes = {**nodes, **_here(post, conduct)}


def _here(post: Post, conduct: Conduct) -> dict[str, int]:
    """Flower's number of every node that answers now; who comes back may have another one."""
    with suppress(InputError):  # nobody, or somebody who takes no part: the job is over, and nothing is asked of them
        return {h["node"]: number for number, h in introductions(post, 1, conduct).items()}
    return {}
