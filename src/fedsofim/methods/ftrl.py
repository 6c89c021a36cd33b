"""DP-FTRL: follow the regularised leader on noisy running sums, θ_{t+1} = θ_0 - η·Σ_{s<=t} G_s. T releases.

The running sums' noise comes from a binary tree, or is independent with a schedule; what leaves at round t is
the gradient with the change of that noise (mechanisms.py), so the server only adds up. Every record takes
part in every round and the tree is charged for that, exactly: 6139 unit releases at T = 70, 8162 with subtree estimates
(noise="honaker"). Where clients take turns, a tree or a schedule goes over the rounds in which a client is asked; under
secure sum noise="banded" goes over all of them, and takes back in later rounds what it added in earlier ones
(core/banded.py).
"""

import math
from typing import Literal, get_args

import optax

from fedsofim.core.banded import Banded
from fedsofim.core.door import Facts
from fedsofim.core.mechanisms import Diagonal, Independent, Mischarged, Tree, tree_levels
from fedsofim.core.method import Method, OneGradient, remembered, server_method
from fedsofim.core.participation import times_asked
from fedsofim.errors import InputError, unknown
from fedsofim.methods._steps import check_steps, gradient_step, scale_by_step, with_published

Noise = Literal["tree", "honaker", "diagonal", "banded"]
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
    if noise not in get_args(Noise):
        raise unknown("noise", noise, get_args(Noise))
    if noise in _LAID_OUT and (as_published or restart is not None):
        raise InputError(f"{noise} noise has no tree to restart and no published account")

    def optimizer(facts: Facts) -> optax.GradientTransformation:
        return scale_by_step(lr, lambda d: gradient_step(facts, d, noise=math.sqrt(_spread(noise, tree, facts))))

    layout = Independent() if restart == 1 else tree  # a tree of one round is a fresh draw
    client = OneGradient(Mischarged(Independent(), tree_levels) if as_published else layout)
    if noise in _LAID_OUT:
        client = OneGradient(_LAID_OUT[noise])
    return server_method("ftrl", optimizer, client, _NOTE if as_published else "")


def _diagonal(facts: Facts) -> Diagonal:
    return Diagonal(times_asked(facts.rounds, facts.groups))


def _banded(facts: Facts) -> Banded:
    return Banded(facts.rounds, facts.groups)


_LAID_OUT = {"diagonal": _diagonal, "banded": _banded}


def _spread(noise: Noise, tree: Tree, facts: Facts) -> float:
    """Noise variance of the running sums over that of independent noise of the same std; each group has a tree."""
    if noise == "banded":
        return _banded(facts).spread(facts.rounds)
    return 1.0 if noise == "diagonal" else tree.spread(times_asked(facts.rounds, facts.groups))


#: Numbers that touch no price: a sweep may pass them in (simulation/sweep.py).
SWEPT = ("lr",)

#: Settings behind the published ResNet-20 tables, by epsilon: at true cost, and with the published noise.
PRESETS = with_published({0.5: {"lr": 2.5}, 1.0: {"lr": 3.0}, 5.0: {"lr": 7.0}, 10.0: {"lr": 8.0}})
