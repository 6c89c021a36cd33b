"""Answers of every task are read from arrays, tables, frames and schemas; what is wrong with them is told in words."""

from typing import Any

import numpy as np
import pytest

import fedsofim as fs
from fedsofim.data.cells import read_cells
from fedsofim.data.dataset import Dataset
from fedsofim.data.partition import split, statistics_of
from fedsofim.data.proposal import propose
from fedsofim.data.schema import schema_of
from fedsofim.errors import DataWarning, InputError

NUMBERS = fs.Task("numbers", range=(0, 100))
SCHEMA = {"columns": {"a": {"kind": "number"}, "price": {"kind": "label", "range": [0, 100]}}}


def write(path, header: str, rows) -> str:
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return str(path)


@pytest.fixture
def priced(tmp_path) -> str:
    random = np.random.default_rng(0)
    rows = [(round(v, 3), round(50 + 10 * v, 2)) for v in random.normal(size=60)]
    return write(tmp_path / "t.csv", "a,price", rows)


def test_a_column_of_numbers_is_read_in_its_units_and_kept_coded(priced):
    data = fs.load(priced, label="price", task=NUMBERS)
    assert data.task == NUMBERS and data.labels == ("price",) and data.outputs == data.classes == 1
    assert data.y_train.dtype == np.float32 and np.abs(data.y_train).max() <= 1
    np.testing.assert_allclose(data.task.uncoded(data.y_train), 50 + 10 * data.x_train[:, 0], atol=0.02)
    assert data.notes["test"].startswith("held out 0.2 of the records") and len(data.y_test) == 12
    assert "numbers from 0 to 100 (price)" in str(data) and "price" in data._repr_html_()


def test_a_schema_says_the_same_and_a_task_beside_it_must_agree(priced):
    data = fs.load(priced, schema=SCHEMA)
    assert data.task == NUMBERS and data.schema is not None and data.schema.task == NUMBERS
    plain = {"columns": SCHEMA["columns"] | {"price": {"kind": "label"}}}
    given = fs.load(priced, schema=plain, task=NUMBERS)
    assert np.array_equal(given.y_train, data.y_train) and given.schema is not None and given.schema.task == NUMBERS
    with pytest.raises(InputError, match="numbers from 0 to 100, and two-classes was asked for; give one of them"):
        fs.load(priced, schema=SCHEMA, task="two-classes")


def test_what_lies_outside_the_public_range_counts_as_its_end_and_is_said(priced):
    with pytest.warns(DataWarning, match=r"lie outside the public range 45 to 55 and count as its ends"):
        data = fs.load(priced, label="price", task=fs.Task("numbers", range=(45, 55)))
    assert np.abs(data.y_train).max() == 1


def test_a_quantity_without_a_task_is_refused_with_the_way_out(tmp_path):
    path = write(tmp_path / "t.csv", "a,price", [(i % 7, i / 3) for i in range(300)])
    with pytest.raises(InputError, match="--task numbers --target-range 0,100"):
        fs.load(path, label="price")


def test_several_columns_are_several_labels(tmp_path):
    rows = [(i % 5, "yes" if i % 3 else "no", i % 2) for i in range(40)]
    path = write(tmp_path / "t.csv", "a,ill,old", rows)
    data = fs.load(path, label=["ill", "old"], task="labels")
    assert data.labels == ("ill", "old") and data.y_train.shape == (32, 2) and data.classes == data.outputs == 2
    described = {"columns": {"a": {"kind": "number"}, "ill": {"kind": "label"}, "old": {"kind": "label"}}}
    assert np.array_equal(fs.load(path, schema=described).y_train, data.y_train)
    with pytest.raises(InputError, match="2 label columns; several labels at once are task='labels'"):
        fs.load(path, label=["ill", "old"])
    wrong = write(tmp_path / "w.csv", "a,ill,old", [*rows, (1, "maybe", 1), (1, "", 1)])
    with pytest.raises(InputError, match=r"'ill' holds another word; expected one of no(.|\n)*is empty, and it is"):
        fs.load(wrong, label=["ill", "old"], task="labels")


def test_counts_are_whole_and_two_classes_are_two(tmp_path):
    path = write(tmp_path / "t.csv", "a,n", [(i % 5, i % 4) for i in range(40)])
    counted = fs.load(path, label="n", task=fs.Task("counts", range=(0, 9)))
    assert counted.y_train.dtype == np.int32 and counted.y_train.max() == 3
    with pytest.raises(InputError, match="4 classes; the task two-classes has two, 0 and 1"):
        fs.load(path, label="n", task="two-classes")
    wrong = write(tmp_path / "w.csv", "a,n", [(1, 2), (2, 1.5), (3, -1)])
    with pytest.raises(InputError, match=r"line 3.* holds no count(.|\n)*line 4.* holds no count"):
        fs.load(wrong, label="n", task=fs.Task("counts", range=(0, 9)))


def test_two_classes_keep_their_names_and_one_output():
    data = Dataset.from_arrays(np.eye(2).repeat(10, axis=0), ["no", "yes"] * 10, task="two-classes")
    assert data.labels == ("no", "yes") and (data.classes, data.outputs) == (2, 1)


@pytest.mark.parametrize(
    ("task", "y", "said"),
    [
        (NUMBERS, [1.0, np.nan], "row 1 has another label; expected a finite number"),
        (fs.Task("labels"), [[0, 1], [2, 0]], "row 1 has another label; expected 0 or 1 for each label"),
        (fs.Task("labels"), [0, 1], r"expected \(records, features\) and \(records, labels\)"),
        (NUMBERS, ["a", "b"], "numbers are <U1; expected numbers"),
        (fs.Task("counts", range=(0, 5)), [1, -2], "expected a count"),
    ],
)
def test_arrays_that_are_no_answers_are_refused(task, y, said):
    with pytest.raises(InputError, match=said):
        Dataset.from_arrays([[0.0], [1.0]], y, x_test=[[0.0]], y_test=y[:1], task=task)


def test_a_frame_and_clients_files_have_tasks_too(tmp_path, priced):
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(priced)
    data = Dataset.from_frame(frame, "price", task=NUMBERS)
    assert np.array_equal(data.y_train, fs.load(priced, label="price", task=NUMBERS).y_train)
    for name in ("one", "two"):
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    (tmp_path / "t.csv").unlink()
    both = fs.load(clients_from=tmp_path, label="price", task=NUMBERS)
    assert sum(fs.by_owner(both).sizes) == 96 and len(fs.by_owner(both).sizes) == 2
    assert set(both.groups) == {"client"}


def test_records_without_classes_are_dealt_evenly_and_nothing_else(priced):
    data = fs.load(priced, label="price", task=NUMBERS)
    assert split(data, 3, min_size=1).description == "iid, seed 42"
    assert statistics_of(split(data, 3, min_size=1)).counts.tolist() == [[16], [16], [16]]
    hows: list[Any] = [{"alpha": 0.5}, {"iid": False}]
    for how in hows:
        with pytest.raises(InputError, match="Dirichlet's proportions are over classes, and the task is numbers"):
            split(data, 3, **how)


@pytest.mark.parametrize(
    ("label", "said"),
    [
        ({"kind": "label", "range": [0, 1], "classes": ["a", "b"]}, "classes and numbers from 0 to 1 contradict"),
        ({"kind": "label", "task": "counts"}, "column 'y': counts need a public range"),
        ({"kind": "label", "task": "guess"}, "there is no task"),
        ({"kind": "label", "range": [2, 1]}, "expected the lower end and the higher one"),
        ({"kind": "label", "words": ["a"]}, "expected what is written for no, and for yes"),
    ],
)
def test_a_schemas_label_makes_sense(label, said):
    with pytest.raises(InputError, match=said):
        schema_of({"columns": {"x": {"kind": "number"}, "y": label}})


def test_of_several_labels_none_has_classes_or_a_range():
    columns = {"x": {"kind": "number"}, "y": {"kind": "label", "range": [0, 1]}, "z": {"kind": "label"}}
    with pytest.raises(InputError, match="column 'y' is one of 2 labels, which say yes or no each"):
        schema_of({"columns": columns})


def test_a_draft_takes_a_quantity_for_a_number_and_marks_its_range(tmp_path):
    path = tmp_path / "t.csv"
    write(path, "a,price,ill", [(i % 7, i / 2, "yes" if i % 2 else "no") for i in range(300)])
    found = propose(read_cells(path), "price").schema
    assert found.task == fs.Task("numbers", range=(0, 149.5)) and found.leaks["price"] == ("range",)
    several = propose(read_cells(path), ["ill", "a"])
    assert several.schema.task == fs.Task("labels") and "words = ['no', 'yes']" in several.comments["a"]
