"""Settings of the methods: what makes no sense is refused, and step sizes that need no tuning scale as they must."""

import math

import jax.numpy as jnp
import pytest

from fedsofim.core.door import Facts
from fedsofim.errors import InputError
from fedsofim.methods import make
from fedsofim.methods._steps import gradient_step, preconditioned_step
from method_helpers import TWO_LEAVES, blobs, planned

DATA = blobs((6, 20))


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("fedgd", {"lr": -1.0}, "above 0"),
        ("fedsofim", {"lr": 0.0}, "above 0"),
        ("fedavg", {"local_steps": 0}, "whole number, at least 1"),
        ("fedavg", {"client_lr": math.inf}, "finite"),
        ("scaffold", {"local_steps": 2.5}, "whole number"),
        ("adafedprox", {"mu0": -0.1}, ">= 0"),
        ("fedadam", {"beta1": 1.0}, "beta1 < 1"),
        ("fedyogi", {"tau": 0.0}, "above 0"),
        ("fedfc", {"share": 1.0}, "strictly between"),
        ("fedfc", {"gamma": 0.0}, "above 0"),
        ("ftrl", {"restart": 0}, ">= 1"),
        ("ftrl", {"noise": "forest"}, "did you mean|known"),
        ("ftrl", {"noise": "diagonal", "restart": 5}, "no tree"),
    ],
)
def test_senseless_settings_are_refused(name: str, settings: dict, words: str):
    with pytest.raises(InputError, match=words):
        make(name, settings)


def test_fedfc_needs_a_linear_head():
    odd = TWO_LEAVES._replace(init=lambda key, shape, classes: {"w": jnp.zeros((shape[0], classes))})
    with pytest.raises(InputError, match="linear head"):
        planned(DATA, make("fedfc"), 1.0, model=odd)


def test_automatic_steps_need_a_finite_clip():
    with pytest.raises(InputError, match="give lr"):
        gradient_step(Facts(10, 2, math.inf, 0.0), 5)
    facts = Facts(10, 2, 3.0, 0.2)
    scaled_up = Facts(10, 2, 6.0, 0.4)  # features, clip and noise doubled
    assert float(gradient_step(scaled_up, 8)) == pytest.approx(float(gradient_step(facts, 8)) / 4)
    inverse, shrink = jnp.eye(4, dtype=jnp.float32) / 7, jnp.float32(1 / 7)
    whitened = float(preconditioned_step(facts, 8, inverse, shrink))
    assert whitened == pytest.approx(7 * float(gradient_step(facts, 8)))
