"""What a wheel and the source archive contain, by the list of what builds them, is what the page of licences says."""

import csv
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

pytest.importorskip("hatchling")

from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "licences.md").read_text()
CONTAINED = PAGE.partition("## What a wheel and the source archive contain")[2].partition("\n## ")[0]
DATA = (".npz", ".npy", ".safetensors", ".db", ".pt", ".onnx", ".parquet", ".gz", ".zip")


def archived(builder: type[SdistBuilder] | type[WheelBuilder]) -> list[str]:
    return sorted(f.distribution_path for f in builder(str(ROOT)).recurse_included_files())


SDIST, WHEEL = archived(SdistBuilder), archived(WheelBuilder)


def named(path: str) -> list[str]:
    """The places on the page that a file is under; `*` stands for one folder or a part of a name."""
    places = re.findall(r"`([\w.*-]+/[\w./*-]+)`", CONTAINED)
    return [place for place in places if fnmatch(path, f"*{place}") or fnmatch(path, f"*{place}/*")]


def has_published_values(path: str) -> bool:
    """Has a table of results a column of the paper's?"""
    if not (path.startswith("docs/results/") and path.endswith(".csv")):
        return False
    with (ROOT / path).open(newline="", encoding="utf-8") as file:
        return any("published" in column for column in next(csv.reader(file)))


def test_the_published_values_in_the_source_archive_lie_where_the_page_says():
    with_values = [path for path in SDIST if has_published_values(path)]
    assert with_values and [path for path in with_values if not named(path)] == []


def test_a_wheel_is_the_package_and_nothing_else():
    assert [path for path in WHEEL if not path.startswith("fedsofim/")] == []


@pytest.mark.parametrize("list_", [SDIST, WHEEL], ids=["sdist", "wheel"])
def test_every_file_of_data_is_named_on_the_page(list_: list[str]):
    """So the paper's features and its files are in neither."""
    found = [path for path in list_ if path.endswith(DATA)]
    assert found and [path for path in found if not named(path)] == []


def test_what_lies_elsewhere_is_noticed():
    assert not named("docs/results/other/published.csv") and not named("data/cifar10_resnet20.npz")
    assert not has_published_values("docs/results/units/rows.csv")
