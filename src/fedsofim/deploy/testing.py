"""The coordinator's own test records: a dataset by name or file, or a table by the schema that the nodes have."""

from pathlib import Path

import numpy as np

from fedsofim.data import load
from fedsofim.data.schema import read_schema
from fedsofim.data.tables import is_table, read_table
from fedsofim.errors import InputError


def read_test(name: str, schema: str = "") -> tuple[np.ndarray, np.ndarray]:
    """(x, y) of the test records. All of a table's are; of a dataset, those it keeps for testing."""
    if not is_table(Path(name)):
        data = load(name)
        return data.x_test, data.y_test
    if not Path(name).is_file():
        raise InputError(f"{name}: no such file")
    if not schema:
        raise InputError(f"{name}: a test table is read by the nodes' schema; give it with --schema schema.toml")
    rows = read_table(Path(name), schema=read_schema(schema))
    return rows.x, np.asarray(rows.y, np.int32)
