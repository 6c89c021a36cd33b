"""Tables: the numbers are those of the runs, the best is bold, and a note is never lost."""

import csv
from dataclasses import replace

import numpy as np
import pytest

from fedsofim.errors import InputError
from fedsofim.experiments.report.accuracy import accuracy_table, rounds_to_target, time_table
from fedsofim.experiments.report.comparison import mcnemar_table, wins_table
from fedsofim.experiments.report.costs import ledger_table
from fedsofim.experiments.report.partitions import partition_table
from fedsofim.experiments.report.published import published_tables
from fedsofim.experiments.report.results import Results, read_results
from fedsofim.experiments.report.table import Table, number, text
from fedsofim.simulation.simulator import Trace


def with_curves(results: Results, curves: dict[str, list[float]]) -> Results:
    """The same runs with accuracies made up by method."""
    runs = []
    for r in results.runs:
        accuracy = np.array(curves[r.method]) + r.seed
        runs.append(replace(r, trace=Trace(np.arange(1, len(accuracy) + 1), accuracy, np.ones(len(accuracy)))))
    return replace(results, runs=tuple(runs))


def rows_of(table: Table) -> list[list[str]]:
    return [[c.text for c in row] for row in table.rows]


def test_accuracy_is_mean_and_sample_std_over_seeds(results):
    made = with_curves(results, {"DP-FedGD": [50.0] * 10, "DP-FTRL": [90.0] * 10, "DP-FedSOFIM": [60.0] * 10})
    table = accuracy_table(made, made.places[0])
    assert rows_of(table)[0][:3] == ["1", "DP-FedGD", "50.50 ± 0.71"]
    assert "0.71" in rows_of(table)[2][2]


def test_what_spends_more_than_its_budget_is_never_bold(results):
    made = with_curves(results, {"DP-FedGD": [50.0] * 10, "DP-FTRL": [90.0] * 10, "DP-FedSOFIM": [60.0] * 10})
    table = accuracy_table(made, made.places[0])
    assert [(row[1].text, row[2].bold) for row in table.rows[:3]] == [
        ("DP-FedGD", False), ("DP-FTRL *", False), ("DP-FedSOFIM", True)]  # fmt: skip
    assert "NOT PRIVATE AS CLAIMED" in table.note
    spent = [row[-1].value for row in table.rows[:3]]
    assert spent[0] == pytest.approx(1.0)
    assert (spent[1] or 0) > 1.5


def test_rounds_to_target_counts_from_the_first_round_that_reaches_it(results):
    made = with_curves(results, {"DP-FedGD": list(range(1, 21)), "DP-FTRL": [1.0] * 20,
                                 "DP-FedSOFIM": [5.0, *[30.0] * 19]})  # fmt: skip
    table = rounds_to_target(made, made.places[0])
    assert table is not None
    # DP-FedGD ends at 20.5 on average, so the target is 19.475: reached by its mean (t + 0.5) in round 19
    assert [row[3].text for row in table.rows[:3]] == ["19", "not reached", "2"]


def test_differences_are_paired_by_seed(results):
    made = with_curves(results, {"DP-FedGD": [50.0] * 10, "DP-FTRL": [40.0] * 10, "DP-FedSOFIM": [60.0] * 10})
    table = wins_table(made, made.places[0])
    assert table is not None
    assert rows_of(table)[0][:4] == ["1", "DP-FedSOFIM", "DP-FedGD", "+10.00"]
    assert rows_of(table)[0][-2] == "<0.0001"
    assert rows_of(table)[0][-1] == "ahead"


def test_mcnemar_covers_every_seed_budget_and_other_method(results):
    table = mcnemar_table(results, results.places[0])
    assert table is not None
    assert len(table.rows) == 2 * 2 * 2
    assert "Holm's correction over these 8 tests" in table.note


def test_every_release_is_in_the_ledger_table(results):
    table = ledger_table(results)
    assert len(table.rows) == 6
    assert {row[4].text for row in table.rows} == {"20"}


def test_partition_table_adds_up(results):
    table = partition_table(results.grid["partitions"][0])
    assert sum(int(row[-3].text) for row in table.rows) == 900


def test_times_are_ratios(results):
    ratios = {row[1].text: row[3].value for row in time_table(results).rows}
    assert min(v for v in ratios.values() if v is not None) > 0


def test_published_beside_measured(results, reported):
    with (reported / "tables" / "published-final-cifar10_resnet20-dirichlet-0.5.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 1  # the other partition and the unknown method have no counterpart
    assert rows[0]["published"] == "12.00 ± 0.10"
    finals = [r.final for r in results.select(results.places[0], "DP-FedGD", 1.0)]
    assert float(rows[0]["difference"]) == pytest.approx(np.mean(finals) - 12, abs=0.006)
    assert rows[0]["reproduces"] == "no"


PUBLISHED = {
    "accuracy.csv": "dataset,backbone,partition,epsilon,method,round,mean,std\n"
    "cifar10,resnet20,dirichlet,1,DP-FedGD,20,12.00,0.10\n",
    "mcnemar.csv": "dataset,backbone,epsilon,baseline,n10,n01,result\ncifar10,resnet20,1,DP-FedGD,529,700,baseline\n",
    "runtime.csv": "method,epsilon,local_steps,cifar10_resnet20_s\nDP-FedGD,all,1,0.04\nDP-FedSOFIM,all,1,0.04\n",
    "partition_cifar10.csv": "client,class0,total\n0,14,14\n",
}


@pytest.mark.parametrize("spelled", ["cifar10_resnet20", "cifar10-resnet20"])
def test_every_published_table_finds_its_data_however_that_is_spelled(results, tmp_path, spelled):
    for name, lines in PUBLISHED.items():
        (tmp_path / name).write_text(lines)
    runs = tuple(replace(r, dataset=spelled) for r in results.runs)
    dealt = [{**d, "dataset": spelled} for d in results.grid["partitions"]]
    labels = {spelled: results.grid["labels"]["cifar10_resnet20"]}
    made = replace(results, runs=runs, grid={**results.grid, "partitions": dealt, "labels": labels})
    place = "cifar10_resnet20-dirichlet-0.5"
    assert [t.name for t in published_tables(made, tmp_path)] == [
        f"published-final-{place}", f"published-{place}", f"published-mcnemar-{place}", "published-runtime",
        "published-partition-cifar10_resnet20"]  # fmt: skip


def test_latex_and_markdown_say_the_same():
    table = Table("t", "100 % of a_b", ("ε", "x"), ((number(0.5, 1), text("a & b")),))
    assert r"$\varepsilon$ & x \\" in table.latex()
    assert r"0.5 & a \& b \\" in table.latex()
    assert r"\caption{100 \% of a\_b}" in table.latex()
    assert "| 0.5 | a & b |" in table.markdown()


def test_folders_without_runs_are_refused(tmp_path, results):
    with pytest.raises(InputError, match="written by fedsofim compare"):
        read_results(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        published_tables(results, tmp_path / "nowhere")
