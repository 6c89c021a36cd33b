"""Many settings and seeds of one method in one compiled program: the settings travel in the server's state.

A method's numbers are normally constants of its program, so each setting compiles anew, and compiling takes longer
than running. Here some are inputs: those that the method declares (`SWEPT`), which touch no price. The ledger is read
from this program as from any other, and every setting of those numbers costs the same. All others are compiled in.

A number that travels in the state is not known where a method is built, priced or asked once. There it is a value that
nothing can be computed from: whatever tries is an error, so a wrong declaration cannot run as another setting.
"""

import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim import methods
from fedsofim.core.budget import Budget
from fedsofim.core.clip_search import AdaptiveGradient
from fedsofim.core.clipped_sums import fused
from fedsofim.core.cohort import Carry, Cohort
from fedsofim.core.isolation import call_apart
from fedsofim.core.method import Method, Setup
from fedsofim.core.models import Model
from fedsofim.core.phase import Phase
from fedsofim.core.plan import Plan, Trust, Weights
from fedsofim.core.pooled import can_pool
from fedsofim.core.records import Records
from fedsofim.core.sealed import Sealed, unsealed
from fedsofim.data.partition import Split
from fedsofim.simulation import simulator
from fedsofim.simulation.preparing import prepare
from fedsofim.simulation.simulator import Static, Trace
from fedsofim.simulation.training import Given, planned

_NUMBERS = 2**24  # numbers in the largest array of a sweep


def score(
    split: Split, name: str, settings: list[dict[str, Any]], budget: Budget, rounds: int, *, seed: int = 0, **how: Any
) -> np.ndarray:
    """Final accuracy on `split`'s test part of each of the settings; NaN where parameters overflowed."""
    return scores(split, name, settings, budget, rounds, seeds=(seed,), **how)[:, 0]


def scores(
    split: Split,
    name: str,
    settings: list[dict[str, Any]],
    budget: Budget,
    rounds: int,
    *,
    seeds: Sequence[int],
    recipe: str = "paper",
    clip: float | None = None,
    trust: Trust = "local",
    weights: Weights | None = None,
    model: Model | None = None,
) -> np.ndarray:
    """The same for several seeds: accuracies (settings, seeds), all from one compiled program."""
    out = np.full((len(settings), len(seeds)), np.nan)
    groups: dict[tuple, list[int]] = {}
    for i, given in enumerate(settings):
        groups.setdefault(divided(given, name)[:2], []).append(i)
    for (fixed, numbers), rows in groups.items():
        given = Given(method=sweepable(name, fixed, numbers), rounds=rounds, clip=clip, weights=weights, model=model)
        plan = planned(split, budget, recipe=recipe, trust=trust, given=given)[0]
        out[rows] = _prepared_scores(plan, split, [divided(settings[i], name)[2] for i in rows], seeds)
    return out


def sweepable(name: str, fixed: tuple[tuple[str, Any], ...], numbers: tuple[str, ...]) -> Method:
    """A method whose `numbers` are read from the state (hyper, its own state) instead of being constants."""
    return call_apart(_sweepable, methods.factory(name), fixed, numbers)


@lru_cache(maxsize=256)  # by the factory: a file that has changed has a new one
def _sweepable(factory: Callable[..., Method], fixed: tuple[tuple[str, Any], ...], numbers: tuple[str, ...]) -> Method:
    def build(hyper: Any) -> Method:
        return factory(**dict(fixed), **{n: hyper[i] for i, n in enumerate(numbers)})

    plain = _without_numbers(build, len(numbers))

    def client(door: Any, params: Any, state: Any, memory: Any) -> tuple[Any, Any]:
        return build(state[0]).client(door, params, state[1], memory)

    def server(mean: Any, state: Any, params: Any, facts: Any) -> tuple[Any, Any]:
        params, inner = build(state[0]).server(mean, state[1], params, facts)
        return params, (state[0], inner)

    def one_shot(mean: Any, state: Any) -> Any:
        setup = build(state[0]).setup
        assert setup is not None
        return state[0], setup.server(mean, state[1])

    return plain._replace(
        client=_inside(plain.client) if can_pool(plain) else client,
        server=server,
        init=Begin(build, len(numbers)),
        setup=None if plain.setup is None else Setup(plain.setup.client, one_shot),
    )


def _inside(client: Any) -> Any:
    """A client that reads no numbers; what it reads of the server's state is beside them."""
    return replace(client, state_of=itemgetter(1)) if type(client) is AdaptiveGradient else client


def _without_numbers(build: Callable[[Any], Method], count: int) -> Method:
    """The method with numbers that are known nowhere: JAX raises where one is used. For all that reads none of them."""
    kept: list[Method] = []
    jax.eval_shape(lambda hyper: kept.append(build(hyper)), jax.ShapeDtypeStruct((count,), jnp.float32))
    return kept[0]


@dataclass(frozen=True, eq=False)
class Begin:
    """The server's state before round 1: the numbers of a setting, and what the method begins with under them."""

    build: Callable[[Any], Method]
    count: int

    def __call__(self, params: Any) -> Any:
        """Its form. The numbers are none, so that a run which is never given any ends in none."""
        return self.given(jnp.full(self.count, jnp.nan, jnp.float32), params)

    def given(self, hyper: Any, params: Any) -> Any:
        return hyper, self.build(hyper).init(params)


def _given(init: Any) -> Sealed:
    """`Begin.given` of a sweepable method, sealed like all that a method brings."""
    begin: Any = unsealed(init)
    return Sealed(begin.given)


@partial(jax.jit, static_argnums=0)
def _begin(init: Any, hyper: Any, params: Any) -> Any:
    return _given(init)(hyper, params)


def divided(settings: dict[str, Any], method: str) -> tuple[tuple, tuple[str, ...], np.ndarray]:
    """What is compiled in, the names of the numbers that are not, and those numbers.

    >>> divided({"lr": 0.5, "warmup": 10}, "fedsofim")
    ((('warmup', 10),), ('lr',), array([0.5], dtype=float32))
    """
    may = methods.swept(method)
    numbers = tuple(sorted(k for k, v in settings.items() if k in may and isinstance(v, float)))
    fixed = tuple(sorted((k, v) for k, v in settings.items() if k not in numbers))
    return fixed, numbers, np.array([settings[n] for n in numbers], np.float32)


def simulate_with(plan: Plan, split: Split, seed: int, hyper: np.ndarray, every: int = 1) -> tuple[Any, Trace]:
    """`simulate` for a sweepable method with these numbers: all settings, budgets and seeds share one program."""
    init_key, noise_key = simulator.keys(seed)
    cohort = simulator.cohort_of(plan, split, noise_key, plan.pooled, _laid(plan, split))
    carry = start_with(plan, cohort, split, init_key, hyper)
    end, trace = simulator.run_rounds(Static.of(plan, plan.pooled, every), cohort, split, carry)
    return end.params, trace


class _Laid:
    """The records as the last run had them laid out: a grid runs the same ones a hundred times. Forgotten with them."""

    def __init__(self) -> None:
        self.split: Callable[[], Split | None] = lambda: None
        self.kind, self.records = None, None

    def __call__(self, plan: Plan, split: Split) -> Records:
        kind = (plan.pooled, plan.program.sites[0].query.tile, plan.factors.tobytes())
        if self.records is None or self.split() is not split or self.kind != kind:
            self.records = None  # before the new ones are made: never two in memory
            self.records = simulator.layout(plan, split, plan.pooled)
            self.split, self.kind = weakref.ref(split, self._forget), kind
        return self.records

    def _forget(self, split: Any) -> None:
        if split is self.split:
            self.records = None


_laid = _Laid()


def start_with(plan: Plan, cohort: Cohort, split: Split, key: jax.Array, hyper: np.ndarray) -> Carry:
    """What a run starts from, with its numbers in the state; one-shot releases come after they are there."""
    carry = simulator.start(plan, split, key)
    state = _begin(plan.method.init, jax.device_put(hyper), carry.params)
    return simulator.set_up(plan, cohort, split, carry._replace(state=state))


class Start(NamedTuple):
    """Where the runs of one seed start: arrays, so that many can be stacked."""

    key: jax.Array  # of the run's noise
    setup: Any  # the mean of the one-shot releases, if the method has them
    carry: Carry


def _prepared_scores(plan: Plan, split: Split, values: list[np.ndarray], seeds: Sequence[int]) -> np.ndarray:
    """The same for settings that share a program. What a preparation releases is noisy, so each seed has its own."""
    if not plan.preparation:
        return _score_group(plan, split, values, seeds)
    return np.hstack([_score_group(plan, prepare(plan, split, seed)[0], values, (seed,)) for seed in seeds])


def _score_group(plan: Plan, split: Split, values: list[np.ndarray], seeds: Sequence[int]) -> np.ndarray:
    """Final accuracies (settings, seeds) of settings that share a program."""
    cohort = simulator.cohort_of(plan, split, simulator.keys(0)[1], plan.pooled)  # each run brings its own key
    test = jax.device_put((split.dataset.x_test, split.dataset.y_test))
    starts = _stacked([_start(plan, split, seed) for seed in seeds])
    static = Static.of(plan, plan.pooled, plan.rounds)
    hyper = np.repeat(np.stack(values), len(seeds), axis=0)
    seed = np.tile(np.arange(len(seeds), dtype=np.int32), len(values))
    width = batch_width(len(seed), _largest_array(plan, split, cohort, starts))
    pieces = np.resize(np.arange(len(seed)), (math.ceil(len(seed) / width), width))  # filled up from the first
    final = np.concatenate([np.asarray(_finals(static, cohort, test, starts, hyper[i], seed[i])) for i in pieces])
    return final[: len(seed)].reshape(len(values), len(seeds)).astype(float)


def batch_width(runs: int, largest: int) -> int:
    """How many runs go side by side: the more the cheaper, but memory is bounded.

    >>> batch_width(72, 500_000), batch_width(5, 500_000), batch_width(5, 2**25)
    (24, 5, 1)
    """
    most = max(1, min(runs, _NUMBERS // largest))
    return math.ceil(runs / math.ceil(runs / most))  # as even as possible: the last batch is padded


def _largest_array(plan: Plan, split: Split, cohort: Cohort, starts: Start) -> int:
    """Numbers in the largest array of one run: all logits of its records, unless their sums are fused."""
    leaves = jax.tree.leaves(starts.carry.params)
    uploads = len(plan.sizes) * sum(leaf[0].size for leaf in leaves)
    in_cache = fused(plan.program.sites[0].query, leaves[:1], cohort.records)
    return max(uploads, len(split.dataset.y_test if in_cache else split.dataset.y_train) * plan.classes)


def _start(plan: Plan, split: Split, seed: int) -> Start:
    """The start but for the settings, on which a one-shot release does not depend: it is made once."""
    init_key, noise_key = simulator.keys(seed)
    carry = simulator.start(plan, split, init_key)
    mean = None
    if Phase.SETUP in plan.programs:
        mean = simulator.ask_once(plan, Phase.SETUP, split, carry.params, noise_key)
    return Start(noise_key, mean, carry)


@jax.jit
def _stacked(starts: list[Start]) -> Start:
    return jax.tree.map(lambda *a: jnp.stack(a), *starts)


@partial(jax.jit, static_argnums=0)
def _finals(static: Static, cohort: Cohort, test: Any, starts: Start, hyper: Any, seed: Any) -> jax.Array:
    """Accuracies after the last round, one for each row of `hyper` and the start that `seed` numbers."""
    return jax.vmap(lambda h, i: _final(static, cohort, test, jax.tree.map(lambda a: a[i], starts), h))(hyper, seed)


def _final(static: Static, cohort: Cohort, test: Any, start: Start, hyper: Any) -> jax.Array:
    """Accuracy after the last round of one run."""
    method = static.rules.method
    carry = start.carry._replace(state=_given(method.init)(hyper, start.carry.params))
    if method.setup is not None:
        carry = carry._replace(state=method.setup.server(start.setup, carry.state))
    rounds = static.rules.facts.rounds
    cohort = replace(cohort, key=start.key)
    end, (accuracy, loss) = simulator.rounds_between(
        static, cohort, test, carry, simulator.unmeasured(rounds), np.int32(0), np.int32(rounds)
    )
    finite = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves((end.params, loss[-1]))]
    return jnp.where(jnp.stack(finite).all(), accuracy[-1], jnp.float32(math.nan))
