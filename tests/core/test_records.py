"""Records in blocks: little padding, and each record once."""

import numpy as np

from fedsofim.core.records import block_shape, in_blocks


def test_padding_stays_small_however_unequal_the_clients():
    for sizes in ([891, 3498, 2500, 9986], [50] * 1000, [1_000_000], [1] * 100, [3, 100_000]):
        blocks, size = block_shape(sizes)
        assert blocks * size <= 1.1 * sum(sizes) + 8 * len(sizes)


def test_blocks_hold_each_clients_records_in_order_and_zeros_behind():
    x, y = 10 + np.arange(10, dtype=np.float32)[:, None], 10 + np.arange(10, dtype=np.int32)
    parts = [np.array([7, 1, 4]), np.array([0, 9])]
    laid = in_blocks(x, y, parts, size=2)
    assert np.asarray(laid.y).tolist() == [[17, 11], [14, 0], [10, 19]]
    assert np.asarray(laid.weight).tolist() == [[1, 1], [1, 0], [1, 1]]
    assert np.array_equal(laid.x[..., 0], laid.y) and laid.owner.tolist() == [0, 0, 1]


def test_the_stated_shape_is_the_one_that_is_laid():
    for sizes in ((3, 40, 11), (1,), (700, 2)):
        parts = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
        assert in_blocks(np.ones((sum(sizes), 1)), np.zeros(sum(sizes)), parts).y.shape == block_shape(sizes)
