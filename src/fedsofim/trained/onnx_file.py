"""A trained head as an ONNX file, written node by node: raw columns in, label and probabilities out, or the number.

A number, boolean or date is an input of doubles (records x 1): as written, 0 or 1, days as `date.toordinal` counts
them; a gap is NaN. A category is an input of text; a gap is one of the schema's words, "" among them. A model that was
trained on arrays has one input, `features`. `inputs_of` makes these inputs of a table.
"""

import math
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from fedsofim.data.cells import Cells, cells_of_frame, is_frame
from fedsofim.data.columns import READERS, check_columns, encode, is_gap, plain_text
from fedsofim.data.schema import Column, Schema
from fedsofim.errors import InputError
from fedsofim.files import write_whole
from fedsofim.trained.model import Trained
from fedsofim.trained.operations import Cap, Move, Operation, Unit, operations_of

try:
    import onnx  # pyright: ignore[reportMissingImports]
    from onnx import TensorProto, helper, numpy_helper  # pyright: ignore[reportMissingImports]

    from fedsofim.trained.onnx_outputs import OUTPUTS
except ImportError:
    raise InputError("this needs onnx, which is not installed: pip install 'fedsofim[onnx]'") from None

OPSETS = (("", 17), ("ai.onnx.ml", 3))
IR_VERSION = 8  # of opset 17: what older runtimes read too
FEATURES = "features"


def write_onnx(model: Trained, path: Path) -> Path:
    """The file, checked by onnx itself."""
    content = graph_of(model).SerializeToString()
    write_whole(path, lambda file: file.write(content))
    return path


def graph_of(model: Trained) -> Any:
    """The model as an ONNX graph with what it is and what it cost in its metadata."""
    g = _Graph()
    x = g.add("Cast", _features(g, model), to=TensorProto.FLOAT)
    for operation in operations_of(model):
        x = g.add("Cast", _NODES[type(operation)](g, g.doubles(x), operation), to=TensorProto.FLOAT)
    weight, bias = model.theta()
    logits = g.add(
        "Add", g.add("MatMul", x, g.constant(weight.astype(np.float32))), g.constant(bias.astype(np.float32))
    )
    OUTPUTS[model.task.kind](g, model, logits)
    return g.model(model)


def inputs_of(model: Trained, x: Any) -> dict[str, np.ndarray]:
    """What the file takes, from a data frame, a table, or an array of features."""
    if model.schema is None:
        return {FEATURES: model.features_of(x)}
    if not isinstance(x, Cells) and not is_frame(x):
        raise InputError("this model takes columns by name; give a data frame, or a table that was read")
    cells = x if isinstance(x, Cells) else cells_of_frame(x, "the data frame")
    check_columns(model.schema, cells)
    encode(model.schema, cells)  # says what is wrong with it
    return {c.name: _column_input(model.schema, c, cells) for c in model.schema.inputs}


def _column_input(schema: Schema, column: Column, cells: Cells) -> np.ndarray:
    values, empty = cells.columns[column.name], is_gap(schema)
    if column.kind == "category":
        return np.array([["" if empty(v) else plain_text(v)] for v in values], dtype=object)
    read = READERS[column.kind](column)
    return np.array([[math.nan if empty(v) else _as_double(read(v))] for v in values], np.float64)


def _as_double(value: Any) -> float:
    return float(value.toordinal()) if isinstance(value, date) else float(value)


# --- the graph ----------------------------------------------------------------------------------------------


class _Graph:
    """Nodes as they are added; a value is known by its name."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.constants: list[Any] = []

    def add(self, kind: str, *inputs: str, domain: str = "", **how: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], domain=domain, **how))
        return name

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def number(self, value: float) -> str:
        return self.constant(np.float64(value))

    def doubles(self, x: str) -> str:
        return self.add("Cast", x, to=TensorProto.DOUBLE)

    def input(self, name: str, kind: int, shape: list[int | None]) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def output(self, name: str, value: str, kind: int, shape: list[int | None]) -> None:
        self.nodes.append(helper.make_node("Identity", [value], [name]))
        self.outputs.append(helper.make_tensor_value_info(name, kind, shape))

    def model(self, trained: Trained) -> Any:
        graph = helper.make_graph(self.nodes, "fedsofim", self.inputs, self.outputs, self.constants)
        versions = [helper.make_opsetid(domain, version) for domain, version in OPSETS]
        made = helper.make_model(graph, opset_imports=versions, ir_version=IR_VERSION, producer_name="fedsofim")
        helper.set_model_props(made, {"card": trained.card})
        onnx.checker.check_model(made, full_check=True)
        return made


def _features(g: _Graph, model: Trained) -> str:
    if model.schema is None:
        return g.input(FEATURES, TensorProto.FLOAT, [None, *model.shape])
    return g.add("Concat", *(block for c in model.schema.inputs for block in _column(g, model.schema, c)), axis=1)


def _column(g: _Graph, schema: Schema, column: Column) -> list[str]:
    """A column's features, each of doubles (records x its width)."""
    if column.kind == "category":
        return _category(g, schema, column)
    x = g.input(column.name, TensorProto.DOUBLE, [None, 1])
    gap = g.add("IsNaN", x)
    if column.missing is not None:
        x = g.add("Where", gap, g.number(_fill(column)), x)
    if column.range:
        low, high = map(_as_double, column.range)
        scaled = g.add("Div", g.add("Mul", g.add("Sub", x, g.number(low)), g.number(2.0)), g.number(high - low))
        x = g.add("Clip", g.add("Sub", scaled, g.number(1.0)), g.number(-1.0), g.number(1.0))
    return [x, *([g.doubles(gap)] if column.missing is not None else [])]


def _fill(column: Column) -> float:
    if column.kind == "boolean":
        return float(READERS["boolean"](column)(column.missing))
    return _as_double(column.missing)


def _category(g: _Graph, schema: Schema, column: Column) -> list[str]:
    x = g.input(column.name, TensorProto.STRING, [None, 1])
    place = {value: i for i, value in enumerate(column.categories)}
    gaps = {w for word in schema.missing for w in (word, word.lower(), word.upper())} - set(place)
    filled = place.get(str(column.missing), len(place))
    codes = place | dict.fromkeys(sorted(gaps), filled)
    index = _encoder(g, x, codes, len(place))
    hot = g.add("OneHot", index, g.constant(np.int64(len(place) + 1)), g.constant(np.array([0.0, 1.0], np.float32)))
    flat = g.doubles(g.add("Reshape", hot, g.constant(np.array([-1, len(place) + 1], np.int64))))
    return [
        flat,
        *([g.doubles(_encoder(g, x, dict.fromkeys(sorted(gaps), 1), 0))] if column.missing is not None else []),
    ]


def _encoder(g: _Graph, x: str, codes: dict[str, int], otherwise: int) -> str:
    return g.add(
        "LabelEncoder",
        x,
        domain="ai.onnx.ml",
        keys_strings=list(codes),
        values_int64s=list(codes.values()),
        default_int64=otherwise,
    )


# --- operations ---------------------------------------------------------------------------------------------


def _move(g: _Graph, x: str, move: Operation) -> str:
    assert isinstance(move, Move)
    moved = g.add("Sub", x, g.constant(np.asarray(move.shift, np.float64)))
    return g.add("MatMul" if move.scale.ndim == 2 else "Mul", moved, g.constant(np.asarray(move.scale, np.float64)))


def _unit_norm(g: _Graph, x: str, unit: Operation) -> str:
    assert isinstance(unit, Unit)
    if unit.constant:
        ones = g.add("Cast", g.add("Equal", _first_column(g, x), _first_column(g, x)), to=TensorProto.DOUBLE)
        width = g.add("Sqrt", g.doubles(g.add("Gather", g.add("Shape", x), g.constant(np.int64(1)), axis=0)))
        x = g.add("Concat", g.add("Div", x, width), ones, axis=1)
    u = _rows_of_one(g, x)
    if unit.lift:
        root = g.add("Mul", g.add("Sign", u), g.add("Sqrt", g.add("Abs", u)))
        u = g.add("Div", g.add("Concat", u, _rows_of_one(g, root), axis=1), g.number(math.sqrt(2.0)))
    return u


def _first_column(g: _Graph, x: str) -> str:
    return g.add("Slice", x, *(g.constant(np.array([v], np.int64)) for v in (0, 1, 1)))


def _rows_of_one(g: _Graph, x: str) -> str:
    """Divided by the largest first, so that no square is lost; a row of zeros stays one."""
    x = _divided(g, x, g.add("ReduceMax", g.add("Abs", x), axes=[1], keepdims=1))
    return _divided(g, x, g.add("ReduceL2", x, axes=[1], keepdims=1))


def _divided(g: _Graph, x: str, by: str) -> str:
    return g.add("Div", x, g.add("Where", g.add("Greater", by, g.number(0.0)), by, g.number(1.0)))


def _capped(g: _Graph, x: str, cap: Operation) -> str:
    assert isinstance(cap, Cap)
    norm = g.add("Max", g.add("ReduceL2", x, axes=[1], keepdims=1), g.number(1e-30))
    factor = g.add("Min", g.number(1.0), g.add("Div", g.number(cap.cap), norm))
    return g.add("Mul", g.add("Mul", x, g.number(cap.radius)), factor)


_NODES: dict[type, Any] = {Move: _move, Unit: _unit_norm, Cap: _capped}
