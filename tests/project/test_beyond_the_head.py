"""A network on real records, as users compile it: training is what this costs, and compiling next to nothing."""

import jax
import pytest

import fedsofim as fs

pytestmark = pytest.mark.optimised


@pytest.mark.slow
@pytest.mark.longest
def test_an_mlp_under_epsilon_5_is_beyond_the_linear_head_without_noise():
    """On all of fashion, with nothing set by hand. The head without noise reaches 86.36 by the recipe, and 86.57 after
    300 rounds, where it no longer moves; the MLP 87.4 with this seed and 86.8 with the next."""
    split = fs.split(fs.load("fashion"), clients=20)
    with jax.enable_x64(False):
        run = fs.train(split, budget=fs.Budget(5), model=fs.mlp((64,)), trust="secure-sum", every=100)
    assert run.plan.epsilon == pytest.approx(5) and run.by_hand == []
    assert run.accuracy > 86.8
