"""The ablation's program, in small: `make results` runs it for minutes, so what breaks it is to be seen here."""

import sys
from pathlib import Path

import pytest

from fedsofim.recipes import Choices

RECIPE = Path(__file__).resolve().parents[2] / "experiments" / "recipe"


@pytest.fixture
def ablation(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(RECIPE))
    import ablation  # pyright: ignore[reportMissingImports]

    return ablation


def test_it_runs_from_data_to_tables_and_goes_on_where_it_was(ablation, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(ablation, "CELLS", (("digits", 4, "local", 5.0),))
    monkeypatch.setattr(ablation, "SEEDS", range(2))
    monkeypatch.setattr(ablation, "FACTORS", (0.5, 1.0))
    everything = ablation.variants
    monkeypatch.setattr(
        ablation, "variants", lambda c: {k: v for k, v in everything(c).items() if k in ("recipe", "20 rounds")}
    )
    given = ["ablation.py", "--data", str(tmp_path), "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", given)
    ablation.main()
    parts = (tmp_path / "out" / "parts.md").read_text()
    assert "| 20 rounds |" in parts and "digits, 4 clients, local, epsilon 5" in parts
    monkeypatch.setattr(ablation, "cell", lambda *_: pytest.fail("it was measured already"))
    ablation.main()
    assert (tmp_path / "out" / "parts.md").read_text() == parts


@pytest.mark.parametrize(("chosen", "other"), [(40, 70), (70, 40), (100, 40)])
def test_other_rounds_are_what_their_label_says(ablation, chosen: int, other: int):
    import fedsofim as fs
    from fedsofim.simulation.training import choices_for

    split = fs.split(fs.load("digits"), clients=4, iid=True)
    found = choices_for(split, fs.Budget(5), recipe="auto", trust="local")
    changed = Choices(**{**vars(found), "rounds": chosen})
    labels = {k: v["rounds"] for k, v in ablation.variants(changed).items() if k.endswith(" rounds")}
    assert labels == {"20 rounds": 20, f"{other} rounds": other}
