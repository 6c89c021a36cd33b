"""Second-order server steps as optax transformations.

SOFIM keeps M_t = β·M_{t-1} + (1-β)·G_t and preconditions by F = M̂ M̂ᵀ + ρI, whose inverse is, by Sherman and
Morrison,

    H = I/ρ - M̂ M̂ᵀ / (ρ·(ρ + |M̂|²)),

so a step costs two inner products: O(d) time, one buffer of d numbers. M̂ = M/(1-β^(t+1)) with bias correction.

One F for all parameters (`blocks="model"`, the paper's), or one for each array of them (`blocks="leaf"`): F is then
block-diagonal, with a proxy M̂_l M̂_lᵀ + ρI for layer l, and each layer's step is divided by its own ρ + |M̂_l|². The
cost is the same.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import optax

from fedsofim.errors import InputError, is_number, is_whole, one_of, shown, unknown
from fedsofim.methods._steps import check_decay, traced
from fedsofim.native.momentum import fits, momentum_pass

Direction = Literal["momentum", "gradient"]
Variant = Literal["full", "ema-only", "grad-only"]
WarmupKind = Literal["hard", "blend"]
Blocks = Literal["model", "leaf"]


class SofimState(NamedTuple):
    t: jax.Array  # updates made so far
    momentum: Any


@dataclass(frozen=True, kw_only=True)
class Form:
    """Which of SOFIM's forms, and the two numbers a step of it needs. Traced numbers (a sweep's) are taken on trust."""

    rho: Any
    direction: Direction
    warmup: int
    warmup_kind: WarmupKind
    variant: Variant

    def __post_init__(self) -> None:
        one_of("direction", self.direction, get_args(Direction))
        one_of("warmup_kind", self.warmup_kind, get_args(WarmupKind))
        one_of("variant", self.variant, get_args(Variant))
        if not traced(self.rho) and not (is_number(self.rho) and self.rho > 0):
            raise InputError(f"rho is {shown(self.rho)}; expected a number above 0, or F has no inverse")
        if not is_whole(self.warmup) or self.warmup < 0:
            raise InputError(f"warmup is {shown(self.warmup)}; expected a number of rounds >= 0")

    @property
    def from_momentum(self) -> bool:
        """Is the step a multiple of M, so that G need not be read again?"""
        return self.variant == "ema-only" or (self.variant == "full" and self.direction == "momentum")

    def coefficients(self, square: Any, along: Any, correct: Any, t: Any) -> tuple[jax.Array, jax.Array]:
        """Numbers (a, b) with step = a·G + b·M, from |M|², M·G and the factor that M̂ is of M."""
        rho, zero = self.rho, jnp.zeros_like(correct)
        ema, grad = (zero, correct / rho), (zero + 1 / rho, zero)
        if self.variant != "full":
            return ema if self.variant == "ema-only" else grad
        size = correct**2 * square  # |M̂|²
        if self.direction == "momentum":
            plain, full = ema, (zero, correct / (rho + size))
        else:
            plain, full = grad, (grad[0], -(correct**2) * along / (rho * (rho + size)))
        if not self.warmup:
            return full
        if self.warmup_kind == "hard":
            return jnp.where(t < self.warmup, zero, full[0]), jnp.where(t < self.warmup, correct, full[1])
        mix = jnp.minimum(t / self.warmup, 1.0)
        return (1 - mix) * plain[0] + mix * full[0], (1 - mix) * plain[1] + mix * full[1]


def scale_by_sofim(
    rho: float = 0.5,
    beta: float = 0.9,
    direction: Direction = "momentum",
    bias_correction: bool = True,
    warmup: int = 0,
    warmup_kind: WarmupKind = "hard",
    variant: Variant = "full",
    blocks: Blocks = "model",
) -> optax.GradientTransformation:
    """Precondition updates by the rank-one Fisher proxy of their own momentum.

    direction="momentum": H·M̂ = M̂/(ρ + |M̂|²); "gradient": H·G = G/ρ - M̂·(M̂·G)/(ρ² + ρ|M̂|²).
    warmup W, "hard": the first W updates are M̂, not preconditioned; "blend": (1-λ)·u/ρ + λ·H·u with u the chosen
    direction and λ = min(1, t/W). variant "ema-only": M̂/ρ; "grad-only": G/ρ. blocks "model": one proxy for all
    parameters; "leaf": one for each array.

    >>> optimizer = optax.chain(scale_by_sofim(rho=0.5, beta=0.9), optax.scale_by_learning_rate(0.8))
    >>> params = {"w": jnp.ones(3)}
    >>> state = optimizer.init(params)
    >>> updates, state = optimizer.update({"w": jnp.ones(3)}, state)
    >>> [round(float(u), 4) for u in updates["w"]]  # -0.8 · 1/(0.5 + 3)
    [-0.2286, -0.2286, -0.2286]
    """
    form = Form(rho=rho, direction=direction, warmup=warmup, warmup_kind=warmup_kind, variant=variant)
    check_decay(beta=beta)
    one_of("blocks", blocks, get_args(Blocks))

    def init(params: Any) -> SofimState:
        return SofimState(jnp.zeros((), jnp.int32), jax.tree.map(jnp.zeros_like, params))

    def update(updates: Any, state: SofimState, params: Any = None) -> tuple[Any, SofimState]:
        del params
        real = _scalar_type(state.momentum)
        # M̂ is M times a scalar: keep the scalar, so that no second buffer is needed
        t = state.t.astype(real)
        correct = 1 / (1 - beta ** (t + 1)) if bias_correction else jnp.ones((), real)
        old, tree = jax.tree.flatten(state.momentum)
        gradients = jax.tree.leaves(updates)
        found = [_leaf_products(m, g, beta) for m, g in zip(old, gradients, strict=True)]
        momenta = [m for m, _, _ in found]
        products = _products([products for _, *products in found], real, blocks)
        factors = [form.coefficients(square, along, correct, t) for square, along in products]
        if form.from_momentum:
            steps = [b.astype(m.dtype) * m for (_, b), m in zip(factors, momenta, strict=True)]
        else:
            triples = zip(factors, gradients, momenta, strict=True)
            steps = [a.astype(g.dtype) * g + b.astype(g.dtype) * m for (a, b), g, m in triples]
        step, momentum = jax.tree.unflatten(tree, steps), jax.tree.unflatten(tree, momenta)
        return step, SofimState(state.t + 1, momentum)

    return optax.GradientTransformation(init, update)  # type: ignore[arg-type]


def sofim(
    learning_rate: optax.ScalarOrSchedule, weight_decay: float = 0.0, **kwargs: Any
) -> optax.GradientTransformation:
    """SOFIM with a step size and decoupled weight decay: theta -= η·(step + λ·theta)."""
    return optax.chain(
        scale_by_sofim(**kwargs), optax.add_decayed_weights(weight_decay), optax.scale_by_learning_rate(learning_rate)
    )


def schedule(kind: str, peak: Any, rounds: int) -> optax.Schedule:
    """Step size over the rounds of a run.

    >>> [round(float(schedule("linear", 1.0, 4)(t)), 2) for t in range(4)]
    [1.0, 0.75, 0.5, 0.25]
    """
    kinds: dict[str, Callable[[Any], Any]] = {
        "constant": lambda t: peak,
        "linear": lambda t: peak * (1 - t / rounds),
        "cosine": lambda t: peak * 0.5 * (1 + jnp.cos(jnp.pi * t / rounds)),
        "inverse-sqrt": lambda t: peak / jnp.sqrt(1.0 + t),
    }
    if kind not in kinds:
        raise unknown("schedule", kind, kinds)
    return kinds[kind]


def _scalar_type(tree: Any) -> Any:
    """Inner products are kept in float32 or better, whatever the leaves are stored in."""
    return jnp.float64 if any(leaf.dtype == jnp.float64 for leaf in jax.tree.leaves(tree)) else jnp.float32


def _products(found: list[Any], real: Any, blocks: Blocks) -> list[tuple[jax.Array, jax.Array]]:
    """(|M|², M·G) of the block that each leaf is in. XLA drops a sum that nobody uses."""
    own = [(square.astype(real), along.astype(real)) for square, along in found]
    if blocks == "leaf":
        return own
    zero = jnp.zeros((), real)
    return [tuple(sum((leaf[i] for leaf in own), zero) for i in (0, 1))] * len(own)  # type: ignore[list-item]


def _leaf_products(m: jax.Array, g: jax.Array, beta: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(M, |M|², M·G) of one leaf, M = β·(the last M) + (1-β)·G."""
    if fits(m, g):
        return momentum_pass(m, g, beta)
    real = _scalar_type((m, g))
    m = beta * m + (1 - beta) * g
    x, y = m.astype(real), g.astype(real)
    return m, jnp.sum(x * x), jnp.sum(x * y)
