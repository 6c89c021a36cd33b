"""The coordinator's side: equal to the simulator at zero noise, strict about uploads, resumed bit by bit."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nodes import METHODS, REHEARSAL, SMALL, ask_all, begin, leaves, make_nodes, same_bits

from fedsofim.core.feature_moments import FeatureMoments
from fedsofim.deploy.checkpoint import restore, save
from fedsofim.deploy.policy import Policy, read_policy
from fedsofim.deploy.server import Order, Progress, advance, clients_of, faults, with_params
from fedsofim.deploy.wire import Arrays, from_bytes, to_bytes
from fedsofim.errors import InputError
from fedsofim.methods import make
from fedsofim.simulation.simulator import simulate
from fedsofim.simulation.standardizing import standardized
from fedsofim.simulation.training import plan_for

# --- the same training --------------------------------------------------------------------------------------


def deployed(folder: Path, order: Order) -> Progress:
    """The job's end; between the rounds nodes keep nothing but what is on their disks."""
    nodes = make_nodes(folder, **REHEARSAL)
    progress = begin(nodes, order)
    while not progress.finished:
        fresh = [read_policy(policy.data.parent / "policy.toml") for policy in nodes]
        progress = advance(progress, ask_all(fresh, progress))
    return progress


@pytest.mark.parametrize("name", METHODS)
def test_without_noise_it_is_the_simulators_training(tmp_path: Path, name: str):
    progress = deployed(tmp_path, Order(name, epsilon=math.inf, rounds=3))
    wanted, _ = simulate(plan_for(SMALL, make(name), None, 3), SMALL, 0, every=3)
    start = begin(make_nodes(tmp_path, **REHEARSAL), Order(name, epsilon=math.inf, rounds=3)).params
    for ours, theirs, first in zip(leaves(progress.params), leaves(wanted), leaves(start), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
        assert np.abs(ours - first).max() > 0.01  # something was learnt


def test_under_other_terms_too(tmp_path: Path):
    order = Order("fedsofim", (("lr", "0.5"),), epsilon=math.inf, rounds=2, weights="size", seed=3, clip=0.7)
    plan = plan_for(SMALL, make("fedsofim", {"lr": 0.5}), None, 2, weights="size", clip=0.7)
    wanted, _ = simulate(plan, SMALL, 3, every=2)
    np.testing.assert_allclose(deployed(tmp_path, order).params, wanted, rtol=1e-4, atol=1e-5)


def test_private_moments_too(tmp_path: Path):
    progress = deployed(tmp_path, Order("fedgd", epsilon=math.inf, rounds=2, standardize=0.1))
    plan = plan_for(SMALL, make("fedgd"), None, 2, standardize=FeatureMoments(share=0.1))
    wanted, _ = simulate(plan, standardized(plan, SMALL, 0), 0, every=2)
    np.testing.assert_allclose(progress.params, wanted, rtol=1e-4, atol=1e-5)


def test_from_parameters_of_ones_own(tmp_path: Path):
    nodes = make_nodes(tmp_path, **REHEARSAL)
    progress = begin(nodes, Order("fedgd", (("lr", "0.5"),), epsilon=math.inf, rounds=1))
    mine = np.full_like(progress.params, 0.25)
    moved = advance(changed := with_params(progress, mine), ask_all(nodes, changed)).params
    assert same_bits(changed.params, mine)
    assert 0 < np.abs(np.asarray(moved) - mine).max() < 5
    for wrong in (mine[:-1], mine.astype(np.float64)):
        with pytest.raises(InputError, match="initial parameters"):
            with_params(progress, wrong)


# --- who takes part -----------------------------------------------------------------------------------------


def facts(**changed: Any) -> dict[str, Any]:
    return {"node": "a", "size": 5, "shape": [3], "classes": 3} | changed


def test_clients_are_sorted_and_checked():
    found = clients_of([facts(node="c"), facts(node="a", size=9), facts(node="b")], Order(clients=3))
    assert [c.name for c in found] == ["a", "b", "c"]
    assert (found[0].size, found[0].shape) == (9, (3,))


@pytest.mark.parametrize(
    "hellos, said",
    [
        ([facts(), facts(), facts(node="b")], "two nodes call themselves a"),
        ([facts(), facts(node="b")], "2 nodes are here"),
        ([facts(), facts(node="b"), facts(node="c"), facts(node="d")], "4 nodes are here"),
        ([facts(), facts(node="b", shape=[4]), facts(node="c")], "b of shape"),
        ([facts(), facts(node="b"), facts(node="c", classes=2)], "c of shape"),
        ([facts(), facts(node="b"), {"node": "c"}], "introduction"),
        ([facts(), facts(node="b"), facts(node="c", size="many")], "introduction"),
        ([facts(), facts(node="b"), facts(node="c", shape=3)], "introduction"),
    ],
)
def test_nodes_that_do_not_make_a_job(hellos: list[dict[str, Any]], said: str):
    with pytest.raises(InputError, match=said):
        clients_of(hellos, Order(clients=3))


@pytest.mark.parametrize("size", [0, -4])
def test_a_client_without_records(size: int, tmp_path: Path):
    order = Order("fedgd", clients=1)
    with pytest.raises(InputError, match="size"):
        from fedsofim.deploy.server import begin as begin_job

        begin_job(order, clients_of([facts(size=size)], order))


# --- what comes back ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nodes(tmp_path_factory) -> list[Policy]:
    return make_nodes(tmp_path_factory.mktemp("nodes"))


@pytest.fixture(scope="module")
def progress(nodes: list[Policy]) -> Progress:
    return begin(nodes, Order("fedgd", epsilon=1.0, rounds=2))


@pytest.fixture(scope="module")
def uploads(nodes: list[Policy], progress: Progress) -> dict[str, Arrays]:
    return ask_all(nodes, progress)


def test_sound_uploads_have_no_fault(progress: Progress, uploads: dict[str, Arrays]):
    assert faults(progress, uploads) == {}
    assert advance(progress, uploads).round == 1


def spoilt(upload: np.ndarray, value: float) -> np.ndarray:
    out = upload.copy()
    out[0, 1] = value
    return out


FAULTS = {
    "shape": lambda u: {"upload0": u[:-1]},
    "more dimensions": lambda u: {"upload0": u[None]},
    "scalar": lambda u: {"upload0": u[0, 0]},
    "float64": lambda u: {"upload0": u.astype(np.float64)},
    "integers": lambda u: {"upload0": u.astype(np.int32)},
    "byte order": lambda u: {"upload0": u.astype(">f4")},
    "text": lambda u: {"upload0": u.astype(str)},
    "NaN": lambda u: {"upload0": spoilt(u, math.nan)},
    "infinity": lambda u: {"upload0": spoilt(u, math.inf)},
    "-infinity": lambda u: {"upload0": spoilt(u, -math.inf)},
    "norm": lambda u: {"upload0": u * np.float32(1e6)},
    "huge norm": lambda u: {"upload0": np.full_like(u, 3e38)},
    "nothing": lambda u: {},
    "another name": lambda u: {"upload1": u},
    "one too many": lambda u: {"upload0": u, "upload1": u},
}


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("who", ["n0", "n2"])
def test_an_unsound_upload_is_rejected_by_name(progress: Progress, uploads: dict[str, Arrays], kind: str, who: str):
    bad = uploads | {who: FAULTS[kind](uploads[who]["upload0"])}
    found = faults(progress, bad)
    assert list(found) == [who]
    word = {"NaN": "NaN", "infinity": "infinity", "-infinity": "infinity", "norm": "norm", "huge norm": "norm"}
    assert word.get(kind, "expected") in found[who]
    with pytest.raises(InputError, match=who):
        advance(progress, bad)


def test_two_unsound_uploads_are_both_named(progress: Progress, uploads: dict[str, Arrays]):
    bad = uploads | {who: FAULTS["NaN"](uploads[who]["upload0"]) for who in ("n0", "n1")}
    assert set(faults(progress, bad)) == {"n0", "n1"}


@pytest.mark.parametrize("missing", [["n0"], ["n1", "n2"], ["n0", "n1", "n2"]])
def test_fewer_clients_are_never_averaged(progress: Progress, uploads: dict[str, Arrays], missing: list[str]):
    with pytest.raises(InputError, match=missing[0]):
        advance(progress, {k: v for k, v in uploads.items() if k not in missing})


def test_a_stranger_is_never_averaged(progress: Progress, uploads: dict[str, Arrays]):
    with pytest.raises(InputError):
        advance(progress, uploads | {"stranger": uploads["n0"]})
    with pytest.raises(InputError, match="n0"):
        advance(progress, {"stranger" if k == "n0" else k: v for k, v in uploads.items()})


# --- checkpoints --------------------------------------------------------------------------------------------


def jobs() -> list[Any]:
    return [*((name, 0.0) for name in METHODS), ("fedgd", 0.1)]


@pytest.mark.parametrize("name, standardize", jobs())
def test_a_restored_job_is_the_same_job_bit_by_bit(tmp_path: Path, name: str, standardize: float):
    nodes = make_nodes(tmp_path)
    progress = begin(nodes, Order(name, epsilon=1.0, rounds=3, standardize=standardize))
    path = tmp_path / "job" / "checkpoint.npz"
    seen = []
    while not progress.finished:
        save(progress, path)
        again = restore(path)
        request = progress.request()
        assert again.request().digest() == request.digest()
        assert same_bits((again.params, again.state), (progress.params, progress.state))
        uploads = ask_all(nodes, progress)
        progress, again = advance(progress, uploads), advance(again, uploads)
        assert same_bits((again.params, again.state), (progress.params, progress.state))
        assert (again.phase, again.round, again.job) == (progress.phase, progress.round, progress.job)
        seen.append(request.digest())
    save(progress, path)
    assert restore(path).finished
    assert len(set(seen)) == len(seen) >= 3


def test_a_checkpoint_holds_what_the_seed_does_not(tmp_path: Path, nodes: list[Policy], uploads: dict[str, Arrays],
                                                   progress: Progress):  # fmt: skip
    mine = with_params(progress, np.full_like(progress.params, 0.5))
    save(mine, tmp_path / "c.npz")
    assert same_bits(restore(tmp_path / "c.npz").params, mine.params)
    after = advance(mine, uploads)
    save(after, tmp_path / "c.npz")
    assert restore(tmp_path / "c.npz").round == 1
    assert not (tmp_path / "c.npz.part").exists()


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
def test_a_damaged_checkpoint_is_an_error_to_read(tmp_path: Path, progress: Progress, how: str):
    path = tmp_path / "checkpoint.npz"
    save(progress, path)
    path.write_bytes(damaged(path, how))
    with pytest.raises(InputError, match=r"checkpoint\.npz"):
        restore(path)


def test_a_crash_while_writing_leaves_the_last_checkpoint(tmp_path: Path, progress: Progress, monkeypatch):
    path = tmp_path / "checkpoint.npz"
    save(progress, path)
    before = path.read_bytes()

    def crash(handle: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", crash)
    with pytest.raises(OSError, match="no space"):
        save(replace(progress, round=1), path)
    assert path.read_bytes() == before
    assert restore(path).round == 0
