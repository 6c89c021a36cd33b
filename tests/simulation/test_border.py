"""The border: whatever a caller mistakes is told in one sentence that says what to do, not from inside a library."""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import fedsofim as fs
from fedsofim import methods
from fedsofim.core.method import OneGradient
from toy import make_toy

BUDGET = fs.Budget(1.0)
TOY = make_toy()
FS: Any = fs  # so that wrong types can be given


@contextmanager
def refused(pattern: str) -> Iterator[None]:
    """Inside, a mistake is made; it is answered by one sentence of ours, in words a caller knows."""
    with pytest.raises(fs.InputError, match=pattern) as caught:
        yield
    assert not any(word in str(caught.value) for word in ("\n", "Tracer", "object at 0x"))


TRAINING: dict[str, tuple[dict[str, Any], str]] = {
    "the method's name": ({"method": "fedsofim"}, r"the text 'fedsofim'; make it with fs\.make\('fedsofim'\)"),
    "the method's function": ({"method": fs.fedsofim}, r"the function fedsofim; call it .*fedsofim\(\)"),
    "a number as method": ({"method": 5}, r"the method is a int; expected a fs\.Method"),
    "an unknown recipe": ({"recipe": "papre"}, "no recipe 'papre'.*known: auto, paper"),
    "a recipe that is not named": ({"recipe": None}, "no recipe None.*known: auto, paper"),
    "no budget": ({"budget": None}, r"the budget is None; expected fs\.Budget.*fs\.NO_PRIVACY"),
    "a number as budget": ({"budget": 1.0}, r"the budget is 1\.0; expected fs\.Budget"),
    "rounds as text": ({"rounds": "2"}, "rounds is '2'; expected a whole number, at least 1"),
    "half a round": ({"rounds": 2.5}, r"rounds is 2\.5; expected a whole number"),
    "no rounds": ({"rounds": 0}, "rounds is 0; expected a whole number, at least 1"),
    "half a seed": ({"seed": 1.5}, r"seed is 1\.5; expected a whole number"),
    "an endless seed": ({"seed": 2**70}, "expected a whole number of at most 64 bits"),
    "never evaluated": ({"every": 0}, "every is 0; expected a whole number, at least 1"),
    "clip as text": ({"clip": "10"}, "clip is '10'; expected a number from 1e-09 to 1e\\+09"),
    "no clip": ({"clip": 0.0}, r"clip is 0\.0; expected a number from 1e-09 to 1e\+09"),
    "an unknown trust": ({"trust": "blind"}, "no trust 'blind'.*known: local, secure-sum"),
    "the model's name": ({"model": "softmax_head"}, r"expected a fs\.Model, for example fs\.softmax_head\(\)"),
    "preparation as a switch": ({"preparation": True}, "preparation is True; expected .*steps"),
    "a step that is not in a tuple": (
        {"preparation": fs.FeatureMoments()},
        "preparation is a FeatureMoments; expected .*steps",
    ),
    "a step's name": ({"preparation": ("UnitNorm",)}, "preparation is a tuple of 1; expected .*steps"),
    "two steps of one phase": (
        {"preparation": (fs.FeatureMoments(), fs.FeatureMoments())},
        "preparation .*moments.*; expected .*once",
    ),
    "progress as a function": ({"progress": print}, r"progress is .*; expected a fs\.Progress"),
}


@pytest.mark.parametrize("mistake", TRAINING)
def test_what_train_is_told_wrong(toy, mistake):
    changed, message = TRAINING[mistake]
    given: dict[str, Any] = {"method": fs.fedsofim(), "budget": BUDGET, "rounds": 2} | changed
    with refused(message):
        fs.train(toy, **given)


def test_data_that_no_clients_hold(toy):
    data: Any = toy.dataset
    with refused(r"the dataset toy, which no clients hold yet; deal it out with fs\.split"):
        fs.train(data, fs.fedsofim(), BUDGET)
    with refused("a ndarray; expected a split"):
        fs.train(data.x_train, fs.fedsofim(), BUDGET)


def test_what_split_is_told_wrong(toy):
    name: Any = "digits"
    with refused(r"split got a str; expected a dataset, as fs\.load gives one"):
        fs.split(name)
    with refused("alpha is 0; expected a number above 0.*iid=True"):
        fs.split(toy.dataset, 3, alpha=0)


def test_a_budget_in_text():
    text: Any = "1"
    with refused("epsilon is '1'; expected a number from 1e-06 to 1e\\+09"):
        fs.Budget(text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "x", [np.zeros((3, 4)), np.zeros(5), np.zeros((2, 3, 5)), "text", [[1.0, 2.0], [3.0]]], ids=lambda x: f"{x!r:.20}"
)
def test_records_of_another_form_are_not_predicted(toy, x):
    run = fs.train(toy, fs.fedgd(), BUDGET, 2, recipe="paper")
    with refused(r"predict got .*; expected numbers of shape \(records, 5\), as in training"):
        run.predict(x)


def test_records_in_doubles_are_predicted(toy):
    run = fs.train(toy, fs.fedgd(), BUDGET, 2, recipe="paper")
    doubles = toy.dataset.x_test.astype(float)
    assert np.array_equal(run.predict(doubles.tolist()), run.predict(toy.dataset.x_test))


# --- methods of one's own -----------------------------------------------------------------------------------


CLIENTS = {
    "one value": (lambda door, params, state, memory: door.gradient(params), "one array; expected two: the upload"),
    "three": (lambda door, params, state, memory: (door.gradient(params), 1, 2), "3 values; expected two: the upload"),
    "nothing": (lambda door, params, state, memory: None, "one NoneType; expected two: the upload"),
    "a memory it did not have": (
        lambda door, params, state, memory: (door.gradient(params), params),
        r"mine: the client keeps a memory of form float32\[6,3\]; expected \(\)",
    ),
}
SERVERS = {
    "one value": (lambda mean, state, params, facts: params, "mine: the server returned one array; expected two"),
    "three": (lambda mean, state, params, facts: (params, 1, 2), "mine: the server returned 3 values; expected two"),
    "shorter parameters": (
        lambda mean, state, params, facts: (params[:-1], state),
        r"parameters of form float32\[5,3\]; expected float32\[6,3\]",
    ),
    "parameters of another type": (
        lambda mean, state, params, facts: (params.astype(jnp.float16), state),
        r"parameters of form float16\[6,3\]; expected float32\[6,3\]",
    ),
    "a state it did not have": (
        lambda mean, state, params, facts: (params, mean),
        r"a state of form float32\[6,3\]; expected \(\)",
    ),
}


def same(mean, state, params, facts):
    return params, state


@pytest.mark.parametrize("kind", CLIENTS)
def test_clients_that_return_something_else(toy, kind):
    client, message = CLIENTS[kind]
    with refused(message):
        fs.train(toy, fs.Method("mine", client, same), BUDGET, 2, recipe="paper")


@pytest.mark.parametrize("kind", SERVERS)
def test_servers_that_return_something_else(toy, kind):
    server, message = SERVERS[kind]
    with refused(message):
        fs.train(toy, fs.Method("mine", OneGradient(), server), BUDGET, 2, recipe="paper")


def test_a_setup_that_makes_another_state(toy):
    setup = fs.Setup(lambda door, params: door.gradient(params), lambda mean, state: mean)
    with refused(r"mine: the server's setup gave a state of form float32\[6,3\]; expected \(\)"):
        fs.train(toy, fs.Method("mine", OneGradient(), same, setup=setup), BUDGET, 2, recipe="paper")


@pytest.mark.slow
def test_a_state_that_was_a_python_number_may_become_an_array(toy):
    method = fs.Method(
        "counting",
        OneGradient(),
        lambda mean, state, params, facts: (params - 0.1 * mean, state + jnp.sum(mean)),
        init=lambda params: 0.0,
    )
    assert np.isfinite(fs.train(toy, method, BUDGET, 2, recipe="paper").accuracy)


# --- names --------------------------------------------------------------------------------------------------


def test_a_method_that_is_not_named():
    number: Any = 5
    with refused("the method's name is 5; expected text, for example 'fedsofim'"):
        fs.make(number)
    with refused("did you mean 'fedsofim'"):
        fs.make("fedsofin")


def test_the_nine_are_functions_of_the_package():
    for name in methods.PUBLISHED:
        build = getattr(fs, name)
        assert isinstance(build(), fs.Method) and build() is fs.make(name) and build().name == name
        assert name in fs.__all__


def test_the_package_says_its_version():
    assert fs.__version__ == version("fedsofim")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: FS.load(5), "the dataset is 5; expected a name or a path"),
        (lambda: FS.by_owner("x"), "by_owner got a str; expected a dataset"),
        (lambda: FS.split(TOY.dataset, 2, seed=1.5), "seed is 1.5; expected a whole number"),
        (lambda: FS.split(TOY.dataset, 2, seed=-1), "seed is -1; expected a whole number, at least 0"),
        (lambda: FS.split(TOY.dataset, 2, min_size="1"), "min_size is '1'"),
        (lambda: FS.split(TOY.dataset, 2, math.inf), "alpha is inf; expected a number above 0"),
        (lambda: FS.FeatureMoments(share="x"), "share is 'x'"),
        (lambda: FS.epsilon_of("1", 1e-5), "mu is '1'; expected a number"),
        (lambda: FS.fedgd(lr="0.1"), "lr is '0.1'; expected a finite number above 0"),
        (lambda: FS.fedsofim(rho="0.1"), "rho is '0.1'; expected a number above 0"),
        (lambda: FS.make("fedgd", ["lr"]), "expected names with values"),
        (lambda: FS.train(TOY, FS.fedgd(), FS.Budget(1), 1, trust=None), "there is no trust None"),
        (lambda: FS.train(TOY, FS.fedgd(), FS.Budget(1), 1, weights=1), "there is no weights 1"),
        (lambda: _plan(budget=None), "the budget is None; expected fs.Budget"),
        (lambda: _plan(sizes=["a"]), "client sizes are a list of 1"),
        (lambda: _plan(budget=FS.NO_PRIVACY, multiplier=1.0), "no-privacy contradict each other"),
        (lambda: _plan(_client(lambda door, params: (params, ()))), "does not take (door, params, state, memory)"),
        (lambda: _plan(fs.fedgd()._replace(server=lambda mean, state: 0)), "the server does not take (mean, state,"),
        (lambda: _plan(model=_model(init=lambda key: 0)), "the model's init does not take (key, shape, classes)"),
        (lambda: _train(model=_model(logits=lambda p, x: x @ p[:-1, :1])), "have shape (2, 1); expected (2, 3)"),
        (lambda: _plan(_client(lambda *a: ("text", ()))), "returned a str among its values; expected arrays"),
    ],
)
def test_other_senseless_arguments_are_one_sentence_too(call, said):
    with pytest.raises(fs.InputError, match=re.escape(said)):
        call()


def _client(client: Any) -> fs.Method:
    return fs.fedgd()._replace(client=client)


def _model(**changed: Any) -> fs.Model:
    return fs.softmax_head()._replace(**changed)


def _train(**given: Any) -> fs.Run:
    return fs.train(TOY, fs.fedgd(), BUDGET, 1, recipe="paper", **given)


def _plan(method: fs.Method = fs.fedgd(), model: fs.Model = fs.softmax_head(), **given: Any) -> fs.Plan:
    usual: dict[str, Any] = {"sizes": [5], "shape": (3,), "classes": 2, "budget": fs.Budget(1.0), "rounds": 1}
    return fs.make_plan(method, model, **usual | given)
