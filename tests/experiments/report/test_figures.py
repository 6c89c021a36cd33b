"""Figures are files that a viewer opens, equal for equal results, and no two lines look alike."""

import numpy as np
import pytest
from matplotlib.image import imread

from fedsofim.experiments.report import pictures
from fedsofim.simulation.figures import curves, looks
from fedsofim.simulation.simulator import Trace


def traces(n: int) -> list[Trace]:
    rounds = np.arange(1, 21)
    return [Trace(rounds, 50 + rounds + i, np.ones(20)) for i in range(n)]


def test_curves_are_written_and_repeatable(tmp_path):
    for name in ("a.png", "b.png"):
        curves({"one": traces(3), "two": traces(1)}, tmp_path / "deep" / name, "title")
    assert imread(tmp_path / "deep" / "a.png").shape[0] > 300
    assert (tmp_path / "deep" / "a.png").read_bytes() == (tmp_path / "deep" / "b.png").read_bytes()
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.parametrize("kind", ["svg", "pdf"])
def test_vector_formats_for_print(tmp_path, kind):
    curves({"one": traces(2)}, tmp_path / f"a.{kind}")
    assert (tmp_path / f"a.{kind}").stat().st_size > 1000


def test_twelve_lines_all_look_different_in_more_than_colour():
    found = looks([str(i) for i in range(12)])
    assert len(set(found.values())) == 12
    assert len({(look.dash, look.marker) for look in found.values()}) >= 10


@pytest.mark.slow
@pytest.mark.parametrize("draw", [pictures.bars, pictures.privacy_utility, pictures.convergence])
def test_report_figures_draw(results, tmp_path, draw):
    draw(results, results.places[0], tmp_path / "a.png")
    assert imread(tmp_path / "a.png").std() > 0.01
