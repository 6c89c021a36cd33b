"""Each step of a preparation against a plain computation, and records of any size within the clip of its release."""

import numpy as np
import pytest

from feature_rows import records, sizes_of, unit
from fedsofim.core.phase import Phase
from fedsofim.core.preparation import (
    CAP,
    RADIUS,
    Centred,
    ColumnScales,
    Step,
    UnitNorm,
    Whitened,
    prepared,
    units_of,
    width_of,
)
from fedsofim.core.units import AS_THEY_COME, prepared_units

QUIET = {Phase.SCALES: 0.0, Phase.MOMENTS: 0.0}


def scaled(x: np.ndarray, std: float = 0.0, seed: int = 0) -> np.ndarray:
    """Records through ColumnScales, by the mean of their sizes with noise of this std."""
    random = np.random.default_rng(seed)
    means = {k: v.mean(axis=0) for k, v in sizes_of(x).items()}
    noisy = {k: v + std * random.normal(size=np.shape(v)) for k, v in means.items()}
    return ColumnScales(0.1).fitted(noisy, std)(x)


def bits(x: np.ndarray) -> np.ndarray:
    """The typical size of each column, in bits."""
    return np.log2(np.median(np.abs(x), axis=0))


def centred_by(x: np.ndarray, std: float = 0.0, seed: int = 0) -> np.ndarray:
    noise = std * np.random.default_rng(seed).normal(size=x.shape[1])
    return Centred(0.1).fitted({"first": x.astype(np.float64).mean(axis=0) + noise}, std)(x)


def moment_of(x: np.ndarray) -> np.ndarray:
    """The mean of [x; 1/2]·[x; 1/2]ᵀ."""
    v = np.concatenate([x, np.full((len(x), 1), 0.5)], axis=1).astype(np.float64)
    return v.T @ v / len(v)


# --- unit norm ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("lift", [False, True])
def test_unit_norm_is_the_plain_formula(constant: bool, lift: bool):
    x = records().astype(np.float64)
    wanted = unit(np.concatenate([x / np.sqrt(6), np.ones((400, 1))], axis=1) if constant else x)
    if lift:
        wanted = np.concatenate([wanted, unit(np.sign(wanted) * np.sqrt(np.abs(wanted)))], axis=1) / np.sqrt(2)
    step = UnitNorm(constant=constant, lift=lift)
    found = step.fitted({}, 0.0)(x.astype(np.float32))
    assert found.dtype == np.float32 and found.shape[1] == step.width(6) == wanted.shape[1]
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-45, 1e-38, 1e-20, 1e20, 3e37])
def test_records_of_any_size_come_out_one_long(scale: float):
    x = (np.array([[3.0, 4.0, 0.0], [8.0, 0.0, -6.0]]) * scale).astype(np.float32)
    if scale > 1e-40:  # of subnormals only the length is kept: they have no digits to keep a direction with
        np.testing.assert_allclose(UnitNorm().fitted({}, 0.0)(x), [[0.6, 0.8, 0.0], [0.8, 0.0, -0.6]], atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(UnitNorm(lift=True).fitted({}, 0.0)(x), axis=1), 1.0, atol=1e-6)


def test_a_record_of_zeros_stays_one():
    zeros = np.zeros((2, 3), np.float32)
    assert not UnitNorm(lift=True).fitted({}, 0.0)(zeros).any()
    np.testing.assert_allclose(UnitNorm(constant=True).fitted({}, 0.0)(zeros), [[0, 0, 0, 1]] * 2)


# --- column scales ------------------------------------------------------------------------------------------


def test_sizes_are_the_plain_formula():
    x = np.array([[4.0, -1.0, 0.0, 2.0**-30]], np.float32)
    found = sizes_of(x)
    np.testing.assert_allclose(found["size"][0], [1.0, 1 - 2 / 12, 0.0, -1.0], atol=1e-6)
    np.testing.assert_allclose(found["there"][0], [0.5, 0.5, 0.0, 0.5])
    assert found["largest"][0] == pytest.approx(2 / 30)


@pytest.mark.parametrize("std", [0.0, 0.02])
@pytest.mark.parametrize("mixed", [False, True])
def test_a_thousand_times_the_features_changes_nothing(std: float, mixed: bool):
    x = records() * (10.0 ** np.arange(-3, 3) if mixed else np.ones(6)).astype(np.float32)
    np.testing.assert_allclose(scaled(1000 * x, std), scaled(x, std), rtol=2e-5, atol=1e-6)


def test_columns_in_mixed_units_are_brought_together():
    x = records() * np.array([1e-3, 1, 30, 1, 1e3, 0.1], np.float32)
    assert np.ptp(bits(x)) > 18
    assert np.ptp(bits(scaled(x))) < 3


def test_columns_of_one_unit_are_left_alone_relative_to_each_other():
    x = records() * np.array([1, 2, 3, 1, 2, 1], np.float32)
    found = scaled(x)
    ratio = found / x
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-5)
    assert np.abs(bits(found)).max() < 5


def test_columns_of_zeros_and_one_hot_columns_do_not_blow_up():
    """A category is there in a tenth of the records, or in one of forty; what is not there has no size to go by."""
    mixed = records() * np.array([1e-3, 1, 100, 1, 1e4, 0.1], np.float32)
    often, seldom = np.eye(10)[np.arange(400) % 10], np.eye(40)[np.arange(400) % 40][:, :2]
    x = np.concatenate([mixed, np.zeros((400, 1)), often, seldom], axis=1).astype(np.float32)
    for std in (0.0, 0.01):
        found = scaled(x, std)
        assert np.isfinite(found).all() and not found[:, 6].any()
        assert np.abs(found).max() < 2.0**6
    assert not scaled(np.zeros((5, 3), np.float32)).any()


def test_under_much_noise_columns_keep_their_proportions():
    """A mean of 12 bits' noise says nothing of a column: it is drawn to what all columns have."""
    x = records() * np.array([1e-3, 1, 30, 1, 1e3, 0.1], np.float32)
    quiet, loud = scaled(x), [scaled(x, std=3.0, seed=s) for s in range(20)]
    change = [np.log2(np.abs(found / x)).mean(axis=0) for found in loud]
    assert max(np.ptp(c) for c in change) < 0.7 * np.ptp(np.log2(np.abs(quiet / x)).mean(axis=0))
    assert np.median([np.ptp(c) for c in change]) < 3.0


# --- centred ------------------------------------------------------------------------------------------------


def test_centred_is_the_plain_formula():
    x = unit(records()).astype(np.float32)
    mean = x.astype(np.float64).mean(axis=0)
    wanted = (x - mean) / np.sqrt(1 - mean @ mean)
    length = np.linalg.norm(wanted, axis=1, keepdims=True)
    found = centred_by(x)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, RADIUS * wanted * np.minimum(1, CAP / length), atol=1e-4)
    assert (length > CAP).any() and (length < CAP).any()  # both sides of the cap were compared
    assert np.mean(length**2) == pytest.approx(1.0, rel=1e-4)  # the scale did come with the mean


def noisy_mean(seed: int, features: int = 4000, noise: float = 0.7) -> np.ndarray:
    """A mean of length 0.5 with noise of this length."""
    mean = np.zeros(features)
    mean[0] = 0.5
    return mean + noise / np.sqrt(features) * np.random.default_rng(seed).normal(size=features)


def test_the_noise_of_the_mean_is_taken_off_its_length():
    """Noise of length 0.7 on a mean of length 0.5: of 0.74 in its square 0.25 is no noise, so a third of it is
    believed. With all of it taken for the mean's own the scale would be 1/sqrt(0.26)."""
    believed, found = 0.25 / 0.74, []
    step = np.zeros((1, 4000))
    step[0, 1] = 1e-3
    for seed in range(20):
        released = noisy_mean(seed)
        apply = Centred(0.1).fitted({"first": released}, 0.7 / np.sqrt(4000))
        middle = believed * released[None]
        assert np.linalg.norm(apply(middle)) < 0.3 * RADIUS
        found.append((apply(middle + step) - apply(middle))[0, 1] / RADIUS / 1e-3)
    assert np.mean(found) == pytest.approx(1 / np.sqrt(1 - believed * 0.25), rel=0.02)


def test_a_mean_that_drowned_in_noise_is_not_taken_off():
    """Noise 10 long on a mean that can be at most 1: centring by it would make all records one."""
    random = np.random.default_rng(0)
    x = unit(random.normal(size=(50, 40)))
    apart = []
    for seed in range(50):
        noise = 10 / np.sqrt(40) * np.random.default_rng(seed).normal(size=40)
        found = Centred(0.1).fitted({"first": x.mean(axis=0) + noise}, 10 / np.sqrt(40))(x) / RADIUS
        apart.append(np.linalg.norm(found - found.mean(axis=0), axis=1).mean())
    assert np.median(apart) == pytest.approx(1.0, abs=0.05)


def test_a_mean_as_long_as_the_records_does_not_blow_up():
    x = np.tile(np.array([[1.0, 0.0]], np.float32), (5, 1))
    assert np.isfinite(centred_by(x)).all() and np.abs(centred_by(x, std=0.01)).max() <= RADIUS * CAP * (1 + 1e-6)


# --- whitened -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damping", [1e-3, 0.1, 10.0])
def test_whitened_features_have_the_damped_inverse_root_as_their_map(damping: float):
    """The prepared second moment is Σ(Σ + γ·tr Σ)⁻¹ but for a factor, which makes its trace RADIUS²."""
    x = 0.5 * unit(records(4000)).astype(np.float32)  # short ones, so that hardly any is capped
    x[::2] *= -2  # spread out: half of them unit records on the other side
    moment = moment_of(x)
    moment[:-1, :-1] *= 1 / np.trace(moment[:-1, :-1])  # as of unit records
    mean = 2 * moment[-1, :-1]
    covariance = moment[:-1, :-1] - np.outer(mean, mean)
    trace = 1 - mean @ mean
    values, vectors = np.linalg.eigh(covariance + damping * trace * np.eye(6))
    root = vectors @ np.diag(values**-0.5) @ vectors.T
    root *= RADIUS / np.sqrt(np.trace(root @ covariance @ root))
    apply = Whitened(0.1, damping).fitted({"second": moment}, 0.0)
    small = 1e-3 * np.eye(6)
    found = (apply(mean + small) - apply(mean[None])) / 1e-3
    np.testing.assert_allclose(found, root, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("damping", [1e-3, 0.05])
def test_whitened_features_have_the_radius_as_root_mean_square_norm(damping: float):
    x = unit(np.random.default_rng(0).normal(size=(4000, 30))).astype(np.float32)
    found = Whitened(0.1, damping).fitted({"second": moment_of(x)}, 0.0)(x)
    assert np.sqrt(np.mean(np.sum(found.astype(np.float64) ** 2, axis=1))) == pytest.approx(RADIUS, rel=0.02)


@pytest.mark.parametrize("std", [0.0, 0.01, 1.0, 100.0])
def test_a_noisy_second_moment_gives_finite_features_within_the_cap(std: float):
    x = unit(records()).astype(np.float32)
    noise = std * np.random.default_rng(0).normal(size=(7, 7))
    found = Whitened(0.1, 0.01).fitted({"second": moment_of(x) + (noise + noise.T) / np.sqrt(2)}, std)(x)
    assert np.isfinite(found).all()
    assert np.linalg.norm(found, axis=1).max() <= RADIUS * CAP * (1 + 1e-6)


# --- all of them --------------------------------------------------------------------------------------------


def released_by(steps: tuple[Step, ...], x: np.ndarray) -> dict[Phase, dict[str, np.ndarray]]:
    """What each step would release of these records without noise, from records mapped by the steps before it."""
    found: dict[Phase, dict[str, np.ndarray]] = {}
    for step in steps:
        if isinstance(step, ColumnScales):
            found[Phase.SCALES] = {k: v.mean(axis=0) for k, v in sizes_of(x).items()}
        if isinstance(step, Centred):
            found[Phase.MOMENTS] = {"first": x.mean(axis=0)}
        if isinstance(step, Whitened):
            found[Phase.MOMENTS] = {"second": moment_of(x)}
        x = prepared((step,), found, QUIET)(x)
    return found


ALL = [
    (ColumnScales(0.01), UnitNorm(), Centred(0.05)),
    (ColumnScales(0.01), UnitNorm(constant=True, lift=True), Whitened(0.1, 0.01)),
    (UnitNorm(lift=True), Centred(0.05)),
]


@pytest.mark.parametrize("steps", ALL, ids=lambda s: " ".join(type(one).__name__ for one in s))
def test_steps_one_after_another(steps: tuple[Step, ...]):
    x = records()
    released = released_by(steps, x)
    found = prepared(steps, released, QUIET)(x)
    one_by_one = x
    for step in steps:
        one_by_one = prepared((step,), released, QUIET)(one_by_one)
    np.testing.assert_array_equal(found, one_by_one)
    assert found.shape == (len(x), width_of(steps, 6)) and found.dtype == np.float32
    assert np.linalg.norm(found, axis=1).max() <= RADIUS * CAP * (1 + 1e-6)
    assert prepared(steps, released, QUIET)(x[:0]).shape == (0, width_of(steps, 6))


@pytest.mark.parametrize("steps", ALL, ids=lambda s: " ".join(type(one).__name__ for one in s))
@pytest.mark.parametrize("bad", [0.0, np.nan, np.inf, -np.inf, 1e38, 1e-45])
def test_a_wild_record_spoils_no_other(steps: tuple[Step, ...], bad: float):
    x = records()
    apply = prepared(steps, released_by(steps, x), QUIET)
    with np.errstate(all="ignore"):
        wild = apply(np.concatenate([x, np.full((1, 6), bad, np.float32)]))
    np.testing.assert_array_equal(wild[:-1], apply(x))
    if np.isfinite(bad):
        assert np.isfinite(wild[-1]).all() and np.linalg.norm(wild[-1]) <= RADIUS * CAP * (1 + 1e-6)


def test_many_records_are_mapped_in_parts_that_no_one_sees(monkeypatch):
    from fedsofim.core import preparation

    x = records(rows=1000)
    steps = ALL[1]
    released = released_by(steps, x)
    whole = prepared(steps, released, QUIET)(x)
    monkeypatch.setattr(preparation, "_AT_ONCE", 50)
    np.testing.assert_allclose(prepared(steps, released, QUIET)(x), whole, rtol=1e-5, atol=1e-6)


def test_units_are_natural_only_after_a_step_that_makes_them_so():
    assert units_of((), 10) is AS_THEY_COME
    assert units_of((UnitNorm(),), 10) is AS_THEY_COME
    assert units_of((Centred(0.1), UnitNorm()), 10) is AS_THEY_COME
    for last in (Centred(0.1), Whitened(0.1, 0.1)):
        assert units_of((UnitNorm(), last), 10) == prepared_units(10)
