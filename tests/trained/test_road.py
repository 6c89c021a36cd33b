"""From the file people have to the model they use: by `run`, by `compare`, and by three nodes, to equal predictions."""

import csv
import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

import fedsofim as fs
from commands import run_here
from fedsofim.data.cells import read_cells
from fedsofim.data.columns import encode
from fedsofim.data.schema import read_schema
from fedsofim.data.tables import read_table
from fedsofim.deploy.checkpoint import CHECKPOINT, save
from fedsofim.deploy.order import Order
from fedsofim.formats import MODEL
from fedsofim.trained import Trained, load_model
from hospital import write_schema, write_table
from nodes import finish, make_node, start, table_node

onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime to run what was exported")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::fedsofim.errors.DataWarning"),  # Latin-1, an unknown category: said elsewhere
]


@pytest.fixture
def call(capsys, monkeypatch):
    def run(*args):
        done = run_here(capsys, monkeypatch, *args)
        assert done.returncode == 0, done.stderr
        return done

    return run


def by_onnx(model: Trained, table: Path, file: Path) -> tuple[list, np.ndarray]:
    """What the exported file says of a table's raw cells."""
    from fedsofim.trained.onnx_file import inputs_of

    session = onnxruntime.InferenceSession(model.to_onnx(file), providers=["CPUExecutionProvider"])
    label, probabilities = session.run(["label", "probabilities"], inputs_of(model, read_cells(table)))
    return list(label), probabilities


def check(model: Trained, table: Path, predicted: Path, folder: Path) -> None:
    """The predictions of the command, of Python and of ONNX are equal, and right for most."""
    with predicted.open() as file:
        rows = list(csv.DictReader(file))
    ours = model.predict(read_cells(table))
    labels, probabilities = by_onnx(model, table, folder / "m.onnx")
    assert [row["predicted"] for row in rows] == ours.tolist() == labels
    np.testing.assert_allclose(probabilities, model.predict_proba(read_cells(table)), atol=2e-6)
    np.testing.assert_allclose([float(row["p(ill)"]) for row in rows], probabilities[:, 1], atol=2e-6)
    truth = [line.rsplit(";", 1)[1] for line in table.read_text(encoding="latin-1").splitlines()[1:]]
    assert np.mean(ours == np.array(truth)) > 0.8
    assert [row["patient"] for row in rows][:3] == ["P7-0", "P7-0", "P7-1"]


def test_by_run(call, tmp_path):
    table, new = write_table(tmp_path / "mine.csv"), write_table(tmp_path / "new.csv", 60, seed=7)
    schema = write_schema(tmp_path / "schema.toml")
    done = call("run", "--dataset", table, "--schema", schema, "--clients", "3", "--partition", "iid", "--epsilon", "8",
                "--out", tmp_path / "m")  # fmt: skip
    assert "by sex: (unknown)" in done.stdout and "f " in done.stdout
    said = call("predict", tmp_path / "m", new, "--out", tmp_path / "p.csv")
    assert "60 records" in said.stdout and "% are as predicted" in said.stdout
    model = fs.load_model(tmp_path / "m")
    assert model.labels == ("well", "ill")
    check(model, new, tmp_path / "p.csv", tmp_path)
    assert "epsilon 8 at delta 1e-05" in model.card and "patient" in model.card
    document = json.loads((tmp_path / "m" / "model.json").read_text())
    assert document["format"] == MODEL.writes and document["privacy"]["ledger"] and document["training"]["settings"]
    assert "P0-" not in (tmp_path / "m" / "model.json").read_text()  # no patient is in it


def test_by_compare(call, tmp_path):
    write_table(tmp_path / "mine.csv")
    new = write_table(tmp_path / "new.csv", 60, seed=7)
    write_schema(tmp_path / "schema.toml")
    (tmp_path / "e.toml").write_text("""
datasets = ["mine.csv"]
schema = "schema.toml"
epsilons = [8]
seeds = [0]
recipe = "auto"
partitions = [{ kind = "iid", clients = 3 }]
[methods]
recipe = { method = "fedsofim" }
""")
    call("compare", tmp_path / "e.toml", "--out", tmp_path / "runs", "--models")
    (folder,) = (tmp_path / "runs" / "models").iterdir()
    call("predict", folder, new, "--out", tmp_path / "p.csv")
    check(load_model(folder), new, tmp_path / "p.csv", tmp_path)
    call("report", tmp_path / "runs")
    page = (tmp_path / "runs" / "report.html").read_text()
    assert "By sex: mine, iid" in page and "By class" in page


def test_by_three_nodes(call, tmp_path):
    """Each node reads its own table by the schema; the job's folder is the model, and knows the schema."""
    schema = write_schema(tmp_path / "schema.toml")
    nodes = [
        table_node(tmp_path / f"n{i}", write_table(tmp_path / f"{i}.csv", 120, seed=i), schema, f"n{i}", epsilon=8.0)
        for i in range(3)
    ]
    now = finish(nodes, start(nodes, Order(recipe="auto", epsilon=8.0, rounds=20)))
    (tmp_path / "job").mkdir()
    save(now, tmp_path / "job" / CHECKPOINT)
    new = write_table(tmp_path / "new.csv", 60, seed=7)
    call("predict", tmp_path / "job", new, "--out", tmp_path / "p.csv")
    call("model", tmp_path / "job", "--out", tmp_path / "m")
    model = load_model(tmp_path / "m")
    check(model, new, tmp_path / "p.csv", tmp_path)
    numbers = now.predict(encode(read_schema(schema), read_cells(new)).x)
    assert [("well", "ill")[i] for i in numbers] == model.predict(read_cells(new)).tolist()
    assert model.schema == read_schema(schema)


def test_a_job_that_is_not_finished_is_no_model(capsys, monkeypatch, tmp_path):
    rows = read_table(write_table(tmp_path / "a.csv"), schema=read_schema(write_schema(tmp_path / "s.toml")))
    nodes = [make_node(tmp_path / "n0", rows.x, rows.y, "n0", classes=2)]
    (tmp_path / "job").mkdir()
    save(start(nodes, Order(method="fedgd", rounds=2, clients=1)), tmp_path / "job" / CHECKPOINT)
    done = run_here(capsys, monkeypatch, "model", tmp_path / "job", "--out", tmp_path / "m")
    assert done.returncode == 2 and "at round 0 of 2; let it finish" in done.stderr


def test_a_draft_of_a_schema_reads_back_and_trains(call, tmp_path):
    """The draft is usable as it is, and every value that was read off the records is marked in it."""
    table = write_table(tmp_path / "mine.csv")
    done = call("schema", table, "--label", "outcome")
    (tmp_path / "draft.toml").write_text(done.stdout, encoding="utf-8")
    found = tomllib.loads(done.stdout)["columns"]
    kinds = {name: column["kind"] for name, column in found.items()}
    assert kinds == {"record_id": "drop", "patient": "person", "age": "number", "sex": "category", "smoker": "boolean",
                     "admitted": "date", "lab": "number", "ward": "category", "outcome": "label"}  # fmt: skip
    assert found["age"]["from_records"] == ["range", "missing"] and found["lab"]["decimal"] == ","
    assert found["ward"]["from_records"] == ["categories", "missing"]
    run = call("run", "--dataset", table, "--schema", tmp_path / "draft.toml", "--clients", "3", "--partition", "iid",
               "--epsilon", "8", "--rounds", "3", "--out", tmp_path / "m")  # fmt: skip
    assert "were read off the private records, which epsilon does not cover" in run.stderr
    assert "Read off the training records" in fs.load_model(tmp_path / "m").card


def written_otherwise(table: Path, schema: Path, folder: Path) -> tuple[Path, Path]:
    """The same records as another site writes them: points, ISO dates, other words; and its copy of the schema."""
    text = schema.read_text(encoding="utf-8")
    for ours, theirs in (('decimal = ","', 'decimal = "."'), ('format = "%d.%m.%Y"', 'format = "%Y-%m-%d"'),
                         ('["nein", "ja"]', '["no", "si"]'), ('missing = "nein"', 'missing = "no"')):  # fmt: skip
        assert ours in text
        text = text.replace(ours, theirs)
    (folder / "theirs.toml").write_text(text, encoding="utf-8")
    header, *lines = table.read_text(encoding="latin-1").splitlines()
    at = {name: i for i, name in enumerate(header.split(";"))}
    rows = []
    for line in lines:
        cells = line.split(";")
        cells[at["lab"]] = cells[at["lab"]].replace(",", ".")
        cells[at["smoker"]] = {"ja": "si", "nein": "no", "": ""}[cells[at["smoker"]]]
        day, month, year = cells[at["admitted"]].split(".")
        cells[at["admitted"]] = f"{year}-{month}-{day}"
        rows.append(",".join(cells))
    (folder / "theirs.csv").write_text("\n".join([header.replace(";", ","), *rows]), encoding="latin-1")
    return folder / "theirs.csv", folder / "theirs.toml"


def test_a_site_predicts_tables_that_it_writes_in_its_own_way(call, capsys, monkeypatch, tmp_path):
    table, new = write_table(tmp_path / "mine.csv"), write_table(tmp_path / "new.csv", 60, seed=7)
    schema = write_schema(tmp_path / "schema.toml")
    call("run", "--dataset", table, "--schema", schema, "--clients", "3", "--partition", "iid", "--rounds", "2",
         "--out", tmp_path / "m")  # fmt: skip
    nodes = [
        table_node(tmp_path / f"n{i}", write_table(tmp_path / f"{i}.csv", seed=i), schema, f"n{i}") for i in range(2)
    ]
    (tmp_path / "job").mkdir()
    save(finish(nodes, start(nodes, Order(method="fedgd", rounds=2, clients=2))), tmp_path / "job" / CHECKPOINT)
    theirs, own = written_otherwise(new, schema, tmp_path)
    for model in (tmp_path / "m", tmp_path / "job"):
        call("predict", model, new, "--out", tmp_path / "ours.csv", "--force")
        call("predict", model, theirs, "--schema", own, "--out", tmp_path / "theirs.csv.out", "--force")
        assert (tmp_path / "ours.csv").read_text() == (tmp_path / "theirs.csv.out").read_text()
        refused = run_here(capsys, monkeypatch, "predict", model, theirs, "--out", tmp_path / "none.csv")
        assert refused.returncode == 2 and "holds" in refused.stderr and not (tmp_path / "none.csv").exists()
    own.write_text(own.read_text(encoding="utf-8").replace("range = [0, 20]", "range = [0, 30]"), encoding="utf-8")
    words = ["predict", tmp_path / "m", theirs, "--schema", own, "--out", tmp_path / "x.csv"]
    refused = run_here(capsys, monkeypatch, *words)
    assert refused.returncode == 2 and "means something else" in refused.stderr
