"""The datasets of an experiment: how their files are read, and a name for each that no other has."""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fedsofim import extensions
from fedsofim.data import load
from fedsofim.data.dataset import Dataset
from fedsofim.data.loading import HOLDOUT
from fedsofim.data.loading import names as dataset_names
from fedsofim.data.named_features import BACKBONES, command, is_features
from fedsofim.errors import InputError
from fedsofim.tasks import Task


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How an experiment's own files are read; paths are relative to the experiment's folder."""

    label: str | tuple[str, ...] | None = None
    task: Task | None = None
    drop: tuple[str, ...] = ()
    schema: str | None = None
    test: str | None = None
    holdout: float = HOLDOUT
    person_column: str | None = None  # of a table: whose each record is
    clients_from: str | None = None  # a folder with one file per client: the experiment's one dataset


AS_IT_IS = Reading()


def read_datasets(
    names: tuple[str, ...], folder: Path = Path(), how: Reading = AS_IT_IS, source: Path | None = None
) -> dict[str, Dataset]:
    """Every dataset by the name it has in the experiment; no two are called the same in rows and reports."""
    return distinct_names({name: read_dataset(name, folder, how, source) for name in names})


def read_dataset(name: str, folder: Path = Path(), how: Reading = AS_IT_IS, source: Path | None = None) -> Dataset:
    """A dataset known by name, or a file given relative to the experiment's own folder."""
    if is_features(name):
        return load(name, source=source)
    if name in dataset_names():
        return load(name)
    path = (folder / name).resolve()
    if not path.exists():
        raise InputError(f"{path}: no such file{_by_name(path.stem)}")
    if extensions.is_file(path):
        return load(path)
    beside = {k: None if v is None else (folder / v).resolve() for k, v in (("schema", how.schema), ("test", how.test))}
    rest = {"label": how.label, "drop": how.drop, "holdout": how.holdout, "task": how.task, **beside}
    rest |= {"person": how.person_column}
    return load(clients_from=path, **rest) if how.clients_from else load(path, **rest)


def distinct_names(data: Mapping[str, Dataset]) -> dict[str, Dataset]:
    """Files of one stem are told apart by what the experiment calls them; all others keep their own name."""
    names = [d.name for d in data.values()]
    return {key: replace(d, name=key) if names.count(d.name) > 1 else d for key, d in data.items()}


def digest(data: Dataset, key: bytes = b"") -> str:
    """A fingerprint of the records: the same name with other contents is another experiment. Without a key anybody can
    make it of what they guess the records to be (record_digests.py)."""
    sha = hmac.new(key, digestmod="sha256") if key else hashlib.sha256()
    for part in (data.x_train, data.y_train, data.x_test, data.y_test):
        sha.update(part.tobytes())
    if data.person is not None:  # they decide who is summed with whom, and how records are dealt
        sha.update("\n".join(map(str, data.person)).encode())
    if data.task != Task():  # the same numbers mean something else then
        sha.update(str(data.task).encode())
    return sha.hexdigest()[:16]


def _by_name(stem: str) -> str:
    """Features have names: whoever looks for their file is told."""
    images, _, backbone = stem.replace("-", "_").partition("_")
    name = f"{images}-{next((b for b in BACKBONES if b.startswith(backbone)), backbone)}"
    if not backbone or not is_features(name):
        return "; change the experiment's datasets"
    return f". Features have names: use '{name}', which one command makes: {command(name)}"
