"""DP-FTRL: follow the regularised leader on noisy running sums, θ_{t+1} = θ_0 - η·Σ_{s<=t} G_s. T releases.

The running sums' noise comes from a binary tree, or is independent with a schedule; what leaves at round t is
the gradient with the change of that noise (mechanisms.py), so the server only adds up. Every record takes
part in every round and the tree is charged for that, exactly: 6139 unit releases at T = 70, 8162 with subtree estimates
(noise="honaker").
"""

import math
from typing import Literal

import optax

from fedsofim.core.door import Facts
from fedsofim.core.mechanisms import Diagonal, Independent, Mischarged, Tree, tree_levels
from fedsofim.core.method import Method, OneGradient, remembered, server_method
from fedsofim.errors import InputError, unknown
from fedsofim.methods._steps import check_steps, gradient_step, scale_by_step, with_published

Noise = Literal["tree", "honaker", "diagonal"]
_NOTE = (
    "NOT PRIVATE AS CLAIMED: as published, T releases are charged as a tree's log2(T) levels, as if a record took "
    "part in one round only"
)


@remembered
def ftrl(
    lr: float | None = None, noise: Noise = "tree", restart: int | None = None, as_published: bool = False
) -> Method:
    """Noisy running sums; lr None is automatic. restart: rounds per tree (1: independent noise)."""
    check_steps(lr=lr)
    tree = Tree(restart, honaker=noise == "honaker")
    if noise not in ("tree", "honaker", "diagonal"):
        raise unknown("noise", noise, ("tree", "honaker", "diagonal"))
    if noise == "diagonal" and (as_published or restart is not None):
        raise InputError("the diagonal schedule has no tree to restart and no published account")

    def optimizer(facts: Facts) -> optax.GradientTransformation:
        spread = 1.0 if noise == "diagonal" else math.sqrt(tree.spread(facts.rounds))
        return scale_by_step(lr, lambda d: gradient_step(facts, d, noise=spread))

    layout = Independent() if restart == 1 else tree  # a tree of one round is a fresh draw
    client = OneGradient(Mischarged(Independent(), tree_levels) if as_published else layout)
    return server_method(
        "ftrl", optimizer, OneGradient(Diagonal) if noise == "diagonal" else client, _NOTE if as_published else ""
    )


#: Numbers that touch no price: a sweep may pass them in (simulation/sweep.py).
SWEPT = ("lr",)

#: Settings behind the published ResNet-20 tables, by epsilon: at true cost, and with the published noise.
PRESETS = with_published({0.5: {"lr": 2.5}, 1.0: {"lr": 3.0}, 5.0: {"lr": 7.0}, 10.0: {"lr": 8.0}})
