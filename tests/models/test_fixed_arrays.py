"""What a model closes over: arrays that it says are public may stand in a client's program, and no others."""

import jax
import jax.numpy as jnp
import pytest

import fedsofim as fs
from fedsofim.core.models import Fixed
from toy import make_toy

SPLIT = make_toy()
WIDTH = SPLIT.dataset.features
TURN = jnp.asarray(jax.random.normal(jax.random.key(0), (WIDTH, 4), jnp.float32))


def model(array: jax.Array, fixed: Fixed | None) -> fs.Model:
    def logits(params, x):
        return (x @ array) @ params

    def init(key, shape, classes):
        return jnp.zeros((4, classes), jnp.float32)

    def loss(params, x, y):
        return -jax.nn.log_softmax(logits(params, x))[y]

    return fs.Model(init, loss, logits, fixed=fixed)


def planned(array: jax.Array, fixed: Fixed | None) -> fs.Run:
    return fs.train(SPLIT, fs.fedgd(lr=1.0), fs.Budget(50), 1, model=model(array, fixed), recipe="paper")


def test_a_declared_array_may_be_captured():
    assert planned(TURN, Fixed((TURN,))).plan.epsilon == pytest.approx(50)


@pytest.mark.parametrize("fixed", [None, Fixed(()), Fixed((TURN,))])
def test_any_other_array_is_refused_also_an_equal_one(fixed):
    with pytest.raises(fs.Refused, match=r"captures an array of shape \(\d+, 4\) from outside; it may hold records"):
        planned(jnp.array(TURN, copy=True), fixed)


def test_a_method_that_captures_records_is_refused_beside_a_declared_array():
    records = jnp.asarray(SPLIT.dataset.x_train)

    def client(door, params, state, memory):
        total = door.gradient(params)
        return jax.tree.map(lambda s: s / door.size + records.sum(), total), memory

    leaky = fs.Method("leaky", client, fs.fedgd(lr=1.0).server)
    with pytest.raises(fs.Refused, match="captures an array"):
        fs.train(SPLIT, leaky, fs.Budget(50), 1, model=model(TURN, Fixed((TURN,))), recipe="paper")


def test_what_a_method_declares_while_it_is_read_counts_for_nothing():
    """Neither in the program that is being read, nor in a later one."""
    records = jnp.asarray(SPLIT.dataset.x_train)

    def client(door, params, state, memory):
        object.__setattr__(door._model.fixed, "arrays", (TURN, records))
        return jax.tree.map(lambda s: s / door.size + records.sum(), door.gradient(params)), memory

    leaky = fs.Method("leaky", client, fs.fedgd(lr=1.0).server)
    with pytest.raises(fs.Refused, match="captures an array"):
        fs.train(SPLIT, leaky, fs.Budget(50), 1, model=model(TURN, Fixed((TURN,))), recipe="paper")
