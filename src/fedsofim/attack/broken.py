"""Engines that promise what they do not hold. An attacker who does not catch every one of them proves nothing.

Each takes the engine as it is and breaks one thing in it, the way a mistake would: nothing of the library is patched,
only what is handed to the trials is changed. The promise stays as it was printed.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Literal

from fedsofim.attack.setting import Engine, Setting, honest, programs_for, with_sites
from fedsofim.core import accounting
from fedsofim.core.audit import Program
from fedsofim.core.door import Door
from fedsofim.core.jaxprs import jaxprs_in, releases_in
from fedsofim.core.method import Method, OneGradient, server_method
from fedsofim.core.phase import Phase
from fedsofim.core.trees import subtract
from fedsofim.errors import unknown
from fedsofim.methods import make


def noise_too_small(setting: Setting) -> Engine:
    """Noise of 0.7 times the std that was priced."""
    engine = honest(setting)
    return replace(engine, stds={phase: 0.7 * stds for phase, stds in engine.stds.items()})


def half_sensitivity(setting: Setting) -> Engine:
    """Calibrated as if replacing a record moved a sum by c; it moves it by 2c."""
    engine = honest(setting)
    plan = engine.plan
    wrong = accounting.calibrate([replace(c, ratio=c.ratio / 2) for c in plan.ledger], setting.budget)
    noisy = replace(plan, multipliers=wrong)
    return replace(engine, stds={phase: noisy.stds_by_site(phase) for phase in plan.programs})


def reused_noise(setting: Setting) -> Engine:
    """Every round draws the noise of round 0 again."""
    return replace(honest(setting), round_seen=lambda t: jnp.zeros_like(t))


def no_clipping(setting: Setting) -> Engine:
    """A client that adds up gradients as long as they are."""
    return _with_programs(setting, lambda program: with_sites(program, lambda site: site._replace(clip=1e30)))


def no_sampling(setting: Setting) -> Engine:
    """Priced as reading each record with probability 1/4; reads them all."""
    method = server_method("sampled", _still(), OneGradient(sample=0.25))
    return _with_programs(
        replace(setting, method=method), lambda program: with_sites(program, lambda site: site._replace(sample=1.0))
    )


def noise_twice_in_scan(setting: Setting) -> Engine:
    """Two local steps priced apart, run with one noise: their difference leaves without any.

    This is how a jitted `door.scan` called twice once got past the audit.
    """
    method = Method("curvature", _curvature, lambda mean, state, params, facts: (params, state))
    return _with_programs(replace(setting, method=method), _one_key)


def published_ftrl(setting: Setting) -> Engine:
    """DP-FTRL as published: as many releases as rounds, paid for as log2 of them."""
    return honest(replace(setting, method=make("ftrl", {"as_published": True})))


BROKEN: Mapping[str, Callable[[Setting], Engine]] = {
    "noise-too-small": noise_too_small,
    "half-sensitivity": half_sensitivity,
    "reused-noise": reused_noise,
    "no-clipping": no_clipping,
    "no-sampling": no_sampling,
    "noise-twice-in-scan": noise_twice_in_scan,
    "published-ftrl": published_ftrl,
}


def broken_engine(name: str, setting: Setting) -> Engine:
    """The engine broken in the way of this name."""
    if name not in BROKEN:
        raise unknown("broken engine", name, BROKEN)
    return BROKEN[name](setting)


# --- how they are built -------------------------------------------------------------------------------------


def _with_programs(setting: Setting, change: Callable[[Program], Program]) -> Engine:
    """The engine with its audited programs changed behind the audit's back."""
    engine = honest(setting)

    def programs(clients: int) -> Mapping[Phase, Program]:
        return {phase: change(p) for phase, p in programs_for(setting, engine.plan, clients).items()}

    return replace(engine, programs=programs)


def _still() -> Any:
    import optax

    return optax.sgd(0.0)


def _curvature(door: Door, params: Any, state: Any, memory: Any) -> tuple[Any, Any]:
    """A local step here and one at a neighbouring point, and how they differ."""

    def local(at: Any) -> Any:
        return subtract(door.scan(lambda d, y: subtract(y, d.gradient(y)), at, 1), at)

    here, there = local(params), local(jax.tree.map(lambda p: p.at[:, 0].add(1.0), params))
    return (here, subtract(here, there)), memory


def _one_key(program: Program) -> Program:
    """The program with its first loop of releases run again, key and all, wherever it has another one."""
    inner = program.jaxpr.jaxpr
    first: list[Any] = []

    def equation(eqn: Any) -> Any:
        if not any(releases_in(j) for p in eqn.params.values() for j in jaxprs_in(p)):
            return eqn
        if not first:
            first.append(eqn)
        keys = [v for v in first[0].invars if _is_key(v)]
        given = [keys.pop(0) if _is_key(v) else v for v in eqn.invars]
        return eqn.replace(invars=given, params=first[0].params)

    changed = inner.replace(eqns=[equation(eqn) for eqn in inner.eqns])
    return replace(program, jaxpr=type(program.jaxpr)(changed, program.jaxpr.consts))


def _is_key(atom: Any) -> bool:
    return not isinstance(atom, Literal) and jnp.issubdtype(atom.aval.dtype, jax.dtypes.prng_key)
