"""Modules of other libraries as models: `fs.from_flax`, `fs.from_equinox`, `fs.from_keras`, `fs.from_torch`. Each
library is needed only where its function is called. What goes for all of them:

- The module maps records to outputs, one for each class (or as the task has it), without a softmax at its end: the
  loss is the task's. A record is a row of features; a module for images reshapes it.
- A module starts with the numbers it has, and is given records as they are, since it may be trained on such already. A
  function that makes one starts anew with every seed, and a recipe may prepare its records.
- What mixes records (batch statistics) has no bound per record and is refused by name, and so is dropout, whose draws
  a record's gradient has no place for. Both are accepted where they are switched off: they are fixed maps then.
- `run.module()` is the module with the trained numbers. It takes records as the run prepared them.
"""

from collections.abc import Callable, Sequence
from typing import Any

from fedsofim.core.models import Model, Takes
from fedsofim.errors import InputError


def from_flax(module: Any) -> Model:
    """An nnx.Module, or a function of nnx.Rngs that makes one."""
    from fedsofim.models.adapters.flax_modules import model_of

    return model_of(module)


def from_equinox(module: Any) -> Model:
    """An equinox.Module that takes one record, or a function of a key that makes one."""
    from fedsofim.models.adapters.equinox_modules import model_of

    return model_of(module)


def from_keras(module: Any) -> Model:
    """A built keras.Model; Keras must run on JAX (KERAS_BACKEND=jax)."""
    from fedsofim.models.adapters.keras_modules import model_of

    return model_of(module)


def from_torch(
    module: Any,
    loss: Callable[..., Any] | None = None,
    *,
    trainable: str | Sequence[str] | None = None,
    rank: int | None = None,
) -> Model:
    """Translate a `torch.nn.Module` into a model of JAX, trained by any method; needs the extra torch.

    The module is copied, exported by `torch.export` in evaluation mode, and translated operation by operation. Its own
    Python never runs near a record. A run begins at the module's weights, whatever the seed, and
    `run.model.to_torch()` gives the module back with its new ones.

    Args:
        module: Maps a batch of records to outputs, one for each class, without a softmax at its end.
        loss: `loss(outputs, labels)` of torch, one number a record. Left out, the loss is the task's.
        trainable: Names of layers or parameters to train; the rest is frozen, and taken to be public. Left out, what
            has `requires_grad` is trained.
        rank: Train low-rank adapters of this rank beside the linear layers (those in `trainable`, or all) instead.

    Returns:
        The model. The module is exported when a run knows the shape of its records.

    Raises:
        InputError: It is no module, or torch cannot export it.
        Refused: It draws random numbers, mixes the records of a batch, or holds an operation without a translation.
    """
    from fedsofim.models.adapters.torch_modules import model_of

    return model_of(module, loss, trainable, rank)


BATCH_STATISTICS = (
    "{where} is {what}, which mixes the statistics of all records of a batch into each of them: then no record's "
    "gradient is its own, and no bound holds for it. Use a layer or group norm, or switch it off ({how})"
)
DROPOUT = (
    "{where} is {what}: a record's gradient has no place for its draws, and the noise that is added anyway does its "
    "work. Take it out, or switch it off ({how})"
)


def taken(given: bool) -> Takes:
    """A module that was given may be trained already, on records as they are."""
    return "records as they are" if given else "as many features"


def missing(package: str) -> InputError:
    return InputError(f"this needs {package}, which is not installed: pip install 'fedsofim[{package}]'")


def checked(module: Any, wanted: str, kind: type, make: Callable[[], Any]) -> Any:
    """The module that was given, or the first one that was made."""
    found = module if isinstance(module, kind) or not callable(module) else make()
    if not isinstance(found, kind):
        raise InputError(f"the module is {type(found).__name__}; expected {wanted}")
    return found
