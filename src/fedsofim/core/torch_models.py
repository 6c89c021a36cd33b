"""`from_torch`: a torch module as a model. Torch and Opacus are imported when it is called, not before."""

from collections.abc import Callable, Sequence
from typing import Any

from fedsofim.core.models import Model
from fedsofim.errors import InputError


def from_torch(
    module: Any,
    loss: Callable[..., Any] | None = None,
    *,
    trainable: str | Sequence[str] | None = None,
    rank: int | None = None,
) -> Model:
    """A `torch.nn.Module` as a model, trained by any method, simulated or on a node; needs the extra torch.

    `loss(outputs, labels)` gives one number a record (reduction="none"); left out it is the task's: of classes,
    cross-entropy. What is trained is what has `requires_grad`, or the layers and parameters that `trainable` names;
    with a `rank`, low-rank adapters beside the linear layers among them. The rest is frozen, and taken to be public. A
    run begins at the module's own weights. The module is copied, and runs in evaluation mode: no dropout, stored
    statistics.

    Gradients of single records come from Opacus, and are clipped and summed here: core/torch_gradient.py.
    `run.model.to_torch()` gives the module back with its new weights.
    """
    try:
        from fedsofim.core.torch.from_module import model_of
    except ImportError as error:
        raise InputError(f"this needs torch and Opacus ({error}): pip install 'fedsofim[torch]'") from None
    return model_of(module, loss, trainable, rank)
