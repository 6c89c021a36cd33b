"""Modules of flax, equinox and Keras: trained as they are, refused where they mix records, given back trained."""

import os
from collections.abc import Callable

os.environ.setdefault("KERAS_BACKEND", "jax")

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedsofim as fs

HIDDEN = 8


@pytest.fixture(scope="module")
def digits() -> fs.Split:
    data = fs.load("digits")
    few = fs.Dataset.of(
        "digits", x_train=data.x_train[:300], y_train=data.y_train[:300], x_test=data.x_test, y_test=data.y_test
    )
    return fs.split(few, clients=2, iid=True)


def flax_module(rngs):
    nnx = pytest.importorskip("flax.nnx")
    return nnx.Sequential(nnx.Linear(64, HIDDEN, rngs=rngs), jnp.tanh, nnx.Linear(HIDDEN, 10, rngs=rngs))


def equinox_module(key):
    nn = pytest.importorskip("equinox").nn
    first, second = jax.random.split(key)
    ends = [nn.Linear(*size, dtype=jnp.float32, key=k) for size, k in (((64, HIDDEN), first), ((HIDDEN, 10), second))]
    return nn.Sequential([ends[0], nn.Lambda(jnp.tanh), ends[1]])


def keras_module():
    keras = pytest.importorskip("keras")
    keras.utils.set_random_seed(0)
    layers = keras.layers
    return keras.Sequential([layers.Input((64,)), layers.Dense(HIDDEN, activation="tanh"), layers.Dense(10)])


def flax_model() -> tuple[fs.Model, Callable]:
    nnx = pytest.importorskip("flax.nnx")
    module = flax_module(nnx.Rngs(3))
    return fs.from_flax(module), lambda module, x: module(x)


def equinox_model() -> tuple[fs.Model, Callable]:
    pytest.importorskip("equinox")
    return fs.from_equinox(equinox_module(jax.random.key(3))), lambda module, x: jax.vmap(module)(x)


def keras_model() -> tuple[fs.Model, Callable]:
    return fs.from_keras(keras_module()), lambda module, x: module(x)


ADAPTERS = {"flax": flax_model, "equinox": equinox_model, "keras": keras_model}


def as_mlp(leaves: list) -> list:
    """The module's arrays in the order of the library's own mlp: layers of b and w."""
    arrays = sorted((np.asarray(a) for a in leaves), key=lambda a: (a.size != 64 * HIDDEN, a.ndim != 1, a.size))
    first, second, last, bias = (
        arrays[0],
        next(a for a in arrays if a.shape == (HIDDEN,)),
        next(a for a in arrays if a.size == HIDDEN * 10),
        next(a for a in arrays if a.shape == (10,)),
    )
    return [{"b": second, "w": _tall(first, 64)}, {"b": bias, "w": _tall(last, HIDDEN)}]


def _tall(matrix: np.ndarray, inputs: int) -> np.ndarray:
    return matrix if matrix.shape[0] == inputs else matrix.T


@pytest.mark.parametrize("library", ADAPTERS)
def test_a_module_trains_as_the_same_network_of_ours_does(library, digits):
    """Same start, same noise-free clipped gradients, so the same accuracy to float precision, and the same sums."""
    model, _ = ADAPTERS[library]()
    ours = fs.mlp((HIDDEN,))
    start = as_mlp(jax.tree.leaves(model.init(jax.random.key(0), (64,), 10)))
    same = ours._replace(init=lambda key, shape, outputs: jax.tree.map(jnp.asarray, start))
    how = {"rounds": 4, "budget": fs.NO_PRIVACY, "recipe": "paper", "clip": 1.0}
    runs = [fs.train(digits, fs.fedgd(lr=2.0), model=m, **how) for m in (model, same)]
    assert runs[0].trace.loss == pytest.approx(runs[1].trace.loss, rel=1e-4)
    assert runs[0].trace.loss[-1] < runs[0].trace.loss[0]


@pytest.mark.parametrize("library", ADAPTERS)
def test_trained_numbers_go_back_into_the_module_and_the_first_one_is_left_alone(library, digits):
    model, apply = ADAPTERS[library]()
    before = [np.array(a) for a in jax.tree.leaves(model.init(jax.random.key(0), (64,), 10))]
    run = fs.train(digits, fs.fedgd(lr=1.0), fs.Budget(50), 2, model=model, recipe="paper", clip=1.0)
    x = digits.dataset.x_test[:20]
    np.testing.assert_allclose(apply(run.module(), x), model.logits(run.params, x), rtol=1e-5, atol=1e-5)
    after = jax.tree.leaves(model.init(jax.random.key(0), (64,), 10))
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    assert not np.allclose(apply(run.module(), x), model.logits(model.init(jax.random.key(0), (64,), 10), x))


def test_a_function_that_makes_modules_starts_anew_with_every_seed():
    nnx = pytest.importorskip("flax.nnx")
    starts = [fs.from_flax(flax_module).init(jax.random.key(seed), (64,), 10) for seed in (0, 0, 1)]
    kernels = [np.asarray(jax.tree.leaves(start)[1]) for start in starts]
    assert np.array_equal(kernels[0], kernels[1]) and not np.array_equal(kernels[0], kernels[2])
    assert isinstance(nnx.Rngs(0), nnx.Rngs)
    pytest.importorskip("equinox")
    starts = [fs.from_equinox(equinox_module).init(jax.random.key(seed), (64,), 10) for seed in (0, 0, 1)]
    first = next(iter(starts[0]))
    assert np.array_equal(starts[0][first], starts[1][first]) and not np.array_equal(starts[0][first], starts[2][first])


def flax_batch_norm(**how):
    nnx = pytest.importorskip("flax.nnx")
    return nnx.Sequential(nnx.Linear(64, 8, rngs=nnx.Rngs(0)), nnx.BatchNorm(8, rngs=nnx.Rngs(0), **how))


def flax_dropout(**how):
    nnx = pytest.importorskip("flax.nnx")
    return nnx.Sequential(nnx.Linear(64, 10, rngs=nnx.Rngs(0)), nnx.Dropout(0.5, rngs=nnx.Rngs(1), **how))


def test_flax_batch_statistics_and_dropout_are_refused_unless_switched_off(digits):
    with pytest.raises(fs.Refused, match=r"layers.1 is nnx.BatchNorm, which mixes the statistics of all records"):
        fs.from_flax(flax_batch_norm())
    with pytest.raises(fs.Refused, match=r"layers.1 is nnx.Dropout: .* switch it off \(deterministic=True\)"):
        fs.from_flax(flax_dropout())
    fs.from_flax(flax_batch_norm(use_running_average=True))
    model = fs.from_flax(flax_dropout(deterministic=True))
    run = fs.train(digits, fs.fedgd(lr=1.0), fs.Budget(50), 1, model=model, recipe="paper")
    assert run.plan.epsilon == pytest.approx(50)


def test_equinox_batch_statistics_and_dropout_are_refused():
    nn = pytest.importorskip("equinox").nn
    key = jax.random.key(0)
    with pytest.raises(fs.Refused, match=r"layers/1 is equinox.nn.BatchNorm, which mixes"):
        fs.from_equinox(nn.Sequential([nn.Linear(64, 8, key=key), nn.BatchNorm(8, axis_name="batch", mode="ema")]))
    with pytest.raises(fs.Refused, match=r"layers/1 is equinox.nn.Dropout: .* \(inference=True\)"):
        fs.from_equinox(nn.Sequential([nn.Linear(64, 8, key=key), nn.Dropout(0.5)]))
    fs.from_equinox(nn.Sequential([nn.Linear(64, 8, key=key), nn.Dropout(0.5, inference=True)]))


def test_keras_batch_statistics_dropout_and_a_softmax_at_the_end_are_refused():
    keras = pytest.importorskip("keras")
    layers = keras.layers

    def put_together(*more):
        return keras.Sequential([layers.Input((64,)), layers.Dense(8), *more, layers.Dense(10)])

    with pytest.raises(fs.Refused, match=r"batch_normalization.* is keras.layers.BatchNormalization, which mixes"):
        fs.from_keras(put_together(layers.BatchNormalization()))
    with pytest.raises(fs.Refused, match=r"dropout.* is keras.layers.Dropout: .* \(rate=0\)"):
        fs.from_keras(put_together(layers.Dropout(0.5)))
    fs.from_keras(put_together(layers.BatchNormalization(trainable=False)))
    with pytest.raises(fs.InputError, match="ends in softmax; leave that out"):
        fs.from_keras(keras.Sequential([layers.Input((64,)), layers.Dense(10, activation="softmax")]))
    with pytest.raises(fs.InputError, match="has no variables yet"):
        fs.from_keras(keras.Sequential([layers.Dense(10)]))


def test_what_is_no_module_is_said():
    pytest.importorskip("flax")
    with pytest.raises(fs.InputError, match=r"the module is int; expected an nnx\.Module, or a function of nnx\.Rngs"):
        fs.from_flax(3)


def test_a_saved_module_needs_its_module_again(tmp_path, digits):
    model, _ = flax_model()
    run = fs.train(digits, fs.fedgd(lr=1.0), fs.Budget(50), 1, model=model, recipe="paper")
    folder = run.save(tmp_path / "m")
    with pytest.raises(fs.InputError, match=r"give it: fs\.load_model\(folder, model=fs\.from_flax\(\.\.\.\)\)"):
        fs.load_model(folder)
    x = digits.dataset.x_test
    assert np.array_equal(fs.load_model(folder, model=model).predict(x), run.predict(x))
    with pytest.raises(fs.InputError, match="was not made of a module"):
        fs.train(digits, fs.fedgd(lr=1.0), fs.Budget(50), 1, recipe="paper").module()
