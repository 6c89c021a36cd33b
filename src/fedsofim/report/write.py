"""`fedsofim report`: a folder of runs into tables, figures and one page."""

import json
from pathlib import Path

from fedsofim.report import pictures
from fedsofim.report.accuracy import accuracy_table, footnotes, slug
from fedsofim.report.page import Fold, Picture, Section, write_page
from fedsofim.report.results import Results, read_results, write_rows


def write_report(folder: Path, published: Path | None = None) -> None:
    """Write rows.csv, tables/, figures/ and report.html into the folder."""
    results = read_results(folder)
    write_rows(results, folder / "rows.csv")
    sections = [accuracy_section(results, folder), settings_section(results)]
    write_page(folder / "report.html", results.name, results.about, sections, warnings(results))


def warnings(results: Results) -> list[str]:
    unfinished = [f"{results.missing} runs of the grid are not finished; what follows covers the others."]
    return (unfinished if results.missing else []) + footnotes(results)


def accuracy_section(results: Results, folder: Path) -> Section:
    figures = []
    for i, place in enumerate(results.places):
        path = folder / ("curves.png" if i == 0 else f"curves-{slug(place)}.png")
        pictures.convergence(results, place, path)
        figures.append(
            Picture(path, f"{place[0]}, {place[1]}: mean over seeds, band of one standard deviation.")
        )
    tables = tuple(accuracy_table(results, place) for place in results.places)
    return Section("accuracy", "Accuracy", figures=tuple(figures), tables=tables)


def settings_section(results: Results) -> Section:
    folds = tuple(
        Fold(f"{r.method}, ε = {r.epsilon:g}", json.dumps({"settings": r.settings, **r.privacy}, indent=1))
        for r in results.runs
        if r.seed == results.runs[0].seed
    )
    return Section("settings", "Settings and ledgers", folds=folds)
