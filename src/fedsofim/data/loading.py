"""`load`: one name or path -> a checked `Dataset`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedsofim import extensions
from fedsofim.data.assembly import assemble
from fedsofim.data.cells import is_frame
from fedsofim.data.clients import read_clients
from fedsofim.data.dataset import Dataset
from fedsofim.data.embedded import EMBEDDED, load_embedded
from fedsofim.data.image_sources import IMAGE_SETS
from fedsofim.data.in_memory import as_schema, check_has_persons
from fedsofim.data.named_features import find_features, is_features
from fedsofim.data.npz import notes_of_npz
from fedsofim.data.own_files import read_own
from fedsofim.data.rows import Rows
from fedsofim.data.schema import Schema
from fedsofim.data.tables import is_table
from fedsofim.data.targets import Label
from fedsofim.errors import InputError, shown, unknown
from fedsofim.files import as_path
from fedsofim.tasks import Task, task_of

HOLDOUT = 0.2
How = tuple[Label, Sequence[str], Schema | None, Task | None, str | None]  # label, drop, schema, task, person


def names() -> list[str]:
    """Every dataset known by name.

    >>> "fashion" in names(), "cifar10" in names()
    (True, True)
    """
    return sorted({*EMBEDDED, *IMAGE_SETS, *extensions.installed("dataset")})


def load(
    name_or_path: str | Path | None = None,
    *,
    source: str | Path | None = None,
    label: Label = None,
    drop: Sequence[str] = (),
    test: str | Path | None = None,
    clients_from: str | Path | None = None,
    holdout: float = HOLDOUT,
    schema: Any = None,
    task: Any = None,
    person: str | None = None,
) -> Dataset:
    """Load a dataset known by name, or your own: a file, a folder of images, a folder of clients' files.

    label: the column of a table that holds the labels (default "label"), or a list of them; drop: columns to leave out.
    task: what is learned, as a fs.Task or its kind (docs/tasks.md): classes, unless the schema or you say otherwise.
    schema: what a table's columns mean, as a file or a Schema (data/schema.py): text, categories, dates, gaps.
    person: the column of a table that says whose each record is: never a feature (with a schema: its kind person).
    test: a file with the test set; if neither it nor the data has one, `holdout` of each client's records is held out.
    clients_from: a folder with one file per client; the result's `owner` says whose each record is.
    A name may also be that of an installed package's dataset, or a Python file with a function of its own name.
    Features of a known image set have names, like cifar10-resnet20 (named_features.py).
    source: a local copy of what is known by name.

    >>> data = load("fashion")
    >>> data.x_train.shape, data.x_test.shape, data.classes
    ((60000, 80), (10000, 80), 10)
    """
    described, asked = as_schema(schema), None if task is None else task_of(task)
    if clients_from is not None:
        return _load_clients(
            name_or_path, as_path("clients_from", clients_from), (label, drop, described, asked, person), test, holdout
        )
    if isinstance(name_or_path, str):  # a class of somebody's own may print as anything
        name_or_path = str.__str__(name_or_path)
    if not isinstance(name_or_path, str | Path | None) or not str(name_or_path).isprintable():
        raise InputError(f"the dataset is {shown(name_or_path)}; expected a name or a path{_in_memory(name_or_path)}")
    if name_or_path is None:
        raise InputError(f"name a dataset ({', '.join(names())}), a file, or clients_from=FOLDER")
    if name_or_path in names() or extensions.is_file(name_or_path):
        own = {"label": label, "test": test, "schema": schema, "drop": drop, "task": task, "person": person}
        return _load_known(str(name_or_path), source, own)
    path = Path(name_or_path)
    if is_features(name_or_path):
        own = {"label": label, "schema": schema, "drop": drop, "task": task, "person": person}
        _refuse_for_own_files(str(name_or_path), own)
        found = load(find_features(str(name_or_path), source), test=test, holdout=holdout)
        return replace(found, name=str(name_or_path))
    if source is not None:
        raise InputError(f"source goes with a dataset known by name; {path} is a path already")
    if not path.exists() and not path.suffix and path.name == str(name_or_path):
        raise unknown("dataset", str(name_or_path), names())
    notes = {"source": path.name, **(notes_of_npz(path) if path.is_file() and path.suffix == ".npz" else {})}
    if path.is_dir():
        notes["features"] = "gradient histograms of the images resized to 32x32; no statistic of the data"
    how = label, drop, described, asked, person
    read = read_own(path, *how)
    check_has_persons(read["train"], person)
    return assemble(path.stem, {"": read}, _test_rows(test, how), holdout, notes)


def _in_memory(given: Any) -> str:
    """What to use for data that is in memory already."""
    if is_frame(given):
        return ". For a data frame use fs.Dataset.from_frame(frame, label=NAME)"
    if isinstance(given, dict | list | tuple) or hasattr(type(given), "shape"):
        return ". For arrays use fs.Dataset.from_arrays(x, y)"
    return ""


def _refuse_for_own_files(name: str, options: dict[str, Any]) -> None:
    given = [key for key, value in options.items() if value is not None and value != ()]
    if given:
        raise InputError(f"{name} has its own labels and test set; {' and '.join(given)} go with your own files")


def _load_known(name: str, source: str | Path | None, for_own_files: dict[str, Any]) -> Dataset:
    _refuse_for_own_files(name, for_own_files)
    if name not in IMAGE_SETS and source is not None:
        raise InputError(f"{name} is a dataset by itself; it needs no source")
    if name in EMBEDDED:
        return load_embedded(name)
    if extensions.is_file(name):
        return extensions.called("dataset", name, extensions.from_file("dataset", name)[0], Dataset, {})
    if name not in IMAGE_SETS:
        return extensions.called("dataset", name, extensions.from_package("dataset", name)[0], Dataset, {})
    local = f" --source {source}" if source else ""
    raise InputError(
        f"{name} is a set of images, and a linear head needs features. Extract them once: "
        f"fedsofim features {name} --backbone resnet20{local} (needs the extra torch; histograms instead of "
        f"resnet20 needs none); then the dataset is called {name}-resnet20"
    )


def _load_clients(name: str | Path | None, folder: Path, how: How, test: str | Path | None, holdout: float) -> Dataset:
    if name is not None and Path(name) != folder:
        raise InputError(f"got a dataset ({name}) and clients_from={folder}; give one of them")
    clients = read_clients(folder, *how)
    for parts in clients.values():
        check_has_persons(parts["train"], how[-1])
    notes = {"source": f"{len(clients)} clients' files in {folder.name}/"}
    return assemble(folder.name, clients, _test_rows(test, how), holdout, notes)


def _test_rows(test: str | Path | None, how: How) -> Rows | None:
    """The rows of a separate test file: its test part if it has one, else all of it."""
    if test is None:
        return None
    label, drop, schema, task, person = how
    task = schema.task if schema is not None and task is None else task
    file = as_path("test", test)
    of_table = (schema, task, person) if is_table(file) else (None, task, None)
    parts = read_own(file, label, drop, *of_table)
    return parts.get("test", parts["train"])
