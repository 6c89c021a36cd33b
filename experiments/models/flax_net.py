"""The flax module of docs/models.md, as an experiment's model."""

from flax import nnx

import fedsofim as fs


def flax_net() -> fs.Model:
    return fs.from_flax(
        lambda rngs: nnx.Sequential(nnx.Linear(64, 32, rngs=rngs), nnx.tanh, nnx.Linear(32, 10, rngs=rngs))
    )
