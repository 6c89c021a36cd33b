"""Which containers may hold a method's or a model's numbers: those that run no Python of their own.

JAX takes a container apart and puts it together wherever numbers go in or out of a program, also where records are.
For a class that registers itself with JAX, or a tuple that redefines how it is made, it calls that class's Python.
"""

from collections import OrderedDict, namedtuple
from typing import Any, NamedTuple

from fedsofim.errors import Refused

_BUILT_IN = (tuple, list, dict, OrderedDict, type(None))
_KEYS = (str, int, bool, float, bytes)


class _Example(NamedTuple):
    only: int


#: What a class made by NamedTuple has, in any version of Python from 3.10 on.
_PLAIN = {*vars(_Example), "__annotate__", "__annotate_func__", "__firstlineno__", "__orig_bases__", "__replace__",
          "__static_attributes__"}  # fmt: skip


def check_containers(what: str, structure: Any) -> None:
    """Refuse a structure of numbers with a container that is not a dict, a list, a tuple or a plain NamedTuple.

    Args:
        what: Whose numbers they are, for the message.
        structure: The structure, as `jax.tree.structure` returns it.

    Raises:
        Refused: For a class that runs Python of its own where JAX takes it apart or puts it together.

    Example:
        >>> import jax
        >>> check_containers("the state", jax.tree.structure({"mean": [1.0, (2.0, None)]}))
    """
    found = structure.node_data()
    if found is None:  # a number
        return
    kind, about = found
    if kind not in _BUILT_IN and not _is_plain(kind):
        raise Refused(
            f"{what}: holds numbers in a {kind.__name__}, a class with Python of its own, which JAX would call where "
            "records are; expected a dict, a list, a tuple or a NamedTuple without methods that redefine it"
        )
    if kind in (dict, OrderedDict) and any(type(key) not in _KEYS for key in about or ()):
        raise Refused(f"{what}: a dict has keys of a class of its own; expected text or numbers as keys")
    for child in structure.children():
        check_containers(what, child)


def _is_plain(kind: type) -> bool:
    """Is this a NamedTuple that is made and read just as Python does it?"""
    if type(kind) is not type or kind.__bases__ != (tuple,):
        return False
    own = vars(kind)
    names, make = own.get("_fields"), kind.__new__
    if type(names) is not tuple or any(n.startswith("__") and n not in _PLAIN for n in own):
        return False
    code, globals_ = getattr(make, "__code__", None), getattr(make, "__globals__", {})
    same: Any = namedtuple("same", names)
    return code == same.__new__.__code__ and globals_.get("_tuple_new") is tuple.__new__
