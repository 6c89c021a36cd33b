"""Modules of equinox as models. Importing this file needs equinox."""

from typing import Any

import jax

from fedsofim.core.keys import key_of
from fedsofim.core.models import Model
from fedsofim.errors import Refused
from fedsofim.models._network import network
from fedsofim.models.adapters import BATCH_STATISTICS, DROPOUT, checked, missing, taken

try:
    import equinox as eqx  # pyright: ignore[reportMissingImports]
except ImportError:
    raise missing("equinox") from None


def model_of(module: Any) -> Model:
    """Every array of floats is learned, by its path in the module; all else stays as it is."""
    first = checked(
        module, "an equinox.Module, or a function of a key that makes one", eqx.Module, lambda: _made(module)
    )
    _check(first)
    arrays, rest = eqx.partition(first, eqx.is_inexact_array)
    names = list(_by_path(arrays))
    structure, given = jax.tree.structure(arrays), first is module

    def init(key: jax.Array, shape: tuple[int, ...], outputs: int) -> dict[str, jax.Array]:
        return _by_path(arrays if given else eqx.filter(module(key), eqx.is_inexact_array))

    def whole(params: dict[str, jax.Array]) -> Any:
        return eqx.combine(jax.tree.unflatten(structure, [params[name] for name in names]), rest)

    def outputs(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        return whole(params)(x)

    return network(init, outputs, fixed=eqx.filter(rest, eqx.is_array))._replace(
        name="from_equinox", takes=taken(given), module=whole
    )


def _made(module: Any) -> Any:
    return module(key_of(0))


def _by_path(arrays: Any) -> dict[str, jax.Array]:
    return {_name(path): leaf for path, leaf in jax.tree.flatten_with_path(arrays)[0]}


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _check(module: Any) -> None:
    kinds = (eqx.nn.BatchNorm, eqx.nn.Dropout)
    for path, part in jax.tree.flatten_with_path(module, is_leaf=lambda part: isinstance(part, kinds))[0]:
        where = _name(path) or "the module"
        if isinstance(part, eqx.nn.BatchNorm):  # with fixed statistics too: its state is not in the module
            how = "equinox keeps its statistics outside of the module, so not even that helps"
            raise Refused(BATCH_STATISTICS.format(where=where, what="equinox.nn.BatchNorm", how=how))
        if isinstance(part, eqx.nn.Dropout) and part.p > 0 and not part.inference:
            raise Refused(DROPOUT.format(where=where, what="equinox.nn.Dropout", how="inference=True"))
