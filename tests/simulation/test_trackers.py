"""What was measured reaches whoever watches: a function, TensorBoard, MLflow, notebooks; and who a model serves."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fedsofim as fs
from fedsofim import progress
from fedsofim.simulation.metrics import by_group, metrics_of
from fedsofim.simulation.trackers import MLflow, TensorBoard
from fedsofim.trained.measures import confusion, recalls
from toy import make_toy


@pytest.fixture(scope="module")
def watched():
    seen: dict[int, dict[str, float]] = {}
    run = fs.train(make_toy(), fs.fedgd(lr=0.3), fs.Budget(5.0), 13, recipe="paper", every=5, on_round=seen.__setitem__)
    return run, seen


@pytest.mark.slow
def test_every_evaluated_round_is_told(watched):
    run, seen = watched
    assert list(seen) == [5, 10, 13]
    assert {t: m["accuracy"] for t, m in seen.items()} == {row["round"]: row["accuracy"] for row in run.history}
    assert seen[13]["loss"] == pytest.approx(float(run.trace.loss[-1]))


@pytest.mark.slow
def test_tensorboard_reads_what_was_written(watched, tmp_path):
    pytest.importorskip("tensorboard", reason="needs the extra tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with TensorBoard(tmp_path) as tell:
        for t, measured in watched[1].items():
            tell(t, measured)
    found = EventAccumulator(str(tmp_path)).Reload()
    assert [(e.step, pytest.approx(e.value)) for e in found.Scalars("accuracy")] == [
        (row["round"], row["accuracy"]) for row in watched[0].history
    ]
    assert len(found.Scalars("loss")) == 3


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of MLflow's own
def test_mlflow_reads_what_was_written(watched, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="needs the extra mlflow")
    logged: list[tuple[str, float, int]] = []
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # newer versions want a database unless told otherwise
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    try:
        with MLflow("one") as tell:
            number = mlflow.active_run().info.run_id
            for t, measured in watched[1].items():
                tell(t, measured)
        assert mlflow.active_run() is None
        logged = [(m.key, m.value, m.step) for m in mlflow.MlflowClient().get_metric_history(number, "accuracy")]
    finally:
        mlflow.set_tracking_uri(None)
    assert [(step, pytest.approx(value)) for _, value, step in logged] == [
        (row["round"], row["accuracy"]) for row in watched[0].history
    ]


@pytest.mark.slow
def test_views_of_a_run_and_a_plan_are_short_and_show_no_record(watched):
    run = watched[0]
    record = f"{run.split.dataset.x_train[0, 0]:.4f}"
    for text in (repr(run), run._repr_html_(), repr(run.plan), run.plan._repr_html_(), repr(run.model)):
        assert record not in text and "array(" not in text and len(text) < 3000
    assert "epsilon" in run.plan._repr_html_() and f"{run.accuracy:.2f} %" in run._repr_html_()
    assert run.figure()._repr_png_().startswith(b"\x89PNG")


def _by_round(run: Any) -> list[tuple[int, float]]:
    return [(row["round"], row["accuracy"]) for row in run.history]


def test_a_notebooks_bar_is_written_over(monkeypatch):
    display = pytest.importorskip("IPython.display")
    shown: list[str] = []

    class Handle:
        def display(self, data, raw):
            shown.append(data["text/plain"])

        update = display

    monkeypatch.setattr(display, "DisplayHandle", Handle)
    monkeypatch.setattr("rich.console.Console.is_jupyter", True, raising=False)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    with progress.progress_bar("rounds", 20) as bar:
        bar.at(10)
    assert shown == ["rounds [--------------------] 0/20", "rounds [##########----------] 10/20"]


# --- who is served ------------------------------------------------------------------------------------------


def test_recall_and_groups_by_hand():
    found = confusion(np.array([0, 0, 0, 1, 1]), np.array([0, 1, 0, 1, 0]), 3)
    assert found.tolist() == [[2, 1, 0], [1, 1, 0], [0, 0, 0]]
    assert recalls(found) == [pytest.approx(200 / 3), 50.0, None]
    assert by_group(np.array(["a", "b", "a"]), np.array([True, False, False])) == {"a": (50.0, 2), "b": (0.0, 1)}


def test_gaps_leave_out_groups_that_are_too_small():
    data = make_toy().dataset
    groups = np.array(["big"] * 25 + ["other"] * 30 + ["tiny"] * 5)
    data = replace(data, groups={"where": groups})
    predicted = data.y_test.copy()
    predicted[25:31] = (predicted[25:31] + 1) % 3  # six of the 30
    predicted[55:] = (predicted[55:] + 1) % 3  # all of the tiny
    found = metrics_of(data, np.eye(3)[predicted], [np.arange(50)])
    assert found.groups["where"]["tiny"] == (0.0, 5)
    assert found.gaps["where"] == pytest.approx(20)
    assert found.accuracy == pytest.approx(100 * 49 / 60)
    assert 0 < found.clients[0] < 100 and found.majority == pytest.approx(100 / 3)


def test_nothing_that_is_written_of_a_model_goes_by_the_labels_of_training_records():
    """Accuracy expected at each client tells how many records of each class it holds, to the record."""
    split = make_toy()
    data, z = split.dataset, np.random.default_rng(0).normal(size=(len(split.dataset.x_test), 3))
    other = replace(data, y_train=(data.y_train + 1) % 3)
    one, two = (metrics_of(d, z, split.parts) for d in (data, other))
    assert one.clients != two.clients and one.summary() == two.summary()


@pytest.mark.slow
def test_what_is_saved_of_a_run_depends_on_training_records_through_its_model_alone():
    """The same parameters beside other training records: every word of result.json and model.json stays."""
    run = fs.train(make_toy(), fs.fedgd(lr=0.3), fs.Budget(5.0), 3, recipe="paper")
    data = run.split.dataset
    records = replace(data, x_train=data.x_train[::-1] + 1, y_train=(data.y_train + 1) % 3)
    other = replace(run, split=replace(run.split, dataset=records))
    assert other.metrics.clients != run.metrics.clients
    assert other.summary() == run.summary() and other.model.facts == run.model.facts
