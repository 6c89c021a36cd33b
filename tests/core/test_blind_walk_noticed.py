"""The second opinions, alone: with a walk that sees nothing, running the program must still show each leak.

And what a node runs is looked at by itself, since it is stepped through in another way than the simulator's.
"""

from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from fedsofim.core import programs
from fedsofim.core.audit import Inputs, Program, audit_program
from fedsofim.core.feature_moments import FeatureMoments
from fedsofim.core.method import Method, Setup
from fedsofim.core.models import softmax_head
from fedsofim.core.phase import Phase
from fedsofim.core.programs import Public, input_shapes
from fedsofim.core.second_opinion import confirm
from fedsofim.core.walk import Value, Walk
from fedsofim.deploy.execute import confirm_alone
from fedsofim.errors import Refused

ROUNDS = 5


@pytest.fixture
def read(monkeypatch) -> Callable[[Callable], tuple[Program, Inputs]]:
    """A client's program as traced and opened, whatever is in it."""
    monkeypatch.setattr(Walk, "jaxpr", lambda self, jaxpr, *_: [Value()] * len(jaxpr.outvars))

    def program_of(client: Callable) -> tuple[Program, Inputs]:
        method = Method("blind", client, lambda *_: None, memory=lambda params: jnp.float32(0))  # type: ignore[arg-type]
        public = Public(shape=(3,), classes=2, blocks=(3, 4), clients=3, rounds=ROUNDS, clip=1.0)
        inputs = input_shapes(method, softmax_head(), public)
        return audit_program(client, softmax_head(), inputs, public.facts(()), Phase.ROUND), inputs

    return program_of


def honest(door, params, state, memory):
    theta = door.scan(lambda inner, t: t - inner.gradient(t), params, 3)
    kept = memory + door.round.astype(jnp.float32) + jnp.sum(theta)
    return {"theta": theta, "sum": door.sum(lambda x, y: x, clip=1.0, sample=0.5)}, kept


def upload_of_features(door, params, state, memory):
    return door.gradient(params) + jnp.mean(door._records.x), memory


def upload_of_labels(door, params, state, memory):
    return door.gradient(params) + jnp.sum(door._records.y).astype(jnp.float32), memory


def upload_of_padding(door, params, state, memory):
    return door.gradient(params) + jnp.sum(door._records.weight), memory


def memory_of_features(door, params, state, memory):
    return door.gradient(params), jnp.max(door._records.x)


def upload_of_noise(door, params, state, memory):
    return door.gradient(params) + jax.random.normal(jax.random.fold_in(door._key, 7), (), jnp.float32), memory


def upload_in_the_last_round(door, params, state, memory):
    last = (door.round == ROUNDS - 1).astype(jnp.float32)
    return door.gradient(params) + last * jnp.mean(door._records.x), memory


LEAKS = [
    (upload_of_features, "upload changed with the records"),
    (upload_of_labels, "upload changed with the records"),
    (upload_of_padding, "upload changed with the records"),
    (memory_of_features, "client memory changed with the records"),
    (upload_of_noise, "upload changed with the key"),
    (upload_in_the_last_round, "upload changed with the records"),
]


@pytest.mark.parametrize("client, message", LEAKS, ids=lambda v: getattr(v, "__name__", ""))
def test_running_it_shows_a_leak(read, client, message):
    program, inputs = read(client)
    with pytest.raises(Refused, match=message):
        confirm(program, inputs, ROUNDS)


def same_key_twice(door, params, state, memory):
    twin = replace(door, _sites=[])
    return door.gradient(params) - twin.gradient(params + 1), memory


def same_key_in_every_step(door, params, state, memory):
    return jax.lax.scan(lambda t, _: (t - door.gradient(t), None), params, None, length=3)[0], memory


def same_key_at_every_client(door, params, state, memory):
    return replace(door, _key=jax.random.key(0)).gradient(params), memory


def same_key_in_two_rounds(door, params, state, memory):
    return replace(door, round=jnp.minimum(door.round, 3)).gradient(params), memory


def same_key_split_and_folded(door, params, state, memory):
    first = door.scan(lambda inner, t: t - inner.gradient(t), params, 2)
    inside = replace(door, _key=jax.random.split(jax.random.fold_in(door._key, 0), 2)[1], _sites=[None])
    return first - inside.gradient(params), memory


REUSED = [same_key_twice, same_key_in_every_step, same_key_at_every_client, same_key_in_two_rounds,
          same_key_split_and_folded]  # fmt: skip


@pytest.mark.parametrize("client", REUSED, ids=lambda c: c.__name__)
def test_running_it_shows_noise_that_is_drawn_twice(read, client):
    program, inputs = read(client)
    with pytest.raises(Refused, match="same noise"):
        confirm(program, inputs, ROUNDS)


def test_an_honest_program_passes_both(read):
    program, inputs = read(honest)
    confirm(program, inputs, ROUNDS)
    confirm(program, inputs, 1)
    confirm_alone(program, inputs)


@pytest.mark.parametrize("leaky", ["moments", "setup", "round"])
def test_every_phase_of_a_run_is_looked_at(read, leaky, monkeypatch):
    def leaking(door, params, state=None, memory=None):
        return door.sum(lambda x, y: x, clip=1.0) + jnp.mean(door._records.x), memory

    def fine(door, params, state=None, memory=None):
        return door.sum(lambda x, y: x, clip=1.0), memory

    setup, client = (leaking if leaky == phase else fine for phase in ("setup", "round"))
    if leaky == "moments":
        monkeypatch.setattr(programs, "program_of", lambda step, features: lambda *given: (leaking(*given)[0], ()))
    method = Method(
        "phases",
        client,
        lambda mean, state, params, facts: (params, state),
        setup=Setup(lambda door, params: setup(door, params)[0], lambda mean, state: state),
    )
    public = Public(shape=(3,), classes=2, blocks=(3, 4), clients=3, rounds=ROUNDS, clip=1.0)
    with pytest.raises(Refused, match="upload changed with the records"):
        programs.read_programs(method, softmax_head(), (FeatureMoments(),), public)


@pytest.mark.parametrize("client", [c for c, m in LEAKS if "last_round" not in c.__name__ and "key" not in m])
def test_a_node_sees_a_leak_too(read, client):
    with pytest.raises(Refused, match="changed with the records"):
        confirm_alone(*read(client))


def test_a_node_sees_noise_that_is_drawn_twice_too(read):
    with pytest.raises(Refused, match="same noise"):
        confirm_alone(*read(same_key_twice))
