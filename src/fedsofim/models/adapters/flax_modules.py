"""Modules of flax (nnx) as models. Importing this file needs flax."""

from typing import Any

import jax

from fedsofim.core.models import Model
from fedsofim.errors import InputError, Refused
from fedsofim.models._network import network
from fedsofim.models.adapters import BATCH_STATISTICS, DROPOUT, checked, missing, taken

try:
    from flax import nnx  # pyright: ignore[reportMissingImports]
except ImportError:
    raise missing("flax") from None


def model_of(module: Any) -> Model:
    """nnx.Param is learned, as a nested dict by the module's own names; all other state stays as it is."""
    if _is_linen(module):
        raise InputError(
            "the module is one of flax.linen; expected flax.nnx. Wrap it: nnx.bridge.ToNNX(module, rngs=nnx.Rngs(0))"
            ".lazy_init(one record), or write it with nnx"
        )
    first = checked(
        module, "an nnx.Module, or a function of nnx.Rngs that makes one", nnx.Module, lambda: _made(module)
    )
    _check(first)
    graph, learned, rest = nnx.split(first, nnx.Param, ...)
    given = first is module

    def init(key: jax.Array, shape: tuple[int, ...], outputs: int) -> Any:
        found = learned if given else nnx.split(module(nnx.Rngs(key)), nnx.Param, ...)[1]
        return nnx.to_pure_dict(found)

    def whole(params: Any) -> Any:
        state = jax.tree.map(lambda x: x, learned)  # a copy: what follows writes into it
        nnx.replace_by_pure_dict(state, params)
        return nnx.merge(graph, state, rest)

    def outputs(params: Any, x: jax.Array) -> jax.Array:
        return whole(params)(x[None])[0]

    return network(init, outputs, fixed=rest)._replace(name="from_flax", takes=taken(given), module=whole)


def _is_linen(module: Any) -> bool:
    """Is it a module of flax's older interface, or a class of them?"""
    kind = module if isinstance(module, type) else type(module)
    return any(base.__module__.startswith("flax.linen") for base in kind.__mro__)


def _made(module: Any) -> Any:
    return module(nnx.Rngs(0))


def _check(module: Any) -> None:
    for path, part in nnx.iter_modules(module):
        where = ".".join(map(str, path)) or "the module"
        if isinstance(part, nnx.BatchNorm) and not part.use_running_average:
            raise Refused(BATCH_STATISTICS.format(where=where, what="nnx.BatchNorm", how="use_running_average=True"))
        if isinstance(part, nnx.Dropout) and part.rate > 0 and not part.deterministic:
            raise Refused(DROPOUT.format(where=where, what="nnx.Dropout", how="deterministic=True"))
