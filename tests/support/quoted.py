"""Numbers on pages, and the files they came from.

A page says where a number came from in a comment behind it, which no reader sees:

    it takes 8.5 times <!-- from performance.json: targets[what=NumPy closed form].measured.median --> as long
    | DP-FedGD | 73.37 | 76.53 <!-- from results/fashion/accuracy.csv: method=DP-FedGD; means of round 70 --> |

Paths are from docs/. The query of a JSON file is a path, [key=value] picks from a list. That of a CSV file is
`column=value & column=value; WHAT`: of the rows in which all of that holds, in their order, WHAT is one of

    COLUMN                               every number of its cells ("78.31 ± 0.44" has two)
    ONE ± OTHER                          the numbers of two columns in turn
    means of COLUMN                      the first number of each cell; `spreads of` is the second
    lowest and highest [spread] of COLUMN
    highest of COLUMN by OTHER           one for each value of the other
    median of COLUMN, rows               the middle one; how many rows there are

The n numbers before the comment must be the n that it yields, each as far as it is written out.
"""

import csv
import json
import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[2] / "docs"
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
    assert file.is_file(), f"there is no {file}"
    found = _of_json(json.loads(file.read_text()), query) if path.endswith(".json") else _of_rows(_rows(file), query)
    assert found, f"{path} has nothing of {query}"
    return found


# --- JSON ---------------------------------------------------------------------------------------------------


def _of_json(document: Any, path: str) -> list[float]:
    for name, key, value in re.findall(r"([^.\[\]]+)|\[([^=\]]+)=([^\]]+)\]", path):
        document = document[name] if name else next(d for d in document if str(d[key]) == value)
    return [float(document)]


# --- CSV ----------------------------------------------------------------------------------------------------


@lru_cache
def _rows(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def _of_rows(rows: list[dict[str, str]], query: str) -> list[float]:
    where, _, what = query.rpartition(";")
    conditions = [c.strip().split("=", 1) for c in where.split(" & ") if c.strip()]
    chosen = [row for row in rows if all(row[column] == value for column, value in conditions)]
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
