"""Paired tests against the published rows and against values worked out by hand."""

import csv
import math

import numpy as np
import pytest
from scipy import stats

from fedsofim.experiments.report.statistics import holm, interval, mcnemar, paired


def test_all_published_mcnemar_rows(shared):
    with (shared / "published" / "mcnemar.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 128
    names = {"first": "sofim", "second": "baseline", "none": "none"}
    for row in rows:
        test = mcnemar(int(row["n10"]), int(row["n01"]), exact_below=0)
        assert test.chi2 == pytest.approx(float(row["chi2"]), abs=6e-4), row
        if row["p"].startswith("<"):
            assert test.p < float(row["p"][1:]), row
        else:
            assert test.p == pytest.approx(float(row["p"]), abs=6e-5), row
        assert names[test.direction()] == row["result"], row


def test_few_disagreements_use_the_exact_binomial():
    test = mcnemar(1, 9)
    tail = sum(math.comb(10, k) for k in (0, 1)) / 2**10
    assert test.exact
    assert test.p == pytest.approx(2 * tail)
    assert test.direction() == "second"


def test_no_disagreement_is_no_evidence():
    test = mcnemar(0, 0)
    assert (test.p, test.chi2, test.direction()) == (1.0, 0.0, "none")


def test_equal_counts_are_not_negative_evidence():
    assert mcnemar(500, 500).p == pytest.approx(1.0)  # |0| - 1 is clamped at 0, not squared to 1


def test_paired_counts_both_kinds_of_disagreement():
    labels = np.array([0, 0, 1, 1, 2])
    test = paired(np.array([0, 0, 0, 1, 2]), np.array([0, 1, 1, 1, 0]), labels)
    assert (test.n10, test.n01) == (2, 1)


def test_holm_matches_its_definition_on_random_families():
    random = np.random.default_rng(0)
    for _ in range(20):
        p = random.uniform(size=7) ** 2
        adjusted = np.array(holm(list(p)))
        order = np.argsort(p)
        for level in (0.01, 0.05, 0.2):  # step down: stop at the first that fails
            rejected = np.zeros(7, bool)
            for rank, i in enumerate(order):
                if p[i] > level / (7 - rank):
                    break
                rejected[i] = True
            assert np.array_equal(adjusted <= level, rejected)


def test_interval_is_students():
    values = [64.1, 64.9, 63.8]
    low, high = interval(values) or (0.0, 0.0)
    expected = stats.t.interval(0.95, 2, loc=np.mean(values), scale=stats.sem(values))
    assert (low, high) == pytest.approx(expected)
    assert interval([1.0]) is None
