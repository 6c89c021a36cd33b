"""Doors and releases that somebody put together by hand: a release is the engine's own, or it is refused."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsofim.core.mechanisms import Independent
from fedsofim.core.queries import PerRecord, SoftmaxGradient
from fedsofim.core.release import dp_release
from fedsofim.core.site import MAX_SITES, Site
from fedsofim.errors import InputError, Refused
from leaks import priced


def larger_records(door, params, state, memory):
    records = door._records
    return replace(door, _records=records._replace(weight=10 * records.weight)).gradient(params), memory


def other_records(door, params, state, memory):
    x = door._records.x
    return replace(door, _records=door._records._replace(x=x - jnp.mean(x))).gradient(params), memory


def records_swapped(door, params, state, memory):
    """The right arrays in the wrong places."""
    r = door._records
    return replace(door, _records=r._replace(y=r.owner[:, None] + jnp.zeros_like(r.y))).gradient(params), memory


def first_round_for_ever(door, params, state, memory):
    return replace(door, round=0).gradient(params), memory


def round_of_the_state(door, params, state, memory):
    return replace(door, round=state).gradient(params), memory


def another_client(door, params, state, memory):
    return replace(door, _index=jnp.int32(1)).gradient(params), memory


def clients_of_its_own(door, params, state, memory):
    """A map over indices looks like the simulator's."""
    many = jax.vmap(lambda i: replace(door, _index=i).gradient(params))(jnp.arange(2))
    return many[0] - many[1], memory


def no_noise(door, params, state, memory):
    return replace(door, _stds=jnp.zeros(MAX_SITES)).gradient(params), memory


def less_noise(door, params, state, memory):
    return replace(door, _stds=door._stds * 0.5).gradient(params), memory


FORGED_DOORS = [
    (larger_records, "other records than"),
    (other_records, "other records than"),
    (records_swapped, "other records than"),
    (first_round_for_ever, "other round than"),
    (round_of_the_state, "other round than"),
    (another_client, "other index than"),
    (clients_of_its_own, "inside a vmap"),
    (no_noise, "other stds than"),
    (less_noise, "other stds than"),
]


@pytest.mark.parametrize("forgery, message", FORGED_DOORS, ids=lambda v: getattr(v, "__name__", ""))
def test_a_forged_door_is_refused(forgery, message):
    with pytest.raises(Refused, match=message):
        priced(forgery)


# --- releases bound by hand ---------------------------------------------------------------------------------


class Cheaper(SoftmaxGradient):
    """Its own idea of its sensitivity."""

    ratio = 1e-3  # type: ignore[misc]


class Free(Independent):
    """Its own idea of its price."""

    def cost(self, rounds: int) -> float:
        return 1e-9


def vector(door, fn=lambda x, y: x) -> PerRecord:
    query, _, _ = PerRecord.trace(fn, jax.ShapeDtypeStruct((3,), jnp.float32), jax.ShapeDtypeStruct((), jnp.int32))
    return query


def bound(**forged):
    """A client that binds dp_release itself, with the site of an honest sum but for what is forged."""

    def client(door, params, state, memory):
        made = {k: v(door) if callable(v) else v for k, v in forged.items()}
        honest = Site(
            number=0, label="mine", query=vector(door), clip=1.0, noise=Independent(), sample=1.0, share=None
        )  # fmt: skip
        site = honest._replace(**made)
        key = jax.random.fold_in(door._key, 0)
        consts = [params] if isinstance(site.query, SoftmaxGradient) else []
        out = dp_release.bind(key, door.round, door._index, door._stds, *door._records, *consts, site=site)
        return out[0], memory

    return client


def printing(door):
    def fn(x, y):
        jax.debug.print("{}", x)
        return x

    return vector(door, fn)


SCALE = np.linspace(1, 2, 3).astype(np.float32)


def stating_less(door):
    return replace(vector(door), shapes=(jax.ShapeDtypeStruct((1,), jnp.float32),))


def capturing(door):
    return vector(door, lambda x, y: jax.jit(lambda v: v * jnp.arange(3, dtype=v.dtype) * SCALE)(x))


FORGED_SITES = [
    ({"query": lambda door: Cheaper()}, "whose sensitivity is not proved"),
    ({"query": printing}, "remove the print"),
    ({"query": stating_less}, "other shapes than it states"),
    ({"query": capturing}, "captures an array"),
    ({"noise": Free(1.0)}, "expected a number, or Independent"),
    ({"noise": Independent(1.0), "number": 5}, "not drawn by the door's own key"),
    ({"number": -1}, "releases are written out"),
    ({"number": MAX_SITES}, "releases are written out"),
    ({"clip": math.inf}, "clip is inf"),
    ({"clip": 0.0}, "clip is 0.0"),
    ({"clip": float("nan")}, "clip is nan"),
    ({"clip": 1e-25}, "clip is 1e-25"),
    ({"sample": 1e-300}, "sample is 1e-300"),
    ({"sample": 1.5}, "sample is 1.5"),
    ({"share": -0.1}, "share is -0.1"),
]


@pytest.mark.parametrize("forged, message", FORGED_SITES, ids=[message for _, message in FORGED_SITES])
def test_a_forged_site_is_refused(forged, message):
    with pytest.raises((Refused, InputError), match=message):
        priced(bound(**forged))


def test_the_same_by_hand_without_forgery_is_accepted():
    assert priced(bound()).releases == 5


def test_a_scale_changed_behind_its_back_is_refused():
    noise = Independent(1.0)
    object.__setattr__(noise, "scale", 1e-38)
    with pytest.raises(InputError, match="scale is 1e-38"):
        priced(bound(noise=noise))


def test_a_closed_form_cannot_state_another_ratio():
    with pytest.raises(TypeError):
        SoftmaxGradient(ratio=0.01)  # type: ignore[call-arg]
    plan = priced(lambda door, params, state, memory: (door.gradient(params), memory))
    assert plan.ledger[0].ratio == 2.0


@pytest.mark.parametrize("noise", [1e-38, 1e-170, 0.0, -1.0, math.inf, math.nan, "1", True, 1e9])
def test_absurd_noise_is_refused(noise):
    with pytest.raises(InputError, match="noise"):
        priced(lambda door, params, state, memory: (door.gradient(params, noise=noise), memory))


@pytest.mark.parametrize("clip", [1e-25, 1e-10, 1e10, 0, -1, math.inf, math.nan, "10", True])
def test_absurd_clips_are_refused(clip):
    with pytest.raises(InputError, match="clip is"):
        priced(lambda door, params, state, memory: (door.gradient(params, clip=clip), memory))
    with pytest.raises(InputError, match="clip is"):
        priced(lambda door, params, state, memory: (door.gradient(params), memory), clip=clip)
