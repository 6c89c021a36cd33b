"""The table of measured cells: it says what was measured, can be fed, and is never read beyond its ends."""

import json
import math
import runpy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedsofim.core.budget import NO_PRIVACY, Budget
from fedsofim.core.units import APART
from fedsofim.errors import InputError
from fedsofim.recipes import Situation
from fedsofim.theory.cells import expectations, loudness, measured_cells, read_cells, write_cells
from fedsofim.theory.outlook import alternatives, outlook_of

CELLS = measured_cells()
ROOT = Path(__file__).resolve().parents[2]


def situation(epsilon: float = 1.0, n: int = 20, m: int = 2500, **more) -> Situation:
    return Situation(budget=Budget(epsilon), sizes=(m,) * n, shape=(64,), classes=10, **more)


def test_every_cell_has_a_source_that_is_there():
    for cell in CELLS:
        for path in cell.source.split(", "):
            assert (ROOT / path).is_file(), cell
        assert 0 < cell.accuracy <= 100 and cell.spread >= 0 and cell.seeds >= 1
        assert cell.seeds >= 5 or not math.isfinite(cell.epsilon)  # without noise there is nothing to vary


def test_the_cells_of_the_recipe_are_those_of_its_page():
    page = (ROOT / "docs" / "recipe.md").read_text(encoding="utf-8")
    for dataset, name in (("cifar10_resnet20", "CIFAR-10"), ("pathmnist_resnet20", "PathMNIST")):
        for trust, words in (("local", "local"), ("secure-sum", "secure sum")):
            line = next(x for x in page.splitlines() if x.startswith(f"| {name}, [recipe, {words}]"))
            told = [float(v.split("±")[0]) for v in line.split("|")[2:-1]]
            found = [c for c in CELLS if (c.dataset, c.trust) == (dataset, trust) and math.isfinite(c.epsilon)]
            by_epsilon = [c.accuracy for c in sorted(found, key=lambda c: c.epsilon)]
            assert by_epsilon == pytest.approx(told, abs=0.006)


def test_loudness_is_the_noise_of_one_release_with_all_of_the_budget():
    s = situation()
    assert loudness(s) == pytest.approx(2 * math.sqrt(20) / 50_000 / Budget(1.0).mu * math.sqrt(650))
    assert loudness(replace(s, trust="secure-sum")) == pytest.approx(loudness(s) / math.sqrt(20))
    assert loudness(replace(s, budget=NO_PRIVACY)) == 0.0


def test_accuracy_falls_with_loudness_over_both_trust_modes():
    """What makes loudness the right axis: cells of both modes on one falling curve, up to their spread."""
    for name in {c.dataset for c in CELLS}:
        some = sorted((c for c in CELLS if c.dataset == name and math.isfinite(c.epsilon)), key=_loud)
        for quiet, loud in pairwise(some):
            assert loud.accuracy <= quiet.accuracy + 2 * (quiet.spread + loud.spread)


def _loud(cell):
    return loudness(cell.situation)


def test_beyond_the_cells_their_end_is_given_and_named():
    (quiet,) = expectations(situation(epsilon=1000.0), [c for c in CELLS if c.dataset == "fashion"])
    best = max(c.accuracy for c in CELLS if c.dataset == "fashion" and math.isfinite(c.epsilon))
    assert not quiet.measured and quiet.accuracy == best
    inside = expectations(situation(epsilon=3.0), CELLS)[0]
    assert inside.measured and inside.dataset == "cifar10_resnet20"
    assert inside.lost == pytest.approx(71.07 - inside.accuracy)


def test_far_louder_than_any_cell_nothing_is_expected():
    assert expectations(situation(epsilon=0.01, n=1, m=10), CELLS) == []


def test_what_is_written_is_read_again(tmp_path: Path):
    path = tmp_path / "cells.csv"
    write_cells(path, [*CELLS, replace(CELLS[0], accuracy=12.0)])
    again = read_cells(path)
    assert len(again) == len(CELLS) and again[0].accuracy == 12.0  # measured again: the later one counts
    assert again[1:] == tuple(sorted(CELLS, key=lambda c: (c.dataset, c.clients, c.trust, c.epsilon)))[1:]


@pytest.mark.parametrize("change", [("64", "sixty"), ("0.5", "-1"), ("local", "nobody")])
def test_a_wrong_row_is_an_error_in_words(tmp_path: Path, change: tuple[str, str]):
    path = tmp_path / "cells.csv"
    write_cells(path, CELLS[:1])
    path.write_text(path.read_text().replace(*change))
    with pytest.raises(InputError, match="expected a cell"):
        read_cells(path)


def test_the_outlook_is_the_plans():
    """Noise and gradient as the recipe's run will have them."""
    found = outlook_of(situation(), CELLS)
    mu, left = Budget(1.0).mu, 1 - sum(getattr(s, "share", 0.0) for s in found.chosen.preparation)
    std = 2 * found.chosen.clip * math.sqrt(found.chosen.rounds / left) / mu * math.sqrt(20) / 50_000
    assert found.noise == pytest.approx(std * math.sqrt(650), rel=1e-6)
    assert found.noise_in_buffer == pytest.approx(found.noise / 3)  # β = 0.8
    assert found.gradient_at_start == pytest.approx([a / math.sqrt(10) * found.chosen.clip for a in APART])
    assert found.plan.epsilon <= 1.0
    loud = outlook_of(situation(epsilon=0.1), CELLS)
    assert loud.rounds_worth < found.rounds_worth


def test_alternatives_change_one_thing_each():
    s = situation()
    names = alternatives(s)
    assert len(names) == 6 and next(iter(names.values())) is s
    assert names["clients x 4"].sizes == s.sizes * 4 and names["epsilon x 2"].budget.epsilon == 2.0


# --- how it is fed ------------------------------------------------------------------------------------------


@pytest.fixture
def script() -> Any:
    """scripts/collect_cells.py."""
    return SimpleNamespace(**runpy.run_path(str(ROOT / "scripts" / "collect_cells.py")))


def test_a_journal_of_cells_is_collected(script: Any, tmp_path: Path):
    row = {"data": "wine", "records": 142, "features": 13, "classes": 3, "clients": 3, "trust": "secure-sum",
           "epsilon": 10, "accuracy": {"recipe": [90.0, 92.0], "fedgd": [80.0]}}  # fmt: skip
    path = tmp_path / "cells.jsonl"
    path.write_text(json.dumps(row) + "\n")
    (cell,) = script.from_journal(path, "here")
    assert (cell.dataset, cell.accuracy, cell.seeds, cell.delta) == ("wine", 91.0, 2, 1e-5)
    assert cell.spread == pytest.approx(math.sqrt(2))


def test_a_folder_of_runs_is_collected(script: Any, tmp_path: Path):
    run = {"dataset": "toy", "partition": "iid", "trust": "local", "epsilon": 1.0, "delta": 1e-5, "recipe": "auto",
           "finite": True}  # fmt: skip
    lines = [run | {"accuracy": [10.0, a]} for a in (70.0, 72.0)] + [run | {"recipe": "paper", "accuracy": [5.0]}]
    (tmp_path / "runs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    counts = [{"dataset": "toy", "partition": "iid", "counts": [[3, 4], [5, 6]]}]
    (tmp_path / "grid.json").write_text(json.dumps({"partitions": counts}))
    (cell,) = script.from_runs(tmp_path, script.widths(["7"]), "here")
    assert (cell.records, cell.classes, cell.clients, cell.features, cell.accuracy) == (18, 2, 2, 7, 71.0)
    with pytest.raises(SystemExit, match="--features toy=NUMBER"):
        list(script.from_runs(tmp_path, {}, "here"))
    assert script.widths(["64", "fashion=80"]) == {"": 64, "fashion": 80}
