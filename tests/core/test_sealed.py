"""A method's and a model's functions never run where records are: they are traced apart, and only the program runs."""

import gc
import sys
import threading
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.core import Tracer
from jax.experimental import io_callback

import fedsofim as fs
from fedsofim import models
from fedsofim.core.isolation import call_apart
from fedsofim.core.sealed import Sealed
from fedsofim.simulation import sweep
from toy import make_toy

TOY = make_toy()
FOUND: list[Any] = []


def look_around(*given: Any) -> None:
    """Collect every array that can be reached from the frames above, and tell on which thread this was called."""
    FOUND.append(threading.current_thread())
    frame: Any = sys._getframe()
    while frame is not None:
        for value in list(frame.f_locals.values()):
            FOUND.extend(_arrays(value))
        frame = frame.f_back
    for value in jax.tree.leaves(given):
        trace = getattr(getattr(value, "_trace", None), "frame", None)
        FOUND.extend(_arrays(list(getattr(trace, "constvar_to_val", {}).values())))


def _arrays(value: Any, depth: int = 3) -> list[Any]:
    """Arrays of the size of the records, in a value or what it holds."""
    if isinstance(value, np.ndarray | jax.Array) or hasattr(value, "aval"):
        return [value] if np.size(value) >= TOY.dataset.x_train.size else []
    if depth == 0 or isinstance(value, str | bytes | type):
        return []
    inside = list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, list | tuple) else []
    inside += [getattr(value, name, None) for name in ("dataset", "x_train", "records", "x", "split", "__dict__")]
    return [a for v in inside if v is not None for a in _arrays(v, depth - 1)]


def _client(door, params, state, memory):
    return door.gradient(params) / door.size, memory


def _method(**change: Any) -> fs.Method:
    plain = fs.Method("prying", _client, lambda mean, state, params, facts: (params - 0.1 * mean, state))
    return plain._replace(**change)


def _prying_client(door, params, state, memory):
    look_around(params)
    return _client(door, params, state, memory)


def _prying_server(mean, state, params, facts):
    look_around(mean, state, params)
    return params - 0.1 * mean, state


def _prying_init(params):
    look_around(params)
    return params * 0


def _prying_memory(params):
    look_around(params)
    return params * 0


def _prying_setup(mean, state):
    look_around(mean, state)
    return state


def _prying_model(**which: bool) -> fs.Model:
    head = fs.softmax_head()

    def init(key, shape, classes):
        if which.get("init"):
            look_around(key)
        return head.init(key, shape, classes)

    def logits(params, x):
        if which.get("logits"):
            look_around(params)
        return head.logits(params, x)

    return fs.Model(init, head.loss, logits)


PRYING: dict[str, tuple[fs.Method, fs.Model | None]] = {
    "client": (_method(client=_prying_client), None),
    "server": (_method(server=_prying_server), None),
    "init": (_method(init=_prying_init), None),
    "memory": (_method(memory=_prying_memory), None),
    "setup": (_method(setup=fs.Setup(lambda door, params: door.gradient(params, share=0.1), _prying_setup)), None),
    "model's init": (_method(), _prying_model(init=True)),
    "model's logits": (_method(), _prying_model(logits=True)),
    "adaptive clip": (fs.adaptive_clip(fs.Method("prying", fs.OneGradient(), _prying_server)), None),
}


@pytest.mark.parametrize("what", PRYING)
def test_no_function_of_a_method_or_model_runs_within_reach_of_records(what: str):
    method, model = PRYING[what]
    FOUND.clear()
    run = fs.train(TOY, method, fs.Budget(1), 2, recipe="paper", model=model)
    _ = run.summary(), run.predict(TOY.dataset.x_test), run.steps
    threads = {found for found in FOUND if isinstance(found, threading.Thread)}
    assert threads and threading.current_thread() not in threads
    arrays = [found for found in FOUND if not isinstance(found, threading.Thread)]
    if what == "client":  # its door holds what the audit traces it with: shapes, without a value
        arrays = [a for a in arrays if not isinstance(a, Tracer)]
    assert [type(a) for a in arrays] == []


def test_no_function_runs_within_reach_of_records_in_a_sweep(tmp_path, monkeypatch):
    (tmp_path / "prying.py").write_text(
        "from fedsofim import Method, OneGradient\nfrom test_sealed import look_around\n\n"
        "def prying() -> Method:\n"
        "    def server(mean, state, params, facts):\n        look_around(mean)\n"
        "        return params - 0.1 * mean, state\n"
        "    return Method('prying', OneGradient(), server)\n"
    )
    monkeypatch.setitem(sys.modules, "test_sealed", sys.modules[__name__])
    FOUND.clear()
    found = sweep.score(TOY, str(tmp_path / "prying.py"), [{}], fs.Budget(1), 2)
    assert np.isfinite(found).all()
    assert FOUND and not [f for f in FOUND if not isinstance(f, threading.Thread)]


def test_what_a_prying_server_saw_does_not_reach_the_model():
    def by_frame(mean, state, params, facts):
        frame: Any = sys._getframe()
        while frame is not None:
            if hasattr(held := frame.f_locals.get("cohort"), "records"):
                return params.at[:5, 0].set(held.records.x[0, 0]), state
            if hasattr(held := frame.f_locals.get("split"), "dataset"):
                return params.at[:5, 0].set(held.dataset.x_train[0]), state
            frame = frame.f_back
        return params, state

    run = fs.train(TOY, _method(server=by_frame), fs.Budget(1), 2, recipe="paper")
    assert not any(np.allclose(np.asarray(run.params)[:5, 0], row) for row in TOY.dataset.x_train)


def test_a_client_that_keeps_its_tracers_for_the_server_is_refused():
    kept: list[Any] = []

    def client(door, params, state, memory):
        kept.append(door._records.x)
        return _client(door, params, state, memory)

    def server(mean, state, params, facts):
        return params + (kept[0][0, 0, 0] if kept else 0.0), state

    with pytest.raises(fs.Refused, match="kept and used"):
        fs.train(TOY, _method(client=client, server=server), fs.Budget(1), 2, recipe="paper")


@pytest.mark.parametrize("call", ["pure_callback", "io_callback", "debug"])
def test_a_server_that_calls_back_into_python_is_refused(call: str):
    def server(mean, state, params, facts):
        if call == "debug":
            jax.debug.print("{}", mean)
        elif call == "io_callback":
            io_callback(lambda a: None, None, mean)
        else:
            mean = jax.pure_callback(lambda a: a, jax.ShapeDtypeStruct(mean.shape, mean.dtype), mean)
        return params - 0.1 * mean, state

    with pytest.raises(fs.Refused, match=r"callback|print"):
        fs.train(TOY, _method(server=server), fs.Budget(1), 2, recipe="paper")


def test_a_primitive_of_ones_own_in_the_server_is_refused():
    from jax.extend.core import Primitive

    mine = Primitive("add")  # the name of a known one
    mine.def_abstract_eval(lambda a: a)
    mine.def_impl(lambda a: a)

    def server(mean, state, params, facts):
        return params - 0.1 * mine.bind(mean), state

    with pytest.raises(fs.Refused, match="not an operation that the audit knows"):
        fs.train(TOY, _method(server=server), fs.Budget(1), 2, recipe="paper")


def test_a_sealed_function_computes_what_the_function_does_and_is_traced_once():
    calls = []

    def add(a, b, times):
        calls.append(type(a))
        return {"sum": a + times * b, "same": a}

    one, two = Sealed(add), Sealed(add)
    assert one == two and hash(one) == hash(two)
    for _ in range(2):
        found = one(np.float32(1), jnp.ones(3, jnp.float32), 2)
        assert found["sum"].tolist() == [3, 3, 3] and found["same"] == 1
    assert len(calls) == 1
    assert two(np.float32(1), jnp.ones(3, jnp.float32), 3)["sum"].tolist() == [
        4,
        4,
        4,
    ]
    assert len(calls) == 2


def test_it_works_under_jit_vmap_and_settings_of_the_caller():
    square = Sealed(lambda x: x * x)
    assert jax.jit(jax.vmap(square))(jnp.arange(3.0)).tolist() == [0, 1, 4]
    wide = Sealed(lambda: jnp.arange(2.0))
    with jax.enable_x64(False):
        assert wide().dtype == jnp.float32
    with jax.enable_x64(True):
        assert wide().dtype == jnp.float64


def test_what_a_function_raises_is_told_with_its_line():
    def broken(x):
        raise KeyError("no such thing")

    with pytest.raises(fs.InputError, match=r"broken cannot be traced: KeyError: 'no such thing' \(test_sealed"):
        Sealed(broken)(jnp.ones(2))


def test_a_call_apart_gives_and_raises_what_the_function_does():
    assert call_apart(sorted, [2, 1], reverse=True) == [2, 1]
    with pytest.raises(ZeroDivisionError):
        call_apart(lambda: 1 / 0)
    before = threading.active_count()
    gc.collect()
    assert threading.active_count() <= before


def test_64_bit_numbers_in_a_32_bit_process_are_refused():
    def client(door, params, state, memory):
        with jax.enable_x64(True):
            door.sum(lambda x, y: x.astype(jnp.float64), clip=1.0)
        return params * 0, memory

    def server(mean, state, params, facts):
        with jax.enable_x64(True):
            return (params.astype(jnp.float64) + 1).astype(params.dtype), state

    with jax.enable_x64(False):
        for wide in ({"client": client}, {"server": server}):
            with pytest.raises(fs.Refused, match="computes in float64 while JAX computes in 32 bits"):
                fs.train(TOY, _method(**wide), fs.Budget(1), 2, recipe="paper")


STATES: dict[str, tuple[Any, Any]] = {
    "bare array": (lambda p: jnp.zeros(3), lambda s, m: s + 1),
    "scalar": (lambda p: jnp.float32(0), lambda s, m: s + 1),
    "Python number": (lambda p: 0, lambda s, m: s + 1),
    "None": (lambda p: None, lambda s, m: None),
    "nested": (lambda p: {"a": [p, ()], "b": None}, lambda s, m: {"a": [m, ()], "b": None}),
    "empty dict": (lambda p: {}, lambda s, m: {}),
}


@pytest.mark.parametrize("state", STATES)
def test_a_state_of_any_form_is_carried_saved_and_shown(state: str, tmp_path):
    init, after = STATES[state]
    method = _method(init=init, server=lambda mean, s, params, facts: (params - 0.1 * mean, after(s, mean)))
    run = fs.train(TOY, method, fs.Budget(1), 2, recipe="paper")
    assert run.steps == {} and run.summary()["steps"] == {}
    run.save(tmp_path / "m")
    assert fs.load_model(tmp_path / "m").predict(TOY.dataset.x_test).shape == (60,)


# --- Python that runs beside a method's functions -----------------------------------------------------------------


@jax.tree_util.register_pytree_node_class
class _Box:
    """A container that looks around when JAX takes it apart or puts it together."""

    def __init__(self, inside: Any) -> None:
        self.inside = inside

    def tree_flatten(self) -> Any:
        look_around()
        return (self.inside,), None

    @classmethod
    def tree_unflatten(cls, about: Any, inside: Any) -> "_Box":
        look_around()
        return cls(*inside)


class _Pair(NamedTuple):
    one: Any
    two: Any


class _PryingTuple(_Pair):
    def __new__(cls, *inside: Any) -> "_PryingTuple":
        look_around()
        return super().__new__(cls, *inside)


class _Key(str):
    """A key of a dict that looks around where JAX sorts the keys."""

    def __lt__(self, other: Any) -> bool:
        look_around()
        return str.__lt__(self, other)


CONTAINERS: dict[str, Any] = {
    "a class of its own": _Box,
    "a tuple made by own Python": lambda inside: _PryingTuple(inside, inside),
    "inside a dict": lambda inside: {"a": [_Box(inside)]},
    "a key of a class of its own": lambda inside: {_Key("a"): inside, _Key("b"): inside},
}


@pytest.mark.parametrize("where", ["state", "memory", "upload", "parameters"])
@pytest.mark.parametrize("kind", CONTAINERS)
def test_containers_with_python_of_their_own_are_refused_before_records_are_near(kind: str, where: str):
    held, head = CONTAINERS[kind], fs.softmax_head()

    def client(door: Any, params: Any, state: Any, memory: Any) -> Any:
        upload = door.gradient(params) / door.size
        return (held(upload) if where == "upload" else upload), memory

    method, model = _method(client=client), None
    if where in ("state", "memory"):
        method = _method(**{"init" if where == "state" else "memory": held})
    if where == "parameters":
        model = head._replace(
            init=lambda *given: held(head.init(*given)), gradient=None, loss=lambda p, x, y: 0.0 * x[0]
        )
    FOUND.clear()
    with pytest.raises(fs.InputError):
        fs.train(TOY, method, fs.Budget(1), 2, recipe="paper", model=model)
    assert not [found for found in FOUND if isinstance(found, np.ndarray) or hasattr(found, "sharding")]


class _Plain(NamedTuple):
    """With a method, which is no Python that JAX runs."""

    mean: Any
    count: Any

    def per_round(self) -> Any:
        return self.mean / self.count


@pytest.mark.parametrize("held", [_Plain, lambda a, b: {"a": a, "b": [b, None, ()]}])
def test_plain_containers_are_a_states(held: Any):
    run = fs.train(TOY, _method(init=lambda params: held(params, 1.0)), fs.Budget(1), 2, recipe="paper")
    assert len(jax.tree.leaves(run.state)) == 2


class _Function:
    """A function whose hash, comparison and text are Python of its own."""

    def __init__(self, function: Any) -> None:
        self.function, self.__name__ = function, "function"

    def __call__(self, *given: Any) -> Any:
        return self.function(*given)

    def __hash__(self) -> int:
        look_around()
        return 1

    def __eq__(self, other: Any) -> bool:
        look_around()
        return self is other

    def __repr__(self) -> str:
        look_around()
        return "function"


def test_comparing_a_methods_functions_happens_apart_too():
    head = fs.softmax_head()

    def once() -> None:
        method = _method(
            client=_Function(_client), server=_Function(_method().server), init=_Function(lambda params: params),
            memory=_Function(lambda params: params),
        )  # fmt: skip
        model = fs.Model(_Function(head.init), _Function(head.loss), _Function(head.logits))
        run = fs.train(TOY, method, fs.Budget(1), 2, recipe="paper", model=model)
        _ = run.summary(), run.predict(TOY.dataset.x_test), run.steps

    FOUND.clear()
    once()
    once()
    assert FOUND and threading.current_thread() not in FOUND


@pytest.mark.parametrize("kind", ["method", "model"])
def test_a_files_function_is_called_apart(kind: str, tmp_path: Any):
    path = tmp_path / "mine.py"
    made = "fs.fedgd()" if kind == "method" else "fs.softmax_head()"
    look = "threads.append(threading.current_thread())"
    path.write_text(
        f"import threading\nimport fedsofim as fs\nthreads = []\n{look}\n\n"
        f"def mine():\n    {look}\n    fs.threads_seen = threads\n    return {made}\n"
    )
    make = fs.make if kind == "method" else models.make
    make(str(path))
    seen = fs.__dict__.pop("threads_seen")
    assert len(seen) == 2 and threading.current_thread() not in seen


@pytest.mark.parametrize("which", ["init", "memory"])
def test_a_first_state_that_cannot_be_made_is_told_with_its_line(which: str):
    def broken(params):
        raise KeyError("no such layer")

    with pytest.raises(fs.InputError, match=rf"prying: {which} fails: KeyError: 'no such layer' \(test_sealed"):
        fs.train(TOY, _method(**{which: broken}), fs.Budget(1), 2, recipe="paper")
