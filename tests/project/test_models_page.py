"""docs/models.md: every model on it trains as it says, on real records, at epsilon 5, to the accuracy of its table."""

import csv
import re
import statistics
from pathlib import Path

import jax
import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "models.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
ROWS = list(csv.DictReader((DOCS / "results" / "models-digits" / "rows.csv").read_text().splitlines()))
#: The blocks in their order, as the table of digits calls them.
MODELS = {
    "linear": "linear",
    "mlp": "`mlp`, 32 hidden units",
    "cnn": "`cnn`, 16 channels, kernel 3, stride 1",
    "flax": "a flax module, 64-32-10",
    "torch": None,
}
NEEDS = {"flax": "flax", "torch": "torch"}
POINTS = 1.0  # of accuracy, that rounding may move: three or four of 360 test records
LEAST = 90.0  # percent, of what has no line in the table


def measured(model: str) -> dict[int, float]:
    """What each seed reached under epsilon 5, as the file of results has it."""
    return {int(r["seed"]): float(r["accuracy"]) for r in ROWS if r["what"] == model and r["epsilon"] == "5.0"}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "code"), list(zip(MODELS, BLOCKS, strict=False)), ids=list(MODELS))
def test_the_same_five_lines_train_every_model_to_the_accuracy_of_the_page(name: str, code: str, capsys):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    lines = [line for line in code.splitlines() if not line.startswith("model = ")]
    first = [line for line in BLOCKS[0].splitlines() if not line.startswith("model = ")]
    assert lines[-len(first) :] == first  # only the model differs
    space: dict = {}
    with jax.enable_x64(False):
        exec(code, space)
    run = space["run"]
    assert run.plan.epsilon == pytest.approx(5) and run.by_hand == []
    (printed,) = re.findall(r"on digits: ([\d.]+) % after", capsys.readouterr().out)
    model = MODELS[name]
    if model is None:
        assert float(printed) >= LEAST
    else:
        assert float(printed) == pytest.approx(measured(model)[0], abs=POINTS)


@pytest.mark.parametrize("model", [model for model in MODELS.values() if model])
def test_the_table_has_the_mean_and_the_spread_of_the_seeds(model: str):
    scores = list(measured(model).values())
    shown = f"{statistics.mean(scores):.2f} ± {statistics.stdev(scores):.2f}"
    assert re.search(rf"^\| {re.escape(model)} \| {re.escape(shown)} \|", PAGE, re.MULTILINE)


@pytest.mark.slow
def test_the_last_layer_of_the_page_is_all_that_is_learned():
    space: dict = {}
    with jax.enable_x64(False):
        exec(BLOCKS[-1], space)
    assert set(space["run"].params) == {"1/b", "1/w"} and space["run"].plan.epsilon == pytest.approx(5)
