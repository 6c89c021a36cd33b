"""`fedsofim report`: a folder of runs into tables, figures and one page."""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedsofim.experiments.report import pictures
from fedsofim.experiments.report.accuracy import accuracy_table, footnotes, rounds_to_target, slug, time_table
from fedsofim.experiments.report.comparison import mcnemar_table, wins_table
from fedsofim.experiments.report.costs import ledger_table, settings_table
from fedsofim.experiments.report.measured import measures_table
from fedsofim.experiments.report.page import Fold, Page, Picture, Section, write_page
from fedsofim.experiments.report.partitions import partition_table
from fedsofim.experiments.report.published import published_tables
from fedsofim.experiments.report.results import Results, Scale, distinct, read_results, write_rows
from fedsofim.experiments.report.sentences import in_sentences
from fedsofim.experiments.report.served import group_tables, recall_table

_COVERED = (
    "Covered: every release of each run, by the exact Gaussian account of what its client program lets out (replace "
    "one record of one client). Every ε printed is derived from that ledger. Not covered: choosing settings by looking "
    "at results (fedsofim tune reads validation records without noise, and every trial spends the budget anew), and "
    "the test accuracies themselves, recall and accuracy by group among them, which are computed on records that are "
    "not protected; each client's number of records and the set of classes, which count as public."
)
_LEFT_OUT = (
    " Left out, of records that are not known by name: who holds how many of which class, an exact function of "
    "protected labels. fedsofim partition tells it to who holds the records."
)
_SERVED = (
    "A mean says little about those who are few, and noise hurts them most. Below: how much of each class is "
    "recognised, accuracy in each public group where the data has one, and the gap from best to worst at each budget."
)


def write_report(folder: Path, published: Path | None = None, focus: Sequence[str] = ()) -> None:
    """Write rows.csv, tables/, figures/ and report.html into the folder.

    Args:
        folder: A folder written by `fedsofim compare`.
        published: A folder of published tables as CSV, to set beside.
        focus: Labels of the methods to test against all others; empty: the best one of each budget.
    """
    results = read_results(folder, focus)
    write_rows(results, folder / "rows.csv")
    _forget_counts(results, folder)
    sections = [s for s in _sections(results, folder / "figures", published) if s.figures or s.tables or s.folds]
    for table in (t for s in sections for t in s.tables):
        table.write(folder / "tables")
    page = Page(results.name, results.about, tuple(in_sentences(results)), tuple(warnings(results)), tuple(sections))
    write_page(folder / "report.html", page)


def _forget_counts(results: Results, folder: Path) -> None:
    """Reports of before told of everybody's records who holds how many of which class."""
    for dealt in results.grid["partitions"]:
        if dealt not in results.counted:
            name = f"partition-{slug((dealt['dataset'], dealt['partition']))}"
            tables = [folder / "tables" / f"{name}.{kind}" for kind in ("md", "tex", "csv")]
            for path in (*tables, folder / "figures" / f"{name}.png"):
                path.unlink(missing_ok=True)


SHOWN = 12  # unfinished runs that are named


def warnings(results: Results) -> list[str]:
    """What a reader must know before anything else: what is missing, mixed, or not as claimed."""
    said = []
    if results.missing:
        named = results.unfinished
        more = f"; and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
        which = f" Missing: {'; '.join(named[:SHOWN])}{more}." if named else ""
        said.append(f"{results.missing} runs of the grid are not finished; what follows covers the others.{which}")
    if len(results.versions) > len({r.factory for r in results.runs}):
        said.append("These rows were made by more than one version of the code; fedsofim compare says which.")
    return said + footnotes(results)


def _sections(results: Results, folder: Path, published: Path | None) -> Iterator[Section]:
    yield accuracy_section(results, folder)
    yield comparison_section(results)
    yield served_section(results)
    yield target_section(results, folder)
    left_out = _LEFT_OUT if len(results.counted) < len(results.grid["partitions"]) else ""
    yield Section("privacy", "Privacy", _COVERED + left_out, tables=(ledger_table(results),))
    if published is not None:
        yield Section("published", "Published and measured", tables=tuple(published_tables(results, published)))
    yield partition_section(results, folder)
    yield Section("runtime", "Time", tables=(time_table(results),))
    yield settings_section(results)


def accuracy_section(results: Results, folder: Path) -> Section:
    """Curves, accuracy (or RMSE) over budgets (bars where the entries are variants of one method), and the tables."""
    figures = []
    for place in results.places:
        where = f"{place[0]}, {place[1]}"
        for name, draw, caption in _accuracy_figures(results):
            path = folder / f"{name}-{slug(place)}.png"
            draw(results, place, path)
            figures.append(Picture(path, f"{where}: {caption}"))
    made = [(place, make(results, place)) for place in results.places for make in (accuracy_table, measures_table)]
    tables = tuple(table.of_data(place) for place, table in made if table is not None)
    names = distinct(Scale.of(results, dataset).name for dataset, _ in results.places)
    title = " and ".join(names)
    return Section("accuracy", title[0].upper() + title[1:], figures=tuple(figures), tables=tables)


def _accuracy_figures(results: Results) -> Iterator[tuple]:
    yield "curves", pictures.convergence, "mean over seeds, band of one standard deviation."
    if len({r.settings.get("rho") for r in results.runs}) > 1 and all(" rho=" in m for m in results.methods):
        yield "rho", pictures.rho_curve, "at the end, over rho, mean and standard deviation over seeds."
    elif len({r.factory for r in results.runs}) == 1 and len(results.methods) > 1:
        yield "bars", pictures.bars, "at the end, mean and standard deviation over seeds."
    elif sum(map(math.isfinite, results.epsilons)) > 1:
        yield "privacy-utility", pictures.privacy_utility, "at the end, over the budget."


def comparison_section(results: Results) -> Section:
    made = [(place, make(results, place)) for place in results.places for make in (wins_table, mcnemar_table)]
    tables = tuple(table.of_data(place) for place, table in made if table is not None)
    return Section("comparison", "Who is better", tables=tables)


def served_section(results: Results) -> Section:
    """By class and by public group: noise hurts the few more."""
    tables = [(p, t) for p in results.places for t in (recall_table(results, p), *group_tables(results, p)) if t]
    return Section("served", "Who is served", _SERVED, tables=tuple(t.of_data(p) for p, t in tables))


def target_section(results: Results, folder: Path) -> Section:
    tables, figures = [], []
    for place in results.places:
        table = rounds_to_target(results, place)
        if table is not None:
            tables.append(table.of_data(place))
            path = folder / f"rounds-to-target-{slug(place)}.png"
            pictures.rounds_bars(results, table, path)
            scale = Scale.of(results, place[0])
            part = "95 %" if scale.higher else "105 %"
            caption = f"{place[0]}, {place[1]}: rounds to {part} of DP-FedGD's final {scale.name}."
            figures.append(Picture(path, caption))
    return Section("target", "Rounds to target", figures=tuple(figures), tables=tuple(tables))


def partition_section(results: Results, folder: Path) -> Section:
    figures = []
    by_class = [d for d in results.counted if results.task(d["dataset"]).by_class]
    for dealt in by_class:
        path = folder / f"partition-{slug((dealt['dataset'], dealt['partition']))}.png"
        pictures.partition_heatmap(dealt, path, results.classes(dealt["dataset"]))
        where = f"{dealt['dataset']}, {dealt['partition']}"
        figures.append(Picture(path, f"{where}: records of each class at each client."))
    tables = tuple(
        partition_table(dealt, results.classes(dealt["dataset"])).of_data((dealt["dataset"], dealt["partition"]))
        for dealt in by_class
    )
    return Section("partition", "Partition", figures=tuple(figures), tables=tables)


def settings_section(results: Results) -> Section:
    """Every setting in a table; what the grid was and where it ran, on demand."""
    experiment = json.dumps({"experiment": results.grid["experiment"], "data": results.grid["notes"]}, indent=1)
    environments = {json.dumps(r.environment, sort_keys=True, indent=1): None for r in results.runs}
    folds = [Fold("The experiment and its data", experiment)]
    folds += [Fold(f"Environment {i}", text) for i, text in enumerate(environments, start=1)]
    return Section("settings", "Settings", tables=(settings_table(results),), folds=tuple(folds))
