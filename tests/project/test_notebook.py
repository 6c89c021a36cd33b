"""The notebook in examples/ runs from its first cell to its last, and shows no record of its training data."""

import json
import os
from pathlib import Path

import pytest

PATH = Path(__file__).resolve().parents[2] / "examples" / "hospital.ipynb"


def outputs(cells) -> list[dict]:
    return [output for cell in cells if cell["cell_type"] == "code" for output in cell["outputs"]]


def test_it_was_executed_and_its_pictures_are_in_it():
    cells = json.loads(PATH.read_text())["cells"]
    counts = [cell["execution_count"] for cell in cells if cell["cell_type"] == "code"]
    assert counts == list(range(1, len(counts) + 1))
    assert not [o for o in outputs(cells) if o["output_type"] == "error"]
    assert any("image/png" in o.get("data", {}) for o in outputs(cells))
    assert "P1-" not in json.dumps(outputs(cells))  # whom it was trained on; P2 are the new ones


@pytest.mark.slow
def test_it_runs():
    nbformat = pytest.importorskip("nbformat", reason="needs nbformat, nbclient and ipykernel (extra dev)")
    client = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    pytest.importorskip("onnxruntime")
    book = nbformat.read(PATH, 4)
    where = {"metadata": {"path": str(PATH.parent)}}
    client.NotebookClient(book, timeout=600, kernel_name="python3", resources=where).execute(env=os.environ)
    assert any("model card" in str(o.get("text", "")).lower() for o in outputs(book.cells))
