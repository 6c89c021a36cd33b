"""A job's step over Flower, secure sums that can do without some clients among it.

Such a sum is kept on disk while it is open, and opened with the nodes' help (unmasking.py).
"""

from collections.abc import Mapping
from pathlib import Path

from fedsofim.deploy.false_sums import left_out
from fedsofim.deploy.flower.meeting import meet_again
from fedsofim.deploy.flower.messages import Reply, sum_message
from fedsofim.deploy.flower.post import MOMENT, Post
from fedsofim.deploy.job_state import JobState
from fedsofim.deploy.order import Conduct
from fedsofim.deploy.server import step, step_open
from fedsofim.deploy.unmasking import Exchange, OpenSum, Said, TooFew, found_again, kept, open_sum_of
from fedsofim.deploy.wire import Arrays
from fedsofim.files import write_whole

_FILE = "open-sum.npz"  # of a job's folder


def still_open(now: JobState, folder: Path) -> OpenSum | None:
    """The open sum of the present question, if its uploads came and nothing more."""
    path = folder / _FILE
    return found_again(now, path.read_bytes()) if path.is_file() else None


def step_from(
    now: JobState, came: Mapping[str, Arrays] | OpenSum, post: Post, nodes: dict[str, int], conduct: Conduct
) -> JobState:
    """The job after one step, from sound uploads or from an open sum of them.

    `nodes`: Flower's numbers of the clients, brought up to date where somebody is back under another one.
    """
    opening = came if isinstance(came, OpenSum) else open_sum_of(now, came)
    if opening is None:
        assert not isinstance(came, OpenSum)
        return step(now, came)
    folder = Path(conduct.folder)
    folder.mkdir(parents=True, exist_ok=True)
    if opening is not came:  # on disk before any node is told: nodes stand by the first set they were told
        write_whole(folder / _FILE, lambda file: file.write(kept(opening)))
    return _opened(now, opening, post, nodes, conduct)


def forget(folder: Path) -> None:
    """Drop a sum that came out false."""
    (folder / _FILE).unlink(missing_ok=True)


def _opened(now: JobState, opening: OpenSum, post: Post, nodes: dict[str, int], conduct: Conduct) -> JobState:
    """Asking up to `attempts` times; or TooFew, and the sum stays open."""
    for attempt in range(conduct.attempts):
        try:
            helpers = {name: number for name, number in nodes.items() if name not in left_out(now)}
            return step_open(now, opening, _asking(post, helpers, conduct.timeout, patient=attempt > 0))
        except TooFew:
            if attempt + 1 == conduct.attempts:
                raise
        nodes |= meet_again(post, now.clients, conduct, 1)
    raise AssertionError("a job is conducted with at least one attempt")


def _asking(post: Post, nodes: Mapping[str, int], timeout: float, patient: bool) -> Exchange:
    """Asks those who are connected; once enough have answered the others are not waited for, unless it is patient."""

    def exchange(what: str, questions: Mapping[str, Said], enough: int) -> dict[str, Said]:
        connected = set(post.grid.get_node_ids())
        asked = {name: nodes[name] for name in questions if nodes.get(name) in connected}
        messages = [sum_message(what, number, *questions[name]) for name, number in asked.items()]
        replies = post.exchange(messages, timeout, enough, MOMENT if patient else None)
        return {name: _said(name, replies[number]) for name, number in asked.items()}

    return exchange


def _said(name: str, reply: Reply) -> Said:
    if reply.error or reply.facts.get("node") != name:
        return Said({"refused": reply.error or f"its reply calls itself {reply.facts.get('node')}"}, {})
    return Said(reply.facts, reply.arrays)
