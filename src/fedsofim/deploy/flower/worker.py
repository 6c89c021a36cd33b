"""The process that answers a node's messages, one after another: `python -m fedsofim.deploy.flower.worker`.

It is kept for as long as messages come, so that a job's programs are read and compiled once. It reads letters from
its standard input and writes answers to its standard output; whatever is printed goes to the log. It ends with the
process that started it, whatever ends that.
"""

import ctypes
import json
import os
import signal
import sys
from collections.abc import Mapping
from typing import IO, Any

from flwr.app import Context, RecordDict
from flwr.app.message import Message, remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree, no_object_id_recompute
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

from fedsofim.deploy.flower.client_app import app
from fedsofim.deploy.flower.fleet import Answer

_DIE_WITH_PARENT = 1  # of Linux's prctl


def answered(top: str, contents: dict[str, bytes], node: int, config: Mapping[str, str]) -> Answer:
    """What this installation's ClientApp says to a message."""
    message: Any = inflate_object_from_contents(top, contents)
    message.metadata.__dict__["_message_id"] = top  # which the contents do not tell
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, message.metadata.run_id, node
    context = Context(
        run_id=message.metadata.run_id, node_id=node, node_config=dict(config), state=RecordDict(), run_config={}
    )
    return packed(app(message, context))


def packed(reply: Message) -> Answer:
    """A reply as it is sent."""
    reply.metadata.__dict__["_message_id"] = reply.object_id
    head = message_to_proto(remove_content_from_message(reply)).SerializeToString()
    with no_object_id_recompute():
        tree = get_object_tree(reply).SerializeToString()
        return Answer(head, tree, {name: each.deflate() for name, each in get_all_nested_objects(reply).items()})


# --- letters and answers between two processes --------------------------------------------------------------


def put(file: IO[bytes], facts: Mapping[str, Any], parts: Mapping[str, bytes]) -> None:
    """One frame: a line of JSON with the parts' sizes, then the parts."""
    head = {"facts": dict(facts), "parts": {name: len(part) for name, part in parts.items()}}
    file.write(json.dumps(head).encode() + b"\n" + b"".join(parts.values()))
    file.flush()


def get(file: IO[bytes]) -> tuple[dict[str, Any], dict[str, bytes]] | None:
    """The next frame; None at the end."""
    line = file.readline()
    if not line.endswith(b"\n"):
        return None
    head = json.loads(line)
    parts = {name: file.read(size) for name, size in head["parts"].items()}
    if any(len(parts[name]) != size for name, size in head["parts"].items()):
        return None
    return head["facts"], parts


def main() -> None:
    config = json.loads(sys.argv[1])
    die_with(int(sys.argv[2]))
    letters, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anybody prints must not come between answers
    for kind in (signal.SIGINT, signal.SIGTERM):
        signal.signal(kind, signal.SIG_DFL)
    while (letter := get(letters)) is not None:
        facts, contents = letter
        answer = answered(facts["top"], contents, facts["node"], config)
        put(answers, {}, {"head": answer.head, "tree": answer.tree, **answer.contents})


def die_with(parent: int) -> None:
    """End when the parent ends, even if that is killed; elsewhere than on Linux, when the next letter does not come."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit("the node has ended")


if __name__ == "__main__":
    main()
