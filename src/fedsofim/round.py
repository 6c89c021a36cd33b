"""One federated round, and a whole run of them: the page to read first.

Each round every client runs the method's client program behind its door; the server averages what was uploaded
and takes a step. `federated_round` says that and nothing else; pricing is in plan.py, the door in release.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any, NamedTuple, ParamSpec

import jax
import jax.numpy as jnp
import optax

from fedsofim.ledger import Inputs, Program
from fedsofim.mechanisms import Independent, Mechanism
from fedsofim.records import Records
from fedsofim.release import Facts, Private


class Setup(NamedTuple):
    """A one-shot release before round 1: client(door, params) -> upload; server(mean, state) -> state."""

    client: Callable[[Private, Any], Any]
    server: Callable[[Any, Any], Any]


def _nothing(params: Any) -> tuple[()]:
    return ()


class Method(NamedTuple):
    """An algorithm as pure functions. It never sees a record: the client has a door, the server what came out.

    client(door, params, state, memory) -> (upload, memory): runs at every client; `state` is the server's.
    server(mean, state, params, facts) -> (params, state): `mean` is the weighted mean of the uploads.
    init(params) -> state; memory(params) -> what a client keeps between rounds; setup: one-shot releases.
    """

    name: str
    client: Callable[[Private, Any, Any, Any], tuple[Any, Any]]
    server: Callable[[Any, Any, Any, Facts], tuple[Any, Any]]
    init: Callable[[Any], Any] = _nothing
    memory: Callable[[Any], Any] = _nothing
    setup: Setup | None = None
    note: str = ""  # what a reader of results must know, e.g. that a preset is not private as claimed


P = ParamSpec("P")


def remembered(factory: Callable[P, Method]) -> Callable[P, Method]:
    """A factory that gives the same Method for equal settings, so that its runs share one compiled program."""
    kept = lru_cache(maxsize=64, typed=True)(factory)

    @wraps(factory)
    def build(*args: P.args, **kwargs: P.kwargs) -> Method:
        try:
            return kept(*args, **kwargs)
        except TypeError:  # a setting that cannot be compared: a sweep's traced number
            return factory(*args, **kwargs)

    return build


@dataclass(frozen=True)
class OneGradient:
    """The client of every one-step method: g_i = (S_i + noise)/|D_i|.

    The simulator knows that the mean of such uploads is one weighted clipped sum plus one draw of noise.
    """

    noise: Mechanism | Callable[[int], Mechanism] = Independent()  # or made from the number of rounds
    sample: float = 1.0

    def __call__(self, door: Private, params: Any, state: Any, memory: Any) -> tuple[Any, Any]:
        noise = self.noise(door.facts.rounds) if callable(self.noise) else self.noise
        total = door.gradient(params, noise=noise, sample=self.sample)
        return jax.tree.map(lambda s: s / (self.sample * door.size), total), memory


def server_method(
    name: str,
    optimizer: optax.GradientTransformation | Callable[[Facts], optax.GradientTransformation],
    client: Callable = OneGradient(),
    note: str = "",
) -> Method:
    """A one-step method whose server is an optax optimizer (or one made from the run's public facts).

    >>> server_method("fedgd", optax.sgd(0.1)).name
    'fedgd'
    """

    def build(facts: Facts) -> optax.GradientTransformation:
        return optimizer if isinstance(optimizer, optax.GradientTransformation) else optimizer(facts)

    def server(mean: Any, state: Any, params: Any, facts: Facts) -> tuple[Any, Any]:
        updates, state = build(facts).update(mean, state, params)
        return optax.apply_updates(params, updates), state

    return Method(name, client, server, init=build(Facts(1, 1, 1.0, 0.0)).init, note=note)


class Carry(NamedTuple):
    """Everything that goes from one round to the next."""

    params: Any
    state: Any
    memory: Any  # one row per client


class Federation(NamedTuple):
    """All clients' records with the public numbers of the run, as arrays: what a compiled round reads."""

    records: Records
    sizes: jax.Array  # |D_i|; the single number 1 when pooled
    weights: jax.Array  # w_i, adding up to 1
    stds: jax.Array  # noise std of each release site
    noise_std: jax.Array  # per coordinate of the averaged release
    key: jax.Array  # of all noise in the run


def federated_round(
    method: Method, program: Program, facts: Facts, pooled: bool, clients: Federation, carry: Carry, t: jax.Array
) -> Carry:
    """One round: every client answers through its door, the server averages and takes a step."""
    ask = ask_pooled if pooled else ask_each
    mean, memory = ask(program, clients, carry, t)
    facts = facts._replace(noise_std=clients.noise_std)
    params, state = method.server(mean, carry.state, carry.params, facts)
    return Carry(params, state, memory)


def ask_each(program: Program, clients: Federation, carry: Carry, t: jax.Array) -> tuple[Any, Any]:
    """Every client's audited program side by side, then the weighted mean of the uploads."""

    def client(memory, index, size):
        key = jax.random.fold_in(clients.key, index)
        return program(
            Inputs(
                carry.params, carry.state, memory, key, index, size, t, clients.noise_std, clients.stds, clients.records
            )
        )

    indices = jnp.arange(len(clients.sizes), dtype=jnp.int32)
    uploads, memory = jax.vmap(client)(carry.memory, indices, clients.sizes)
    return jax.tree.map(lambda u: jnp.tensordot(clients.weights.astype(u.dtype), u, 1), uploads), memory


def ask_pooled(program: Program, clients: Federation, carry: Carry, t: jax.Array) -> tuple[Any, Any]:
    """The same mean in one call, where every client releases one gradient at the same theta.

    Σ_i w_i·(S_i + z_i)/|D_i| is one clipped sum with weight w_i/|D_i| on client i's records, plus one Gaussian of
    variance Σ_i (w_i/|D_i|)²·s² (under secure summation max_i, not Σ_i). So the audited program runs once, on
    records that carry those weights, as a client of size 1.
    """
    index, size = jnp.zeros((), jnp.int32), clients.sizes[0]
    return program(
        Inputs(
            carry.params,
            carry.state,
            carry.memory,
            clients.key,
            index,
            size,
            t,
            clients.noise_std,
            clients.stds,
            clients.records,
        )
    )
