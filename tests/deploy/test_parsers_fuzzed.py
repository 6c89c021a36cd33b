"""Parsers of what strangers and disks may hold: whatever comes, a value or an error in words, never another exception.

Inputs are mutations of right ones (strange_inputs.py). The long form, `FEDSOFIM_FUZZ=20000`, is the same with more of
them: docs/fuzzing.md. Messages as Flower brings them are in flower/test_messages_fuzzed.py.
"""

import json
import random
from pathlib import Path

import numpy as np
import pytest

from fedsofim.deploy.account import Account
from fedsofim.deploy.certificate import read
from fedsofim.deploy.checkpoint import restore, save
from fedsofim.deploy.clients import clients_of
from fedsofim.deploy.policy import Policy, read_policy
from fedsofim.deploy.sane import plain
from fedsofim.deploy.wire import Job
from fedsofim.deploy.witness import read_witness
from ledgers import ask, made, open_
from nodes import policy_toml, started
from strange_inputs import MANY, exchanged, mutated, no_exception_escapes


@pytest.fixture(scope="module")
def job(shared_nodes: list[Policy]) -> Job:
    return started(shared_nodes, standardize=0.1).job


def test_terms(job: Job):
    dice, right = random.Random(1), json.loads(job.text())

    def act(number: int) -> None:
        text = json.dumps(exchanged(right, dice))
        Job.read(text if number % 2 else mutated(text.encode(), dice).decode("utf-8", "replace"))

    no_exception_escapes(act, MANY)


def test_plain_data(job: Job):
    dice = random.Random(2)
    no_exception_escapes(lambda n: plain(mutated(job.text().encode(), dice).decode("utf-8", "replace")), MANY)


def test_policies(tmp_path: Path):
    dice, path = random.Random(3), tmp_path / "policy.toml"
    right = (policy_toml() + "secure_sum_min_clients = 0\n[work]\nrounds = 3\n").encode()

    def act(number: int) -> None:
        path.write_bytes(mutated(right, dice))
        read_policy(path)

    no_exception_escapes(act, MANY)


def test_introductions():
    dice = random.Random(4)
    right = {"node": "a", "size": 3, "shape": [4], "classes": 3, "ledger": "x"}
    no_exception_escapes(lambda n: clients_of([right, exchanged({**right, "node": "b"}, dice)], 2), MANY)


def test_checkpoints(tmp_path: Path, shared_nodes: list[Policy]):
    dice, path = random.Random(5), tmp_path / "checkpoint.npz"
    save(started(shared_nodes), path)
    right = path.read_bytes()

    def act(number: int) -> None:
        path.write_bytes(mutated(right, dice))
        restore(path)

    no_exception_escapes(act, MANY // 10)


def test_checkpoints_of_strange_facts(tmp_path: Path, shared_nodes: list[Policy]):
    dice, path = random.Random(6), tmp_path / "checkpoint.npz"
    save(started(shared_nodes), path)
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    right = json.loads(str(arrays["meta"]))

    def act(number: int) -> None:
        np.savez(path, **{**arrays, "meta": np.asarray(json.dumps(exchanged(right, dice)))})
        restore(path)

    no_exception_escapes(act, MANY // 20)


def test_ledgers_and_witnesses(tmp_path: Path):
    dice, path = random.Random(7), made(tmp_path / "ledger.db")
    for t in range(3):
        Account(path).close_ask(open_(path, ask(t)).number, b"reply", b"memory")
    right = path.read_bytes()

    def act(number: int) -> None:
        path.write_bytes(mutated(right, dice))
        account = Account(path)
        account.entries()
        account.terms()
        account.last()
        open_(path, ask(9))

    no_exception_escapes(act, MANY // 10)


def test_witnesses(tmp_path: Path):
    dice, path = random.Random(8), tmp_path / "witness.json"
    right = json.dumps({"ledger": "x", "where": "y", "key": "00", "count": 3, "digest": "11"}).encode()

    def act(number: int) -> None:
        path.write_bytes(mutated(right, dice))
        read_witness(path)

    no_exception_escapes(act, MANY)


def test_certificates(tmp_path: Path):
    dice, path = random.Random(9), tmp_path / "certificate.json"
    row = {"what": "g", "releases": 2, "unit_releases": 2.0, "clip": 1.0, "sensitivity": 2.0, "multiplier": 9.0,
           "sampled": 1.0, "numbers": 3}  # fmt: skip
    one = {"ledger": "x", "through": 2, "delta": 1e-5, "epsilon": 1.0, "cap": 2.0,
           "jobs": [{"job": "j", "method": "m", "rounds_planned": 3, "epsilon": 1.0, "released": [row]}]}  # fmt: skip
    right = {"certificate": 1, "job": "j", "accounting": "a", "clients": {"a": one}}

    def act(number: int) -> None:
        path.write_text(json.dumps(exchanged(right, dice)))
        read(path)

    no_exception_escapes(act, MANY)
