"""Torch modules as models: exported, translated into JAX, and given back. Importing this file needs torch.

The module's Python runs in `torch.export` and in a check by numbers, both on made-up records and before a record is
there; what runs on records is the translation, a function of JAX of one record that the audit reads like any other.
"""

import copy
import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim.core.models import Fixed, Model
from fedsofim.errors import InputError
from fedsofim.models._network import network
from fedsofim.models.adapters import missing
from fedsofim.models.adapters.torch_programs import Program, last_operation

try:
    import torch  # pyright: ignore[reportMissingImports]
    from torch import nn  # pyright: ignore[reportMissingImports]

    from fedsofim.models.adapters.torch_check import (
        check_layers,
        check_loss,
        check_not_random,
        check_translation,
    )
    from fedsofim.models.adapters.torch_export import (
        Numbers,
        apart,
        check_plain,
        exported,
        made_up,
        numbers_of,
        program_of,
    )
    from fedsofim.models.adapters.torch_trainable import chosen, merged
except ImportError:
    raise missing("torch") from None

Label = tuple[tuple[int, ...], str]  # of one record: its shape, and "i" or "f"


def model_of(
    module: Any, loss: Callable[..., Any] | None, trainable: str | Sequence[str] | None, rank: int | None
) -> Model:
    """The model; see `fedsofim.from_torch`."""
    if not isinstance(module, nn.Module) or isinstance(module, torch.jit.ScriptModule):
        raise InputError(f"from_torch was given a {type(module).__name__}; expected a torch.nn.Module")
    apart(lambda: check_plain(module))
    origin = apart(lambda: chosen(module, trainable, rank))
    translated: Translated = apart(lambda: Translated(origin, loss))
    start = translated.numbers.trained

    def init(key: jax.Array, shape: tuple[int, ...], outputs: int) -> dict[str, jax.Array]:
        translated.read(tuple(shape), outputs)
        return dict(start)  # whatever the key: a pretrained module begins where it ended

    def of_one(params: Any, x: jax.Array) -> jax.Array:
        return translated.program(x.shape)(params, x[None].astype(jnp.float32))[0]

    def own_loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        z = translated.program(x.shape)(params, x[None].astype(jnp.float32))
        return translated.loss_program(x.shape, y)({}, z, y[None]).reshape(())

    how: dict[str, Any] = {
        "name": "from_torch",
        "takes": "records as they are",  # it may be trained already, on such
        "module": lambda params: apart(lambda: module_with(origin, params)),
        "fixed": Fixed(translated.constants),
    }
    if loss is None:
        return network(init, of_one)._replace(**how)
    return Model(init, own_loss, jax.vmap(of_one, (None, 0)), **how)


class Translated:
    """A module's translations, one for each shape of a record.

    Only `read` runs the module's Python. A run reads it where its parameters begin, from a record's shape alone; where
    records are in reach, a shape that was not read is an error.
    """

    def __init__(self, origin: nn.Module, loss: Callable[..., Any] | None) -> None:
        check_layers(origin)
        self.modes = {name: part.training for name, part in origin.named_modules()}
        self.origin = origin.eval()
        self.numbers = numbers_of(origin)
        self.loss = None if loss is None else _Loss(loss)
        self.constants: list[jax.Array] = []  # of all translations: they are public
        self._programs: dict[tuple[int, ...], Program] = {}
        self._losses: dict[tuple[int, ...], dict[Label, Program | InputError]] = {}
        self._busy = threading.Lock()

    def program(self, shape: tuple[int, ...]) -> Program:
        """The translation for records of a shape that was read."""
        found = self._programs.get(tuple(shape))
        if found is None:
            read = ", ".join(map(str, self._programs)) or "none"
            raise InputError(f"the torch module was read for records of shape {read}, not {tuple(shape)}")
        return found

    def loss_program(self, shape: tuple[int, ...], y: jax.Array) -> Program:
        """The translation of the module's own loss for such a label."""
        label = tuple(y.shape), "f" if jnp.issubdtype(y.dtype, jnp.floating) else "i"
        found = self._losses[tuple(shape)].get(label)
        if isinstance(found, Program):
            return found
        raise found or InputError(f"the torch loss was not read for labels of shape {tuple(y.shape)}")

    def read(self, shape: tuple[int, ...], outputs: int) -> None:
        """Export, translate and check the module for records of this shape, once."""
        with self._busy:
            if shape not in self._programs:
                program, losses = apart(lambda: self._read(shape, outputs))
                self.constants += [a for p in (program, *losses.values()) if isinstance(p, Program) for a in _held(p)]
                self._losses[shape], self._programs[shape] = losses, program

    def _read(self, shape: tuple[int, ...], outputs: int) -> tuple[Program, dict[Label, Program | InputError]]:
        record = made_up(shape)
        program = program_of(exported(copy.deepcopy(self.origin), [record]), self.numbers)
        check_not_random(self.origin, self.modes, record)
        if program.out.dtype != jnp.float32 or not program.out.shape or program.out.shape[0] != 1:
            raise InputError(
                f"the torch module gives shape {program.out.shape} of {program.out.dtype} for one record; expected "
                "(1, outputs) of float32"
            )
        if self.loss is None:
            _check_outputs(program, outputs)
        check_translation(self.origin, program, self.numbers.trained, shape)
        return program, {} if self.loss is None else self._read_losses(program.out.shape, outputs)

    def _read_losses(self, shape: tuple[int, ...], outputs: int) -> dict[Label, Program | InputError]:
        """The loss for every kind of label that a task has; an error where torch's loss does not take it."""
        labels: list[Label] = [((), "i"), ((), "f"), ((outputs,), "f"), ((outputs,), "i")]
        found: dict[Label, Program | InputError] = {}
        for label in labels:
            try:
                found[label] = self._read_loss(shape, label, outputs)
            except InputError as error:
                found[label] = error
        return found

    def _read_loss(self, shape: tuple[int, ...], label: Label, outputs: int) -> Program:
        assert self.loss is not None
        of, kind = label
        rng = np.random.default_rng(2)
        z = rng.normal(size=(3, *shape[1:])).astype(np.float32)
        y = rng.integers(0, max(1, outputs), (3, *of)) if kind == "i" else rng.uniform(size=(3, *of)).astype(np.float32)
        given = [torch.from_numpy(z[:1].copy()), torch.from_numpy(y[:1].copy())]
        program = program_of(exported(copy.deepcopy(self.loss), given), _fixed(numbers_of(self.loss)))
        if program.out.dtype != jnp.float32 or np.prod(program.out.shape) != 1:
            raise InputError(
                f"the torch loss gives shape {program.out.shape} for one record; expected one number: a loss with "
                "reduction='none', and summed or averaged over a record's own axes"
            )
        check_loss(copy.deepcopy(self.loss), program, z, y)
        return program


class _Loss(nn.Module):
    """A loss of (outputs, labels), of a batch."""

    def __init__(self, loss: Callable[..., Any]) -> None:
        super().__init__()
        self.loss: Any = loss
        if isinstance(loss, nn.Module):
            self.loss = copy.deepcopy(loss)
            if hasattr(loss, "reduction"):
                self.loss.reduction = "none"

    def forward(self, outputs: Any, labels: Any) -> Any:
        return self.loss(outputs, labels)


def _fixed(numbers: Numbers) -> Numbers:
    if numbers.trained:
        raise InputError(f"the torch loss has trained parameters ({next(iter(numbers.trained))}); expected none")
    return numbers


def _held(program: Program) -> list[jax.Array]:
    return list(program.constants.values())


_ENDS = {"_softmax": "softmax", "_log_softmax": "log_softmax", "sigmoid": "sigmoid"}


def _check_outputs(program: Program, outputs: int) -> None:
    """The task's loss is of outputs before a softmax, one for each class."""
    if end := _ENDS.get(last_operation(program).split(".")[0]):
        raise InputError(
            f"the torch module ends in {end}; leave that out: the loss is of the outputs before it. Or give a loss of "
            "your own: from_torch(net, loss)"
        )
    if program.out.shape != (1, outputs):
        raise InputError(
            f"the torch module gives shape {program.out.shape[1:]} for a record; expected {outputs} numbers, as many "
            "as the task has outputs"
        )


def module_with(origin: nn.Module, params: Any) -> nn.Module:
    """A copy of the module with these parameters in it, and adapters added into their layers."""
    module = copy.deepcopy(origin)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name in params:
                parameter.copy_(torch.from_numpy(np.array(params[name])))
    return merged(module).eval()
