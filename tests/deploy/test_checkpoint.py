"""Checkpoints: a restored job is the same job bit by bit, and a damaged one is an error to read."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsofim.core.budget import WITHOUT
from fedsofim.deploy.checkpoint import restore, save
from fedsofim.deploy.job_state import JobState
from fedsofim.deploy.order import Order
from fedsofim.deploy.packing import from_bytes, to_bytes
from fedsofim.deploy.policy import Policy
from fedsofim.deploy.server import step, with_params
from fedsofim.errors import InputError
from nodes import METHODS, ask_all, make_nodes, same_bits, start


def jobs() -> list[Any]:
    return [*((name, 0.0) for name in METHODS), ("fedgd", 0.1)]


@pytest.mark.slow
@pytest.mark.parametrize("name, standardize", jobs())
def test_a_restored_job_is_the_same_job_bit_by_bit(tmp_path: Path, name: str, standardize: float):
    nodes = make_nodes(tmp_path)
    now = start(nodes, Order(recipe="paper", method=name, epsilon=1.0, rounds=3, standardize=standardize))
    path = tmp_path / "job" / "checkpoint.npz"
    seen = []
    while not now.finished:
        save(now, path)
        again = restore(path)
        request = now.request()
        assert again.request().digest() == request.digest()
        assert same_bits((again.params, again.state), (now.params, now.state))
        uploads = ask_all(nodes, now)
        now, again = step(now, uploads), step(again, uploads)
        assert same_bits((again.params, again.state), (now.params, now.state))
        assert (again.phase, again.round, again.job) == (now.phase, now.round, now.job)
        seen.append(request.digest())
    save(now, path)
    assert restore(path).finished
    assert len(set(seen)) == len(seen) >= 3


def test_a_checkpoint_holds_what_the_seed_does_not(tmp_path: Path, shared_nodes: list[Policy], now: JobState):
    mine = with_params(now, np.full_like(now.params, 0.5))
    save(mine, tmp_path / "c.npz")
    assert same_bits(restore(tmp_path / "c.npz").params, mine.params)
    after = step(mine, ask_all(shared_nodes, now))
    save(after, tmp_path / "c.npz")
    assert restore(tmp_path / "c.npz").round == 1
    assert not (tmp_path / "c.npz.part").exists()


def test_a_rehearsal_is_restored_as_one(tmp_path: Path, shared_nodes: list[Policy]):
    order = Order(recipe="paper", method="fedgd", epsilon=WITHOUT, rounds=2)
    save(start(shared_nodes, order), tmp_path / "c.npz")
    assert restore(tmp_path / "c.npz").order == order


def test_a_checkpoint_that_names_a_file_loads_nothing(tmp_path: Path, now: JobState):
    (tmp_path / "mine.py").write_text("raise AssertionError('it was loaded')\n")
    path, mine = tmp_path / "checkpoint.npz", str(tmp_path / "mine.py")
    save(now, path)
    arrays = from_bytes(path.read_bytes())
    meta = json.loads(str(arrays["meta"]))
    terms = json.dumps(json.loads(meta["job"]) | {"method": mine})
    for changed in ({"order": meta["order"] | {"method": mine}}, {"job": terms}):
        path.write_bytes(to_bytes(arrays | {"meta": np.asarray(json.dumps(meta | changed))}))
        with pytest.raises(InputError, match="installed"):
            restore(path)


def test_without_a_checkpoint_there_is_nothing_to_resume(tmp_path: Path):
    for path in (tmp_path / "none.npz", tmp_path):
        with pytest.raises(InputError, match="no checkpoint"):
            restore(path)


def damaged(path: Path, how: str) -> bytes:
    content = path.read_bytes()
    arrays = from_bytes(content)
    meta = json.loads(str(arrays["meta"]))
    middle = content.index(b"order") + 10
    return {
        "text": lambda: b"hello" * 100,
        "meta": lambda: to_bytes(arrays | {"meta": np.asarray("{}")}),
        "no JSON": lambda: to_bytes(arrays | {"meta": np.asarray("{")}),
        "order": lambda: to_bytes(arrays | {"meta": np.asarray(json.dumps(meta | {"order": {"method": 3, "x": 1}}))}),
        "job": lambda: to_bytes(arrays | {"meta": np.asarray(json.dumps(meta | {"job": "{}"}))}),
        "cut": lambda: content[: len(content) // 2],
        "empty": lambda: b"",
        "one bit": lambda: content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
        "no params": lambda: to_bytes({k: a for k, a in arrays.items() if k != "params0"}),
        "params' shape": lambda: to_bytes(arrays | {"params0": arrays["params0"][:-1]}),
        "params' dtype": lambda: to_bytes(arrays | {"params0": arrays["params0"].astype(np.float64)}),
        "phase": lambda: to_bytes(arrays | {"meta": np.asarray(json.dumps(meta | {"phase": "dessert"}))}),
        "no round": lambda: to_bytes(
            arrays | {"meta": np.asarray(json.dumps({k: v for k, v in meta.items() if k != "round"}))}
        ),
    }[how]()


@pytest.mark.parametrize(
    "how",
    [
        *("text", "meta", "no JSON", "order", "job"),
        *(pytest.param(how) for how in ("cut", "empty", "one bit", "no params", "no round")),
        *(pytest.param(how) for how in ("params' shape", "params' dtype", "phase")),
    ],
)
def test_a_damaged_checkpoint_is_an_error_to_read(tmp_path: Path, now: JobState, how: str):
    path = tmp_path / "checkpoint.npz"
    save(now, path)
    path.write_bytes(damaged(path, how))
    with pytest.raises(InputError, match=r"checkpoint\.npz"):
        restore(path)


def test_a_crash_while_writing_leaves_the_last_checkpoint(tmp_path: Path, now: JobState, monkeypatch):
    path = tmp_path / "checkpoint.npz"
    save(now, path)
    before = path.read_bytes()

    def crash(handle: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", crash)
    with pytest.raises(OSError, match="no space"):
        save(replace(now, round=1), path)
    assert path.read_bytes() == before
    assert restore(path).round == 0
