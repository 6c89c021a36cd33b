"""Noise laid out over rounds: its law, its price, and the wrong accounts that must stay visible."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from method_helpers import TWO_LEAVES, blobs, planned

from fedsofim.core.budget import Budget
from fedsofim.core.gaussian import epsilon_of
from fedsofim.core.mechanisms import Diagonal, Independent, Mechanism, Mischarged, Tree, tree_levels
from fedsofim.core.door import Facts
from fedsofim.core.method import OneGradient, server_method
from fedsofim.errors import InputError
from fedsofim.methods import make
from fedsofim.methods._sofim import sofim
from fedsofim.methods._steps import gradient_step, preconditioned_step

DATA = blobs((6, 20))
T = 21


def running_sums(mechanism: Mechanism, draws: int = 4000) -> np.ndarray:
    """Noise of the running sums, (draws, T)."""

    def run(key):
        return jax.lax.map(lambda t: mechanism.draw(key, t, (), jnp.float32), jnp.arange(T, dtype=jnp.int32))

    return np.cumsum(jax.vmap(run)(jax.random.split(jax.random.key(0), draws)), axis=1)


def nodes(rounds: int) -> list[tuple[int, int]]:
    """(first round, last round] of every completed node, by brute force."""
    spans = [(e - 2**h, e) for h in range(rounds.bit_length()) for e in range(1, rounds + 1)]
    return [(a, e) for a, e in spans if a >= 0 and e % (e - a) == 0]


def test_tree_price_is_that_of_all_nodes_with_full_participation():
    for rounds in (1, 2, 7, 64, 70):
        assert Tree().cost(rounds) == sum((e - a) ** 2 for a, e in nodes(rounds))
    assert Tree(restart=10).cost(25) == 2 * Tree().cost(10) + Tree().cost(5)
    assert Tree(restart=1).cost(70) == Independent().cost(70)


@pytest.mark.parametrize(("restart", "honaker"), [(None, False), (None, True), (6, False), (6, True)])
def test_running_sums_carry_the_noise_of_few_nodes(restart: int | None, honaker: bool):
    tree = Tree(restart, honaker)
    measured = running_sums(tree).var(axis=0)
    wanted = []
    for m in range(1, T + 1):
        trees = [restart] * ((m - 1) // restart) + [(m - 1) % restart + 1] if restart else [m]
        bits = [h for size in trees for h in range(6) if size >> h & 1]
        wanted.append(sum(1 / sum(2.0**-j for j in range(h + 1)) if honaker else 1.0 for h in bits))
    assert np.allclose(measured, wanted, rtol=0.12)  # five standard errors of a variance from 4000 draws
    assert tree.spread(T) == pytest.approx(np.mean(wanted) / ((T + 1) / 2))


def test_nodes_of_a_tree_are_drawn_once():
    """What one node adds it takes away: after 4 rounds the noise of rounds 1 to 3 is gone."""
    sums = running_sums(Tree())
    assert abs(np.corrcoef(sums[:, 2], sums[:, 3])[0, 1]) < 0.08  # 3 = {2, 1} and 4 = {4} share no node
    assert np.corrcoef(sums[:, 1], sums[:, 2])[0, 1] == pytest.approx(1 / math.sqrt(2), abs=0.05)


def test_diagonal_schedule():
    each = np.diff(running_sums(Diagonal(T)), axis=1, prepend=0.0).std(axis=0)
    wanted = (T - np.arange(T)) ** -0.25
    assert np.allclose(each / each[0], wanted / wanted[0], rtol=0.08)
    assert np.sum(1 / each**2) == pytest.approx(Diagonal(T).cost(T), rel=0.03)
    with pytest.raises(InputError, match="make a new one"):
        Diagonal(T).cost(T + 1)


def test_diagonal_beats_independent_noise_and_the_tree_at_equal_price():
    def error(mechanism: Mechanism) -> float:
        return float(np.mean(running_sums(mechanism) ** 2) * mechanism.cost(T))

    independent = error(Independent())
    assert error(Diagonal(T)) < independent < error(Tree(honaker=True)) < error(Tree())


# --- accounts as published ----------------------------------------------------------------------------------


def test_published_accounts_report_what_they_spend():
    mu = Budget(1.0, 1e-5).mu
    spent = {
        name: planned(DATA, make(name, {"preset": "as_published"}, 1.0), 1.0, rounds=70)
        for name in ("ftrl", "scaffold", "fedfc")
    }
    assert tree_levels(70) == 8
    assert spent["ftrl"].epsilon == pytest.approx(epsilon_of(mu * math.sqrt(70 / 8), 1e-5))
    assert spent["scaffold"].epsilon == pytest.approx(epsilon_of(mu / 2, 1e-5))
    assert spent["fedfc"].epsilon == math.inf
    assert all("AS CLAIMED" in plan.method.note for plan in spent.values())
    assert all(any(c.charged is not None for c in plan.charges) for plan in spent.values())


def test_a_wrong_account_must_be_declared():
    client = OneGradient(Mischarged(Independent(), lambda rounds: 1.0))
    with pytest.raises(InputError, match="note"):
        planned(DATA, server_method("quiet", sofim(0.1), client), 1.0)


def test_published_noise_of_scaffold_is_twice_the_true_one():
    both = [make("scaffold", {"preset": p}, 5.0) for p in ("paper-resnet20", "as_published")]
    true, as_published = (planned(DATA, method, 5.0, rounds=70) for method in both)
    assert as_published.noise_std == pytest.approx(2 * true.noise_std)


# --- settings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("fedgd", {"lr": -1.0}, "above 0"),
        ("fedsofim", {"lr": 0.0}, "above 0"),
        ("fedavg", {"local_steps": 0}, "whole number >= 1"),
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
