"""One self-contained HTML file: figures inside, tables that sort, no request to anywhere."""

import base64
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


@dataclass(frozen=True)
class Page:
    """A title, what it is about, the whole in sentences, what must be known first, and the sections."""

    title: str
    about: str
    sentences: tuple[str, ...]
    warnings: tuple[str, ...]
    sections: tuple[Section, ...]


def write_page(path: Path, page: Page) -> None:
    """Render and write the page, whole or not at all."""
    source = files("fedsofim.experiments.report").joinpath("page.html").read_text(encoding="utf-8")
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(source)
    body = template.render(page=page, numeric=_numeric)
    write_text(path, body)


def _numeric(table: Table, column: int) -> bool:
    return any(row[column].value is not None for row in table.rows)
