"""A preparation in a job's terms and requests: only the library's own steps, and only what they really released."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedsofim.core.feature_moments import FeatureMoments
from fedsofim.core.phase import Phase
from fedsofim.core.preparation import Centred, ColumnScales, Step, UnitNorm, Whitened
from fedsofim.core.step_tables import as_tables
from fedsofim.deploy.job_state import JobState
from fedsofim.deploy.node import answer
from fedsofim.deploy.policy import Policy
from fedsofim.deploy.server import step
from fedsofim.deploy.steps import steps_of
from fedsofim.deploy.wire import Job, Request, programs_of
from fedsofim.errors import InputError
from node_sums import prepare_by
from nodes import ask_all, asked, charges, make_node, refusal, spent, started

ALL: tuple[Step, ...] = (ColumnScales(0.01), UnitNorm(constant=True, lift=True), Whitened(0.1, 0.25))

# --- terms --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [(), ALL, (UnitNorm(), Centred(0.05)), (FeatureMoments(0.1, 3.0),)], ids=str)
def test_steps_come_back_as_they_were(steps: tuple[Step, ...]):
    assert steps_of(json.loads(json.dumps(as_tables(steps)))) == steps


UNIT: dict[str, Any] = {"step": "UnitNorm", "constant": False, "lift": False}
CENTRED: dict[str, Any] = {"step": "Centred", "share": 0.1}
SCALES: dict[str, Any] = {"step": "ColumnScales", "share": 0.1}
WHITENED: dict[str, Any] = {"step": "Whitened", "share": 0.1, "damping": 0.1}
WRONG: dict[str, tuple[Any, str]] = {
    "no list": (UNIT, "expected a list"),
    "text": ("UnitNorm", "expected a list"),
    "not tables": (["UnitNorm"], "expected a table"),
    "no name": ([{"share": 0.1}], "expected a table"),
    "a number for a name": ([{"step": 3}], "expected a table"),
    "unknown": ([{"step": "Secret", "share": 0.1}], "there is no step 'Secret'"),
    "a base class": ([{"step": "_Free"}], "there is no step"),
    "a module's path": ([{"step": "os.system"}], "there is no step"),
    "a field too many": ([CENTRED | {"phase": "round"}], "expected exactly"),
    "a field too few": ([{"step": "Whitened", "share": 0.1}], "expected exactly"),
    "a default left out": ([{"step": "UnitNorm"}], "expected exactly"),
    "a number for a switch": ([UNIT | {"lift": 5}], "lift of the step UnitNorm is 5; expected true or false"),
    "a switch for a number": ([CENTRED | {"share": True}], "expected a finite number"),
    "text for a number": ([CENTRED | {"share": "0.1"}], "expected a finite number"),
    "NaN": ([CENTRED | {"share": math.nan}], "expected a finite number"),
    "infinity": ([WHITENED | {"damping": math.inf}], "expected a finite number"),
    "a share of everything": ([CENTRED | {"share": 1.0}], "share is 1.0"),
    "no damping": ([WHITENED | {"damping": 0.0}], "damping is 0.0"),
    "twice in one phase": ([CENTRED, WHITENED], "at most one step that releases in each phase"),
    "the wrong way round": ([CENTRED, SCALES], "the phases in their order"),
    "too many": ([UNIT] * 5, "at most 4 steps"),
}


@pytest.fixture(scope="module")
def job(shared_nodes: list[Policy]) -> Job:
    return asked(shared_nodes).job


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_preparation_is_refused_in_words(shared_nodes: list[Policy], job: Job, name: str):
    """Where terms are read; and where they never were, before anything is built."""
    tables, said = WRONG[name]
    found = [s.get("step") for s in tables if isinstance(s, dict)] if isinstance(tables, list) else []
    phases = {Phase.MOMENTS: 0.1} if {"Centred", "Whitened"} & set(map(str, found)) else {}
    phases |= {Phase.SCALES: 0.1} if "ColumnScales" in found else {}
    bad = replace(job, preparation=tables, mean_stds=phases)
    for act in (lambda: Job.read(bad.text()), lambda: programs_of(bad, 7)):
        with pytest.raises(InputError) as caught:
            act()
        assert said in str(caught.value)
    assert said in refusal(shared_nodes[0], Request(bad, Phase.ROUND, 0, {}))


@pytest.mark.parametrize(
    "stds", [None, [], {}, {"scales": 0.1}, {"moments": 0.1, "scales": 0.1}, {"moments": -1.0}, {"moments": math.nan},
             {"moments": math.inf}, {"moments": "0.1"}, {"moments": True}], ids=str,
)  # fmt: skip
def test_the_noise_of_the_means_is_a_finite_number_for_each_phase(job: Job, stds: Any):
    right = replace(job, preparation=[UNIT, CENTRED], mean_stds={Phase.MOMENTS: 0.1})
    assert Job.read(right.text()) == right
    with pytest.raises(InputError, match=r"mean_stds|expected a finite number"):
        Job.read(replace(right, mean_stds=stds).text())


def test_more_features_than_anybody_can_use(job: Job):
    wide = replace(job, shape=(10**8,), classes=3, preparation=[UNIT | {"lift": True}] * 4)
    with pytest.raises(InputError, match="more features than anybody can use"):
        Job.read(wide.text())


# --- requests -----------------------------------------------------------------------------------------------


@pytest.fixture
def prepared(nodes: list[Policy], monkeypatch) -> list[JobState]:
    """A job with two releases before its rounds, at each of its three phases."""
    prepare_by(monkeypatch, *ALL)
    first = started(nodes)
    second = step(first, ask_all(nodes, first))
    return [first, second, step(second, ask_all(nodes, second))]


def sent(request: Request) -> set[str]:
    return {name for name in request.arrays if not name.startswith(("params", "state"))}


def with_array(request: Request, name: str, value: np.ndarray | None) -> Request:
    kept = {k: a for k, a in request.arrays.items() if k != name}
    return request._replace(arrays=kept if value is None else {**kept, name: value})


def test_a_request_carries_what_was_released_before_it_and_is_refused_without(nodes: list[Policy], prepared):
    scales = {"scales_size", "scales_there", "scales_largest"}
    assert [now.phase for now in prepared] == [Phase.SCALES, Phase.MOMENTS, Phase.ROUND]
    assert [sent(now.request()) for now in prepared] == [set(), scales, scales | {"moments_second"}]
    for request in (now.request() for now in prepared[1:]):
        for name in sent(request):
            right = request.arrays[name]
            spoilt = [np.full_like(right, value) for value in (np.nan, np.inf, -np.inf)]
            for wrong in (
                None,
                right[None],
                right.astype(np.float64),
                right[..., :-1] if right.ndim else None,
                *spoilt,
            ):
                assert name in refusal(nodes[0], with_array(request, name, wrong))


def test_any_finite_numbers_are_a_question_like_any_other(nodes: list[Policy], prepared):
    """Charged anew, answered with clipped sums; overflow on the way is no error, which could tell of a record."""
    request = prepared[-1].request()
    for name in sorted(sent(request)):
        for value in (3e38, -3e38, 0.0):
            before = charges(nodes[0])
            changed = with_array(request, name, np.full_like(request.arrays[name], value))
            upload = answer(replace(nodes[0], epsilon=1e9), changed)["upload0"]
            assert np.isfinite(upload).all()
            assert charges(nodes[0]) == before + 1
    absurd = request._replace(job=replace(request.job, id="absurd", mean_stds={"scales": 1e300, "moments": 1e300}))
    assert "the number 1e+300" in refusal(nodes[0], absurd)


def test_records_are_mapped_before_they_are_summed(nodes: list[Policy], tmp_path, monkeypatch):
    """Records times 1000 are the same records after UnitNorm; so are the sums, up to noise that is nearly none."""
    prepare_by(monkeypatch, UnitNorm(), Centred(0.3))
    x = np.random.default_rng(1).normal(size=(9, 3)).astype(np.float32)
    loose: dict[str, Any] = {"epsilon": 1e9, "smallest_multiplier": 1e-9}
    sums = []
    for scale in (1.0, 1000.0):
        node = make_node(tmp_path / f"{scale}", scale * x, np.arange(9) % 3, **loose)
        sums.append(answer(node, started([node], epsilon=1e8).request())["upload0"])
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    for found in sums:
        np.testing.assert_allclose(found, unit.mean(axis=0), atol=1e-3)


def test_a_preparations_clip_is_the_librarys_and_a_gradients_the_operators(nodes: list[Policy], prepared):
    """No record's sizes of 3 columns are longer than 2.18; what a job may choose stays under the operator's limit."""
    first, _, last = prepared
    strict = replace(nodes[0], largest_clip=2.0, epsilon=1e9, ledger=nodes[0].ledger.with_name("other.db"))
    strict.account.create()
    answer(strict, first.request())
    assert "'gradient' clips at 10; the largest allowed here is 2" in refusal(strict, last.request())


def test_the_whole_of_it_is_the_budget(nodes: list[Policy], prepared):
    now = step(prepared[-1], ask_all(nodes, prepared[-1]))
    step(now, ask_all(nodes, now))
    assert [spent(p) for p in nodes] == pytest.approx([1.0] * 3, rel=1e-6)
