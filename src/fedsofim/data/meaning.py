"""What a schema means, apart from how one site writes it: features and classes, in their order.

Two sites may write decimals, dates, gaps or yes and no in their own ways, and have columns of their own that nobody
uses: their tables still become the same features. What must agree is here: the name and kind of each column that
features are made of, its range or categories, what a gap becomes, and the classes of the label.
"""

import hashlib
import json
from typing import Any

from fedsofim.data.cells import listed
from fedsofim.data.columns import READERS, plain_text
from fedsofim.data.schema import Column, Schema, plain_dates

_WORDS = {"kind": "kind", "range": "range", "categories": "categories", "missing": "what a gap becomes"}


def meaning_of(schema: Schema) -> dict[str, Any]:
    """As plain data; equal for schemas that make the same features and classes of what is written in a table.

    >>> from fedsofim.data.schema import schema_of
    >>> meaning_of(schema_of({"columns": {"age": {"kind": "number", "range": [0, 120]}, "ill": {"kind": "label"}}}))
    {'columns': {'age': {'kind': 'number', 'range': [0.0, 120.0]}}, 'label': ['ill', []]}
    """
    label = schema.label
    return {
        "columns": {c.name: _of_column(c) for c in schema.inputs},
        "label": None if label is None else [label.name, [plain_text(c) for c in label.classes]],
    }


def digest_of(schema: Schema | None) -> str:
    """The meaning in one word; empty without a schema."""
    if schema is None:
        return ""
    return hashlib.sha256(json.dumps(meaning_of(schema)).encode()).hexdigest()


def differences(one: Schema, other: Schema) -> str:
    """How the meanings of two schemas differ, in words; empty if they do not."""
    mine, theirs = meaning_of(one), meaning_of(other)
    a, b = mine["columns"], theirs["columns"]
    said = [f"it lacks {listed(gone)}" for gone in [[n for n in a if n not in b]] if gone]
    said += [f"only it has {listed(new)}" for new in [[n for n in b if n not in a]] if new]
    for name in (n for n in a if n in b):
        wrong = [w for key, w in _WORDS.items() if a[name].get(key) != b[name].get(key)]
        said += [f"'{name}' has another {' and '.join(wrong)}"] if wrong else []
    if not said and list(a) != list(b):
        said.append("its columns come in another order")
    if mine["label"] != theirs["label"]:
        said.append("it has another label, or other classes")
    return "; ".join(said)


def _of_column(column: Column) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": column.kind}
    if column.range:
        ends = plain_dates(column.range)
        found["range"] = [float(v) for v in ends] if column.kind == "number" else ends
    if column.categories:
        found["categories"] = list(column.categories)
    if column.missing is not None:
        found["missing"] = _gap(column)
    return found


def _gap(column: Column) -> Any:
    """What a gap becomes: a site's word for no is 0 everywhere."""
    if column.kind == "number":
        return float(column.missing)
    return READERS["boolean"](column)(column.missing) if column.kind == "boolean" else plain_dates(column.missing)
