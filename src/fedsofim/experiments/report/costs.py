"""What each method released and with which settings it ran, one line per method and budget."""

from collections.abc import Iterator

from fedsofim.experiments.report.accuracy import footnotes, marked
from fedsofim.experiments.report.results import Result, Results
from fedsofim.experiments.report.table import Cell, Table, budget_cell, number, text
from fedsofim.protection import PROTECTED


def ledger_table(results: Results) -> Table:
    """Every release site of every method, and the epsilon all of a method's sites add up to."""
    rows = []
    for run in one_per_setting(results):
        for site in run.privacy["ledger"]:
            releases = int(site["releases"])
            rows.append(
                (text(run.dataset), budget_cell(run.epsilon), text(marked(results, run.method)), text(site["what"]),
                 Cell(str(releases), releases), number(site["sensitivity"], 3), number(site["multiplier"], 3),
                 budget_cell(run.spent, digits=4), text(f"{run.privacy['delta']:g}"), text(run.privacy["trust"]),
                 text(run.privacy.get("protects", PROTECTED["record"])))
            )  # fmt: skip
    columns = (
        "data",
        "ε asked",
        "method",
        "released",
        "times",
        "L2 sensitivity",
        "noise std / clip",
        "ε spent",
        "δ",
        "trust",
        "protects",
    )
    return Table(
        "ledger",
        "Ledger: everything that leaves a client",
        columns,
        tuple(rows),
        " ".join(footnotes(results)),
    )


def settings_table(results: Results) -> Table:
    """The settings of every method and budget; what is not listed has its default."""
    rows = [
        (text(run.dataset), budget_cell(run.epsilon), text(marked(results, run.method)), text(run.factory),
         text(_as_used(run)))
        for run in one_per_setting(results)
    ]  # fmt: skip
    note = "As they were used: given by hand, by a preset, or by the recipe. What is not listed has its default."
    return Table("settings", "Settings", ("data", "ε", "method", "factory", "settings"), tuple(rows), note)


def _as_used(run: Result) -> str:
    p = run.privacy
    clip = "none" if p.get("clip") is None else f"{p['clip']:g}"
    run_wide = [f"rounds = {p['rounds']}", f"clip = {clip}", f"weights = {p['weights']}"]
    return ", ".join([*(f"{k} = {'automatic' if v is None else v}" for k, v in run.used.items()), *run_wide])


def one_per_setting(results: Results) -> Iterator[Result]:
    """One run of each dataset, method and budget: they differ in seed and partition only."""
    seen = set()
    for run in results.runs:
        key = (run.dataset, run.method, run.epsilon)
        if key not in seen:
            seen.add(key)
            yield run
