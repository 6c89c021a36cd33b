"""DP-FedSOFIM: a second-order server step at O(d) from the momentum of already private averages. T releases.

direction="momentum" is the form behind the published numbers; "gradient" is the paper's Algorithm 1. blocks="leaf"
keeps a proxy for each array of parameters, where the paper has one for all: a network's layers are then scaled apart.
"""

from typing import Any

import jax
import optax

from fedsofim.core.door import Facts
from fedsofim.core.method import Method, remembered, server_method
from fedsofim.methods._sofim import Blocks, Direction, Variant, WarmupKind, scale_by_sofim, schedule, sofim
from fedsofim.methods._steps import check_not_negative, check_steps, dim, measured, noted, scaled, sofim_step


@remembered
def fedsofim(
    lr: float | None = None,
    rho: float = 0.5,
    beta: float = 0.9,
    bias_correction: bool = False,
    warmup: int = 0,
    direction: Direction = "momentum",
    weight_decay: float = 5e-4,
    warmup_kind: WarmupKind = "hard",
    variant: Variant = "full",
    lr_schedule: str = "constant",
    blocks: Blocks = "model",
) -> Method:
    """Rank-one Fisher proxy of the private averages, inverted by Sherman-Morrison; lr None is automatic."""
    check_steps(lr=lr)
    check_not_negative(weight_decay=weight_decay)
    settings = {
        "rho": rho,
        "beta": beta,
        "direction": direction,
        "bias_correction": bias_correction,
        "warmup": warmup,
        "warmup_kind": warmup_kind,
        "variant": variant,
        "blocks": blocks,
    }
    scale_by_sofim(**settings)  # what is wrong is an error now, not inside a compiled run
    schedule(lr_schedule, 1.0, 1)

    def automatic(facts: Facts, updates: Any) -> Any:
        d = dim(updates)
        if blocks == "model":
            return scaled(-noted("lr", sofim_step(facts, d, rho, beta)), updates)
        leaves, tree = jax.tree.flatten(updates)
        steps = [noted(f"lr of array {i}", sofim_step(facts, d, rho, beta, u.size / d)) for i, u in enumerate(leaves)]
        return tree.unflatten([scaled(-step, u) for step, u in zip(steps, leaves, strict=True)])

    def optimizer(facts: Facts) -> optax.GradientTransformation:
        if lr is not None:
            return sofim(schedule(lr_schedule, lr, facts.rounds), weight_decay, **settings)
        step = optax.stateless(lambda updates, params: automatic(facts, updates))
        fade = optax.scale_by_schedule(schedule(lr_schedule, 1.0, facts.rounds))
        return optax.chain(scale_by_sofim(**settings), optax.add_decayed_weights(weight_decay), step, fade)

    return server_method("fedsofim", measured(optimizer))


#: Numbers that touch no price: a sweep may pass them in (simulation/sweep.py).
SWEPT = ("lr", "rho", "beta", "weight_decay")

#: Settings behind the published ResNet-20 tables, by epsilon.
PRESETS = {
    "paper-resnet20": {
        0.5: {"lr": 0.2, "rho": 0.5, "beta": 0.95, "bias_correction": True, "warmup": 10},
        1.0: {"lr": 3.0, "rho": 10.0, "beta": 0.8, "bias_correction": True, "warmup": 0},
        5.0: {"lr": 0.8, "rho": 0.5, "beta": 0.9, "bias_correction": False, "warmup": 0},
        10.0: {"lr": 0.8, "rho": 0.5, "beta": 0.9, "bias_correction": False, "warmup": 0},
    }
}
