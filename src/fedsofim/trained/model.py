"""A trained model: takes records as people have them, gives labels as people write them.

table or data frame -> features, by the schema and by names of columns
features            -> what the parameters are for, by public statistics and by what training released
logits              -> probabilities and labels, or numbers in the answer's units, by the task
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim.core.models import HEAD, Model, is_linear
from fedsofim.core.prepared import Prepared
from fedsofim.data.affine import Affine
from fedsofim.data.cells import Cells, cells_of_frame, is_frame
from fedsofim.data.columns import Encoded, encode
from fedsofim.data.html import card as html_card
from fedsofim.data.meaning import differences
from fedsofim.data.schema import Schema, numbers_only
from fedsofim.errors import InputError
from fedsofim.tasks import CLASSES, LABELS, TWO, Task
from fedsofim.trained.card import card_of, described


@dataclass(frozen=True, kw_only=True, eq=False)
class Trained:
    """Parameters with all that belongs to them. `facts` are plain data: how it was trained, and what that cost."""

    params: Any
    model: Model
    name: str  # of the model; empty: it is nobody's name, so whoever loads it gives the model
    shape: tuple[int, ...]  # of a record's features
    labels: tuple[Any, ...]  # what is told apart: classes, labels, or the one quantity
    prepared: Prepared = field(default_factory=Prepared)
    columns: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)  # what the model was made with
    schema: Schema | None = None
    standardised: Affine | None = None
    task: Task = Task()
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_head(self) -> bool:
        """Is it the linear head, which can be exported?"""
        return is_linear(self.model)

    def predict(self, x: Any) -> np.ndarray:
        """The label of each record; of several labels 0 or 1 for each (records x labels); a number or a mean count in
        its units. `x` is a data frame, whose columns are found by name, or an array of features."""
        return self.decided(self.answers(x))

    def predict_proba(self, x: Any) -> np.ndarray:
        """The probability of each class, or of each label, in the order of `labels`."""
        if self.task.metric != "accuracy":
            raise InputError(f"the model tells {self.task.kind}, which have no probabilities; use predict")
        found = self.answers(x)
        return np.column_stack([1 - found, found]) if self.task.kind == TWO else found

    def answers(self, x: Any) -> np.ndarray:
        """Probabilities, or numbers in their units, as the task has them (tasks.py)."""
        return self.task.answers(self.logits(self.features_of(x)))

    def decided(self, answers: np.ndarray) -> np.ndarray:
        """What is said for them, in the user's words."""
        if self.task.kind == CLASSES:
            return np.array(self.labels)[answers.argmax(axis=1)]
        if self.task.kind == TWO:
            return np.array(self.labels)[(answers[:, 0] > 0.5).astype(np.int64)]
        return (answers > 0.5).astype(np.int64) if self.task.kind == LABELS else answers

    def logits(self, features: np.ndarray) -> np.ndarray:
        """Of features as the dataset had them before anything was done to them."""
        moved = features if self.standardised is None else self.standardised(features)
        return np.asarray(self.model.logits(self.params, jnp.asarray(self.prepared.map(moved))), np.float64)

    def features_of(self, x: Any) -> np.ndarray:
        """Records as they come into features, checked: names of a frame's columns, shape and numbers of an array."""
        if isinstance(x, Cells):
            return self.encoded(x).x
        return self.encoded(cells_of_frame(x, "the data frame")).x if is_frame(x) else self._checked(x)

    def encoded(self, cells: Cells) -> Encoded:
        """A table's features, by the schema."""
        if self.schema is None and self.columns:
            return encode(numbers_only(self.columns), cells)
        if self.schema is None:
            raise InputError(
                f"{cells.origin}: this model was trained on arrays, whose columns have no names; give an array of "
                f"shape (records, {', '.join(map(str, self.shape))}), or an .npz file with that array as x"
            )
        return encode(self.schema, cells)

    def reading(self, schema: Schema) -> "Trained":
        """Return the same model for tables that are written in another way.

        Sites of one federation may write decimals, dates, gaps and yes or no each in their own way. What the columns
        mean must be the same as in training.

        Args:
            schema: How the tables are written.

        Returns:
            The model, which reads tables by that schema.

        Raises:
            InputError: If the model was trained on arrays, or the schema means something else.
        """
        if self.schema is None:
            raise InputError("this model was trained without a schema; leave the schema (--schema) out")
        if differs := differences(self.schema, schema):
            raise InputError(f"the schema means something else than the one of the training: {differs}")
        return replace(self, schema=schema)

    def _checked(self, x: Any) -> np.ndarray:
        expected = f"expected numbers of shape (records, {', '.join(map(str, self.shape))}), as in training"
        expected += ", or a data frame with the columns of training" if self.schema is not None else ""
        try:
            found = np.asarray(x, np.float32)
        except (TypeError, ValueError):  # text, or rows of unequal length
            raise InputError(f"predict got a {type(x).__name__} that is no array of numbers; {expected}") from None
        if found.ndim != len(self.shape) + 1 or found.shape[1:] != self.shape:
            raise InputError(f"predict got an array of shape {found.shape}; {expected}")
        if not np.all(np.isfinite(found)):
            row = int(np.argwhere(~np.isfinite(found))[0][0])
            raise InputError(f"predict got NaN or infinity, first in record {row}; fill or remove it")
        return found

    # --- kept, and exported ---------------------------------------------------------------------------------

    def save(self, folder: str | Path, *, force: bool = False) -> Path:
        """model.safetensors and model.json in a folder; `fs.load_model` reads them."""
        from fedsofim.trained.folder import save_model

        return save_model(self, Path(folder), force=force)

    @property
    def card(self) -> str:
        """The model in plain words: its data, its budget, what is protected and what is not."""
        return "\n".join(card_of(self))

    def to_sklearn(self) -> Any:
        """A scikit-learn classifier with `predict` and `predict_proba`, or a regressor; needs the extra sklearn."""
        from fedsofim.trained.estimator import FedsofimClassifier, FedsofimRegressor

        return FedsofimClassifier(self) if self.task.metric == "accuracy" else FedsofimRegressor(self)

    def to_onnx(self, path: str | Path) -> Path:
        """An ONNX file, from raw columns (or features) to label and probabilities, or to the number; needs the extra
        onnx."""
        self.check_exportable("ONNX")  # before anybody is sent to install what would not help
        from fedsofim.trained.onnx_file import write_onnx

        return write_onnx(self, Path(path))

    def to_torch(self) -> Any:
        """A torch module from features to logits: the head, or the module that was trained; needs the extra torch."""
        from fedsofim.trained.torch_module import as_module

        return as_module(self)

    def check_exportable(self, into: str) -> None:
        if not self.is_head:
            raise InputError(
                f"this model is not linear ({self.name or 'a model of your own'}), and {into} is told no layers; what "
                "can be exported is the linear head, and to torch what came from torch"
            )

    def theta(self) -> tuple[np.ndarray, np.ndarray]:
        """The head's weights (features x classes) and bias."""
        theta = np.asarray(jax.tree.leaves(self.params)[0])
        return theta[:-1], theta[-1]

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        kind = "linear head" if self.is_head else described(self.name, self.settings) or "a model of one's own"
        told = ", ".join(map(str, self.labels[:8]))
        return f"trained model ({kind}): {int(np.prod(self.shape))} features, {self.task} {told}"

    def _repr_html_(self) -> str:
        lines = [line.removeprefix("- ") for line in self.card.splitlines() if line.startswith("- ")]
        return html_card(str(self), dict(line.split(": ", 1) for line in lines if ": " in line))


def name_of(model: Model) -> str:
    """A model's name: the head's, or the one it was made by."""
    return HEAD if is_linear(model) else model.name
