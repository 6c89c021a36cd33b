"""Small questions about traced programs."""

from collections.abc import Sequence
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr

from fedsofim.core.release import dp_release


def open_jaxpr(jaxpr) -> tuple[Jaxpr, Sequence]:
    """A jaxpr and its constants."""
    return (jaxpr.jaxpr, jaxpr.consts) if isinstance(jaxpr, ClosedJaxpr) else (jaxpr, ())


def jaxprs_in(param: Any) -> list:
    """The programs that one of an equation's parameters holds."""
    items = param if isinstance(param, tuple | list) else [param]
    return [j for j in items if isinstance(j, ClosedJaxpr | Jaxpr)]


def releases_in(jaxpr) -> bool:
    """Does a program, or one inside it, release anything?"""
    return any(
        eqn.primitive is dp_release or any(releases_in(j) for p in eqn.params.values() for j in jaxprs_in(p))
        for eqn in open_jaxpr(jaxpr)[0].eqns
    )
