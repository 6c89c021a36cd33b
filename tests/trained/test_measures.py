"""The measures are scikit-learn's where it has them, and each stands beside that of a constant answer."""

import numpy as np
import pytest
from scipy.special import expit, softmax

import fedsofim as fs
from answers import dataset
from fedsofim.simulation.metrics import baseline_of, metrics_of
from fedsofim.trained.measures import all_measures, auc, calibration_error, constant_answers

metrics = pytest.importorskip("sklearn.metrics")

RANDOM = np.random.default_rng(0)
NUMBERS, COUNTS = fs.Task("numbers", range=(0, 100)), fs.Task("counts", range=(0, 30))


def test_of_many_classes():
    y = RANDOM.integers(0, 4, 500)
    p = softmax(RANDOM.normal(size=(500, 4)) + 1.5 * np.eye(4)[y], axis=1)
    found = all_measures(fs.Task(), p, y)
    assert found["accuracy"] == pytest.approx(100 * metrics.accuracy_score(y, p.argmax(axis=1)))
    assert found["balanced_accuracy"] == pytest.approx(100 * metrics.balanced_accuracy_score(y, p.argmax(axis=1)))
    assert found["auc"] == pytest.approx(metrics.roc_auc_score(y, p, multi_class="ovr"))
    assert found["log_loss"] == pytest.approx(metrics.log_loss(y, p))


def test_of_two_classes_with_one_output():
    y = (RANDOM.random(400) < 0.13).astype(int)
    p = expit(RANDOM.normal(size=400) + 2 * y - 2).round(2)  # rounded: ties
    found = all_measures(fs.Task("two-classes"), p[:, None], y)
    assert found["accuracy"] == pytest.approx(100 * metrics.accuracy_score(y, p > 0.5))
    assert found["balanced_accuracy"] == pytest.approx(100 * metrics.balanced_accuracy_score(y, p > 0.5))
    assert found["auc"] == pytest.approx(metrics.roc_auc_score(y, p))
    assert found["log_loss"] == pytest.approx(metrics.log_loss(y, p))


def test_of_several_labels():
    y = (RANDOM.random((300, 3)) < [0.1, 0.5, 0.8]).astype(int)
    p = expit(RANDOM.normal(size=(300, 3)) + 2 * y - 1)
    found = all_measures(fs.Task("labels"), p, y)
    assert found["accuracy"] == pytest.approx(100 * (1 - metrics.hamming_loss(y, p > 0.5)))
    assert found["all_right"] == pytest.approx(100 * metrics.accuracy_score(y, p > 0.5))
    assert found["auc"] == pytest.approx(metrics.roc_auc_score(y, p, average="macro"))
    each = [100 * metrics.balanced_accuracy_score(y[:, j], p[:, j] > 0.5) for j in range(3)]
    assert found["balanced_accuracy"] == pytest.approx(np.mean(each))
    assert found["log_loss"] == pytest.approx(np.mean([metrics.log_loss(y[:, j], p[:, j]) for j in range(3)]))


def test_of_numbers_and_counts():
    truth = RANDOM.uniform(0, 100, 200)
    said = np.clip(truth + 10 * RANDOM.normal(size=200), 0, 100)
    found = all_measures(NUMBERS, said, NUMBERS.coded(truth))
    assert found["rmse"] == pytest.approx(metrics.root_mean_squared_error(truth, said), rel=1e-5)
    assert found["mae"] == pytest.approx(metrics.mean_absolute_error(truth, said), rel=1e-5)
    assert found["r2"] == pytest.approx(metrics.r2_score(truth, said), rel=1e-5)
    mean = RANDOM.uniform(0.1, 8, 200)
    count = RANDOM.poisson(mean)
    found = all_measures(COUNTS, mean, count)
    assert found["deviance"] == pytest.approx(metrics.mean_poisson_deviance(count, mean))
    assert found["r2"] == pytest.approx(metrics.r2_score(count, mean))


def test_the_area_counts_ties_as_half_and_knows_when_it_cannot_be_told():
    yes = RANDOM.random(60) < 0.4
    score = RANDOM.integers(0, 4, 60).astype(float)
    pairs = score[yes][:, None] - score[~yes][None]
    assert auc(score, yes) == pytest.approx(np.mean((pairs > 0) + 0.5 * (pairs == 0)))
    assert auc(score, np.zeros(60, bool)) is None


def test_the_calibration_error_is_the_gap_of_scikit_learns_curve():
    from sklearn.calibration import calibration_curve

    p = RANDOM.random(2000)
    happened = RANDOM.random(2000) < p**2
    truth, said = calibration_curve(happened, p, n_bins=10)
    parts = np.histogram(p, bins=10, range=(0, 1))[0] / 2000
    assert calibration_error(p, happened) == pytest.approx(np.sum(parts * np.abs(truth - said)), rel=1e-6)
    assert calibration_error(np.full(8, 1.0), np.ones(8, bool)) == 0


@pytest.mark.parametrize("kind", ["classes", "two-classes", "labels", "numbers", "counts"])
def test_the_baseline_is_what_scikit_learns_dummy_reaches(kind):
    from sklearn.dummy import DummyClassifier, DummyRegressor

    data = dataset(kind)
    found, (x, y) = baseline_of(data), (data.x_test, data.task.uncoded(data.y_test))
    truth = data.task.uncoded(data.y_test)
    if data.task.metric == "rmse":
        said = DummyRegressor().fit(x, y).predict(data.x_test)
        assert found["rmse"] == pytest.approx(metrics.root_mean_squared_error(truth, said), rel=1e-5)
        assert found["r2"] is not None and -0.05 < found["r2"] <= 0
        return
    said = DummyClassifier(strategy="most_frequent").fit(x, y).predict(data.x_test)
    assert found["accuracy"] == pytest.approx(100 * np.mean(said == truth))
    assert found["auc"] == pytest.approx(0.5)
    assert found["balanced_accuracy"] == pytest.approx(10 if kind == "classes" else 50)


def test_a_constant_answer_has_the_shares_of_what_is_known():
    y = np.array([0, 0, 0, 1])
    assert constant_answers(fs.Task(), y, 3, 2).tolist() == [[0.75, 0.25, 0.0]] * 2
    assert constant_answers(fs.Task("two-classes"), y, 2, 1).tolist() == [[0.25]]
    assert constant_answers(NUMBERS, NUMBERS.coded(np.array([0.0, 50.0])), 1, 1).tolist() == [25.0]


def test_a_group_of_numbers_is_told_by_its_error_and_a_label_by_its_recall():
    from dataclasses import replace

    data = dataset("numbers")
    groups = np.where(np.arange(len(data.y_test)) % 2 == 0, "even", "odd")
    z = np.clip(data.y_test + 0.1 * (groups == "odd"), -1, 1)[:, None]
    found = metrics_of(replace(data, groups={"row": groups}), z)
    assert found.groups["row"]["even"][0] == 0 and found.groups["row"]["odd"][0] == pytest.approx(20, rel=0.05)
    assert found.gaps == {"row": pytest.approx(found.groups["row"]["odd"][0])} and found.confusion is None
    labels = dataset("labels")
    z = np.where(labels.y_test == 1, 1.0, -1.0)
    z[:, 3] = -1.0
    found = metrics_of(labels, z)
    assert found.recall[3] == 0 and found.recall[4] == 100 and found.gaps == {"label": 100.0}
    assert found.accuracy == pytest.approx(100 * np.mean((z > 0) == labels.y_test))
