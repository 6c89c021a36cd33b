"""Normal numbers are those that results were published with; coins fall no more often than they are priced for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsofim.core.normals import coins, normal
from fedsofim.errors import InputError
from fedsofim.methods import make
from fedsofim.simulation.training import plan_for
from toy import make_toy


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("shape", [(), (1,), (65, 10), (3, 4, 5), (0, 2)])
def test_normals_are_jaxs_own(shape, dtype):
    """Drawn as one row because that compiles faster; the numbers are those that results were published with."""
    key = jax.random.key(11)
    assert np.array_equal(normal(key, shape, dtype), jax.random.normal(key, shape, dtype))


@pytest.mark.parametrize("rate", [0.1, 1 / 3, 1e-6, 1e-9])
def test_a_coins_probability_is_the_rate_or_a_little_less(rate: float, monkeypatch):
    """A uniform float is one of 2^23, and below p for p·2^23 of them, rounded up."""
    asked: list[float] = []
    monkeypatch.setattr(jax.random, "bernoulli", lambda key, p, shape: asked.append(p))
    coins(jax.random.key(0), rate, (3,))
    places = float(np.float32(asked[0])) * 2**23
    assert places == int(places) and rate - 2**-23 < places / 2**23 <= rate


def test_a_rate_that_coins_cannot_have_is_an_error():
    """Drawn at 1e-9 in floats, a record took part a hundred times as often as was priced."""
    with pytest.raises(InputError, match="batch_rate is 1e-09; expected a probability from 1e-06"):
        plan_for(make_toy((9, 8)), make("fedgd"), 1.0, 4, batch_rate=1e-9)  # type: ignore[arg-type]
