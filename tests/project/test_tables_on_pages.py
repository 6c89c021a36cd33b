"""Tables that programs write: a page shows what its file has, and the file what was measured (experiments/pages.py)."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
sys.path[:0] = [str(ROOT / folder) for folder in ("experiments", "experiments/recipe", "benchmarks", "scripts")]

import ablation_parts  # noqa: E402 # pyright: ignore[reportMissingImports]
import audit_tables  # noqa: E402 # pyright: ignore[reportMissingImports]
import deployment_noise  # noqa: E402 # pyright: ignore[reportMissingImports]
import found_clips  # noqa: E402 # pyright: ignore[reportMissingImports]
import fuzz  # noqa: E402
import last_bits  # noqa: E402 # pyright: ignore[reportMissingImports]
import network_steps  # noqa: E402 # pyright: ignore[reportMissingImports]
import pages  # noqa: E402 # pyright: ignore[reportMissingImports]
import private_tuning  # noqa: E402 # pyright: ignore[reportMissingImports]
import published_accuracy  # noqa: E402 # pyright: ignore[reportMissingImports]
import published_agreement  # noqa: E402 # pyright: ignore[reportMissingImports]
import reproduced  # noqa: E402 # pyright: ignore[reportMissingImports]
import secure_sums  # noqa: E402 # pyright: ignore[reportMissingImports]
import shipped_features  # noqa: E402
import tables  # noqa: E402 # pyright: ignore[reportMissingImports]
import tasks  # noqa: E402 # pyright: ignore[reportMissingImports]
import tuned_tables  # noqa: E402 # pyright: ignore[reportMissingImports]
import unequal_budgets  # noqa: E402 # pyright: ignore[reportMissingImports]

MARK = re.compile(r"^<!-- table (\S+) -->$", re.M)
SHOWN = [(page, name) for page in sorted(DOCS.rglob("*.md")) for name in MARK.findall(page.read_text())]
NODE_MODELS = "node-models"  # scripts/measure_node_models.py says before it begins on how many threads JAX may run


def of_rows(name: str, table: Callable[[list[dict[str, Any]]], str]) -> str:
    rows = [{k: number(v) for k, v in row.items()} for row in pages.rows_in(pages.path_of(name).with_name("rows.csv"))]
    return table(rows)


def number(text: str) -> Any:
    if not text:
        return None
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        return text


def in_order(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row.values())


def of_audit(name: str) -> str:
    return audit_tables.markdown(json.loads(pages.path_of(name).with_name("audit.json").read_text()), name)


#: Every table, made anew of what is kept beside it.
MADE: dict[str, Callable[[], str]] = {
    **{
        name: lambda name=name, t=t: of_rows(name, lambda rows: tables.markdown(rows, t))
        for name, t in tables.TABLES.items()
    },
    "audit": lambda: of_audit("audit"),
    "audit/broken": lambda: of_audit("audit/broken"),
    "deployment-noise": lambda: of_rows("deployment-noise", deployment_noise.markdown),
    "found-clips": lambda: of_rows("found-clips", lambda rows: found_clips.markdown(rows)),
    "fuzz": lambda: fuzz.markdown(json.loads(pages.path_of("fuzz").with_name("report.json").read_text())),
    "last-bits": lambda: of_rows("last-bits", last_bits.markdown),
    "network-steps": lambda: of_rows("network-steps", network_steps.table),
    "published-accuracy": lambda: published_accuracy.markdown(
        pages.rows_in(pages.path_of("published-accuracy").with_name("rows.csv"))
    ),
    "published-accuracy/agreement": published_agreement.markdown,
    "private-tuning": lambda: of_rows("private-tuning", lambda rows: private_tuning.table([*map(in_order, rows)])),
    "reproduced": reproduced.grids,
    "reproduced/methods": reproduced.methods,
    "secure-sums": lambda: of_rows("secure-sums", secure_sums.markdown),
    "shipped-features": lambda: of_rows("shipped-features", shipped_features.markdown),
    "tasks": lambda: of_rows("tasks", tasks.markdown),
    **{n: lambda n=n: tuned_tables.accuracies(pages.path_of(n).parent) for n in tuned_tables.NAMES},
    **{f"{n}/differences": lambda n=n: tuned_tables.differences(pages.path_of(n).parent) for n in tuned_tables.NAMES},
    "unequal-budgets": lambda: unequal_budgets.markdown(pages.path_of("unequal-budgets").parent),
}


@pytest.mark.parametrize(("page", "name"), SHOWN, ids=lambda v: v if isinstance(v, str) else v.name)
def test_a_page_shows_what_the_file_has(page: Path, name: str):
    assert f"<!-- table {name} -->\n{pages.as_on(page, name)}<!-- end -->" in page.read_text()


def test_every_table_that_is_kept_is_on_a_page():
    kept = {path.parent.name for path in (DOCS / "results").glob("*/table.md")}
    assert kept == {name for _, name in SHOWN if "/" not in name}
    assert kept - {NODE_MODELS} <= set(MADE)


@pytest.mark.parametrize("name", MADE)
def test_a_table_is_what_was_measured(name: str):
    assert MADE[name]() == pages.path_of(name).read_text()


def test_parts_of_the_recipe_are_what_was_measured():
    folder = pages.DOCS / "results" / "recipe-ablation"
    made = ablation_parts.as_csv(json.loads((folder / "accuracies.json").read_text()))
    assert made == (folder / "parts.csv").read_text(), "python experiments/recipe/ablation_parts.py"


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
    pages.keep("turns-local", made, rows, docs)
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
