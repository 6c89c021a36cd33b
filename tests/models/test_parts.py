"""Parts of a model: only what is named is learned, priced and counted, and the rest is what it was."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedsofim as fs
from fedsofim.models.parts import named
from toy import make_toy

KEY = jax.random.key(0)
SPLIT = make_toy()
SHAPE, CLASSES = SPLIT.dataset.x_train.shape[1:], SPLIT.dataset.classes
MODEL = fs.mlp((8,))
PARAMS = MODEL.init(KEY, SHAPE, CLASSES)


def size(tree) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def trained(model, **how) -> fs.Run:
    return fs.train(SPLIT, fs.fedgd(lr=1.0), fs.Budget(50), 2, model=model, recipe="paper", clip=1.0, **how)


def test_only_what_is_named_is_learned_and_the_rest_stays():
    run = trained(fs.frozen(MODEL, PARAMS, "1"))
    assert set(run.params) == {"1/b", "1/w"}
    assert run.params["1/w"].shape == PARAMS[1]["w"].shape and not np.allclose(run.params["1/w"], PARAMS[1]["w"])
    x = jnp.asarray(SPLIT.dataset.x_test)
    by_hand = [PARAMS[0], {"b": run.params["1/b"], "w": run.params["1/w"]}]
    np.testing.assert_allclose(run.plan.model.logits(run.params, x), MODEL.logits(by_hand, x), rtol=1e-5, atol=1e-5)


def test_a_frozen_body_under_a_last_layer_is_a_linear_head_on_its_features():
    """The same clipped sums and the same noise as a head that is given the body's outputs as records."""
    body = PARAMS[0]
    seen = np.tanh(SPLIT.dataset.x_train @ np.asarray(body["w"]) + np.asarray(body["b"]))
    test = np.tanh(SPLIT.dataset.x_test @ np.asarray(body["w"]) + np.asarray(body["b"]))
    d = SPLIT.dataset
    data = fs.Dataset.of("seen", x_train=seen, y_train=d.y_train, x_test=test, y_test=d.y_test)
    ours = fs.Split(data, SPLIT.parts, "as before")
    start = jnp.concatenate([PARAMS[1]["w"], PARAMS[1]["b"][None]])
    head = fs.softmax_head()._replace(init=lambda key, shape, classes: start)
    how = {"budget": fs.NO_PRIVACY, "rounds": 3, "recipe": "paper", "clip": 0.5}
    ends = [
        fs.train(s, fs.fedgd(lr=1.0), model=m, **how).trace.loss
        for s, m in ((SPLIT, fs.frozen(MODEL, PARAMS, "1")), (ours, head))
    ]
    assert ends[0] == pytest.approx(ends[1], rel=1e-4)


def test_a_function_chooses_too_and_what_chooses_nothing_is_said():
    assert set(fs.frozen(MODEL, PARAMS, lambda name: name.endswith("b")).init(KEY, SHAPE, CLASSES)) == {"0/b", "1/b"}
    for wrong, words in (("2", "none is, or is in, '2'"), ((), "none was named"), (lambda name: False, "chose none")):
        with pytest.raises(fs.InputError, match=f"trainable: .*{words}.*; the model's arrays are 0/b, 0/w, 1/b, 1/w"):
            fs.frozen(MODEL, PARAMS, wrong)


def test_parameters_of_another_model_are_refused():
    with pytest.raises(fs.InputError, match="the given parameters have shapes"):
        trained(fs.frozen(fs.mlp((9,)), PARAMS, "1"))


def test_a_low_rank_change_begins_at_the_model_and_has_few_numbers():
    model = fs.low_rank(MODEL, PARAMS, rank=1)
    start, x = model.init(KEY, SHAPE, CLASSES), jnp.asarray(SPLIT.dataset.x_test)
    np.testing.assert_allclose(model.logits(start, x), MODEL.logits(PARAMS, x), rtol=1e-6)
    sides = {k: w.shape for k, w in named(PARAMS).items() if w.ndim == 2 and sum(w.shape) < w.size}
    assert set(start) == set(sides) and size(start) == sum(sum(shape) for shape in sides.values()) < size(PARAMS)
    run = trained(model)
    change = run.params["0/w"]["A"] @ run.params["0/w"]["B"]
    moved = [{"b": PARAMS[0]["b"], "w": PARAMS[0]["w"] + change}, dict(PARAMS[1])]
    if "1/w" in start:
        moved[1]["w"] = PARAMS[1]["w"] + run.params["1/w"]["A"] @ run.params["1/w"]["B"]
    assert float(jnp.abs(change).max()) > 0 and np.linalg.matrix_rank(np.asarray(change)) == 1
    np.testing.assert_allclose(model.logits(run.params, x), MODEL.logits(moved, x), rtol=1e-5, atol=1e-5)


def test_a_low_rank_change_may_learn_other_arrays_whole():
    start = fs.low_rank(MODEL, PARAMS, rank=1, trainable="1").init(KEY, SHAPE, CLASSES)
    assert set(start) == {"0/w", "1/b", "1/w"} and start["1/w"].shape == PARAMS[1]["w"].shape
    with pytest.raises(fs.InputError, match="no matrix of the model is larger than its change of rank 100"):
        fs.low_rank(MODEL, PARAMS, rank=100)


def test_the_last_layer_of_a_flax_module_goes_back_into_it():
    nnx = pytest.importorskip("flax.nnx")
    module = nnx.Sequential(
        nnx.Linear(SHAPE[0], 4, rngs=nnx.Rngs(0)), jnp.tanh, nnx.Linear(4, CLASSES, rngs=nnx.Rngs(1))
    )
    model = fs.from_flax(module)
    run = trained(fs.frozen(model, model.init(KEY, SHAPE, CLASSES), "layers/2"))
    assert set(run.params) == {"layers/2/bias", "layers/2/kernel"}
    back = run.module()
    assert np.array_equal(back.layers[0].kernel[...], module.layers[0].kernel[...])
    assert np.array_equal(back.layers[2].kernel[...], run.params["layers/2/kernel"])
