"""Whatever stands in an experiment file, what is wrong is told in words, with the file's name."""

import itertools
import math
from typing import Any

import pytest

from fedsofim.errors import InputError
from fedsofim.experiments.grid import points
from fedsofim.experiments.grid_file import read_experiment
from fedsofim.experiments.reading import read_datasets

RIGHT: dict[str, Any] = {
    "name": "e", "about": "words", "datasets": ["digits"], "epsilons": [1], "seeds": [0], "rounds": 2, "clip": 1.0,
    "delta": 1e-5, "trust": "local", "weights": "size", "recipe": "paper", "model": {"name": "linear"},
    "standardize": {"share": 0.1, "radius": 5.0}, "partitions": [{"kind": "iid", "clients": 2}], "unit": ["record"],
    "participants": 1, "batch_rate": 0.5, "client_rate": 1.0, "records_per_person": 3,
    "methods": {"a": {"method": "fedgd", "lr": 0.1, "recipe": "paper", "weights": "size", "epsilons": "1",
                      "sweep": {"lr": [0.1, 0.2]}, "1": {"lr": 0.3}}},
    "label": "y", "drop": ["a"], "schema": "s.toml", "test": "t.csv", "holdout": 0.2, "person_column": "who",
    "task": "numbers", "target_range": [0, 1], "huber": 0.5, "tuned": "w.toml", "clients_from": "sites",
}  # fmt: skip
WRONG: tuple[Any, ...] = (
    0, -1, 1.5, math.nan, math.inf, True, "", "x", [], [1], ["x"], [[1]], [{}], {}, {"x": 1}, {"x": {}}, {"x": [1]},
    {"kind": 5}, 10**30,
)  # fmt: skip


def toml(value: Any) -> str:
    """A value as TOML writes it inline."""
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{k}" = {toml(v)}' for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, str):
        return f'"{value}"'
    return str(value).lower() if isinstance(value, bool | float) else str(value)


def read(path, table: dict[str, Any]) -> None:
    """Read an experiment as `compare` does, up to the list of its runs."""
    path.write_text("\n".join(f"{key} = {toml(value)}" for key, value in table.items()))
    described = read_experiment(path)
    data = read_datasets(described.datasets, path.parent, described.reading, None)
    points(described, data, dict.fromkeys(data, "0"))


NEEDED = ("datasets", "epsilons", "methods")


@pytest.mark.parametrize("key", RIGHT)
def test_a_wrong_value_is_told_in_words(tmp_path, key):
    for wrong in WRONG:
        table = {name: RIGHT[name] for name in NEEDED} | {key: wrong}
        try:
            read(tmp_path / "e.toml", table)
        except InputError as error:
            assert str(error).strip()


@pytest.mark.parametrize("key", ["method", "lr", "recipe", "weights", "epsilons", "sweep", "search", "1", "odd"])
def test_a_wrong_value_in_a_method_is_told_in_words(tmp_path, key):
    for wrong in WRONG:
        table = {name: RIGHT[name] for name in NEEDED} | {"methods": {"a": {"method": "fedgd", key: wrong}}}
        try:
            read(tmp_path / "e.toml", table)
        except InputError as error:
            assert str(error).strip()


def test_a_wrong_partition_or_file_of_winners_is_told_in_words(tmp_path):
    for key, wrong in itertools.product(("kind", "clients", "alpha", "seed"), WRONG):
        table = {name: RIGHT[name] for name in NEEDED} | {"partitions": [{key: wrong}]}
        try:
            read(tmp_path / "e.toml", table)
        except InputError as error:
            assert str(error).strip()
    for wrong in WRONG:
        (tmp_path / "w.toml").write_text(f"methods = {toml(wrong)}")
        with pytest.raises(InputError):
            read(tmp_path / "e.toml", {"datasets": ["digits"], "epsilons": [1], "tuned": "w.toml"})


def test_a_list_of_methods_is_told_how_methods_are_written(tmp_path):
    with pytest.raises(InputError, match=r"methods is a list of 1; expected a table like \[methods.mine\]"):
        read(tmp_path / "e.toml", {"datasets": ["digits"], "epsilons": [1], "methods": ["fedgd"]})
