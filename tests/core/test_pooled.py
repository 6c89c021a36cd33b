"""All clients' mean in one sum: when it may be asked for, and that the records and the noise of it are right."""

import math

import numpy as np
import pytest

from fedsofim.core.method import OneGradient
from fedsofim.core.pooled import can_pool, noise_gain, pool
from stranger import priced, stranger

SIZES = (3, 40, 700)
FACTORS = np.array([0.5, 0.25, 0.125])


def pooled(tile: int):
    """Clients whose records say who holds them: x is the row, y the client."""
    rows, owner = np.arange(sum(SIZES), dtype=np.float32)[:, None], np.repeat(np.arange(3), SIZES).astype(np.int32)
    return pool(rows, owner, np.split(np.arange(len(rows)), np.cumsum(SIZES)[:-1]), FACTORS, tile)


@pytest.mark.parametrize("tile", [64, 256, 1024])
def test_every_record_is_there_once_with_its_clients_factor(tile):
    records = pooled(tile)
    held = records.weight > 0
    assert held.sum() == sum(SIZES)
    assert sorted(np.asarray(records.x)[held][:, 0]) == list(range(sum(SIZES)))
    assert np.array_equal(np.asarray(records.weight)[held], FACTORS[np.asarray(records.y)[held]])
    assert not np.asarray(records.owner).any()  # as if of one client


def test_it_is_one_long_block_of_whole_tiles_and_hardly_any_padding():
    assert pooled(64).x.shape == (1, 768, 1)
    assert pooled(1024).x.shape == (1, 768, 1)  # tiles of 1024 would be mostly padding


def test_a_weighted_sum_of_pooled_records_is_the_mean_of_the_clients():
    """Σ_i a_i·Σ_j x_j, whichever way the records are laid."""
    total = sum(a * rows.sum() for a, rows in zip(FACTORS, np.split(np.arange(743.0), [3, 43]), strict=True))
    for tile in (64, 1024):
        records = pooled(tile)
        assert float(np.sum(records.weight[..., None] * records.x)) == pytest.approx(total, rel=1e-6)


def test_own_noise_adds_up_and_shared_noise_hides_the_largest():
    assert noise_gain(FACTORS, shared=False) == pytest.approx(math.sqrt(0.5**2 + 0.25**2 + 0.125**2))
    assert noise_gain(FACTORS, shared=True) == 0.5


def test_only_the_one_gradient_client_itself_may_be_pooled():
    class More(OneGradient):
        def __call__(self, door, params, state, memory):
            return door.gradient(params) ** 2, memory

    assert can_pool(stranger(OneGradient())) and can_pool(stranger(OneGradient(sample=0.5)))
    assert not can_pool(stranger(More()))
    assert not can_pool(stranger(lambda *given: OneGradient()(*given)))


def test_a_subclass_of_the_one_gradient_client_gets_no_discount():
    class More(OneGradient):
        def __call__(self, door, params, state, memory):
            return door.gradient(params) ** 2, memory

    assert not priced(More()).pooled
    assert priced(More(), trust="secure-sum").noise_std == priced(More()).noise_std
