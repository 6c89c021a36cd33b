"""Call code that is not ours where no record is in reach.

A method or a model is somebody's Python. While it runs, it can walk up the stack, and the frames of a training run hold
records. So it is called on a thread of its own: that thread's stack ends here, and what is passed in are shapes.

This is a fence against mistakes and against code that looks around, not a sandbox. Python that sets out to attack its
own process can still search the whole heap; see docs/threats.md.
"""

import contextvars
import threading
from collections.abc import Callable
from contextlib import ExitStack
from operator import eq
from types import FunctionType
from typing import Any, ParamSpec, TypeVar

import jax

P = ParamSpec("P")
R = TypeVar("R")

#: JAX keeps these settings per thread; a program must be traced under those of its caller.
_SETTINGS = {
    "jax_enable_x64": jax.enable_x64,
    "jax_numpy_dtype_promotion": jax.numpy_dtype_promotion,
    "jax_numpy_rank_promotion": jax.numpy_rank_promotion,
    "jax_default_matmul_precision": jax.default_matmul_precision,
    "jax_default_prng_impl": jax.default_prng_impl,
    "jax_threefry_partitionable": jax.threefry_partitionable,
}


def settings() -> tuple[Any, ...]:
    """Return the settings of JAX that decide what a trace looks like, as the current thread has them."""
    return tuple(getattr(jax.config, name) for name in _SETTINGS)


def call_apart(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function on a thread whose stack leads to no caller, and return or raise what it does.

    Args:
        function: What to call. Nothing among its arguments may hold records.
        *args: Its positional arguments.
        **kwargs: Its keyword arguments.

    Returns:
        What the function returns.

    Raises:
        BaseException: Whatever the function raises.

    Example:
        >>> call_apart(max, 1, 2)
        2
    """
    call = _Call(function, args, kwargs, settings())
    thread = threading.Thread(target=contextvars.copy_context().run, args=(call,), daemon=True)
    thread.start()
    thread.join()
    return call.outcome()


def hash_apart(value: Any) -> int:
    """Return a value's hash. A class of somebody's own computes it, so it is asked apart."""
    return hash(value) if type(value) is FunctionType else call_apart(hash, value)


def equal_apart(one: Any, other: Any) -> bool:
    """Are two values equal? A class of somebody's own says so, so it is asked apart."""
    if one is other:
        return True
    if type(one) is FunctionType and type(other) is FunctionType:
        return False
    return bool(call_apart(eq, one, other))


class _Call:
    """One call on its way to another thread and back."""

    def __init__(self, function: Callable[..., Any], args: tuple, kwargs: dict[str, Any], settings: tuple) -> None:
        self._given = function, args, kwargs, settings
        self._result: Any = None
        self._error: BaseException | None = None

    def __call__(self) -> None:
        function, args, kwargs, settings = self._given
        try:
            with ExitStack() as stack:
                for enter, value in zip(_SETTINGS.values(), settings, strict=True):
                    stack.enter_context(enter(value))
                self._result = function(*args, **kwargs)
        except BaseException as error:  # it is raised again on the thread of the caller
            self._error = error

    def outcome(self) -> Any:
        """Return the result, or raise the error."""
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # else the error would hold this frame, which holds the error
        return self._result
