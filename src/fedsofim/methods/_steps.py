"""Step sizes that need no tuning, and checks on the ones given by hand.

For steps on noisy gradients, |θ_T - θ*| and the loss obey the textbook bound

    D²/(2ηT) + η·(B² + d·σ²)/2,    least at    η = D / sqrt(T·(B² + d·σ²)),

D the distance to go, B the size of a gradient, σ the noise per coordinate of the averaged release. T, d and σ
are public. D and B are not, but both have a natural unit: the clip c is the size of a record's gradient, so
of its features, and a head of size 1/c gives logits of size 1. So D = reach/c and B = early·c, with constants
of core/units.py, fixed once on validation records (docs/methods.md has the table). Rescaling the features and
the clip together by k rescales the step by 1/k², as it must.
"""

import math
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.core import Tracer

from fedsofim.core.door import Facts
from fedsofim.core.sealed import Sealed, unsealed
from fedsofim.core.units import APART
from fedsofim.errors import InputError, expect_whole, is_number, shown


def dim(tree: Any) -> int:
    """How many numbers a pytree of arrays holds."""
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def gradient_step(facts: Facts, d: int, *, local_steps: int = 1, noise: Any = 1.0) -> jax.Array:
    """η = D/sqrt(T·K·(B² + d·(noise·σ)²)) for T·K gradient steps with `noise` times the average's noise.

    >>> round(float(gradient_step(Facts(rounds=70, clients=20, clip=10.0, noise_std=0.07), d=650)), 2)
    0.31
    """
    spread = variance(facts) * d * noise**2
    u = facts.units
    gradient = (u.early * facts.clip) ** 2
    return far(facts, spread) / facts.clip / jnp.sqrt(facts.rounds * local_steps * (gradient + spread))


def far(facts: Facts, spread: Any) -> Any:
    """D·c: the less noise, the more of θ* can be had beyond what is learned first; its root, up to `further`."""
    u = facts.units
    if u.further == 1.0:
        return u.reach
    loud = jnp.sqrt(jnp.maximum(spread, 1e-30)) / facts.clip
    return u.reach * jnp.clip(jnp.sqrt(u.loud / loud), 1.0, u.further)


class Measured(NamedTuple):
    """The state of steps whose reach is read off the first release."""

    reach: jax.Array  # 0: not yet
    inner: Any


def measured(build: Callable[[Facts], optax.GradientTransformation]) -> Callable[[Facts], optax.GradientTransformation]:
    """An optimizer whose automatic steps know how far apart the classes are, from the first average it is given.

    At θ = 0 the gradient of a head holds, for each class, its part of the records times its mean: |G| is about
    Δ/sqrt(C), Δ the distance of the class means from the middle. The farther apart, the larger θ* is. The noise in |G|²
    has the public size d·σ², which is taken off; what is left is held to a factor of two. Post-processing: free.
    """

    def optimizer(facts: Facts) -> optax.GradientTransformation:
        begun = build(facts)  # now: a wrong setting is an error when a method is made

        def init(params: Any) -> Measured:
            return Measured(jnp.zeros((), jnp.float32), begun.init(params))

        def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Measured]:
            reach = jnp.where(state.reach == 0, _reach(facts, updates), state.reach)
            known = facts._replace(units=facts.units._replace(reach=reach))
            steps, inner = build(known).update(updates, state.inner, params)
            return steps, Measured(reach, inner)

        return optax.GradientTransformation(init, update)  # type: ignore[arg-type]

    return optimizer


_USUAL = (0.3, 0.2)  # Δ² before it is measured: about so much, give or take


def _reach(facts: Facts, first: Any) -> jax.Array:
    """|θ*|·c by the first average: from 0.8 to 1.6 times `reach`.

    Δ² = C·(|G|² - d·σ²) has noise of its own, C·sqrt(2d)·σ² where that is all there is; the louder it is, the less is
    it believed beside what is usual.
    """
    u = facts.units
    if not u.classes:
        return jnp.float32(u.reach)
    d, noise = dim(first), variance(facts) / facts.clip**2
    square = sum(jnp.sum(jnp.square(leaf.astype(jnp.float32))) for leaf in jax.tree.leaves(first)) / facts.clip**2
    found, blur = u.classes * (square - d * noise), u.classes * math.sqrt(2 * d) * noise
    usual, spread = _USUAL
    believed = spread**2 / (spread**2 + blur**2)
    apart = jnp.sqrt(jnp.maximum(usual + believed * (found - usual), 0.0))
    return u.reach * jnp.clip(apart, *APART) / 0.5


def variance(facts: Facts) -> jax.Array:
    """σ², as a float32 number."""
    if isinstance(facts.clip, float) and not math.isfinite(facts.clip):  # one that finds itself is no float
        raise InputError("an automatic step size is in units of the clip, which is infinite here; give lr")
    return jnp.square(jnp.asarray(facts.noise_std, jnp.float32))


def preconditioned_step(facts: Facts, d: int, inverse: jax.Array, shrink: jax.Array) -> jax.Array:
    """The rule in the coordinates P^(-1/2)·θ, where a step η·P·G is a plain gradient step.

    There features are shrunk by sqrt(tr(P·A)/tr(A)), so the clip that serves as their unit is too, and the
    noise has d·σ²·tr(P)/(p+1). Where P = I/γ this is γ times the plain step.
    """
    clip2 = facts.clip**2 * shrink
    spread = variance(facts) * d * (jnp.trace(inverse) / inverse.shape[0]).astype(jnp.float32)
    u = facts.units
    return u.reach / jnp.sqrt(facts.rounds * clip2 * (u.early**2 * clip2 + spread))


def sofim_step(facts: Facts, d: int, rho: Any, beta: Any, part: float = 1.0) -> jax.Array:
    """The step times what SOFIM will divide by, ρ + |M|²; the noise in M has d·σ²·(1-β)/(1+β).

    `part` is the part of |M|² that a block has: of the noise it is its part of the numbers, and for want of
    anything better of the rest too.
    """
    size = (facts.units.later * facts.clip) ** 2 + variance(facts) * d * (1 - beta) / (1 + beta)
    return gradient_step(facts, d) * (rho + part * size)


def sign_step(facts: Facts, d: int) -> jax.Array:
    """For Adam's kind, whose steps are divided by their own size sqrt((B² + d·σ²)/d): η = D/sqrt(T·d)."""
    reach = far(facts, variance(facts) * d)
    return jnp.asarray(reach / facts.clip / math.sqrt(facts.rounds * d), jnp.float32)


def local_and_server_step(facts: Facts, d: int, local_steps: int, client_lr: Any, server_lr: Any) -> tuple[Any, Any]:
    """(η_c, η_s) of a method with K local steps; None means automatic.

    A client alone has noise sqrt(n)·σ, so its own step is the rule's for that noise, which keeps it from
    straying; the server's step makes up the difference to the step that the averaged noise allows.
    """
    if client_lr is not None:
        return client_lr, 1.0 if server_lr is None else server_lr
    both = gradient_step(facts, d, local_steps=local_steps)
    alone = gradient_step(facts, d, local_steps=local_steps, noise=math.sqrt(facts.clients))
    eta_c, eta_s = (alone, both / alone) if server_lr is None else (both / server_lr, server_lr)
    return noted("client_lr", eta_c), noted("server_lr", eta_s)


def scale_by_step(lr: Any, automatic: Any) -> optax.GradientTransformation:
    """-lr·update, or -automatic(d)·update where lr is None."""
    if lr is not None:
        return optax.scale_by_learning_rate(lr)
    return optax.stateless(lambda updates, params: scaled(-noted("lr", automatic(dim(updates))), updates))


_NOTED: ContextVar[dict[str, Any] | None] = ContextVar("noted", default=None)


def noted(name: str, step: Any) -> Any:
    """An automatic step, remembered where somebody asks for it (`steps_taken`)."""
    if (kept := _NOTED.get()) is not None:
        kept[name] = step
    return step


def steps_taken(server: Callable, mean: Any, state: Any, params: Any, facts: Facts) -> dict[str, float]:
    """The automatic steps of a method in a state: those its server takes when it is asked once more."""
    return {name: float(step) for name, step in Sealed(_Steps(unsealed(server)))(mean, state, params, facts).items()}


@dataclass(frozen=True)
class _Steps:
    """A server as a function that returns its automatic steps."""

    server: Callable[..., Any]

    def __call__(self, mean: Any, state: Any, params: Any, facts: Facts) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        token = _NOTED.set(kept)
        try:
            self.server(mean, state, params, facts)
        finally:
            _NOTED.reset(token)
        return kept


def scaled(factor: Any, tree: Any) -> Any:
    """factor·tree, in the leaves' own types."""
    return jax.tree.map(lambda leaf: jnp.asarray(factor).astype(leaf.dtype) * leaf, tree)


def with_published(settings: dict[float, dict[str, Any]]) -> dict[str, dict[float, dict[str, Any]]]:
    """Presets of the paper's settings by epsilon: at their true cost, and under the published account."""
    wrong = {epsilon: values | {"as_published": True} for epsilon, values in settings.items()}
    return {"paper-resnet20": settings, "as_published": wrong}


# --- checks; traced numbers (a sweep's) are taken on trust --------------------------------------------------


def check_steps(**values: Any) -> None:
    """Step sizes and the like: above 0, or None for automatic."""
    for name, value in values.items():
        if value is not None and not traced(value) and not (is_number(value) and 0 < value < math.inf):
            raise InputError(f"{name} is {shown(value)}; expected a finite number above 0")


def check_not_negative(**values: Any) -> None:
    for name, value in values.items():
        if not traced(value) and not (is_number(value) and 0 <= value < math.inf):
            raise InputError(f"{name} is {shown(value)}; expected a finite number >= 0")


def check_decay(**values: Any) -> None:
    """Decay rates of running means."""
    for name, value in values.items():
        if not traced(value) and not (is_number(value) and 0 <= value < 1):
            raise InputError(f"{name} is {shown(value)}; expected 0 <= {name} < 1")


def check_share(**values: float) -> None:
    for name, value in values.items():
        if not (is_number(value) and 0 < value < 1):
            raise InputError(f"{name} is {shown(value)}; expected a part of the budget strictly between 0 and 1")


def check_count(**values: Any) -> None:
    for name, value in values.items():
        expect_whole(name, value, 1)


def traced(value: Any) -> bool:
    """A sweep's number, known only at run time."""
    return isinstance(value, Tracer | jax.Array)
