"""A public schema: every kind of column, every problem told at once, and nothing read off the records in silence."""

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsofim.data import load
from fedsofim.data.cells import read_cells
from fedsofim.data.columns import encode, feature_names
from fedsofim.data.dataset import Dataset
from fedsofim.data.partition import split
from fedsofim.data.proposal import propose
from fedsofim.data.schema import as_toml, plain_schema, read_schema, schema_of
from fedsofim.errors import DataWarning, InputError
from hospital import write_schema, write_table

COLUMNS = {
    "age": {"kind": "number", "range": [0, 100], "missing": 50},
    "sex": {"kind": "category", "categories": ["f", "m"], "group": True},
    "ok": {"kind": "boolean", "missing": False},
    "day": {"kind": "date", "range": [date(2020, 1, 1), date(2020, 1, 3)]},
    "who": {"kind": "person"},
    "kind": {"kind": "label", "classes": ["b", "a"]},
}
SCHEMA = schema_of({"columns": COLUMNS})
HEAD = "age,sex,ok,day,who,kind\n"


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_every_kind_becomes_features(tmp_path):
    cells = read_cells(
        write(tmp_path / "t.csv", HEAD + "100,f,yes,2020-01-01,p,a\nNA,m,,2020-01-02,q,b\n25,f,no,2020-01-03,r,a\n")
    )
    found = encode(SCHEMA, cells)
    assert found.names == feature_names(SCHEMA) == (
        "age", "age (missing)", "sex = f", "sex = m", "sex = (unknown)", "ok", "ok (missing)", "day")  # fmt: skip
    assert found.x.tolist() == [[1, 0, 1, 0, 0, 1, 0, -1], [0, 1, 0, 1, 0, 0, 1, 0], [-0.5, 0, 1, 0, 0, 0, 0, 1]]


def test_what_lies_outside_the_public_knowledge_is_counted_and_said(tmp_path):
    cells = read_cells(write(tmp_path / "t.csv", HEAD + "130,x,yes,2021-01-01,p,a\n"))
    found = encode(SCHEMA, cells)
    assert found.x.tolist() == [[1, 0, 0, 0, 1, 1, 0, 1]]
    assert [r.text.split(" of ")[1].split("'")[1] for r in found.remarks] == ["age", "sex", "day"]


def test_remarks_say_where_strange_values_are_and_never_which(tmp_path):
    rows = [f"1{k % 7}{k},M,yes,2020-01-01,p{k},a" for k in range(1, 21)]
    file = write(tmp_path / "t.csv", HEAD + "\n".join(["50,f,no,2020-01-01,p,b", *rows]) + "\n")
    with pytest.warns(DataWarning) as said:
        load(file, schema=SCHEMA)
    age, sex = (w.message for w in said if isinstance(w.message, DataWarning))
    assert str(sex).endswith("20 cells of 'sex' hold a category that the schema does not list, and count as unknown")
    assert sex.details.endswith("count as unknown: 1 different value, first in line 3")
    first = "20 different values, first in line 3, line 4, line 5, line 6, line 7 and 15 more"
    assert str(age).endswith("count as its ends") and age.details.endswith(f"count as its ends: {first}")


def test_all_problems_are_told_at_once_with_row_and_column(tmp_path):
    file = write(
        tmp_path / "t.csv", HEAD + "old,f,yes,2020-01-01,p,a\n1,f,perhaps,2020-01-01,q,b\n2,m,no,soon,r,c\n3,,no,,s,\n"
    )
    features = ["line 2, column 'age' holds text", "line 5, column 'sex' is empty",
                "line 3, column 'ok' holds another word", "line 4, column 'day' holds no such date",
                "line 5, column 'day' is empty"]  # fmt: skip
    labels = ["line 4, column 'kind' has a label that", "line 5 has no label"]
    assert_told(file, SCHEMA, [*labels, *features])
    write(file, file.read_text().replace(",r,", ",,"))
    assert_told(file, SCHEMA, [*labels, *features, "line 4, column 'who' names no person"])
    with pytest.raises(InputError) as said:
        encode(SCHEMA, read_cells(file))
    assert [part in line for part, line in zip(features, str(said.value).splitlines(), strict=True)] == [True] * 5


def assert_told(file: Path, schema: Any, parts: list[str]) -> None:
    with pytest.raises(InputError) as said:
        load(file, schema=schema)
    lines = str(said.value).splitlines()
    assert [part in line for part, line in zip(parts, lines, strict=True)] == [True] * len(parts), lines


def test_many_problems_of_one_column_hide_no_others(tmp_path):
    rows = [f"old,f,yes,2020-01-01,p,{'c' if k == 40 else 'a'}" for k in range(60)]
    file = write(tmp_path / "t.csv", HEAD + "\n".join([*rows, "1,f,yes,soon,,b"]) + "\n")
    ages = [f"line {k}, column 'age'" for k in range(2, 22)] + ["and 40 more of this kind"]
    assert_told(file, SCHEMA, ["line 42, column 'kind'", *ages, "line 62, column 'day'", "line 62, column 'who'"])


def test_columns_that_are_not_the_schemas_are_told_at_once(tmp_path):
    file = write(tmp_path / "t.csv", "extra,sex,ok,day,who\n1,f,yes,2020-01-01,p\n")
    assert_told(file, SCHEMA, ["no column 'kind', the schema's label", "no column 'age'", "nothing of column 'extra'"])


def test_all_problems_without_a_schema_are_told_at_once_too(tmp_path):
    file = write(tmp_path / "t.csv", "a,who,label\n1,p,0\nx,q,\n3,,1\n")
    with pytest.raises(InputError) as said:
        load(file, person="who")
    parts = ["line 3 has no label", "line 3, column 'a'", "line 4, column 'who'", "need a schema"]
    lines = str(said.value).splitlines()
    assert [part in line for part, line in zip(parts, lines, strict=True)] == [True] * 4, lines


def test_a_column_that_nobody_described_is_refused(tmp_path):
    file = write(tmp_path / "t.csv", "extra," + HEAD + "1,2,f,yes,2020-01-01,p,a\n")
    with pytest.raises(InputError, match="says nothing of column 'extra'"):
        load(file, schema=SCHEMA)
    with pytest.raises(InputError, match="no column 'age'"):
        encode(SCHEMA, read_cells(write(tmp_path / "u.csv", "sex,ok,day,who,kind\nf,yes,2020-01-01,p,a\n")))


def test_latin_1_and_semicolons_and_decimal_commas(tmp_path):
    table, schema = write_table(tmp_path / "mine.csv"), write_schema(tmp_path / "schema.toml")
    with pytest.warns(DataWarning) as said:
        data = load(table, schema=schema)
    assert any("read as Latin-1" in str(w.message) for w in said)
    assert any("'sex' hold a category that the schema does not list" in str(w.message) for w in said)
    assert data.labels == ("well", "ill") and np.abs(data.x_train).max() <= 1
    assert "ward = Pädiatrie" in data.columns and data.x_train[:, data.columns.index("ward = Pädiatrie")].sum() > 10
    lab = data.x_train[data.x_train[:, data.columns.index("lab (missing)")] == 0, data.columns.index("lab")]
    assert 0.2 < lab.std() < 0.6


@pytest.mark.filterwarnings("ignore::fedsofim.errors.DataWarning")
def test_a_person_is_never_torn_apart(tmp_path):
    data = load(write_table(tmp_path / "mine.csv"), schema=write_schema(tmp_path / "schema.toml"))
    assert data.person is not None and len(data.person) == len(data.x_train)
    assert len(np.unique(data.person)) * 2 == len(data.person)  # both records of a patient are on one side
    assert "of the persons" in data.notes["test"]
    hows: list[dict[str, Any]] = [{"iid": True}, {"alpha": 5.0}]
    for how in hows:
        parts = split(data, 4, **how).parts
        holders = [set(data.person[rows]) for rows in parts]
        assert sum(map(len, holders)) == len(set.union(*holders))
    assert set(data.groups["sex"]) >= {"f", "m"} and len(data.groups["sex"]) == len(data.x_test)


def test_values_that_were_read_off_the_records_are_said(tmp_path):
    table = write(tmp_path / "t.csv", "a,b,label\n" + "".join(f"{k % 17},{'xy'[k % 2]},{k % 2}\n" for k in range(60)))
    draft = propose(read_cells(table))
    assert draft.schema.leaks == {"a": ("range",), "b": ("categories",), "label": ("classes",)}
    again = read_schema(write(tmp_path / "s.toml", draft.toml()))
    assert again == draft.schema
    with pytest.warns(DataWarning, match="range of 'a', categories of 'b' were read off the private records"):
        load(table, schema=tmp_path / "s.toml")
    public = {
        name: {k: v for k, v in c.items() if k != "from_records"} for name, c in plain_schema(again)["columns"].items()
    }
    load(table, schema={"columns": public})  # public knowledge: no warning, which would be an error here


def test_it_survives_toml_and_json():
    import tomllib

    assert schema_of(tomllib.loads(as_toml(SCHEMA))) == SCHEMA
    assert schema_of(plain_schema(SCHEMA)) == SCHEMA


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ({"kind": "numbr"}, "did you mean 'number'"),
        ({"kind": "number", "categories": ["a"]}, "there is no key of a number 'categories'"),
        ({"kind": "number", "range": [5, 1]}, "expected the lower end and the higher one"),
        ({"kind": "number", "missing": "x"}, "expected the number that a gap is filled with"),
        ({"kind": "category"}, "needs its categories"),
        ({"kind": "category", "categories": [1, 2]}, "categories are text"),
        ({"kind": "date"}, "a date needs its range"),
        ({"kind": "date", "range": ["x", "y"]}, "is no date"),
        ({"range": [0, 1]}, "has no kind"),
    ],
)
def test_wrong_schemas_are_told(column, said):
    with pytest.raises(InputError, match=said):
        schema_of({"columns": {"a": {"kind": "number"}, "x": column}})


def test_other_formats_of_schemas_are_refused():
    with pytest.raises(InputError, match="is a schema of format 2; this version of fedsofim reads format 1"):
        schema_of({"format": 2, "columns": {"a": {"kind": "number"}}})


# --- tables that nobody described ---------------------------------------------------------------------------


def test_all_problems_without_a_schema_and_the_way_to_one(tmp_path):
    with pytest.raises(InputError) as said:
        load(write(tmp_path / "t.csv", "a,b,label\n1,x,0\n,y,1\n3,4,1\n"))
    lines = str(said.value).splitlines()
    assert len(lines) == 4 and "line 3, column 'a'" in lines[0] and "line 3, column 'b'" in lines[2]
    assert "fedsofim schema" in lines[3]


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "index"])
def test_an_index_column_is_refused(tmp_path, name):
    rows = "".join(f"{k},{k * 7 % 5},{k % 2}\n" for k in range(30))
    with pytest.raises(InputError, match=f"column '{name}' only counts the rows.*--drop '{name}'"):
        load(write(tmp_path / "t.csv", f"{name},a,label\n{rows}"))


def test_an_id_that_became_a_feature_is_said(tmp_path):
    rows = "".join(f"{k * 31 % 997},{k % 5},{k % 2}\n" for k in range(30))
    with pytest.warns(DataWarning, match="'case_id' looks like an id and became a feature"):
        load(write(tmp_path / "t.csv", f"case_id,a,label\n{rows}"))


def test_a_quantity_is_no_class(tmp_path):
    rows = "".join(f"{k % 7},{k % 400}\n" for k in range(1200))
    with pytest.raises(InputError, match="column 'label' has 400 different values, so it is a quantity"):
        load(write(tmp_path / "t.csv", f"a,label\n{rows}"))
    with pytest.raises(InputError, match="400 different labels on 1200 records"):
        Dataset.from_arrays(np.zeros((1200, 1)), np.arange(1200) % 400)


def test_frames_of_both_libraries(tmp_path):
    values = {"age": [20.0, None, 60.0] * 20, "sex": ["f", "m", "f"] * 20, "ok": [True, False, None] * 20,
              "day": [date(2020, 1, 2)] * 60, "who": list(range(60)), "kind": ["a", "b"] * 30}  # fmt: skip
    made = []
    for library in ("pandas", "polars"):
        frame = pytest.importorskip(library).DataFrame(values)
        made.append(Dataset.from_frame(frame, schema=SCHEMA))
    assert np.array_equal(made[0].x_train, made[1].x_train) and made[0].labels == ("b", "a")
    with pytest.raises(InputError, match="expected a data frame"):
        Dataset.from_frame([[1]])


def test_no_view_shows_a_record():
    data = Dataset.from_arrays(np.full((60, 2), 123.456), ["x", "y"] * 30, columns=["a", "b"])
    dealt = split(data, 2, iid=True)
    for text in (repr(data), data._repr_html_(), repr(dealt), dealt._repr_html_()):
        assert "123.4" not in text and "array(" not in text and len(text) < 2000


def test_the_schema_on_the_hospitals_page_is_one():
    import re
    import tomllib

    page = (Path(__file__).resolve().parents[2] / "docs" / "hospital.md").read_text()
    found = schema_of(tomllib.loads(re.findall(r"```toml title=\"schema.toml\"\n(.*?)```", page, re.DOTALL)[0]))
    assert {c.kind for c in found.columns} == {"number", "category", "boolean", "date", "label", "person", "drop"}
    assert not found.leaks


def test_accuracy_can_be_told_for_each_client_of_a_federation(tmp_path):
    for name in ("north", "south"):
        write(tmp_path / f"{name}.csv", "a,label\n" + "".join(f"{k % 7},{k % 2}\n" for k in range(40)))
    data = load(clients_from=tmp_path)
    assert set(data.groups["client"]) == {"north", "south"} and len(data.groups["client"]) == len(data.x_test)


@pytest.mark.filterwarnings("ignore::fedsofim.errors.DataWarning")
def test_an_empty_id_is_no_person(tmp_path):
    """Not one person of all such records, nor each a person of its own: told with its line, and nothing is read."""
    lines = write_table(tmp_path / "t.csv", 6).read_text(encoding="latin-1").splitlines()
    for row, word in ((2, ""), (5, "NA")):
        cells = lines[row].split(";")
        lines[row] = ";".join([cells[0], word, *cells[2:]])
    (tmp_path / "t.csv").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load(tmp_path / "t.csv", schema=write_schema(tmp_path / "s.toml"))
    said = str(caught.value)
    assert "line 3, column 'patient' names no person" in said and "line 6, column 'patient'" in said
    assert "line 4" not in said
