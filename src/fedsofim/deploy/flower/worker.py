"""The process that answers a node's messages, one after another: `python -m fedsofim.deploy.flower.worker`.

It is kept for as long as messages come, so that a job's programs are read and compiled once. It reads letters from
its standard input and writes answers to its standard output; whatever is printed goes to the log. It ends with the
process that started it, whatever ends that.
"""

import json
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

from flwr.app import Error, RecordDict

from fedsofim.deploy.flower.client_app import Incoming, respond
from fedsofim.deploy.flower.edge import Head, unpacked
from fedsofim.deploy.flower.fleet import Answer
from fedsofim.deploy.flower.flower_api import (
    ErrorCode,
    Message,
    Metadata,
    TaskIdentity,
    get_all_nested_objects,
    get_object_tree,
    make_message,
    message_to_proto,
    no_object_id_recompute,
    remove_content_from_message,
)
from fedsofim.deploy.flower.messages import reply_message
from fedsofim.deploy.flower.pipe import die_with, get, put
from fedsofim.errors import InputError


def answered(head: Head, contents: Mapping[str, bytes], node: int, most: int, config: Mapping[str, str]) -> Answer:
    """What this installation says to a message.

    Args:
        head: Of the message.
        contents: Of its parts, by their ids.
        node: This node's number.
        most: Bytes of arrays in the message, at most.
        config: Of the node, for `respond`.
    """
    try:
        opened: Any = unpacked(head.message, contents, most)
    except InputError as error:
        opened = error
    return packed(reply_message(*respond(Incoming(head.kind, head.run, opened), config), _question(head, node)))


def failed(head: Head, node: int, why: str) -> Answer:
    """What Flower calls an error, for a message that has no answer."""
    error = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, f"the node could not answer: {why}")
    return packed(Message(error, reply_to=_question(head, node)))


def _question(head: Head, node: int) -> Message:
    """A message with nothing in it, to reply to."""
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, head.run, node
    metadata = Metadata(
        run_id=head.run, message_id=head.message, src_node_id=head.sender, dst_node_id=node, reply_to_message_id="",
        group_id=head.group, created_at=head.created, ttl=head.ttl, message_type=head.kind or "query",
    )  # fmt: skip
    return make_message(metadata, RecordDict())


def packed(reply: Message) -> Answer:
    """A reply as it is sent."""
    reply.metadata.__dict__["_message_id"] = reply.object_id
    head = message_to_proto(remove_content_from_message(reply)).SerializeToString()
    with no_object_id_recompute():
        tree = get_object_tree(reply).SerializeToString()
        return Answer(head, tree, {name: each.deflate() for name, each in get_all_nested_objects(reply).items()})


def main() -> None:
    config = json.loads(sys.argv[1])
    die_with(int(sys.argv[2]))
    letters, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anybody prints must not come between answers
    for kind in (signal.SIGINT, signal.SIGTERM):
        signal.signal(kind, signal.SIG_DFL)
    while (letter := get(letters)) is not None:
        facts, contents = letter
        answer = answered(Head(*facts["head"]), contents, facts["node"], facts["most"], config)
        put(answers, {}, {"head": answer.head, "tree": answer.tree, **answer.contents})


if __name__ == "__main__":
    main()
