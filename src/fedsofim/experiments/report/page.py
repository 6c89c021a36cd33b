"""One self-contained HTML file: figures inside, tables that sort, no request to anywhere."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from fedsofim.experiments.report.table import Table
from fedsofim.files import write_text


@dataclass(frozen=True)
class Picture:
    path: Path
    caption: str

    @property
    def data(self) -> str:
        return base64.b64encode(self.path.read_bytes()).decode()


@dataclass(frozen=True)
class Fold:
    """Text that is shown on demand."""

    title: str
    body: str


@dataclass(frozen=True)
class Section:
    id: str
    title: str
    words: str = ""
    figures: tuple[Picture, ...] = ()
    tables: tuple[Table, ...] = ()
    folds: tuple[Fold, ...] = ()


def write_page(path: Path, title: str, about: str, sections: Sequence[Section], warnings: Sequence[str] = ()) -> None:
    """Render and write the page, whole or not at all."""
    source = files("fedsofim.experiments.report").joinpath("page.html").read_text(encoding="utf-8")
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(source)
    body = template.render(title=title, about=about, sections=sections, warnings=warnings, numeric=_numeric)
    write_text(path, body)


def _numeric(table: Table, column: int) -> bool:
    return any(row[column].value is not None for row in table.rows)
