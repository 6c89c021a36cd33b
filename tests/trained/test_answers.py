"""A model of any task is saved, loaded, used on new tables and exported; its card tells a constant answer beside it."""

import csv
import pickle

import numpy as np
import pytest

import fedsofim as fs
from answers import TASKS, arrays, dealt
from fedsofim.core.models import linear
from fedsofim.errors import InputError
from fedsofim.trained.folder import load_model
from fedsofim.trained.model import Trained
from fedsofim.trained.tables import predict_file, write_predictions


@pytest.fixture(scope="module", params=["two-classes", "labels", "numbers", "counts"])
def kind(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def run(kind):
    return fs.train(
        dealt(kind), fs.fedgd(lr=1e-6), fs.Budget(50), 5, model=linear(TASKS[kind], 0.0), recipe="paper", every=5
    )


@pytest.fixture(scope="module")
def saved(run, tmp_path_factory) -> Trained:
    return load_model(run.save(tmp_path_factory.mktemp("model") / "m"))


def test_it_predicts_what_the_run_did(run, saved, kind):
    x = run.split.dataset.x_test
    assert saved.task == TASKS[kind] and saved.is_head
    said = saved.predict(x)
    assert np.array_equal(said, np.array(saved.labels)[run.predict(x)] if kind == "two-classes" else run.predict(x))
    if saved.task.metric == "accuracy":
        right = saved.predict_proba(x)
        assert right.shape == (len(x), 2 if kind == "two-classes" else 10) and np.all((right >= 0) & (right <= 1))
    else:
        low, high = saved.task.ends
        assert said.min() >= low and said.max() <= high and said.std() > 0
        with pytest.raises(InputError, match="have no probabilities; use predict"):
            saved.predict_proba(x)


def test_its_card_and_result_tell_a_constant_answer_beside_every_measure(run, saved):
    found = run.summary()
    assert set(found["measures"]) == set(found["baseline"]) and found["metric"] == saved.task.metric
    assert found[f"final_{saved.task.metric}"] == pytest.approx(found["measures"][saved.task.metric], rel=1e-3)
    assert found["task"] == saved.task.plain()
    assert "constant answer" in saved.card and ("% of" in saved.card or "Error: RMSE" in saved.card)
    beside = "whoever always says" in saved.card
    assert beside and "constant answer" in run._repr_html_() and "after 5 rounds" in str(run)
    if saved.task.metric == "rmse":
        with pytest.raises(InputError, match="have no accuracy"):
            _ = run.accuracy


def test_a_table_of_new_records_is_answered_column_by_column(saved, kind, tmp_path):
    x, _, names = arrays(kind)
    table = tmp_path / "new.csv"
    with table.open("w") as file:
        csv.writer(file).writerows([names, *x[:4].tolist()])
    found = predict_file(saved, table)
    write_predictions(found, tmp_path / "out.csv")
    rows = list(csv.reader((tmp_path / "out.csv").read_text().splitlines()))
    heads = {
        "two-classes": ["record", "predicted", "p(0)", "p(1)"],
        "labels": ["record", *(word for c in range(10) for word in (str(c), f"p({c})"))],
    }
    assert rows[0] == heads.get(kind, ["record", "predicted"]) and len(rows) == 5
    answers = np.array([row[1:] for row in rows[1:]], float)
    wanted = saved.answers(x[:4].astype(np.float32))
    told = {"two-classes": answers[:, 2:], "labels": answers[:, 1::2]}.get(kind, answers[:, 0])
    np.testing.assert_allclose(told, wanted, rtol=1e-4, atol=1e-5)


def test_onnx_is_the_same(saved, run, kind, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    session = runtime.InferenceSession(saved.to_onnx(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    x = run.split.dataset.x_test
    out = dict(zip([o.name for o in session.get_outputs()], session.run(None, {"features": x}), strict=True))
    if saved.task.metric == "rmse":
        np.testing.assert_allclose(out["number"], saved.predict(x), rtol=1e-4)
        return
    np.testing.assert_allclose(out["probabilities"], saved.predict_proba(x), atol=1e-5)
    assert np.mean(out["labels" if kind == "labels" else "label"] == saved.predict(x)) > 0.99


def test_scikit_learn_is_the_same(saved, run, kind):
    pytest.importorskip("sklearn")
    from sklearn.metrics import get_scorer

    data, estimator = run.split.dataset, saved.to_sklearn()
    again = pickle.loads(pickle.dumps(estimator))
    assert np.array_equal(again.predict(data.x_test), estimator.predict(data.x_test))
    scorer = get_scorer("neg_root_mean_squared_error" if saved.task.metric == "rmse" else "accuracy")
    score = scorer(estimator, data.x_test, data.task.uncoded(data.y_test))
    wanted = {"two-classes": "accuracy", "labels": "all_right"}.get(kind)
    found = run.metrics.values
    assert score == pytest.approx(-found["rmse"] if wanted is None else found[wanted] / 100, rel=1e-5)


def test_torch_gives_the_same_outputs_and_says_how_to_read_them(saved, run):
    torch = pytest.importorskip("torch")
    module, x = saved.to_torch(), run.split.dataset.x_test
    with torch.no_grad():
        z = module(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(z, saved.logits(x), rtol=1e-4, atol=1e-5)
    assert module.task == saved.task
