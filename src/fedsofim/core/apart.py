"""Operations that XLA does not compute record by record when they are mapped over records.

Convolutions of two things of a record become one grouped convolution when they are mapped. XLA has these of floats of
up to 32 bits. Of larger ones it makes, on a CPU, one convolution of everything with everything, times 0 where record
and window do not belong together. And 0·NaN is NaN: one record that is not finite, or becomes so, would turn all others
of its batch into what counts as zero. lanes.py looks for more of the kind by running.
"""

from typing import Any

import jax.numpy as jnp

from fedsofim.core.jaxprs import jaxprs_in, open_jaxpr
from fedsofim.errors import Refused


def check_apart(label: str, jaxpr: Any) -> None:
    """Refused if a per-record function holds, at any depth, a convolution that would mix records."""
    for eqn in open_jaxpr(jaxpr)[0].eqns:
        if eqn.primitive.name == "conv_general_dilated":
            avals: list[Any] = [atom.aval for atom in (*eqn.invars, *eqn.outvars)]
            for aval in avals:
                _check_conv(label, aval.dtype)
        for inner in (j for p in eqn.params.values() for j in jaxprs_in(p)):
            check_apart(label, inner)


def _check_conv(label: str, dtype: Any) -> None:
    if jnp.issubdtype(dtype, jnp.inexact) and not (jnp.issubdtype(dtype, jnp.floating) and jnp.finfo(dtype).bits <= 32):
        raise Refused(
            f"the per-record function of '{label}' has a convolution (conv_general_dilated) of {dtype}: over many "
            "records XLA computes it so that one record's NaN reaches all others, beyond the clip. Convolve in "
            "float32: parameters made as float32, and astype(jnp.float32) before the convolution"
        )
