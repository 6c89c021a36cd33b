"""The user's own data: every form loads, and bad input is told by file, row and column."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedsofim.data import load
from fedsofim.errors import InputError

X = np.arange(40, dtype=np.float32).reshape(20, 2)
Y = np.arange(20) % 2
PETS = "weight,height,label\n" + "".join(f"{k},{2 * k},{'dog' if k % 2 else 'cat'}\n" for k in range(20))


def save(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def paint(folder: Path, classes: dict[str, int], seed: int = 0) -> Path:
    """Random images in class folders."""
    random = np.random.default_rng(seed)
    for name, count in classes.items():
        (folder / name).mkdir(parents=True)
        for k in range(count):
            Image.fromarray(random.integers(0, 256, (20, 24, 3), dtype=np.uint8)).save(folder / name / f"{k}.png")
    return folder


def test_npz(tmp_path: Path) -> None:
    file = save(tmp_path / "a.npz", x_train=X, y_train=Y, x_test=X, y_test=Y, x_val=X[:2], y_val=Y[:2, None])
    data = load(file)
    assert data.name == "a"
    assert np.array_equal(data.x_train, X) and np.array_equal(data.y_test, Y)
    assert data.y_val is not None and data.y_val.tolist() == [0, 1]
    assert "labels" not in data.notes


def test_npz_with_text_labels_and_no_test_part(tmp_path: Path) -> None:
    data = load(save(tmp_path / "a.npz", x_train=X, y_train=np.array(["no", "yes"] * 10)))
    assert data.notes["labels"] == {0: "no", 1: "yes"}
    assert len(data.x_test) == 4 and len(data.x_train) == 16
    assert data.notes["test"] == "held out 0.2 of the records, by place, seed 0"


def test_numbers_that_do_not_count_from_zero_are_numbered(tmp_path: Path) -> None:
    data = load(save(tmp_path / "a.npz", x_train=X, y_train=2 * Y - 1, x_test=X, y_test=2 * Y - 1))
    assert data.notes["labels"] == {0: -1, 1: 1}
    assert np.array_equal(data.y_train, Y)


def test_csv_holds_out_the_same_records_every_time(tmp_path: Path) -> None:
    file = write(tmp_path / "pets.csv", PETS)
    one, two = load(file), load(file)
    assert np.array_equal(one.x_test, two.x_test)
    assert len(one.y_test) == 4
    assert one.notes["labels"] == {0: "cat", 1: "dog"}
    assert len(load(file, holdout=0.5).x_test) == 10


def test_csv_label_column_drop_delimiter_and_sorting_of_numbers(tmp_path: Path) -> None:
    lines = "".join(f"{k};{k / 2};{[9, 10][k % 2]}\n" for k in range(10))
    data = load(write(tmp_path / "a.csv", "id;width;kind\n" + lines), label="kind", drop=["id"])
    assert data.features == 1
    assert data.notes["labels"] == {0: 9, 1: 10}


def test_a_test_file_of_its_own_with_columns_in_another_order(tmp_path: Path) -> None:
    train = write(tmp_path / "pets.csv", PETS)
    data = load(train, test=write(tmp_path / "test.csv", "label,height,weight\ndog,2,1\n"))
    assert len(data.x_train) == 20
    assert data.x_test.tolist() == [[1.0, 2.0]] and data.y_test.tolist() == [1]


def test_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pa.table({"a": np.arange(20.0), "b": [True, False] * 10, "label": ["x", "y"] * 10})
    parquet.write_table(table, tmp_path / "a.parquet")
    data = load(tmp_path / "a.parquet")
    assert data.features == 2 and data.notes["labels"] == {0: "x", 1: "y"}
    for column, values, expected in [
        ("a", [None, *range(19)], "row 0, column 'a' is empty"),
        ("b", ["text"] * 20, "row 0, column 'b' holds text; expected a number"),
        ("label", ["x"] * 19 + [None], "row 19 has no label"),
        ("a", [float("nan")] * 20, "row 0, column 'a' is nan"),
    ]:
        bad = table.set_column(table.column_names.index(column), column, pa.array(values))
        parquet.write_table(bad, tmp_path / "bad.parquet")
        with pytest.raises(InputError, match=f"bad.parquet: .*{expected}"):
            load(tmp_path / "bad.parquet")
    with pytest.raises(InputError, match="not a readable Parquet"):
        load(write(tmp_path / "no.parquet", "text"))


def test_image_folders(tmp_path: Path) -> None:
    data = load(paint(tmp_path / "photos", {"cat": 6, "dog": 5}))
    assert data.features == 80 and data.notes["labels"] == {0: "cat", 1: "dog"}
    assert len(data.x_train) + len(data.x_test) == 11
    assert "no statistic" in data.notes["features"]


def test_image_folders_with_train_and_test(tmp_path: Path) -> None:
    for part in ("train", "test"):
        paint(tmp_path / "photos" / part, {"cat": 3, "dog": 3})
    data = load(tmp_path / "photos")
    assert len(data.x_train) == len(data.x_test) == 6


def test_clients_of_three_kinds(tmp_path: Path) -> None:
    write(tmp_path / "b.csv", "v1,v2,label\n" + "1,2,no\n" * 5 + "3,4,yes\n" * 5)
    save(tmp_path / "a.npz", x_train=X, y_train=np.array(["no", "yes"] * 10))
    data = load(clients_from=tmp_path)
    assert data.owner is not None and len(data.owner) == len(data.x_train)
    assert data.notes["clients"] == ["a", "b"]
    assert len(data.owner) == 24 and set(data.owner) == {0, 1}
    assert data.x_train[data.owner == 1].max() == 4


def test_clients_keep_their_last_record_and_test_parts_are_pooled(tmp_path: Path) -> None:
    save(tmp_path / "a.npz", x_train=X, y_train=Y, x_test=X[:3], y_test=Y[:3])
    save(tmp_path / "b.npz", x_train=X[:1], y_train=Y[:1], x_test=X[:4], y_test=Y[:4])
    data = load(tmp_path, clients_from=tmp_path)
    assert len(data.x_test) == 7 and data.owner is not None and np.bincount(data.owner).tolist() == [20, 1]


def test_clients_as_image_folders(tmp_path: Path) -> None:
    for seed, client in enumerate(("north", "south")):
        paint(tmp_path / client, {"cat": 5, "dog": 5}, seed)
    data = load(clients_from=tmp_path)
    assert data.notes["clients"] == ["north", "south"] and len(data.x_train) == 16


BAD_CSV = {
    "": "0 lines",
    "a,label\n": "1 lines; expected a header line",
    "a,b\n1,2\n": "no column 'label'.*--label NAME.*columns: a, b",
    "a,Label\n1,2\n": "did you mean 'Label'",
    "a,label\n1,x\n,y\n": "line 3, column 'a' holds an empty cell",
    "a,label\n1,x\ntall,y\n": "line 3, column 'a' holds text; expected a number.*--drop a",
    "a,label\n1,x\nnan,y\n": "line 3, column 'a' is nan",
    "a,label\n1,x\n1e300,y\n": "line 3, column 'a' is inf",
    "a,label\n1,x\n2,\n": "line 3 has no label",
    "a,label\n1,0\n2,NaN\n": "line 3 has no label",
    "a,label\n1,x\n2,y,3\n": "line 3 has 3 cells but the header has 2",
    "a,label\n1,x\n2,x\n": "one class only",
    "a,label\n1,0\n2,0\n": "one class only",
    "a,label\n1,0.5\n2,1\n": "line 2 has another label",
    "a,a,label\n1,1,x\n": "columns 1, 2 have the same name",
    "1,2\n3,4\n": "first line holds numbers",
    "label\nx\ny\n": "no column of features",
    'a,label\n"1,x\n': "not a readable CSV",
    "a,label\n1,x\n2,y\n": "too few records to hold out",
}


@pytest.mark.parametrize("text", BAD_CSV)
def test_bad_csv(tmp_path: Path, text: str) -> None:
    file = write(tmp_path / "mine.csv", text)
    with pytest.raises(InputError, match=f"mine.*{BAD_CSV[text]}"):
        load(file)


GOOD = {"x_train": X, "y_train": Y, "x_test": X, "y_test": Y}
HOLED = np.where(np.arange(40).reshape(20, 2) == 5, np.nan, X)
BAD_NPZ = [
    ({"y_train": None}, "no array y_train"),
    ({"y_test": None}, "no array y_test"),
    ({"x_train": HOLED}, "row 2, column 1 is nan"),
    ({"x_train": X[:, 0]}, r"shape \(20,\)"),
    ({"x_test": X[:, :1]}, "1 features per record"),
    ({"x_train": X.astype(str)}, "expected numbers"),
    ({"x_train": np.zeros((20, 4, 4, 3))}, "holds images.*fedsofim features"),
    ({"x_train": X[:0], "y_train": Y[:0]}, "0 records"),
    ({"y_train": Y + 0.5}, "row 0 has another label"),
    ({"y_train": np.zeros(20, int)}, "one class only"),
    ({"y_test": Y + 5}, "y_test has labels beyond 0..1"),
    (
        {"y_train": np.array(["a", "b"] * 10), "y_test": np.array(["c"] * 20)},
        "the label in record .* never occurs in training",
    ),
    ({"y_train": np.array([None] * 20)}, "holds Python objects"),
]


@pytest.mark.parametrize(("change", "expected"), BAD_NPZ)
def test_bad_npz(tmp_path: Path, change: dict, expected: str) -> None:
    arrays = {key: value for key, value in (GOOD | change).items() if value is not None}
    with pytest.raises(InputError, match=f"mine.*{expected}"):
        load(save(tmp_path / "mine.npz", **arrays))


def test_other_bad_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load(tmp_path / "absent.npz")
    with pytest.raises(InputError, match="npz archive"):
        load(write(tmp_path / "text.npz", "not a zip"))
    with pytest.raises(InputError, match=r"cannot read files of kind '.docx'; expected .npz, .csv"):
        load(write(tmp_path / "a.docx", ""))
    with pytest.raises(InputError, match="source goes with"):
        load(write(tmp_path / "a.csv", PETS), source="b")
    with pytest.raises(InputError, match="holdout is 2"):
        load(write(tmp_path / "a.csv", PETS), holdout=2)
    with pytest.raises(InputError, match="to drop"):
        load(write(tmp_path / "a.csv", PETS), drop=["age"])
    np.save(tmp_path / "one.npy", X)
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    with pytest.raises(InputError, match="npz archive"):
        load(tmp_path / "one.npz")


def test_bad_folders(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no class folders"):
        load(tmp_path / "empty")
    folder = paint(tmp_path / "photos", {"cat": 2, "dog": 2})
    (folder / "fish").mkdir()
    with pytest.raises(InputError, match="fish: a class folder without images"):
        load(folder)
    write(folder / "fish" / "1.png", "text")
    with pytest.raises(InputError, match=r"1.png: not a readable image"):
        load(folder)
    write(folder / "loose.png", "text")
    with pytest.raises(InputError, match=r"loose.png: an image outside a class folder"):
        load(folder)


def test_bad_clients(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        load(clients_from=tmp_path / "absent")
    save(tmp_path / "a.npz", x_train=X, y_train=Y)
    with pytest.raises(InputError, match="1 client files"):
        load(clients_from=tmp_path)
    save(tmp_path / "b.npz", x_train=X[:0], y_train=Y[:0])
    with pytest.raises(InputError, match=r"b.npz.*0 records"):
        load(clients_from=tmp_path)
    save(tmp_path / "b.npz", x_train=X[:, :1], y_train=Y)
    with pytest.raises(InputError, match=r"b.npz.*1 features per record, but .*a.npz.* has 2"):
        load(clients_from=tmp_path)
    write(tmp_path / "b.csv", PETS)
    with pytest.raises(InputError, match="'b' has more than one file"):
        load(clients_from=tmp_path)
    with pytest.raises(InputError, match="give one of them"):
        load("fashion", clients_from=tmp_path)


def test_clients_whose_columns_differ(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", PETS)
    write(tmp_path / "b.csv", PETS.replace("height", "length"))
    with pytest.raises(InputError, match=r"b.csv: its columns differ .*missing height; only here length"):
        load(clients_from=tmp_path)


def test_two_test_sets_are_refused(tmp_path: Path) -> None:
    file = save(tmp_path / "a.npz", **GOOD)
    with pytest.raises(InputError, match="give one of them"):
        load(file, test=file)
