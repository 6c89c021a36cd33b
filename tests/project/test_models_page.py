"""docs/models.md: every model on it trains as it says, on real records, at epsilon 5, to the accuracy it states."""

import re
from pathlib import Path

import jax
import pytest

import fedsofim as fs

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "models.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
MODELS = {"linear": 92, "mlp": 92, "cnn": 91, "flax": 90, "torch": 85}  # least accuracy of each, in percent
NEEDS = {"flax": "flax", "torch": "torch"}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "code"), list(zip(MODELS, BLOCKS, strict=False)), ids=list(MODELS))
def test_the_same_five_lines_train_every_model_to_a_stated_accuracy(name: str, code: str):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    if not hasattr(fs, f"from_{name}") and name == "torch":
        pytest.skip("fs.from_torch is not there yet")
    lines = [line for line in code.splitlines() if not line.startswith("model = ")]
    first = [line for line in BLOCKS[0].splitlines() if not line.startswith("model = ")]
    assert lines[-len(first) :] == first  # only the model differs
    space: dict = {}
    with jax.enable_x64(False):
        exec(code, space)
    run = space["run"]
    assert run.plan.epsilon == pytest.approx(5) and run.by_hand == []
    assert run.final_accuracy >= MODELS[name]


@pytest.mark.slow
def test_the_last_layer_of_the_page_is_all_that_is_learned():
    space: dict = {}
    with jax.enable_x64(False):
        exec(BLOCKS[-1], space)
    assert set(space["run"].params) == {"1/b", "1/w"} and space["run"].plan.epsilon == pytest.approx(5)
