"""The benchmark suite's own helpers: what it would say of a slow target, an absent peer, a wrong peer."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path += [str(BENCHMARKS), str(BENCHMARKS / "peers")]

import clock  # noqa: E402 # pyright: ignore[reportMissingImports]
import install  # noqa: E402 # pyright: ignore[reportMissingImports]
import measure  # noqa: E402 # pyright: ignore[reportMissingImports]
import numpy_closed_form  # noqa: E402 # pyright: ignore[reportMissingImports]
import ours  # noqa: E402 # pyright: ignore[reportMissingImports]
import page  # noqa: E402 # pyright: ignore[reportMissingImports]
import problem  # noqa: E402 # pyright: ignore[reportMissingImports]
import results  # noqa: E402 # pyright: ignore[reportMissingImports]
import rivals  # noqa: E402 # pyright: ignore[reportMissingImports]
from agreement import objection  # noqa: E402 # pyright: ignore[reportMissingImports]
from clock import Ratio, Times, by_turns, timed  # noqa: E402 # pyright: ignore[reportMissingImports]
from growth import Curve, exponent  # noqa: E402 # pyright: ignore[reportMissingImports]
from targets import Target, row  # noqa: E402 # pyright: ignore[reportMissingImports]

SMALL = problem.Shape(records=400, features=6, classes=3, clients=4, test=50)


@pytest.fixture(scope="module")
def data():
    return problem.make(SMALL)


@pytest.fixture
def small_file(data, tmp_path) -> Path:
    problem.write(data, 1.0, tmp_path / "problem.npz")
    return tmp_path / "problem.npz"


@pytest.mark.parametrize("power", [0.0, 1.0, 1.7])
def test_exponent_is_the_power(power):
    sizes = np.array([10, 100, 1000, 5000])
    assert exponent(sizes.tolist(), (3e-4 * sizes**power).tolist()) == pytest.approx(power, abs=1e-9)


def test_a_fixed_cost_hides_growth_from_the_fit_but_less_from_its_end():
    sizes = (1, 10, 100, 1000)
    curve = Curve("records", "one theta", sizes, tuple(50 + n for n in sizes))
    assert curve.exponent < curve.last_exponent < 1


def test_ratio_of_medians_and_minima():
    ratio = Ratio.of(Times((3.0, 9.0, 4.0)), Times((1.0, 2.0, 5.0)))
    assert (ratio.median, ratio.minimum) == (2.0, 3.0)


@pytest.mark.slow
def test_turns_alternate_and_only_timed_repeats_count(monkeypatch):
    monkeypatch.setattr(clock, "_WARM", 0.0)
    calls = []
    times = by_turns({"a": timed(lambda: calls.append("a")), "b": timed(lambda: calls.append("b"))}, 2, 3)
    assert "".join(calls) == "ab" + "aaaabbbb" * 2
    assert len(times["a"].seconds) == len(times["b"].seconds) == 6


@pytest.mark.parametrize(
    ("sense", "measured", "verdict"),
    [
        ("at most", Ratio(1.4, 1.5), "met"),
        ("at most", Ratio(1.6, 1.4), "not met (minima only)"),
        ("at least", Ratio(1.6, 1.4), "not met (medians only)"),
        ("at least", Ratio(1.0, 1.0), "not met"),
        ("at most", None, "not measured"),
    ],
)
def test_a_target_is_met_by_medians_and_minima_or_not_met(sense, measured, verdict):
    target = Target("a", sense, 1.5, measured, note="why")
    assert target.verdict == verdict
    assert verdict in row(target)[-1]


@pytest.mark.slow
def test_a_peer_with_another_sum_is_refused(data):
    sums = ours.clipped_sums(data)
    assert objection(sums * (1 + 1e-6), sums) is None
    for wrong in (sums * 1.01, sums[:, :-1], np.full_like(sums, np.nan)):
        assert "differ" in str(objection(wrong, sums))


@pytest.mark.slow
def test_our_rounds_and_the_closed_form_compute_the_same_clipped_sums(data):
    theta = problem.initial_theta(data)
    parts = [(data.dataset.x_train[p], data.dataset.y_train[p]) for p in data.parts]
    theirs = np.stack([numpy_closed_form.clipped_sum(theta, x, y, problem.CLIP) for x, y in parts])
    unclipped = np.stack([numpy_closed_form.clipped_sum(theta, x, y, 1e6) for x, y in parts])
    sums = ours.clipped_sums(data)
    assert objection(theirs, sums) is None
    assert objection(unclipped, sums) is not None  # the clip cuts: the check would notice its absence
    assert measure.check_ourselves(data) < 1e-5


@pytest.mark.slow
def test_a_peer_is_run_by_turns(data, small_file):
    (peer,) = [p for p in rivals.PEERS if p.name == rivals.NUMPY]
    outcome = rivals.compare(peer, small_file, ours.clipped_sums(data), lambda: None, turns=2)
    assert outcome.reason == "" and outcome.theirs is not None
    assert len(outcome.theirs.seconds) == 6 and outcome.version.startswith("numpy")


@pytest.mark.slow
def test_a_wrong_peer_is_reported_and_not_timed(data, small_file):
    (peer,) = [p for p in rivals.PEERS if p.name == rivals.NUMPY]
    outcome = rivals.compare(peer, small_file, 2 * ours.clipped_sums(data), lambda: None, turns=2)
    line = measure.peer_line(outcome)
    assert outcome.theirs is None and line.reason.startswith("wrong: its clipped sums differ")
    assert not results.Results(peers=(line,)).complete


def test_a_peer_that_does_not_start_is_missing(small_file, tmp_path, monkeypatch):
    (tmp_path / "peers").mkdir()
    (tmp_path / "peers" / "broken.py").write_text("import a_library_that_is_not_there")
    monkeypatch.setattr(rivals, "HERE", tmp_path)
    outcome = rivals.compare(rivals.Peer("broken", "broken.py"), small_file, np.zeros(1), lambda: None, turns=1)
    assert outcome.missing == "ModuleNotFoundError: No module named 'a_library_that_is_not_there'"


def test_a_peer_that_cannot_be_installed_is_missing_and_stays_in_the_tables(small_file, monkeypatch):
    monkeypatch.setattr(rivals, "install", lambda requirement: f"no {requirement} here")
    peer = rivals.Peer(rivals.OPACUS, "opacus_ghost.py", (("first", "second"),))
    line = measure.peer_line(rivals.compare(peer, small_file, np.zeros(1), lambda: None, turns=1))
    assert line.reason == "missing: no second here"
    found = results.Results(peers=(line,), targets=tuple(measure.peer_targets([line])))
    assert found.complete
    assert "missing: no second here" in page.peers_table(found.peers)
    assert any("missing: no second here" in row(t)[-1] for t in found.targets)


def test_the_reason_is_the_last_line_without_addresses():
    assert install.reason("a\n\nERROR: no b at https://c.d/e\n") == "no b at ..."


def test_results_survive_their_file(tmp_path):
    found = results.Results(
        machine={"cores": "2"},
        targets=(Target("t", "at most", 1.0, Ratio(0.5, 0.25)), Target("u", "at least", 2.0, None, note="why")),
        curves=(Curve("records", "one theta", (1, 2), (1.0, 2.0)),),
        peers=(results.PeerLine("p", "1", None, "missing: why"),),
    )
    results.save(found, tmp_path / "r.json")
    assert results.load(tmp_path / "r.json") == found
    assert json.loads((tmp_path / "r.json").read_text())["targets"][0]["measured"]["median"] == 0.5


def test_the_page_says_what_was_not_met():
    missed = Target("Round", "at most", 1.5, Ratio(2.0, 1.9))
    text = page.render(results.Results(targets=(missed,)))
    assert "**not met**" in text and "Not met or not measured: Round" in text
