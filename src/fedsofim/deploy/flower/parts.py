"""The parts of a message that need not be fetched.

Flower keeps a message as a tree of parts: its head, the dictionary of its records, each record, array and chunk; and
each part is a call to the SuperLink, which is what a round's time goes to (docs/performance.md). Two of them follow
from what the SuperLink tells when it announces a message. The head is told then already. A dictionary has an id, which
is the SHA-256 of its content, and children: what has the id *is* the content, whoever put it together. Whatever does
not come out so is fetched.
"""

import json
from collections.abc import Sequence

from flwr.proto.message_pb2 import Message, ObjectTree
from flwr.supercore.inflatable.inflatable_object import (
    add_header_to_object_body,
    get_object_id,
    iterate_object_tree,
)

FACTS = "facts"  # the name of the record that every message of ours has, and small ones only


def known(head: Message, tree: ObjectTree) -> dict[str, bytes]:
    """Contents of parts of an announced message, by their ids."""
    guesses = [_form("RecordDict", each, _only_facts(each)) for each in tree.children if len(each.children) == 1]
    wanted = {each.object_id for each in tree.children}
    right = {name: guess for guess in guesses if (name := get_object_id(guess)) in wanted}
    return {tree.object_id: _form("Message", tree, _told(head)), **right}


def missing(tree: ObjectTree, contents: dict[str, bytes]) -> list[str]:
    """Ids of parts that are not there yet, each once, children first."""
    return [
        name for name in dict.fromkeys(each.object_id for each in iterate_object_tree(tree)) if name not in contents
    ]


def _told(head: Message) -> bytes:
    """A head as Flower writes it into a message's own part: without its id, which is the part's, or contents."""
    metadata = type(head.metadata)()
    metadata.CopyFrom(head.metadata)
    metadata.message_id = ""
    error = head.error if head.HasField("error") else None
    return Message(metadata=metadata, error=error).SerializeToString(deterministic=True)


def _only_facts(tree: ObjectTree) -> bytes:
    return json.dumps({FACTS: tree.children[0].object_id}).encode()


def _form(kind: str, tree: ObjectTree, body: bytes) -> bytes:
    """A part of that kind with these children: Flower asks an object for its class's name and its children's ids."""
    children: Sequence[str] = [child.object_id for child in tree.children]
    return add_header_to_object_body(body, type(kind, (), {"children": dict.fromkeys(children)})())  # type: ignore[arg-type]
