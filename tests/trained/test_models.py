"""A saved model predicts what the run did, on raw records, from every kind of preparation; and it exports."""

import json
import pickle

import numpy as np
import pytest

import fedsofim as fs
from fedsofim.core.feature_moments import FeatureMoments
from fedsofim.core.preparation import Centred, ColumnScales, UnitNorm, Whitened
from fedsofim.data.dataset import Dataset
from fedsofim.data.partition import split
from fedsofim.data.public_statistics import public_stats, standardize_public
from fedsofim.errors import InputError
from fedsofim.trained.folder import load_model
from fedsofim.trained.model import Trained

PREPARATIONS = {
    "none": (),
    "moments": (FeatureMoments(0.1, 60.0),),
    "centred": (ColumnScales(0.1), UnitNorm(constant=True, lift=True), Centred(0.1)),
    "whitened": (UnitNorm(), Whitened(0.1, 0.05)),
}


def table(seed: int = 0, shift: float = 20.0) -> Dataset:
    """Two classes, far from the origin: whoever forgets what training did to the features is wrong for half of them."""
    random = np.random.default_rng(seed)
    y = np.arange(400) % 2
    x = random.normal(size=(400, 4)) * [1, 5, 1, 1] + shift + np.outer(3 * y, [1, 0, -1, 1])
    return Dataset.from_arrays(x, np.array(["no", "yes"])[y], columns=["a", "b", "c", "d"], name="far")


@pytest.fixture(scope="module", params=PREPARATIONS)
def run(request):
    return fs.train(split(table(), 3, iid=True), fs.fedgd(), fs.Budget(50), 15, preparation=PREPARATIONS[request.param])


@pytest.fixture(scope="module")
def saved(run, tmp_path_factory) -> Trained:
    return load_model(run.save(tmp_path_factory.mktemp("model") / "m"))


def test_a_saved_model_predicts_what_the_run_did(run, saved):
    x, y = run.split.dataset.x_test, run.split.dataset.y_test
    assert np.array_equal(saved.predict(x), np.array(["no", "yes"])[run.predict(x)])
    assert 100 * np.mean(saved.predict(x) == np.array(["no", "yes"])[y]) == pytest.approx(run.accuracy, abs=1e-3)
    assert run.accuracy > 75 or not run.prepared.steps
    np.testing.assert_allclose(saved.predict_proba(x).sum(axis=1), 1)


def test_onnx_is_the_same(saved, run, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(saved.to_onnx(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    x = run.split.dataset.x_test
    label, probabilities = session.run(["label", "probabilities"], {"features": x})
    assert label.tolist() == saved.predict(x).tolist()
    np.testing.assert_allclose(probabilities, saved.predict_proba(x), atol=2e-6)


def test_torch_is_the_same(saved, run):
    torch = pytest.importorskip("torch")
    x = run.split.dataset.x_test
    with torch.no_grad():
        logits = saved.to_torch()(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(logits, saved.logits(x), rtol=1e-4, atol=1e-5)


def test_scikit_learn_is_the_same(saved, run):
    pytest.importorskip("sklearn")
    from sklearn.metrics import get_scorer

    x, estimator = run.split.dataset.x_test, saved.to_sklearn()
    y = np.array(["no", "yes"])[run.split.dataset.y_test]
    assert 100 * get_scorer("accuracy")(estimator, x, y) == pytest.approx(run.accuracy, abs=1e-3)
    assert get_scorer("neg_log_loss")(estimator, x, y) < 0
    again = pickle.loads(pickle.dumps(estimator))
    assert np.array_equal(again.predict_proba(x), estimator.predict_proba(x))
    with pytest.raises(InputError, match="keeps no budget"):
        estimator.fit(x, y)


# --- by name ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def named():
    pandas = pytest.importorskip("pandas")
    data = table()
    frame = pandas.DataFrame(data.x_train, columns=list(data.columns)).assign(label=data.y_train)
    made = Dataset.from_frame(frame)
    return frame, fs.train(split(made, 3, iid=True), fs.fedgd(lr=0.5), fs.Budget(50), 5, recipe="paper")


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_columns_are_found_by_name_in_any_order(named, library):
    frame, run = named
    pytest.importorskip(library)
    wanted = run.predict(frame[["a", "b", "c", "d"]].to_numpy())
    turned = frame[["d", "c", "b", "a"]]
    if library == "polars":
        import polars

        turned = polars.DataFrame({c: frame[c].to_list() for c in "dcba"})
    assert np.array_equal(run.predict(turned), wanted)
    assert np.array_equal(run.model.predict(turned), wanted)
    with pytest.raises(InputError, match=r"no column 'c', which the schema has; columns: a, b, d"):
        run.model.predict(frame[["a", "b", "d"]])
    with pytest.raises(InputError, match=r"array of shape \(2, 3\); expected numbers of shape \(records, 4\)"):
        run.model.predict(np.zeros((2, 3)))


def test_arrays_with_names_are_found_by_them_too():
    pandas = pytest.importorskip("pandas")
    run = fs.train(split(table(), 3, iid=True), fs.fedgd(lr=0.5), fs.Budget(50), 2, recipe="paper")
    x = run.split.dataset.x_test
    turned = pandas.DataFrame(x[:, ::-1], columns=["d", "c", "b", "a"])
    assert np.array_equal(run.model.predict(turned), run.model.predict(x))


def test_public_statistics_go_along(tmp_path):
    data = table()
    dealt = split(standardize_public(data, public_stats(data.x_test)), 3, iid=True)
    run = fs.train(dealt, fs.fedgd(), fs.Budget(50), 5, recipe="paper")
    model = load_model(run.save(tmp_path / "m"))
    truth = np.array(["no", "yes"])[data.y_test]
    assert 100 * np.mean(model.predict(data.x_test) == truth) == pytest.approx(run.accuracy, abs=1e-3)
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(model.to_onnx(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    assert session.run(["label"], {"features": data.x_test})[0].tolist() == model.predict(data.x_test).tolist()


def test_a_model_of_ones_own_is_loaded_by_its_file(tmp_path):
    from fedsofim.models import make as make_model

    file = "examples/two_layers.py"
    run = fs.train(
        split(table(), 3, iid=True), fs.fedgd(lr=0.1), fs.Budget(50), 2, model=make_model(file), recipe="paper"
    )
    folder = run.save(tmp_path / "m")
    with pytest.raises(InputError, match="its model is one of your own"):
        load_model(folder)
    model = load_model(folder, model=file)
    x = run.split.dataset.x_test
    assert np.array_equal(model.predict(x), np.array(["no", "yes"])[run.predict(x)])
    with pytest.raises(InputError, match="what can be exported is the linear head"):
        model.to_onnx(tmp_path / "m.onnx")
    with pytest.raises(InputError, match="is it the right model"):
        load_model(folder, model="softmax_head")


# --- what is on disk ----------------------------------------------------------------------------------------


def test_nothing_is_overwritten_unless_forced(run, tmp_path):
    run.save(tmp_path / "m")
    with pytest.raises(InputError, match=r"holds model.safetensors, model.json, result.json already"):
        run.save(tmp_path / "m")
    run.save(tmp_path / "m", force=True)


def test_other_formats_are_refused_with_a_sentence(run, tmp_path):
    folder = run.save(tmp_path / "m")
    document = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(document | {"format": 3}))
    with pytest.raises(InputError, match="is a model of format 3; this version of fedsofim reads format"):
        load_model(folder)
    (folder / "model.json").write_text("{")
    with pytest.raises(InputError, match="not a model's description, or a damaged one"):
        load_model(folder)
    (folder / "model.json").write_text(json.dumps(document | {"labels": ["a", "b", "c"]}))
    with pytest.raises(InputError, match="is it the right model"):
        load_model(folder)
    (folder / "model.json").write_text(json.dumps(document))
    (folder / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(InputError, match="not a readable safetensors file"):
        load_model(folder)
    (folder / "model.json").unlink()
    (folder / "params.npz").write_bytes(b"")
    with pytest.raises(InputError, match="was saved before models were whole"):
        load_model(folder)
    with pytest.raises(InputError, match="no such folder"):
        load_model(tmp_path / "nowhere")


@pytest.mark.parametrize("how, said", [({"alpha": 5.0}, True), ({"iid": True}, False)])
def test_the_card_says_where_labels_dealt_the_records(how, said):
    trained = fs.train(split(table(), 3, **how), fs.fedgd(), fs.Budget(50), 1).model
    assert ("Not protected: which client holds which record" in trained.card) == said
