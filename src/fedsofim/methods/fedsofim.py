"""DP-FedSOFIM: a second-order server step from the momentum of already private averages. K·T releases, K = 1 as a rule.

direction="momentum" is the form behind the published numbers; "gradient" is the paper's Algorithm 1. blocks="leaf"
keeps a proxy for each array of parameters, where the paper has one for all: a network's layers are then scaled apart.
local_steps=K makes the step on pseudo-gradients of K noisy local steps (_local.py). curvature="rank-one" is the
paper's; "rank-k" and "kronecker" are in _curvature.py, and release nothing more. clip_quantile: a clip that finds
itself (core/clip_search.py).
"""

from typing import Any, Literal, get_args

import jax
import optax

from fedsofim.core.door import Facts
from fedsofim.core.method import Method, remembered
from fedsofim.errors import InputError, one_of
from fedsofim.methods._curvature import grafted, scale_by_kronecker, scale_by_rank_k
from fedsofim.methods._local import on_local_steps
from fedsofim.methods._sofim import Blocks, Direction, Variant, WarmupKind, scale_by_sofim, schedule
from fedsofim.methods._steps import check_not_negative, check_steps, dim, measured, noted, scaled, sofim_step

Curvature = Literal["rank-one", "rank-k", "kronecker"]


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
    local_steps: int = 1,
    client_lr: float | None = None,
    curvature: Curvature = "rank-one",
    rank: int = 4,
    clip_quantile: float | None = None,
) -> Method:
    """Rank-one Fisher proxy of the private averages, inverted by Sherman-Morrison; a step of None is automatic."""
    check_steps(lr=lr)
    check_not_negative(weight_decay=weight_decay)
    both = {"rho": rho, "beta": beta, "direction": direction, "bias_correction": bias_correction}
    one = {**both, "warmup": warmup, "warmup_kind": warmup_kind, "variant": variant, "blocks": blocks}
    rank_one = scale_by_sofim(**one)  # what is wrong is an error now, not inside a compiled run
    schedule(lr_schedule, 1.0, 1)
    _check_curvature(curvature, warmup, variant, blocks)

    def curved(facts: Facts) -> optax.GradientTransformation:
        if curvature == "rank-k":
            return scale_by_rank_k(rank=rank, blocks=blocks, **both)
        if curvature == "kronecker":
            return scale_by_kronecker(rank=rank, noise_std=facts.noise_std, **both)
        return rank_one

    def automatic(facts: Facts, updates: Any) -> Any:
        d = dim(updates)
        if blocks == "model":
            return scaled(-noted("lr", sofim_step(facts, d, rho, beta)), updates)
        leaves, tree = jax.tree.flatten(updates)
        steps = [noted(f"lr of array {i}", sofim_step(facts, d, rho, beta, u.size / d)) for i, u in enumerate(leaves)]
        return tree.unflatten([scaled(-step, u) for step, u in zip(steps, leaves, strict=True)])

    def optimizer(facts: Facts) -> optax.GradientTransformation:
        decay = optax.add_decayed_weights(weight_decay)
        if lr is not None:
            step = optax.scale_by_learning_rate(schedule(lr_schedule, lr, facts.rounds))
            return optax.chain(curved(facts), decay, step)
        step = optax.stateless(lambda updates, params: automatic(facts, updates))
        fade = optax.scale_by_schedule(schedule(lr_schedule, 1.0, facts.rounds))
        scale = rank_one if curvature == "rank-one" else grafted(curved(facts), rank_one)
        return optax.chain(scale, decay, step, fade)

    return on_local_steps("fedsofim", measured(optimizer), local_steps, client_lr, clip_quantile)


def _check_curvature(curvature: str, warmup: int, variant: str, blocks: str) -> None:
    one_of("curvature", curvature, get_args(Curvature))
    if curvature != "rank-one" and (warmup or variant != "full"):
        raise InputError(f"warmup and variant are forms of rank one; with curvature '{curvature}' leave them out")
    if curvature == "kronecker" and blocks != "model":
        raise InputError("curvature 'kronecker' is one matrix for a whole head; with it, blocks is 'model'")


#: Numbers that touch no price: a sweep may pass them in (simulation/sweep.py).
SWEPT = ("lr", "rho", "beta", "weight_decay", "client_lr")

#: Settings behind the published ResNet-20 tables, by epsilon.
PRESETS = {
    "paper-resnet20": {
        0.5: {"lr": 0.2, "rho": 0.5, "beta": 0.95, "bias_correction": True, "warmup": 10},
        1.0: {"lr": 3.0, "rho": 10.0, "beta": 0.8, "bias_correction": True, "warmup": 0},
        5.0: {"lr": 0.8, "rho": 0.5, "beta": 0.9, "bias_correction": False, "warmup": 0},
        10.0: {"lr": 0.8, "rho": 0.5, "beta": 0.9, "bias_correction": False, "warmup": 0},
    }
}
