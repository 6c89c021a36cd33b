"""Tables of experiments/tables.py: a page shows what its file has, and the file what its rows say."""

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "experiments"))

import private_tuning  # noqa: E402 # pyright: ignore[reportMissingImports]
import tables  # noqa: E402 # pyright: ignore[reportMissingImports]

KEPT = sorted(name for name in tables.TABLES if (ROOT / "docs" / "results" / name / "rows.csv").exists())


def test_some_are_kept():
    assert KEPT


@pytest.mark.parametrize("name", KEPT)
def test_a_table_is_what_its_rows_say(name: str):
    folder = ROOT / "docs" / "results" / name
    with (folder / "rows.csv").open() as file:
        rows = [{k: _number(v) for k, v in row.items()} for row in csv.DictReader(file)]
    assert tables.markdown(rows, tables.TABLES[name]) == (folder / "table.md").read_text()


@pytest.mark.parametrize("name", [*KEPT, "found-clips", "private-tuning"])
def test_some_page_shows_it_as_it_is(name: str):
    table = (ROOT / "docs" / "results" / name / "table.md").read_text()
    pages = [p.read_text() for p in (ROOT / "docs").rglob("*.md") if f"<!-- table {name} -->" in p.read_text()]
    assert pages, f"no page shows {name}"
    for page in pages:
        assert f"<!-- table {name} -->\n{table}<!-- end -->" in page


def test_the_table_of_private_tuning_is_what_its_rows_say():
    folder = ROOT / "docs" / "results" / "private-tuning"
    with (folder / "rows.csv").open() as file:
        rows = [[_number(text) for text in row[:5]] for row in csv.reader(file)][1:]
    assert private_tuning.table([tuple(row) for row in rows]) == (folder / "table.md").read_text()


def _number(text: str) -> Any:
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        return text


def test_a_journal_becomes_a_table_on_its_page(tmp_path: Path):
    runs, docs = tmp_path / "runs", tmp_path / "docs"
    (runs / "turns-local").mkdir(parents=True)
    docs.mkdir()
    (docs / "page.md").write_text("before\n<!-- table turns-local -->\nold\n<!-- end -->\nafter\n")
    grid = {"experiment": {"partitions": [{"clients": 20}]}}
    (runs / "turns-local" / "grid.json").write_text(json.dumps(grid))
    lines = [run("DP-FedSOFIM", 0, 80.0), run("DP-FedSOFIM", 1, 81.0), run("DP-FedSOFIM, 5 a round", 0, 70.0)]
    (runs / "turns-local" / "runs.jsonl").write_text("\n".join(map(json.dumps, lines)))
    table = tables.TABLES["turns-local"]
    rows = tables.rows_of(runs, table)
    made = tables.markdown(rows, table)
    tables.keep("turns-local", tables.COLUMNS, rows, made, docs)
    assert made.splitlines() == [
        "| method, clients in a round | ε = 1 |",
        "|---|--:|",
        "| DP-FedSOFIM | 80.50 ± 0.71 |",
        "| DP-FedSOFIM, 5 a round | 70.00 (1 of 2 seeds) |",
    ]
    assert (docs / "page.md").read_text() == f"before\n<!-- table turns-local -->\n{made}<!-- end -->\nafter\n"
    assert (docs / "results" / "turns-local" / "table.md").read_text() == made


def run(label: str, seed: int, accuracy: float) -> dict[str, Any]:
    privacy = {"noise_std": 0.5}
    facts = {"label": label, "method": "fedsofim", "seed": seed, "accuracy": [1.0, accuracy], "privacy": privacy}
    return facts | {"dataset": "fashion", "epsilon": 1.0, "rounds": 40}
