"""The paper's statements on privacy: post-processing, composition, accountants; and the one that is wrong."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

import fedsofim as fs
from checked_formulas import momentum_step
from fedsofim.core.gaussian import delta_of, epsilon_of, mu_of
from fedsofim.theory.constants import sigma_g_of
from fedsofim.theory.preconditioner import preconditioned


def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    """max over sets of P - e^ε·Q, of two laws on the same bins."""
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_what_the_server_does_with_a_release_gives_nothing_away(epsilon: float):
    """lem:privacy_aggregate, lem:privacy_round, prop:general-local-update-privacy: laws of G and of the step on a
    fine grid, by a map that knows the public state only; and one that looks at the records is noticed."""
    G, mu = np.linspace(-12, 14, 200_001), 1.5
    p, q = (np.exp(-((G - m) ** 2) / 2) / math.sqrt(2 * math.pi) * (G[1] - G[0]) for m in (mu, 0.0))
    before, beta, rho = 0.4, 0.8, 0.5
    M = beta * before + (1 - beta) * G
    for step in (preconditioned(M[:, None], G[:, None], rho)[:, 0], momentum_step(M[:, None], rho)[:, 0]):
        bins = np.unique(np.round(step, 3), return_inverse=True)[1]
        seen = [np.bincount(bins, weights=w) for w in (p, q)]
        assert hockey_stick(seen[0], seen[1], epsilon) <= delta_of(mu, epsilon) + 1e-6
    leaky = [np.bincount(np.greater(G, cut).astype(int), weights=w) for w, cut in ((p, -9.0), (q, 9.0))]
    assert hockey_stick(leaky[0], leaky[1], epsilon) > delta_of(mu, epsilon)


def test_simple_composition_holds_and_is_loose():
    """thm:privacy_comp: what T rounds really spend is below the sum, here by a factor of nine; half the sum of one
    round's would be wrong for T = 1."""
    rounds, delta = 70, 1e-5
    one = mu_of(1.0, delta) / math.sqrt(rounds)
    each = epsilon_of(one, delta / rounds)
    assert epsilon_of(one * math.sqrt(rounds), delta) < rounds * each
    assert rounds * each == pytest.approx(9.24, abs=0.01)
    assert epsilon_of(one, delta / rounds) > 0.5 * each
    for T in (1, 2, 10):
        assert epsilon_of(one * math.sqrt(T), T * delta / rounds) <= T * each * (1 + 1e-9)


def test_the_papers_formula_is_the_exact_curve():
    """app:privacy-accounting: its δ(ε) in σ_g is that of mu = 2·sqrt(n·T)/σ_g."""
    from scipy.special import ndtr

    n, T = 20, 70
    for epsilon in (0.5, 1.0, 5.0, 10.0):
        sigma = sigma_g_of(fs.Budget(epsilon, 1e-5), T, n)
        half, shift = math.sqrt(n * T) / sigma, epsilon * sigma / (2 * math.sqrt(n * T))
        delta = ndtr(half - shift) - math.exp(epsilon) * ndtr(-half - shift)
        assert delta == pytest.approx(1e-5, rel=1e-6)


def test_at_fixed_epsilon_noise_falls_with_the_root_of_the_clients():
    """rem:noise says O(1/n²) for the variance: at fixed σ_g, which no budget fixes. At fixed ε it is O(1/n)."""
    from fedsofim.theory.constants import noise_variance

    nu2 = [noise_variance(10.0, sigma_g_of(fs.Budget(1.0), 70, n), [100] * n) for n in (20, 80)]
    assert nu2[0] / nu2[1] == pytest.approx(4.0)


def test_the_transcript_is_a_function_of_the_releases():
    """thm:accountant-privacy: same releases, same transcript, bit for bit."""
    G = np.random.default_rng(0).normal(size=(5, 4))

    def transcript() -> list[np.ndarray]:
        optimizer = fs.sofim(0.3, rho=0.5, beta=0.9)
        theta, state, seen = jnp.zeros(4), optimizer.init(jnp.zeros(4)), []
        for g in G:
            updates, state = optimizer.update(jnp.asarray(g), state, theta)
            theta = theta + jnp.asarray(updates)
            seen.append(np.asarray(theta))
        return seen

    for a, b in zip(transcript(), transcript(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_fedgd_and_fedsofim_have_one_ledger():
    """prop:privacy-equivalence, as this library has it: equal prices, since both are priced by their releases."""
    plans = [
        fs.make_plan(method, fs.softmax_head(), sizes=(30, 50), shape=(4,), classes=3, budget=fs.Budget(1), rounds=7)
        for method in (fs.fedgd(), fs.fedsofim())
    ]
    assert plans[0].epsilon == plans[1].epsilon and plans[0].sigma_g == plans[1].sigma_g
    assert [c.weight for c in plans[0].ledger] == [c.weight for c in plans[1].ledger] == [7.0]


def test_that_fedgd_is_private_does_not_make_fedsofim_private():
    """prop:privacy-equivalence as the paper words it is wrong. One record z = ±1, two rounds, one coordinate: its
    gradient is 0 for |θ| <= 1 and z beyond. DP-FedGD's small step never leaves the flat part, so its whole transcript
    is the same noise for both z: it *is* (0, δ)-DP with δ = P(|η·ξ_0| > 1) = 0 in doubles. DP-FedSOFIM with the same
    clip, noise and rounds divides by ρ + |M|², leaves, and the second release shows z. What is needed is that the
    guarantee holds for every θ the server may ask at: that of an accountant by sensitivity, not of a transcript."""
    sigma, eta, rho, seeds = 0.05, 0.1, 1e-4, 100_000
    random = np.random.default_rng(1)
    first = sigma * random.standard_normal(seeds)  # G_0: the gradient at θ_0 = 0 is 0
    assert np.all(np.abs(eta * first) < 1) and math.erfc(1 / eta / sigma / math.sqrt(2)) == 0.0
    theta = -eta * preconditioned(first[:, None], first[:, None], rho)[:, 0]  # β = 0
    shown = {z: np.where(np.abs(theta) > 1, z, 0.0) + sigma * random.standard_normal(seeds) for z in (-1, 1)}
    advantage = np.mean(shown[1] > 0.5) - math.exp(1.0) * np.mean(shown[-1] > 0.5)
    assert advantage > 0.9  # δ at ε = 1
