"""Keras 3 models that run on JAX as models. Importing this file needs keras."""

from typing import Any

import jax

from fedsofim.core.models import Model
from fedsofim.errors import InputError, Refused
from fedsofim.models._network import network
from fedsofim.models.adapters import BATCH_STATISTICS, DROPOUT, checked, missing, taken

try:
    import keras  # pyright: ignore[reportMissingImports]
except ImportError:
    raise missing("keras") from None


def model_of(module: Any) -> Model:
    """Trainable variables are learned, by their paths; all others stay as they are."""
    if keras.backend.backend() != "jax":
        raise InputError(f"Keras runs on {keras.backend.backend()}; set KERAS_BACKEND=jax before it is imported")
    module = checked(module, "a built keras.Model", keras.Model, lambda: None)
    if not module.built:
        raise InputError("the keras.Model has no variables yet; give its first layer an input shape, or call build")
    _check(module)
    names = [v.path for v in module.trainable_variables]
    start = {v.path: v.value for v in module.trainable_variables}
    rest = [v.value for v in module.non_trainable_variables]

    def init(key: jax.Array, shape: tuple[int, ...], outputs: int) -> dict[str, jax.Array]:
        return dict(start)

    def outputs(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        return module.stateless_call([params[name] for name in names], rest, x[None], training=False)[0][0]

    def whole(params: dict[str, jax.Array]) -> Any:
        copy = keras.models.clone_model(module)
        for ours, theirs in zip(copy.variables, module.variables, strict=True):
            ours.assign(params.get(theirs.path, theirs.value))
        return copy

    return network(init, outputs, fixed=rest)._replace(name="from_keras", takes=taken(given=True), module=whole)


def _check(module: Any) -> None:
    for layer in module._flatten_layers(include_self=False):
        kind = f"keras.layers.{type(layer).__name__}"
        if isinstance(layer, keras.layers.BatchNormalization) and layer.trainable:
            raise Refused(BATCH_STATISTICS.format(where=layer.name, what=kind, how="trainable=False"))
        if isinstance(layer, keras.layers.Dropout | keras.layers.SpatialDropout2D) and layer.rate > 0:
            raise Refused(DROPOUT.format(where=layer.name, what=kind, how="rate=0"))
    last = getattr(module.layers[-1], "activation", None) if module.layers else None
    if last in (keras.activations.softmax, keras.activations.sigmoid) or isinstance(
        module.layers[-1], keras.layers.Softmax
    ):
        raise InputError(
            f"{module.layers[-1].name} ends in {getattr(last, '__name__', 'softmax')}; leave that out: the loss is of "
            "the outputs before it"
        )
