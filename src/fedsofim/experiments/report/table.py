"""A table as data, and the four ways of writing it: Markdown, LaTeX, CSV, HTML (the page's template does the last)."""

import csv
import io
import math
from dataclasses import dataclass, replace
from pathlib import Path

from fedsofim.core.budget import WITHOUT
from fedsofim.files import write_text

_LATEX = {
    "&": r"\&",
    "%": r"\%",
    "#": r"\#",
    "_": r"\_",
    "±": r"$\pm$",
    "ε": r"$\varepsilon$",
    "\N{GREEK SMALL LETTER RHO}": r"$\rho$",
    "χ²": r"$\chi^2$",
    "\N{MINUS SIGN}": "-",
}


@dataclass(frozen=True)
class Cell:
    """What is shown, and the number it sorts by (None: sorts as text)."""

    text: str
    value: float | None = None
    bold: bool = False


@dataclass(frozen=True)
class Table:
    """Columns and rows with a title; `note` is printed below."""

    name: str  # of its files
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    def markdown(self) -> str:
        """As Markdown, numbers to the right.

        >>> print(Table("t", "T", ("a", "b"), ((text("x"), number(1.5, bold=True)),)).markdown())
        **T**
        <BLANKLINE>
        | a | b |
        | :-- | --: |
        | x | **1.50** |
        """
        lines = [f"**{self.title}**", "", _line(self.columns)]
        lines.append(
            _line([":--" if all(r[i].value is None for r in self.rows) else "--:" for i in range(len(self.columns))])
        )
        lines += [_line([f"**{c.text}**" if c.bold else c.text for c in row]) for row in self.rows]
        return "\n".join([*lines, *(["", self.note] if self.note else [])])

    def latex(self) -> str:
        """As a LaTeX table (booktabs)."""
        align = "".join("l" if all(r[i].value is None for r in self.rows) else "r" for i in range(len(self.columns)))
        body = [" & ".join(_tex(c.text, c.bold) for c in row) + r" \\" for row in self.rows]
        note = [r"\par\smallskip{\footnotesize " + _tex(self.note) + "}"] if self.note else []
        return "\n".join(
            [
                r"\begin{table}[htbp]",
                r"\centering",
                rf"\caption{{{_tex(self.title)}}}",
                rf"\begin{{tabular}}{{{align}}}",
                r"\toprule",
                " & ".join(_tex(c) for c in self.columns) + r" \\",
                r"\midrule",
                *body,
                r"\bottomrule",
                r"\end{tabular}",
                *note,
                r"\end{table}",
            ]
        )

    def csv(self) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([c.text for c in row] for row in self.rows)
        return out.getvalue()

    def of_data(self, place: tuple[str, str]) -> "Table":
        """With a first column that says of which data and partition, unless it has one."""
        if self.columns[0] == "data":
            return self
        rows = tuple((text(f"{place[0]}, {place[1]}"), *row) for row in self.rows)
        return replace(self, columns=("data", *self.columns), rows=rows)

    def write(self, folder: Path) -> None:
        """All three files of the table."""
        folder.mkdir(parents=True, exist_ok=True)
        for suffix, body in (
            ("md", self.markdown() + "\n"),
            ("tex", self.latex() + "\n"),
            ("csv", self.csv()),
        ):
            write_text(folder / f"{self.name}.{suffix}", body)


def text(words: object) -> Cell:
    return Cell(str(words))


def number(value: float | None, digits: int = 2, bold: bool = False, signed: bool = False) -> Cell:
    """A number, or a dash where there is none."""
    if value is None:
        return Cell("none", float("-inf"))
    return Cell(f"{value:{'+' if signed else ''}.{digits}f}", float(value), bold)


def budget_cell(epsilon: float, digits: int = 6) -> Cell:
    """An epsilon; infinite ones sort last and read no-privacy."""
    return Cell(f"{epsilon:.{digits}g}" if math.isfinite(epsilon) else WITHOUT, epsilon)


def spread(mean: float, std: float | None, bold: bool = False, digits: int = 2) -> Cell:
    """mean ± std; without a spread where there was one run only."""
    said = f"{mean:.{digits}f}"
    return Cell(said if std is None else f"{said} ± {std:.{digits}f}", mean, bold)


def _line(cells) -> str:
    return "| " + " | ".join(str(c).replace("|", "\\|") for c in cells) + " |"


def _tex(words: str, bold: bool = False) -> str:
    for plain, command in _LATEX.items():
        words = words.replace(plain, command)
    return rf"\textbf{{{words}}}" if bold else words
