"""Who is compared with whom, and what a run that ended early shows."""

import json
from dataclasses import replace

import numpy as np
import pytest

from fedsofim.errors import InputError
from fedsofim.experiments.report import accuracy
from fedsofim.experiments.report.accuracy import accuracy_table, final
from fedsofim.experiments.report.comparison import mcnemar_table, pairs, verdict, wins_table
from fedsofim.experiments.report.folder import write_report
from fedsofim.experiments.report.results import Results, Scale, read_results
from fedsofim.experiments.report.sentences import winner
from fedsofim.simulation.simulator import Trace


def with_curves(results: Results, curves: dict[str, list[float]]) -> Results:
    """The same runs with made-up accuracies by method; each seed adds its number."""
    runs = []
    for r in results.runs:
        values = np.array(curves[r.method], float) + r.seed
        runs.append(replace(r, trace=Trace(np.arange(1, len(values) + 1), values, np.ones(len(values)))))
    return replace(results, runs=tuple(runs))


FLAT = {"DP-FedGD": [50.0] * 10, "DP-FTRL": [40.0] * 10, "DP-FedSOFIM": [60.0] * 10}


@pytest.mark.parametrize("best", ["DP-FedGD", "DP-FedSOFIM"])
def test_by_default_the_best_method_is_compared_with_all_others_whatever_its_name(results, best):
    made = with_curves(results, FLAT | {best: [70.0] * 10})
    place = made.places[0]
    others = [m for m in made.methods if m != best]
    assert pairs(made, place, 1.0) == [(best, other) for other in others]
    for table in (wins_table(made, place), mcnemar_table(made, place)):
        assert table is not None
        compared = {row[table.columns.index("method")].text for row in table.rows}
        assert compared == {best}


def test_what_spends_more_than_its_budget_is_not_the_best(results):
    made = with_curves(results, FLAT | {"DP-FTRL": [99.0] * 10})  # under the published, wrong account
    assert {ours for ours, _ in pairs(made, made.places[0], 1.0)} == {"DP-FedSOFIM"}


def test_every_pair_that_was_asked_for_is_tested_once(results):
    made = replace(with_curves(results, FLAT), focus=("DP-FTRL", "DP-FedGD"))
    found = pairs(made, made.places[0], 1.0)
    assert found == [("DP-FedGD", "DP-FTRL"), ("DP-FedGD", "DP-FedSOFIM"), ("DP-FTRL", "DP-FedSOFIM")]
    table = wins_table(made, made.places[0])
    assert table is not None and len(table.rows) == 3 * len(made.epsilons)
    assert "Compared with all others: DP-FTRL, DP-FedGD." in table.note


def test_differences_are_corrected_for_their_number(results):
    noisy = {"DP-FedGD": [50.0, 50.0], "DP-FTRL": [50.2, 50.2], "DP-FedSOFIM": [50.1, 50.1]}
    made = with_curves(results, noisy)
    jitter = {("DP-FedGD", 0): 0.05, ("DP-FedSOFIM", 0): -0.04}
    runs = tuple(
        replace(r, trace=r.trace._replace(score=r.trace.score + jitter.get((r.method, r.seed), 0.0))) for r in made.runs
    )
    made = replace(made, runs=runs, focus=("DP-FedSOFIM",))
    table = wins_table(made, made.places[0])
    assert table is not None and f"Holm's correction over these {len(table.rows)} pairs" in table.note
    assert {row[-1].text for row in table.rows} == {"no clear difference"}  # two seeds are not enough here


def test_a_verdict_follows_from_the_corrected_test():
    assert verdict([1.0, 1.0], 0.2) == "no clear difference"
    assert verdict([-1.0, -1.0], 0.0) == "behind"
    assert verdict([float("nan"), 1.0], 1.0) == "no clear difference"


def test_cells_after_the_end_of_a_run_are_empty_and_never_bold(results):
    made = with_curves(results, FLAT | {"DP-FedSOFIM": [80.0] * 10, "DP-FedGD": [50.0] * 20, "DP-FTRL": [40.0] * 20})
    table = accuracy_table(made, made.places[0])
    assert table.columns[2:] == ("round 10", "round 20", "final", "ε spent (ledger)")
    rows = {row[1].text.removesuffix(" *"): row for row in table.rows[:3]}
    assert rows["DP-FedSOFIM"][3].text == "" and not rows["DP-FedSOFIM"][3].bold
    assert rows["DP-FedSOFIM"][4].text == "80.50 ± 0.71" and rows["DP-FedSOFIM"][4].bold
    assert not any(row[3].bold for row in table.rows)
    assert "Empty: the run had ended." in table.note


def test_runs_of_one_length_have_no_column_for_the_end(results):
    assert "final" not in accuracy_table(with_curves(results, FLAT), results.places[0]).columns


def test_the_end_of_each_run_is_compared_in_sentences_and_figures(results, tmp_path, monkeypatch):
    made = with_curves(results, FLAT | {"DP-FedSOFIM": [80.0] * 10, "DP-FedGD": [50.0] * 20, "DP-FTRL": [40.0] * 20})
    block = {m: made.select(made.places[0], m, 1.0) for m in made.methods}
    assert winner(block, Scale.of(made, made.places[0][0])).startswith("DP-FedSOFIM reaches 80.50 %")
    assert final(block["DP-FedSOFIM"])[0] == 80.5
    assert accuracy.at(block["DP-FedSOFIM"], 20) is None


@pytest.mark.parametrize("text", ["{}", "[]", '{"format": 2}', '{"experiment": 1, "ids": {}}', "no JSON"])
def test_a_damaged_grid_is_an_error_that_says_what_to_do(tmp_path, text):
    (tmp_path / "grid.json").write_text(text)
    with pytest.raises(InputError, match=r"grid\.json: is damaged .* compare again"):
        read_results(tmp_path)


def test_an_unknown_focus_is_refused_with_the_known_labels(reported):
    with pytest.raises(InputError, match="DP-FedGD"):
        write_report(reported, focus=["fedgd"])
    assert json.loads((reported / "grid.json").read_text())
