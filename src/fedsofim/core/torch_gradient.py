"""The clipped sum of a torch module's gradients, behind the door. Nothing here imports torch; core/torch/ does.

Formal guarantee, that of queries.py: with weights in [0, W], replacing one record moves the sum by at most W·2c in L2,
all rounding included.

1. **A record's computed vector depends on that record, its place in its batch, the parameters that are passed in and
   constants of the module, and on nothing else.** What runs is a graph of torch's own operations, copied when it was
   given (core/torch/tracing.py), each of which keeps records apart (core/torch/record_axis.py) at the very batch size
   that runs; Opacus forms a layer's row for record i from that layer's inputs and output gradients at row i. Numbers
   are not asked for anything: whatever vector is computed is measured, in doubles, and shortened.
2. **Clipped in doubles** to c' = (1 - 2^-11)·c, as everywhere: a length of d numbers rounds by less than d·2^-52 of
   itself, 1e-9 for d up to four million. What is not finite, or what the module fails on, counts as zero.
   Where a linear layer meets a record once,
   its row is g ⊗ a, of length |g|·|a| (Opacus' ghost norm), and is not formed: Σ f·g ⊗ a is one product of doubles.
3. **A batch of m <= 1024 rows is added up in doubles**, off by at most m·(m+2)·2^-53·c < 2e-10·c.
4. **Batches are added up as whole numbers** of a step of at most c·N·2^-61: √d·step < 2^-14·c, or the sum is refused.
   The sum is given out as two floats, off by at most N·2^-47·c.
Together below (2^-11)·2c. Who is in which batch follows from weights and sizes alone. So two sums that differ in a
record differ by two vectors of at most c' and what was just counted: at most 2c.

The module's constants (frozen layers, stored statistics) are taken to be public: whoever gives a module says so.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim.core.clipping import GROUP, guarded
from fedsofim.core.lattice import Pair
from fedsofim.core.records import Records
from fedsofim.errors import InputError, Refused
from fedsofim.tasks import Task

_LOST = 2.0**-14  # of the clip: what rounding onto whole numbers may cost
_HOME = "fedsofim.core.torch.network"


@dataclass(frozen=True, eq=False, slots=True)
class TorchGradient:
    """The gradient of a torch module's loss in its trained parameters, which are passed in, in the order of their
    names."""

    ratio: ClassVar[float] = 2.0
    wide: ClassVar[bool] = False
    tile: ClassVar[int] = GROUP
    network: Any  # core/torch/network.py TorchNetwork

    def outputs(self, consts: Sequence) -> list[jax.ShapeDtypeStruct]:
        return [jax.ShapeDtypeStruct(c.shape, jnp.float32) for c in consts]

    def groups(self, records: int) -> int:
        return -(-records // GROUP)

    def own(self) -> "TorchGradient":
        """The same of a copy that nobody else holds; Refused if it is not of the library's make."""
        home: Any = sys.modules.get(_HOME)
        if home is None or type(self.network) is not home.TorchNetwork:
            raise Refused("a release sums gradients of a torch module that was not read here; use fs.from_torch")
        return TorchGradient(self.network.own())

    def for_task(self, task: Task) -> "TorchGradient":
        """Of the task's loss, unless the module came with one."""
        return TorchGradient(self.network.for_task(task))

    def check(self, params: Sequence, x: Any, y: Any) -> None:
        """InputError or Refused unless such parameters and records (arrays of one record, or their shapes) fit the
        module, and records stay apart in it."""
        found, wanted = [tuple(p.shape) for p in params], list(self.network.shapes.values())
        if found != wanted:
            raise InputError(f"the torch module's parameters have shapes {wanted}, but {found} were given")
        self.network.check(x.shape, y.shape, np.dtype(y.dtype))

    def rows(self, consts: Sequence, x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
        """Every record's gradient, unclipped: for a node, which rounds each by itself."""
        return self.network.rows([np.asarray(c) for c in consts], np.asarray(x), np.asarray(y))

    def client_sums(
        self, consts: Sequence, batched: Sequence[bool], records: Records, clients: int, clip: float
    ) -> list[Pair]:
        """Every client's clipped sum; weights are at most 1."""
        single = [jax.ShapeDtypeStruct(c.shape[b:], jnp.float32) for c, b in zip(consts, batched, strict=True)]
        step = _step(records.weight.size, sum(math.prod(s.shape) for s in single), clip)
        out = [jax.ShapeDtypeStruct((clients, *s.shape), jnp.float32) for s in single for _ in range(2)]

        def on_host(x: Any, y: Any, weight: Any, owner: Any, *consts: Any) -> list[np.ndarray]:
            found = _each_client(self.network, (x, y, weight, owner), consts, batched, clients, guarded(clip), step)
            return [half for total in found for half in _halves(total)]

        flat = jax.pure_callback(on_host, out, *records, *consts, vmap_method="sequential")
        return [Pair(hi, lo) for hi, lo in zip(flat[::2], flat[1::2], strict=True)]


def _step(records: int, numbers: int, clip: float) -> float | None:
    """Of the lattice: a power of two, so coarse that no sum of so many records leaves 62 bits. None: no clip, none."""
    if math.isinf(clip):
        return None
    step = math.ldexp(1 << max(0, records - 1).bit_length(), math.frexp(clip)[1] - 62)
    if math.sqrt(numbers) * step > _LOST * clip:
        raise Refused(f"a sum of {numbers} numbers over {records} records does not fit; sum over fewer records")
    return step


def _each_client(
    network: Any, records: Sequence, consts: Sequence, batched: Sequence[bool], clients: int, clip: float, step: Any
) -> list[np.ndarray]:
    """Sums in doubles, (clients, ...) for each parameter."""
    x, y, weight, owner = (np.asarray(a) for a in records)
    given = [np.asarray(c) for c in consts]
    found = []
    for client in range(clients):
        mine = np.flatnonzero(owner == client)
        taking_part = weight[mine].reshape(-1) > 0
        rows = [a[mine].reshape(-1, *a.shape[2:])[taking_part] for a in (x, y, weight)]
        params = [c[client] if b else c for c, b in zip(given, batched, strict=True)]
        found.append(network.clipped_sum(params, *rows, clip=clip, step=step))
    return [np.stack(leaf) for leaf in zip(*found, strict=True)]


def _halves(total: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    hi = total.astype(np.float32)
    return hi, (total - hi).astype(np.float32)
