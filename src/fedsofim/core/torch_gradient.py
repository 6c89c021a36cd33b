"""The clipped sum of a torch module's gradients, behind the door. Nothing here imports torch; core/torch/ does.

Formal guarantee, that of queries.py: with weights in [0, W], replacing one record moves the sum by at most W·2c in L2,
all rounding included.

1. **A record's computed vector depends on that record, its place in its batch, the parameters that are passed in and
   constants of the module, and on nothing else.** Its place follows from public numbers, and where records are drawn it
   has the same lane whoever else was (core/torch/batches.py). What runs is a graph of torch's own operations, copied
   when it was given (core/torch/tracing.py), each of which keeps records apart (core/torch/record_axis.py) at the very
   batch size that runs; Opacus forms a layer's row for record i from that layer's inputs and output gradients at row i.
   Numbers are not asked for anything: whatever vector is computed is measured, in doubles, and shortened.
2. **Clipped in doubles** to c' = (1 - 2^-11)·c, as everywhere: a length of d numbers rounds by less than d·2^-52 of
   itself, 1e-9 for d up to four million. What is not finite, or what the module fails on, counts as zero.
   Where a linear layer meets a record once,
   its row is g ⊗ a, of length |g|·|a| (Opacus' ghost norm), and is not formed: Σ f·g ⊗ a is one product of doubles.
   A unit's vector is the sum of its records' (core/unit.py), and with a vote on the clip (core/clip_search.py) it has
   one number more: either is whatever doubles made of it, and what came out is measured and shortened.
3. **A batch of m <= 1024 rows is added up in doubles**, off by at most m·(m+2)·2^-53·c < 2e-10·c.
4. **Batches are added up as whole numbers** of a step of at most c·N·2^-61: √d·step·B < 2^-14·c for the B batches that
   one record may change, or the sum is refused. The sum is given out as two floats, off by at most N·2^-47·c.
Together below (2^-11)·2c. Who is in which batch follows from sizes alone, so one batch changes; where records are
drawn, later ones of a lane may move by one turn, so all batches may: a part 1/m of the records in doubles' roundings of
m each. So two sums that differ in a record differ by two vectors of at most c' and what was just counted: at most 2c.

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

    unit: bool = False
    vote: tuple[float, float] | None = None  # (part, clip): core/torch/summands.py

    def outputs(self, consts: Sequence) -> list[jax.ShapeDtypeStruct]:
        """With a vote the last constant is what it is about: one number, as the vote is."""
        return [jax.ShapeDtypeStruct(c.shape, jnp.float32) for c in consts]

    def groups(self, records: int, rate: float) -> int:
        return -(-records // GROUP)

    def changed(self, records: int, rate: float) -> int:
        return 2 if rate == 1 else records

    def own(self) -> "TorchGradient":
        """The same of a copy that nobody else holds; Refused if it is not of the library's make."""
        home: Any = sys.modules.get(_HOME)
        if home is None or type(self.network) is not home.TorchNetwork:
            raise Refused("a release sums gradients of a torch module that was not read here; use fs.from_torch")
        own = home.TorchNetwork.own(self.network)  # by the class: an object may bring a method of this name
        return TorchGradient(own, bool(self.unit), _own_vote(self.vote))

    def for_task(self, task: Task) -> "TorchGradient":
        """Of the task's loss, unless the module came with one."""
        return TorchGradient(self.network.for_task(task))

    def of_units(self, unit: bool = True) -> "TorchGradient":
        """Summed over what each unit holds."""
        return TorchGradient(self.network, unit, self.vote)

    def with_vote(self, part: float, clip: float) -> "TorchGradient":
        """With a word on the clip beside each gradient; the last of its constants is what the word is about."""
        return TorchGradient(self.network, self.unit, (part, clip))

    def check(self, params: Sequence, x: Any, y: Any) -> None:
        """InputError or Refused unless such parameters and records (arrays of one record or unit, or their shapes) fit
        the module, and records stay apart in it."""
        found, wanted = [tuple(p.shape) for p in params], list(self.network.shapes.values())
        if found != wanted:
            raise InputError(f"the torch module's parameters have shapes {wanted}, but {found} were given")
        self.network.check(x.shape, y.shape, np.dtype(y.dtype), self._summand())

    def _summand(self) -> Any:
        """What is summed, in the words of core/torch."""
        from fedsofim.core.torch.summands import Summand, Vote  # there is a network, so there is torch

        return Summand(self.unit, None if self.vote is None else Vote(*self.vote))

    def rows(self, consts: Sequence, x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
        """Every record's vector, unclipped: for a node, which rounds each by itself."""
        return self.network.rows([np.asarray(c) for c in consts], np.asarray(x), np.asarray(y), self._summand())

    def client_sums(
        self,
        consts: Sequence,
        batched: Sequence[bool],
        records: Records,
        held: Any,
        clients: int,
        clip: float,
        rate: float,
    ) -> list[Pair]:
        """Every client's clipped sum; weights are at most 1. `held`: which places hold a record, drawn or not."""
        single = [jax.ShapeDtypeStruct(c.shape[b:], jnp.float32) for c, b in zip(consts, batched, strict=True)]
        numbers = sum(math.prod(s.shape) for s in single)
        step = _step(records.weight.size, numbers, self.changed(records.weight.size, rate), clip)
        out = [jax.ShapeDtypeStruct((clients, *s.shape), jnp.float32) for s in single for _ in range(2)]
        how = {"of": self._summand(), "clip": guarded(clip), "step": step, "rate": rate}

        def on_host(x: Any, y: Any, weight: Any, owner: Any, held: Any, *consts: Any) -> list[np.ndarray]:
            found = _each_client(self.network, (x, y, weight, owner), held, consts, batched, clients, how)
            return [half for total in found for half in _halves(total)]

        flat = jax.pure_callback(on_host, out, *records, held, *consts, vmap_method="sequential")
        return [Pair(hi, lo) for hi, lo in zip(flat[::2], flat[1::2], strict=True)]


def _own_vote(vote: Any) -> tuple[float, float] | None:
    if vote is None:
        return None
    part, clip = (float(number) for number in vote)
    if not (0 < part < 1 and 0 < clip < math.inf):
        raise Refused(
            f"a torch module's gradients are released with a vote of {part:g} at a clip of {clip:g}; use the door"
        )
    return part, clip


def _step(records: int, numbers: int, changed: int, clip: float) -> float | None:
    """Of the lattice: a power of two, so coarse that no sum of so many records leaves 62 bits, and so fine that so many
    batches' roundings are next to nothing. None: no clip, none."""
    if math.isinf(clip):
        return None
    step = math.ldexp(1 << max(0, records - 1).bit_length(), math.frexp(clip)[1] - 62)
    if math.sqrt(numbers) * step * changed / 2 > _LOST * clip:
        raise Refused(f"a sum of {numbers} numbers over {records} records does not fit; sum over fewer records")
    return step


def _each_client(
    network: Any, records: Sequence, held: Any, consts: Sequence, batched: Sequence[bool], clients: int, how: Any
) -> list[np.ndarray]:
    """Sums in doubles, (clients, ...) for each leaf."""
    x, y, weight, owner = (np.asarray(a) for a in records)
    there, given = np.asarray(held) > 0, [np.asarray(c) for c in consts]
    found = []
    for client in range(clients):
        mine = np.flatnonzero(owner == client)
        kept = there[mine].reshape(-1)
        rows = [a[mine].reshape(-1, *a.shape[2:])[kept] for a in (x, y, weight)]
        params = [c[client] if b else c for c, b in zip(given, batched, strict=True)]
        found.append(network.clipped_sum(params, *rows, **how))
    return [np.stack(leaf) for leaf in zip(*found, strict=True)]


def _halves(total: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    hi = total.astype(np.float32)
    return hi, (total - hi).astype(np.float32)
