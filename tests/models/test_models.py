"""Models by name: what they are made of, how they are set, kept and loaded, and which words wrong ones get."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedsofim as fs
from fedsofim import models
from fedsofim.core.models import for_task
from fedsofim.core.summary import formed
from fedsofim.tasks import Task
from toy import make_toy

KEY = jax.random.key(0)


def test_every_file_of_the_room_is_a_model_and_nothing_else_is():
    assert tuple(models.names()[: len(models.OWN)]) == models.OWN


def test_linear_is_the_head_under_both_names():
    assert models.make("linear") is models.make("softmax_head") is fs.softmax_head()
    assert models.make("linear", {"start": "0"}) is fs.softmax_head(0.0)


def test_equal_settings_give_one_object_however_they_are_written():
    one = models.make("mlp", {"hidden": "8,4"})
    assert one is fs.mlp((8, 4)) is fs.mlp(hidden=(8, 4), activation="tanh") is models.make("mlp", {"hidden": [8, 4]})
    assert one is not fs.mlp((8,))
    assert dict(one.settings) == {"hidden": (8, 4), "activation": "tanh"} and one.name == "mlp"


@pytest.mark.parametrize("activation", ["tanh", "relu", "gelu"])
def test_an_mlp_is_its_layers_written_out(activation):
    model = fs.mlp((6,), activation)
    (first, last), x = model.init(KEY, (5,), 3), jax.random.normal(KEY, (4, 5), jnp.float32)
    act = {"tanh": jnp.tanh, "relu": jax.nn.relu, "gelu": jax.nn.gelu}[activation]
    wanted = act(x @ first["w"] + first["b"]) @ last["w"] + last["b"]
    np.testing.assert_allclose(model.logits([first, last], x), wanted, rtol=1e-5, atol=1e-6)
    loss = -jax.nn.log_softmax(wanted[0])[2]
    assert float(model.loss([first, last], x[0], jnp.int32(2))) == pytest.approx(float(loss), rel=1e-5)


def test_a_cnn_sees_the_picture_and_not_only_the_row():
    """With a kernel and stride of one pixel, a convolution is the same layer at every pixel."""
    model = fs.cnn((2,), kernel=1, stride=1)
    params = model.init(KEY, (16,), 3)
    x = jax.random.normal(KEY, (16,), jnp.float32)
    pixels = jnp.tanh(x[:, None] * params["conv"][0]["w"][0, 0, 0] + params["conv"][0]["b"]).reshape(-1)
    wanted = pixels @ params["dense"][0]["w"] + params["dense"][0]["b"]
    np.testing.assert_allclose(model.logits(params, x[None])[0], wanted, rtol=1e-5, atol=1e-6)


def test_what_a_cnn_takes_for_the_picture():
    shapes = {name: fs.cnn((4,), image=image) for name, image in (("square", None), ("colour", (4, 4, 3)))}
    assert shapes["square"].init(KEY, (16,), 2)["conv"][0]["w"].shape == (5, 5, 1, 4)
    assert shapes["colour"].init(KEY, (48,), 2)["conv"][0]["w"].shape == (5, 5, 3, 4)
    with pytest.raises(fs.InputError, match=r"a record has 48 numbers, which are not those of a square of one channel"):
        shapes["square"].init(KEY, (48,), 2)
    with pytest.raises(fs.InputError, match="which are not those of 4x4x3"):
        shapes["colour"].init(KEY, (49,), 2)


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("mpl", {}, "there is no model 'mpl'; did you mean 'mlp'"),
        ("mlp", {"hiden": "3"}, "there is no parameter of mlp 'hiden'; did you mean 'hidden'"),
        ("mlp", {"hidden": "wide"}, "mlp: hidden is 'wide'; expected int,int"),
        ("mlp", {"hidden": "0"}, r"hidden is a tuple of 1; expected whole numbers above 0"),
        ("mlp", {"activation": "step"}, "there is no value of activation 'step'"),
        ("cnn", {"channels": ()}, r"channels is a tuple of 0; expected whole numbers above 0"),
        ("cnn", {"image": "8,8"}, r"image is a tuple of 2; expected height, width and channels"),
        ("cnn", {"kernel": 0}, "kernel is 0; expected a whole number, at least 1"),
        (
            "mlp",
            [3],
            r"mlp: the settings are a list of 1; expected names with values, .*'hidden': \(64, 64\)}",
        ),
        (3, {}, "the model's name is 3; expected text"),
    ],
)
def test_wrong_names_and_settings_are_said(name, settings, words):
    with pytest.raises(fs.InputError, match=words):
        models.make(name, settings)


def test_a_network_takes_the_loss_of_the_task():
    numbers = Task("numbers", range=(0, 10))
    model = for_task(fs.mlp((4,)), numbers)
    assert for_task(fs.mlp((4,)), numbers) is model
    params, x = model.init(KEY, (5,), 1), jnp.ones(5, jnp.float32)
    z = model.logits(params, x[None])[0, 0]
    assert float(model.loss(params, x, jnp.float32(0.25))) == pytest.approx(float((z - 0.25) ** 2 / 2), rel=1e-5)
    assert for_task(fs.softmax_head(), numbers) is fs.softmax_head()  # has a loss of its own


def test_layers_of_an_mlp_are_never_formed_for_a_record():
    """Whoever changes how mlp is written changes what a round costs: then this says so."""
    plan = fs.make_plan(
        fs.fedgd(), fs.mlp((32,)), sizes=[10], shape=(20,), classes=5, budget=fs.Budget(1), rounds=1, clip=1.0
    )
    (told,) = formed(plan).values()
    assert told.startswith("37 of a record's 837 numbers are formed: 32, 5")  # the biases


def test_a_saved_network_is_loaded_by_its_name_alone(tmp_path):
    run = fs.train(make_toy(), fs.fedgd(lr=1.0), fs.Budget(50), 2, model=fs.mlp((7,), "gelu"), recipe="paper")
    folder = run.save(tmp_path / "m")
    document = json.loads((folder / "model.json").read_text())
    assert (document["model"], document["model_settings"]) == ("mlp", {"hidden": [7], "activation": "gelu"})
    model, x = fs.load_model(folder), run.split.dataset.x_test
    assert np.array_equal(model.predict(x), run.model.predict(x))
    assert "Model: mlp, hidden 7, activation gelu" in model.card
    model.save(tmp_path / "again")
    assert json.loads((tmp_path / "again" / "model.json").read_text())["model_settings"] == document["model_settings"]
    with pytest.raises(fs.InputError, match=r"this model is not linear \(mlp\)"):
        model.to_onnx(tmp_path / "m.onnx")


def test_a_file_of_ones_own_takes_settings_too(tmp_path):
    text = "import fedsofim as fs\n\ndef mine(width: int = 3):\n    return fs.mlp((width,))._replace(name='')\n"
    (tmp_path / "mine.py").write_text(text)
    file = str(tmp_path / "mine.py")
    made = models.make(file, {"width": "9"})
    assert made.init(KEY, (5,), 2)[0]["w"].shape == (5, 9)
    assert (made.name, made.settings) == (file, (("width", 9),)) and models.make(file, {"width": 9}) is made
    run = fs.train(make_toy(), fs.fedgd(lr=1.0), fs.Budget(50), 1, model=made, recipe="paper")
    folder = run.save(tmp_path / "m")
    assert fs.load_model(folder, model=file).settings == {"width": 9}
