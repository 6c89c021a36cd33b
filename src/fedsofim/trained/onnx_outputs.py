"""What comes out of an exported model, by task: label and probabilities, or a number in its units."""

import math
from typing import Any

import numpy as np
from onnx import TensorProto  # pyright: ignore[reportMissingImports]

from fedsofim.tasks import CLASSES, COUNTS, LABELS, NUMBERS, TWO
from fedsofim.trained.model import Trained


def _classes_out(g: Any, model: Trained, logits: str) -> None:
    g.output("probabilities", g.add("Softmax", logits, axis=1), TensorProto.FLOAT, [None, len(model.labels)])
    _label_out(g, model, g.add("ArgMax", logits, axis=1, keepdims=0))


def _two_out(g: Any, model: Trained, logits: str) -> None:
    """The probability of both classes, the second's by the one output."""
    both = g.add("Concat", g.add("Sigmoid", g.add("Neg", logits)), g.add("Sigmoid", logits), axis=1)
    g.output("probabilities", both, TensorProto.FLOAT, [None, 2])
    over = g.add("Greater", g.add("Squeeze", logits, g.constant(np.array([1], np.int64))), g.constant(np.float32(0)))
    _label_out(g, model, g.add("Cast", over, to=TensorProto.INT64))


def _label_out(g: Any, model: Trained, index: str) -> None:
    text = any(isinstance(label, str) for label in model.labels)
    labels = np.array([str(v) for v in model.labels], dtype=object) if text else np.array(model.labels, np.int64)
    kind = TensorProto.STRING if text else TensorProto.INT64
    g.output("label", g.add("Gather", g.constant(labels), index, axis=0), kind, [None])


def _labels_out(g: Any, model: Trained, logits: str) -> None:
    g.output("probabilities", g.add("Sigmoid", logits), TensorProto.FLOAT, [None, len(model.labels)])
    said = g.add("Cast", g.add("Greater", logits, g.constant(np.float32(0))), to=TensorProto.INT64)
    g.output("labels", said, TensorProto.INT64, [None, len(model.labels)])


def _number_out(g: Any, model: Trained, logits: str) -> None:
    """In its units, within its public range."""
    task, z = model.task, g.doubles(g.add("Squeeze", logits, g.constant(np.array([1], np.int64))))
    moved = g.add("Add", g.add("Mul", g.add("Add", z, g.number(1.0)), g.number(task.half)), g.number(task.ends[0]))
    g.output("number", g.add("Clip", moved, *map(g.number, task.ends)), TensorProto.DOUBLE, [None])


def _count_out(g: Any, model: Trained, logits: str) -> None:
    task, z = model.task, g.doubles(g.add("Squeeze", logits, g.constant(np.array([1], np.int64))))
    least = g.add("Min", z, g.number(math.log(task.ends[1] / task.scale)))
    g.output("number", g.add("Mul", g.add("Exp", least), g.number(task.scale)), TensorProto.DOUBLE, [None])


#: By the task's kind: adds the outputs of a graph (onnx_file.py) whose logits are known.
OUTPUTS: dict[str, Any] = {
    CLASSES: _classes_out,
    TWO: _two_out,
    LABELS: _labels_out,
    NUMBERS: _number_out,
    COUNTS: _count_out,
}
