"""A task says how answers are coded and told; what makes no sense is refused in words."""

import numpy as np
import pytest

import fedsofim as fs
from fedsofim.errors import InputError
from fedsofim.tasks import KINDS, task_of

NUMBERS, COUNTS = fs.Task("numbers", range=(-50, 150)), fs.Task("counts", range=(0, 25))


def test_numbers_are_coded_by_their_public_range_and_told_in_their_units():
    values = np.array([-80.0, -50.0, 50.0, 149.0, 400.0])
    assert NUMBERS.coded(values).tolist() == pytest.approx([-1, -1, 0, 0.99, 1])
    assert NUMBERS.coded(values).dtype == np.float32 and NUMBERS.outside(values) == 2
    np.testing.assert_allclose(NUMBERS.uncoded(NUMBERS.coded(values[1:4])), values[1:4], rtol=1e-6)
    assert NUMBERS.answers(np.array([[0.0], [5.0], [-0.5]])).tolist() == [50.0, 150.0, 0.0]


def test_counts_start_in_the_middle_and_never_exceed_the_most():
    assert COUNTS.answers(np.array([[0.0], [900.0]])).tolist() == pytest.approx([5.0, 25.0])
    assert COUNTS.coded(np.array([3.0, 26.0])).tolist() == [3, 25]


def test_probabilities_are_the_logistic_and_softmax_ones_at_any_size():
    z = np.array([[0.0], [3.0], [-900.0], [900.0]])
    np.testing.assert_allclose(fs.Task("two-classes").answers(z)[:2, 0], [0.5, 1 / (1 + np.exp(-3))])
    assert fs.Task("two-classes").answers(z)[2:, 0].tolist() == [0, 1]
    assert fs.Task("two-classes").decided(z).tolist() == [0, 1, 0, 1]
    np.testing.assert_allclose(fs.Task().answers(np.array([[0.0, np.log(3)]])), [[0.25, 0.75]])


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_survives_a_file(kind):
    ends = {"numbers": (0, 9), "counts": (0, 9)}.get(kind)
    task = fs.Task(kind, range=ends, huber=2.0 if kind == "numbers" else None)
    assert task_of(task.plain()) == task and kind in str(task)
    assert task.outputs(7) == (7 if kind in ("classes", "labels") else 1)
    assert task.target(7)[0] == ((7,) if kind == "labels" else ())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kind": "number"}, "did you mean 'numbers'"),
        ({"kind": "numbers"}, "numbers need a public range, said by people.*--target-range 0,100"),
        ({"kind": "counts"}, r"fs.Task\('counts', range=\(0, 20\)\)"),
        ({"kind": "numbers", "range": (3, 3)}, "expected the lower end and the higher one"),
        ({"kind": "numbers", "range": (0, float("inf"))}, "expected the lower end and the higher one"),
        ({"kind": "counts", "range": (1, 9)}, "expected 0 and the largest count"),
        ({"kind": "classes", "range": (0, 9)}, "a range goes with numbers and counts; the task is classes"),
        ({"kind": "numbers", "range": (0, 9), "huber": -1}, "expected a number above 0"),
        ({"kind": "counts", "range": (0, 9), "huber": 1}, "and only of numbers"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(given, said):
    with pytest.raises(InputError, match=said):
        fs.Task(**given)


def test_a_task_is_given_as_itself_or_as_its_kind():
    assert task_of("labels") == fs.Task("labels") and task_of(NUMBERS) is NUMBERS and task_of(None) == fs.Task()
    with pytest.raises(InputError, match=r"expected fs\.Task"):
        task_of(7)
