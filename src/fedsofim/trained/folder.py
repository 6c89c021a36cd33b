"""A model on disk: one folder, `model.safetensors` for the numbers and `model.json` for everything else.

format      this file's version; an older one is read or refused with a sentence
card        the model in plain words
labels, task, columns, shape, schema, preparation: what it takes to use the model
training, privacy, result, versions: how it came about and what that cost, the ledger with it
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedsofim import models
from fedsofim.core.keys import key_of
from fedsofim.core.models import HEAD, Model, for_task, linear
from fedsofim.core.prepared import Prepared
from fedsofim.data.affine import Affine
from fedsofim.data.schema import plain_schema, schema_of
from fedsofim.errors import InputError, shown
from fedsofim.files import as_path, check_free, write_text, write_whole
from fedsofim.formats import MODEL, check_format
from fedsofim.tasks import Task, task_of
from fedsofim.trained.card import card_of
from fedsofim.trained.model import Trained

NUMBERS, REST = "model.safetensors", "model.json"
FILES = (NUMBERS, REST)
_FACTS = ("training", "privacy", "result", "versions")


def save_model(model: Trained, folder: Path, *, force: bool = False) -> Path:
    """Both files, each whole or not at all; nothing is overwritten unless forced."""
    check_free(folder, FILES, force)
    arrays, document = numbers_of(model), document_of(model)
    import safetensors.numpy

    content = safetensors.numpy.save(arrays, metadata={"format": "fedsofim model"})
    write_whole(folder / NUMBERS, lambda file: file.write(content))
    write_text(folder / REST, json.dumps(document, indent=1, ensure_ascii=False, default=str) + "\n")
    return folder


def numbers_of(model: Trained) -> dict[str, np.ndarray]:
    """Every array of a model, by name."""
    leaves = {f"params.{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(model.params))}
    moved = model.standardised
    public = {} if moved is None else {"public.shift": moved.shift, "public.scale": moved.scale}
    return {k: np.array(v, order="C") for k, v in (leaves | model.prepared.arrays() | public).items()}


def document_of(model: Trained) -> dict[str, Any]:
    """Everything else, as plain data."""
    return {
        "format": MODEL.writes,
        "card": card_of(model),
        "labels": [label.item() if isinstance(label, np.generic) else label for label in model.labels],
        "task": model.task.plain(),
        "columns": list(model.columns),
        "shape": list(model.shape),
        "model": model.name,
        "model_settings": {} if model.is_head else dict(model.settings),
        "schema": None if model.schema is None else plain_schema(model.schema),
        "preparation": model.prepared.tables(),
        **{key: dict(model.facts.get(key, {})) for key in _FACTS},
    }


def load_model(folder: str | Path, *, model: str | Model | None = None) -> Trained:
    """A model from its folder. `model` is needed only for one of one's own: its file, its name, or itself."""
    folder = as_path("the model's folder", folder)
    document = _document(folder)
    arrays = _arrays(folder / NUMBERS)
    try:
        return rebuilt(document, arrays, model)
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        if isinstance(problem, InputError):
            raise InputError(f"{folder}: {problem}") from None
        raise InputError(
            f"{folder}: {REST} and {NUMBERS} do not fit together, or one is damaged ({shown(problem)})"
        ) from None


def rebuilt(document: Mapping[str, Any], arrays: Mapping[str, np.ndarray], model: str | Model | None = None) -> Trained:
    """A model from its two halves."""
    name, shape = document["model"], tuple(document["shape"])
    task = task_of(document.get("task"))  # older ones are of classes
    settings = document.get("model_settings", {})
    found = for_task(_model(name, settings, model, task), task)
    outputs, prepared = task.outputs(len(document["labels"])), Prepared.read(document["preparation"], arrays)
    width = prepared.map(np.zeros((1, *shape), np.float32)).shape[1:]
    return Trained(
        params=_params(found, width, outputs, arrays),
        model=found,
        name=models.spelled(name),
        settings=settings,
        shape=shape,
        labels=tuple(document["labels"]),
        prepared=prepared,
        columns=tuple(document["columns"]),
        schema=None if document["schema"] is None else schema_of(document["schema"]),
        standardised=Affine(arrays["public.shift"], arrays["public.scale"]) if "public.shift" in arrays else None,
        task=task,
        facts={key: document[key] for key in _FACTS},
    )


def _document(folder: Path) -> dict[str, Any]:
    path = folder / REST
    if not path.is_file():
        raise InputError(f"{folder}: {_what_it_is(folder)}")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        document["format"]
    except (ValueError, KeyError, TypeError) as problem:
        raise InputError(f"{path}: not a model's description, or a damaged one ({shown(problem)})") from None
    check_format(MODEL, document, path)
    return document


def _what_it_is(folder: Path) -> str:
    if not folder.is_dir():
        return "no such folder; expected one that run.save or fedsofim run --out wrote"
    if (folder / "checkpoint.npz").is_file():
        return f"the folder of a federation's job; make a model of it with: fedsofim model {folder} --out m"
    if (folder / "runs.jsonl").is_file():
        return "a folder of runs; models of its runs are in models/, if it was made with fedsofim compare --models"
    if (folder / "params.npz").is_file():
        return (
            "was saved before models were whole: what its records were prepared by is not in it, so its predictions "
            "would be wrong. Train it again"
        )
    return f"holds no {REST}; expected a folder that run.save or fedsofim run --out wrote"


def _arrays(path: Path) -> dict[str, np.ndarray]:
    import safetensors
    import safetensors.numpy

    try:
        return safetensors.numpy.load_file(path)
    except (FileNotFoundError, safetensors.SafetensorError) as problem:
        raise InputError(f"{path}: not a readable safetensors file ({problem})") from None


def _model(name: str, settings: Mapping[str, Any], given: str | Model | None, task: Task) -> Model:
    """The model to put the numbers into: one of the library's is made again, a stranger's code is never run unasked."""
    if isinstance(given, Model):
        return given
    if given is None and models.spelled(name) not in models.OWN:
        raise InputError(_strange(name))
    asked = name if given is None else given
    if models.spelled(asked) == HEAD:
        return linear(task)
    known = models.parameters(asked)
    return models.make(asked, {key: value for key, value in settings.items() if key in known})


def _strange(name: str) -> str:
    if not name or name.startswith("from_"):
        example = f"fs.{name}(...)" if name else "mine"
        return f"its model is one of your own, made in Python; give it: fs.load_model(folder, model={example})"
    return (
        f"its model is one of your own ({name}); say which with model=, for example "
        f"fs.load_model(folder, model={shown(name)}) (--model {name})"
    )


def _params(model: Model, width: tuple[int, ...], outputs: int, arrays: Mapping[str, np.ndarray]) -> Any:
    """The arrays in the model's own tree."""
    like = jax.eval_shape(lambda: model.init(key_of(0), width, outputs))
    leaves, structure = jax.tree.flatten(like)
    found = [arrays[f"params.{i}"] for i in range(sum(key.startswith("params.") for key in arrays))]
    shapes, wanted = [leaf.shape for leaf in found], [leaf.shape for leaf in leaves]
    if shapes != wanted:
        raise InputError(f"its parameters have shapes {shapes}, but the model's are {wanted}; is it the right model?")
    return jax.tree.unflatten(structure, found)
