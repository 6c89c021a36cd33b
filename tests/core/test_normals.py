"""Normal numbers are those that results were published with."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsofim.core.normals import normal


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("shape", [(), (1,), (65, 10), (3, 4, 5), (0, 2)])
def test_normals_are_jaxs_own(shape, dtype):
    """Drawn as one row because that compiles faster; the numbers are those that results were published with."""
    key = jax.random.key(11)
    assert np.array_equal(normal(key, shape, dtype), jax.random.normal(key, shape, dtype))
