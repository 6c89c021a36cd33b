"""A server's step on pseudo-gradients of K noisy local steps: what it is, what it costs, what it is at K = 1."""

import math

import numpy as np
import optax
import pytest

from fedsofim.core.door import Facts
from fedsofim.core.method import OneGradient, server_method
from fedsofim.errors import InputError
from fedsofim.methods import make
from fedsofim.methods._local import PseudoGradient, on_local_steps
from method_helpers import blobs, final, gradients, planned, start

NAMES = ("fedsofim", "fedadam", "fedyogi")
DATA = blobs((6, 20))
BIG = 1e6  # a clip that clips nothing


def test_a_pseudo_gradient_is_the_mean_of_the_gradients_along_the_way():
    """θ_1 = θ_0 - mean_i (θ_0 - y_K)/(K·η_c), here with a server's step of 1."""
    eta, steps = 0.05, 3
    method = server_method("plain", optax.sgd(1.0), PseudoGradient(steps, eta))
    found = final(DATA, method, rounds=1, clip=BIG)
    theta, along = np.stack([start(DATA)] * 2), []
    for _ in range(steps):
        along.append(np.stack(gradients(DATA, theta)))
        theta = theta - eta * along[-1]
    np.testing.assert_allclose(found, start(DATA) - np.mean(along, axis=(0, 1)), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_one_local_step_is_the_method_as_it_was(name: str):
    one = make(name, {"local_steps": 1})
    assert type(one.client) is OneGradient and one.client == make(name).client
    assert planned(DATA, one, 1.0).pooled
    assert one is make(name, {"local_steps": "1"})


@pytest.mark.parametrize("name", NAMES)
def test_k_local_steps_are_k_releases_a_round(name: str):
    plan = planned(DATA, make(name, {"local_steps": 3}), 1.0, rounds=4)
    (charge,) = plan.ledger
    assert (charge.releases, charge.weight) == (12, 12)
    assert plan.ledger == planned(DATA, make("fedavg", {"local_steps": 3}), 1.0, rounds=4).ledger


def test_the_server_is_told_the_noise_of_a_mean_of_k_releases():
    told: list[Facts] = []
    method = on_local_steps("mine", lambda facts: told.append(facts) or optax.sgd(1.0), 4, None)
    method.server(np.zeros(2), method.init(np.zeros(2)), np.zeros(2), Facts(10, 2, 1.0, 0.6))
    assert told[-1].noise_std == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"local_steps": 0}, "at least 1"),
        ({"client_lr": 0.1}, "leave client_lr out"),
        ({"local_steps": 2, "client_lr": -1.0}, "above 0"),
    ],
)
def test_senseless_settings_are_refused(settings, words):
    for name in NAMES:
        with pytest.raises(InputError, match=words):
            make(name, settings)


@pytest.mark.slow
def test_mini_batches_of_local_steps():
    plan = planned(DATA, make("fedsofim", {"local_steps": 2}), 1.0, batch_rate=0.5)
    assert plan.ledger[0].sample == 0.5 and plan.ledger[0].releases == 8
    params = final(DATA, make("fedsofim", {"local_steps": 2}), 1.0, batch_rate=0.5)
    assert np.isfinite(np.asarray(params)).all()
    assert plan.epsilon <= 1.0 * (1 + 1e-9) and math.isfinite(plan.epsilon)
