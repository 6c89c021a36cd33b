"""A run's programs: shapes only, read once, and servers that give what they were given."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from fedsofim.core.feature_moments import FeatureMoments
from fedsofim.core.method import Method, OneGradient
from fedsofim.core.models import softmax_head
from fedsofim.core.phase import Phase
from fedsofim.core.programs import Public, input_shapes, read_programs, upload_shapes
from fedsofim.errors import InputError
from fedsofim.methods import make

HEAD = softmax_head()
PUBLIC = Public(shape=(3,), classes=4, blocks=(2, 8), clients=2, rounds=5, clip=1.0)


def with_server(server) -> Method:
    return Method("stranger", OneGradient(), server)


def read(method: Method, *preparation: FeatureMoments):
    return read_programs(method, HEAD, preparation, PUBLIC)


def test_each_phase_has_its_program_in_the_order_they_run():
    assert list(read(make("fedgd"))) == [Phase.ROUND]
    assert list(read(make("fedfc"), FeatureMoments())) == [Phase.MOMENTS, Phase.SETUP, Phase.ROUND]


def test_equal_runs_share_one_reading():
    """Budgets and seeds are no part of it, so that they share a compilation."""
    method = make("fedgd")
    assert read(method)[Phase.ROUND] is read(method)[Phase.ROUND]
    other = read_programs(method, HEAD, (), replace(PUBLIC, rounds=6))
    assert other[Phase.ROUND] is not read(method)[Phase.ROUND]


def test_what_is_uploaded_is_shaped_like_the_parameters():
    method = make("fedgd")
    assert upload_shapes(read(method)[Phase.ROUND]) == input_shapes(method, HEAD, PUBLIC).params
    assert upload_shapes(read(method)[Phase.ROUND]) == jax.ShapeDtypeStruct((4, 4), jnp.float32)


@pytest.mark.parametrize(
    ("server", "message"),
    [
        (lambda mean, state, params, facts: params, "the server returned one .*; expected two"),
        (lambda mean, state, params, facts: (params, state, facts), "the server returned 3 values; expected two"),
        (
            lambda mean, state, params, facts: (params[:-1], state),
            r"parameters of form float32\[3,4\]; expected .*4,4",
        ),
        (
            lambda mean, state, params, facts: ({"w": params}, state),
            r"parameters of form .*'w'.*; expected .*4,4",
        ),
        (lambda mean, state, params, facts: ([], state), r"parameters of form \[\]; expected .*4,4"),
    ],
)
def test_servers_that_give_something_else_are_named(server, message):
    with pytest.raises(InputError, match=f"stranger: .*{message}"):
        read(with_server(server))


def test_the_clip_and_the_rounds_are_what_a_client_may_know():
    seen = []

    def client(door, params, state, memory):
        seen.append(door.facts)
        return door.gradient(params), memory

    read(Method("curious", client, lambda mean, state, params, facts: (params, state)))
    assert (seen[0].rounds, seen[0].clients, seen[0].clip) == (5, 2, 1.0)
