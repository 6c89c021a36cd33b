"""Whatever a message holds, a node and a server open it or say in words that they cannot."""

import json
import random
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedsofim[flower]'")

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

import fake_grid  # noqa: F401 # which says who this process is, as Flower would
from fedsofim.deploy.flower.messages import ask_message, opened, request_of, what_of
from fedsofim.deploy.policy import Policy
from nodes import started
from strange_inputs import MANY, exchanged, mutated, no_exception_escapes


def test_messages(shared_nodes: list[Policy]):
    """What a node and a server open: Flower's records of any kind under any name, arrays with any form and bytes."""
    dice, right = random.Random(10), ask_message(started(shared_nodes).request(), 1)
    record: dict[str, Any] = dict(right.content["facts"])
    facts, forms = json.loads(record["json"]), json.loads(record["forms"])
    job = json.loads(facts["job"])
    values = [
        "x",
        "1",
        "{}",
        "[]",
        "null",
        '{"params0": 3}',
        '{"params0": ["O", [1]]}',
        b"",
        b"1234",
        7,
        -1.5,
        True,
        [1, 2],
        "[" * 5000,
    ]

    def act(number: int) -> None:
        changed = dict(record)
        match number % 4:
            case 0:
                changed["json"] = json.dumps(exchanged(facts | {"job": json.dumps(exchanged(job, dice))}, dice))
            case 1:
                changed["forms"] = json.dumps(exchanged(forms, dice))
            case 2:
                changed[dice.choice([*changed, "new"])] = dice.choice(values)
            case _:
                name = dice.choice(list(changed))
                old = changed[name]
                new = mutated(old if isinstance(old, bytes) else str(old).encode(), dice)
                changed[name] = new if isinstance(old, bytes) else new.decode("utf-8", "replace")
        parts: dict[str, Any] = {"facts": ConfigRecord(changed)}
        if dice.random() < 0.2:
            parts[dice.choice(["facts", "arrays", "more"])] = ArrayRecord()
        message = Message(RecordDict(parts), 1, "train")
        opened(message)  # as a server: what is wrong is its error
        what_of(message)
        request_of(message)

    no_exception_escapes(act, MANY)
