"""Numbers on pages, and the files they came from.

    python scripts/quoted.py    # writes them anew where the files have others; `make results` does it at its end

A page says where a number came from in a comment behind it, which no reader sees:

    it takes 8.5 times <!-- from performance.json: targets[what=NumPy closed form].measured.median --> as long
    | DP-FedGD | 73.37 | 76.53 <!-- from results/fashion/accuracy.csv: method=DP-FedGD; means of round 70 --> |

Paths are from docs/. The query of a JSON file is a path, [key=value] picks from a list. That of a CSV file is
`column=value & column=value; WHAT`: of the rows in which all of that holds, in their order, WHAT is one of

    COLUMN                               every number of its cells ("78.31 ± 0.44" has two)
    ONE ± OTHER                          the numbers of two columns in turn
    means of COLUMN                      the first number of each cell; `spreads of` is the second
    lowest and highest [spread] of COLUMN
    lowest and highest of all            over all the row's cells that hold something, but for the columns asked about
    highest of COLUMN by OTHER           one for each value of the other
    median of COLUMN, rows               the middle one; how many rows there are

A table in Markdown is read like a CSV file. `QUERY less QUERY` is the difference, number by number; the second may have
one for all.

The n numbers before the comment must be the n that it yields, each as far as it is written out.
"""

import csv
import json
import re
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedsofim.errors import InputError
from fedsofim.files import write_text

DOCS = Path(__file__).resolve().parents[1] / "docs"
NUMBER = re.compile(r"(?<![\w.,])[+-]?\d[\d,]*(?:\.\d+)?(?!\w|\.\d)")
COMMENT = re.compile(r"<!-- from (?P<path>[\w./-]+):\s+(?P<query>.*?) -->", re.S)


@dataclass(frozen=True)
class Quote:
    """Numbers as a page has them (the places are those in its text), and those that its comment yields."""

    page: str
    said: list[str]
    places: list[int]
    found: list[float]
    comment: str

    @property
    def true(self) -> bool:
        return len(self.said) == len(self.found) and all(map(agrees, self.said, self.found))


def pages() -> list[Path]:
    """Those with such comments."""
    marked = [p for p in sorted(DOCS.rglob("*.md")) if "<!-- from " in p.read_text(encoding="utf-8")]
    return [DOCS.parent / "README.md", *marked]


def renew() -> list[Path]:
    """Every number as its file has it now, written as it was written; the pages that changed."""
    _rows.cache_clear()
    texts = {path: path.read_text(encoding="utf-8") for path in pages()}
    new = {path: renewed(path.name, text) for path, text in texts.items()}
    changed = [path for path in texts if new[path] != texts[path]]
    for path in changed:
        write_text(path, new[path])
    return changed


def renewed(page: str, text: str) -> str:
    for quote in reversed(list(quotes(page, text))):  # from the end, so that places stay
        if len(quote.said) != len(quote.found):
            raise InputError(f"{page}: {len(quote.found)} numbers are due before {quote.comment}")
        for said, place, found in reversed(list(zip(quote.said, quote.places, quote.found, strict=True))):
            if not agrees(said, found):
                text = text[:place] + written(said, found) + text[place + len(said) :]
    return text


def written(said: str, found: float) -> str:
    """A number in place of another: as many decimals, commas and a sign where that had them.

    >>> written("1,198", 23456.4), written("+0.80", -0.333), written("0.5", -1.26)
    ('23,456', '-0.33', '1.3')
    """
    sign, comma = "+" if said[0] in "+-" else "", "," if "," in said else ""
    return f"{found if sign else abs(found):{sign}{comma}.{len(said.partition('.')[2])}f}"


def quotes(page: str, text: str) -> Iterator[Quote]:
    """Every comment with the numbers before it, other comments left aside."""
    bare = re.sub(r"<!--.*?-->", lambda c: " " * len(c[0]), text, flags=re.S)
    for comment in COMMENT.finditer(text):
        found = values(comment["path"], " ".join(comment["query"].split()))
        before = list(NUMBER.finditer(bare, 0, comment.start()))[-len(found) :]
        yield Quote(page, [n[0] for n in before], [n.start() for n in before], found, comment[0])


def agrees(said: str, found: float) -> bool:
    """Equal to the last digit that is written; without a sign, in size."""
    written = float(said.replace(",", ""))
    half = 0.5 * 10 ** -len(said.partition(".")[2])
    return abs(written - (found if said[0] in "+-" else abs(found))) <= half * (1 + 1e-9)


def values(path: str, query: str) -> list[float]:
    file = DOCS / path
    if not file.is_file():
        raise InputError(f"there is no {file}, from which a page quotes {query}")
    try:
        found = (_of_json if file.suffix == ".json" else _of_table)(file, query)
    except (KeyError, IndexError, ValueError, StopIteration, statistics.StatisticsError) as reason:
        raise InputError(f"{path} has no {query}: {reason!r}") from None
    if not found:
        raise InputError(f"{path} has nothing of {query}")
    return found


# --- JSON ---------------------------------------------------------------------------------------------------


def _of_json(file: Path, path: str) -> list[float]:
    document: Any = json.loads(file.read_text(encoding="utf-8"))
    for name, key, value in re.findall(r"([^.\[\]]+)|\[([^=\]]+)=([^\]]+)\]", path):
        document = document[name] if name else next(d for d in document if str(d[key]) == value)
    return [float(document)]


# --- tables -------------------------------------------------------------------------------------------------


def _of_table(file: Path, query: str) -> list[float]:
    first, *others = [_of_rows(_rows(file), part) for part in query.split(" less ")]
    for other in others:
        other = other * len(first) if len(other) == 1 else other
        first = [a - b for a, b in zip(first, other, strict=True)]
    return first


@lru_cache
def _rows(file: Path) -> list[dict[str, str]]:
    if file.suffix == ".md":
        head, _, *lines = [
            _cells(line) for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("|")
        ]
        return [dict(zip(head, line, strict=True)) for line in lines]
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def _cells(line: str) -> list[str]:
    """
    >>> _cells("| DP-FedGD | **1.5 ± 0.1** |")
    ['DP-FedGD', '1.5 ± 0.1']
    """
    return [cell.strip().strip("*") for cell in line.strip().strip("|").split("|")]


def _of_rows(rows: list[dict[str, str]], query: str) -> list[float]:
    where, _, what = query.rpartition(";")
    conditions = [c.strip().split("=", 1) for c in where.split(" & ") if c.strip()]
    chosen = [row for row in rows if all(row[column] == value for column, value in conditions)]
    if what.strip() == "lowest and highest of all":
        named = {column for column, _ in conditions}
        cells = [_numbers(cell)[0] for row in chosen for column, cell in row.items() if column not in named and cell]
        return [min(cells), max(cells)]
    return _asked(chosen, what.strip())


def _asked(rows: list[dict[str, str]], what: str) -> list[float]:
    if what == "rows":
        return [float(len(rows))]
    if found := re.fullmatch(r"lowest and highest( spread)? of (.+)", what):
        cells = [_numbers(row[found[2]])[bool(found[1])] for row in rows]
        return [min(cells), max(cells)]
    if found := re.fullmatch(r"highest of (.+) by (.+)", what):
        groups = dict.fromkeys(row[found[2]] for row in rows)
        return [max(_numbers(r[found[1]])[0] for r in rows if r[found[2]] == g) for g in groups]
    if found := re.fullmatch(r"median of (.+)", what):
        return [statistics.median(_numbers(row[found[1]])[0] for row in rows)]
    if found := re.fullmatch(r"(means|spreads) of (.+)", what):
        return [_numbers(row[found[2]])[found[1] == "spreads"] for row in rows]
    return [number for row in rows for column in what.split(" ± ") for number in _numbers(row[column])]


def _numbers(cell: str) -> list[float]:
    return [float(n.replace(",", "")) for n in NUMBER.findall(cell)]


if __name__ == "__main__":
    try:
        print("\n".join(map(str, renew())) or "every quoted number is its file's")
    except InputError as problem:
        sys.exit(str(problem))
