"""`from_torch`: a torch module as a model of this library."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]

from fedsofim.core.models import Model
from fedsofim.core.torch.adapter import chosen, merged
from fedsofim.core.torch.network import TorchNetwork
from fedsofim.core.torch_gradient import TorchGradient
from fedsofim.errors import InputError, Refused


def model_of(
    module: nn.Module, loss: Callable[..., Any] | None, trainable: str | Sequence[str] | None, rank: int | None
) -> Model:
    """The model; see `fedsofim.from_torch`."""
    if not isinstance(module, nn.Module):
        raise InputError(f"from_torch was given a {type(module).__name__}; expected a torch.nn.Module")
    mine = chosen(module, trainable, rank)
    network = TorchNetwork.of(mine, each_alone(loss))
    names = tuple(network.shapes)
    start = dict(zip(names, network.initial(), strict=True))

    def init(key: Any, shape: tuple[int, ...], classes: int) -> dict[str, Any]:
        """The module's own weights, whatever the key: a pretrained one begins where it ended."""
        return {name: jnp.asarray(value) for name, value in start.items()}

    def logits(params: Any, x: Any) -> Any:
        out = network.predicted([start[n] for n in names], np.zeros((2, *x.shape[1:]), np.float32))
        shape = jax.ShapeDtypeStruct((x.shape[0], *out.shape[1:]), jnp.float32)

        def on_host(x: Any, *leaves: Any) -> np.ndarray:
            return network.predicted([np.asarray(leaf) for leaf in leaves], np.asarray(x))

        return jax.pure_callback(on_host, shape, x, *jax.tree.leaves(params), vmap_method="sequential")

    gradient = TorchGradient(network)
    return Model(
        init,
        no_loss,
        logits,
        gradient,
        name="from_torch",
        takes="records as they are",  # it may be trained already, on such
        module=lambda params: module_with(gradient, params),
    )


def no_loss(params: Any, x: Any, y: Any) -> Any:
    """JAX has no loss of a torch module: its gradient comes from torch."""
    raise Refused(
        "the loss of a torch module is torch's, and JAX cannot differentiate it; use door.gradient. Parts of a module "
        "are trained by from_torch's trainable= and rank="
    )


def each_alone(loss: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """A loss that gives one number a record; None is left to the task."""
    if isinstance(loss, nn.Module) and hasattr(loss, "reduction"):
        alone: Any = copy.deepcopy(loss)
        alone.reduction = "none"
        return alone
    return loss


def module_with(gradient: TorchGradient, params: Any) -> nn.Module:
    """A copy of the module with these parameters in it, and adapters added into their layers."""
    network = gradient.network
    module = copy.deepcopy(network.origin)
    leaves = dict(zip(network.shapes, jax.tree.leaves(params), strict=True))
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name in leaves:
                parameter.copy_(torch.from_numpy(np.array(leaves[name])))
    return merged(module).eval()
