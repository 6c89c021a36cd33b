"""Does a torch program keep records apart? Watched operation by operation, on tensors without numbers.

The first axis of the batch is followed through every operation that torch dispatches. A tensor is known by how many
rows each record has in it: k, if its first axis is B·k long, record after record (k = 1: one row each); 0, if it
depends on no record at all. An operation is known if its rows depend on rows of the same record only; whatever is not
known is refused by its name. So record i's output is a function of record i, its place and what all records share,
and what autograd computes backwards along the same operations is one too.

What is changed in place, number by number, has rows itself, and so has whatever shares its memory.

No number decides anything: the tensors have shapes only (torch's FakeTensor), so a branch on a value is an error.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch._subclasses.fake_tensor import (  # pyright: ignore[reportMissingImports]
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.utils._python_dispatch import TorchDispatchMode  # pyright: ignore[reportMissingImports]
from torch.utils._pytree import tree_leaves  # pyright: ignore[reportMissingImports]

from fedsofim.errors import Refused

MIXED = -1  # a number of the whole batch, which nothing may use

_ELEMENTWISE = """
    _prelu_kernel _to_copy abs acos add addcdiv addcmul alias asin atan atan2 binary_cross_entropy
    binary_cross_entropy_with_logits bitwise_and bitwise_not bitwise_or celu clamp clamp_max clamp_min clone cos
    cosh detach div elu eq erf exp exp2 expm1 fill floor floor_divide fmod full_like ge gelu gt hardshrink
    hardsigmoid hardswish hardtanh huber_loss hypot isfinite isnan le leaky_relu lerp lift_fresh log log10 log1p
    log2 log_sigmoid_forward logical_and logical_not logical_or logical_xor lt masked_fill maximum minimum mish
    mse_loss mul ne neg ones_like pow prelu reciprocal relu remainder round rsqrt rsub sgn sigmoid sign silu sin
    sinh smooth_l1_loss soft_margin_loss softplus softshrink sqrt square sub tan tanh threshold trunc where
    xlogy zeros_like
"""
ELEMENTWISE = frozenset(_ELEMENTWISE.split())
#: the position of the axes that an operation works along
ALONG = {
    "sum": 1, "mean": 1, "amax": 1, "amin": 1, "max": 1, "min": 1, "var": 1, "std": 1, "logsumexp": 1, "_softmax": 1,
    "_log_softmax": 1, "_safe_softmax": 1, "cumsum": 1, "linalg_vector_norm": 2, "norm": 2, "argmax": 1, "argmin": 1,
    "sort": 1, "topk": 2, "select": 1, "unbind": 1, "split": 2, "split_with_sizes": 2, "chunk": 2, "squeeze": 1,
    "unsqueeze": 1, "flip": 1, "roll": 2, "any": 1, "all": 1, "prod": 1, "glu": 1, "index_select": 1, "var_mean": 1,
}  # fmt: skip
_POOLS = """
    max_pool2d_with_indices max_pool3d_with_indices avg_pool2d avg_pool3d _adaptive_avg_pool2d
    _adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d upsample_nearest2d upsample_bilinear2d
    reflection_pad2d replication_pad2d
"""
POOLS = frozenset(_POOLS.split())


class Watch(TorchDispatchMode):
    """Follows the first axis; `batch` is its length."""

    def __init__(self, batch: int) -> None:
        super().__init__()
        self.batch = batch
        self.rows: dict[int, int] = {}
        self.alive: list[Any] = []  # an id means nothing once its tensor is gone

    def mark(self, tensor: Any, rows: int) -> Any:
        self.rows[id(tensor)] = rows
        self.alive.append(tensor)
        return tensor

    def of(self, tensor: Any) -> int:
        """Rows of a record in a tensor. One that holds numbers is the module's own; any other was seen being made."""
        return self.rows.get(id(tensor), MIXED if isinstance(tensor, FakeTensor) else 0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.prim.device.default:  # where a tensor is: no number of it
            return func(*args, **kwargs)
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        name = func.overloadpacket._qualified_op_name
        if func.namespace != "aten" or (
            torch.Tag.nondeterministic_seeded in func.tags and not _quiet(name, args, kwargs)
        ):
            raise Refused(f"'{name}' draws random numbers or is not torch's own; {_LEAVE_OUT}")
        plain = func.overloadpacket.__name__
        if func._schema.is_mutable:
            plain = plain.removesuffix("_")
            if plain not in ELEMENTWISE or any(self.of(t) <= 0 for t in _written(func, args, kwargs)):
                raise Refused(f"'{name}' changes what all records share, or more; use the form that returns a tensor")
        found = func(*args, **kwargs)
        rows = self.rows_of(plain, args, kwargs, given, found)
        for tensor in (t for t in tree_leaves(found) if isinstance(t, torch.Tensor)):
            whole = rows == 0 or (tensor.ndim > 0 and tensor.shape[0] == self.batch * rows)
            self.mark(tensor, rows if whole else MIXED)
        return found

    def rows_of(self, name: str, args: Sequence, kwargs: dict, given: list, found: Any) -> int:
        """How many rows each record has in what came out; Refused if they may depend on others."""
        states = [self.of(t) for t in given]
        if MIXED in states:
            raise Refused(f"'{name}' uses a number of the whole batch; {_APART}")
        if not any(states):
            return 0
        rule: Callable[..., int | None] | None = _RULES.get(name)
        if name in ELEMENTWISE:
            rule = _elementwise
        elif name in ALONG:
            rule = _along
        elif name in POOLS:
            rule = _first
        rows = None if rule is None else rule(self, name, args, kwargs, given, found)
        if rows is None:
            known = "mixes records, or may" if rule is not None else "is not an operation known to keep records apart"
            hint = " (a loss needs reduction='none')" if "loss" in name or "entropy" in name else ""
            raise Refused(f"'aten.{name}' {known}{hint}: {_APART}")
        return rows


def _written(func: Any, args: Sequence, kwargs: dict) -> list[Any]:
    """What an operation writes to, by its schema: its first operand, or `out`."""
    places = [
        (i, a.name) for i, a in enumerate(func._schema.arguments) if a.alias_info is not None and a.alias_info.is_write
    ]
    return [kwargs[name] if name in kwargs else args[i] for i, name in places]


def _quiet(name: str, args: Sequence, kwargs: dict) -> bool:
    """Attention draws random numbers only where it drops some of its weights."""
    return "scaled_dot_product" in name and (args[3] if len(args) > 3 else kwargs.get("dropout_p", 0.0)) == 0.0


_APART = (
    "each record's gradient must depend on that record alone, or clipping bounds nothing. Work along other axes than "
    "the first, and normalise each record by itself (LayerNorm, GroupNorm)"
)
_LEAVE_OUT = "what is run on records must be torch's own operations, and the same whenever it is run"


def check_apart(program: Any, batch: int, *inputs: torch.Tensor) -> tuple[int, ...]:
    """Refused unless program(*inputs) gives one number a record, each from its own rows. The shape of what it gives."""
    assert batch >= 2
    with FakeTensorMode(allow_non_fake_inputs=True) as fake, torch.enable_grad():
        made = [fake.from_tensor(a) for a in inputs]
        watch = Watch(batch)
        for tensor in made:
            watch.mark(tensor, 1)

        def on_records(layer: Any, given: Any) -> None:
            if any(isinstance(t, torch.Tensor) and watch.of(t) != 1 for t in given):
                raise Refused(f"a trained {type(layer).__name__} is given other rows than records, one each; {_APART}")

        trained = [m for m in program.modules() if any(p.requires_grad for p in m.parameters(recurse=False))]
        hooks = [m.register_forward_pre_hook(on_records) for m in trained]
        try:
            with watch:
                found = program(*made)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise Refused(f"the module decides by a value of a record ({error}); {_APART}") from None
        finally:
            for hook in hooks:
                hook.remove()
    if not isinstance(found, torch.Tensor) or watch.of(found) != 1:
        shape = tuple(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
        raise Refused(f"of {batch} records the module gives {shape}, which are not rows of its records; {_APART}")
    return tuple(found.shape)


# --- rules: rows of a record in the result, None where records may meet ------------------------------------------


def _elementwise(w: Watch, name: str, args: Sequence, kwargs: dict, given: list, found: Any) -> int | None:
    """Those with rows have the same ones; the others are stretched along the first axis, never laid along it."""
    result = found if isinstance(found, torch.Tensor) else found[0]
    rows = {w.of(t) for t in given} - {0}
    laid = all(
        t.ndim == result.ndim and t.shape[0] == result.shape[0] if w.of(t) else t.ndim < result.ndim or t.shape[0] == 1
        for t in given
    )
    return rows.pop() if len(rows) == 1 and laid and result.ndim > 0 else None


def _along(w: Watch, name: str, args: Sequence, kwargs: dict, given: list, found: Any) -> int | None:
    first, place = args[0], ALONG[name]
    axes = kwargs["dim"] if "dim" in kwargs else args[place] if len(args) > place else _DEFAULT_AXIS.get(name)
    axes = [axes] if isinstance(axes, int) else [] if isinstance(axes, torch.Tensor) else axes
    size = first.ndim + (name == "unsqueeze")
    if not axes or first.ndim == 0 or any(a % size == 0 for a in axes) or any(w.of(t) for t in given[1:]):
        return None
    return w.of(first)


_DEFAULT_AXIS = {"sort": -1, "topk": -1, "glu": -1}


def _first(w: Watch, name: str, args: Sequence, kwargs: dict, given: list, found: Any) -> int | None:
    """An operation on the last axes of its first operand; what else it takes is shared."""
    return None if any(w.of(t) for t in given[1:]) else w.of(args[0])


def _viewed(w: Watch, name: str, args: Sequence, kwargs: dict, given: list, found: Any) -> int | None:
    """The same numbers in the same order: record after record, if the first axis still ends between records."""
    whole, over = divmod(found.shape[0], w.batch) if found.ndim else (0, 1)
    return whole if over == 0 and whole > 0 else None


def _expanded(w: Watch, name: str, args: Sequence, kwargs: dict, given: list, found: Any) -> int | None:
    return w.of(args[0]) if found.ndim == args[0].ndim and found.shape[0] == args[0].shape[0] else None


def _permuted(w: Watch, name: str, args: Sequence, kwargs: dict, given: list, found: Any) -> int | None:
    axes = args[1] if name == "permute" else [0] if 0 not in (a % args[0].ndim for a in args[1:3]) else [1]
    return w.of(args[0]) if axes[0] % args[0].ndim == 0 else None


def _sliced(w: Watch, name: str, args: Sequence, kwargs: dict, given: list, found: Any) -> int | None:
    return w.of(args[0]) if found.shape[0] == args[0].shape[0] else None


def _joined(w: Watch, name: str, args: Sequence, kwargs: dict, given: list, found: Any) -> int | None:
    axis = kwargs.get("dim", args[1] if len(args) > 1 else 0)
    rows = {w.of(t) for t in given}
    return rows.pop() if axis % found.ndim != 0 and len(rows) == 1 else None


def _padded(w: Watch, name: str, args: Sequence, kwargs: dict, given: list, found: Any) -> int | None:
    return w.of(args[0]) if len(args[1]) // 2 < args[0].ndim else None


def _times_shared(w: Watch, name: str, args: Sequence, kwargs: dict, given: list, found: Any) -> int | None:
    """Rows times a matrix that all share; a bias that all share."""
    bias, (left, right) = args[:-2], args[-2:]
    shared = not w.of(right) and all(not w.of(b) and (b.ndim < 2 or b.shape[0] == 1) for b in bias)
    return w.of(left) if shared and left.ndim == 2 else None


def _products(w: Watch, name: str, args: Sequence, kwargs: dict, given: list, found: Any) -> int | None:
    """Each record's matrices with its own."""
    rows = {w.of(t) for t in given}
    return rows.pop() if len(rows) == 1 and all(t.ndim >= 3 for t in given) else None


def _convolved(w: Watch, name: str, args: Sequence, kwargs: dict, given: list, found: Any) -> int | None:
    return w.of(args[0]) if not any(w.of(t) for t in given[1:]) else None


def _embedded(w: Watch, name: str, args: Sequence, kwargs: dict, given: list, found: Any) -> int | None:
    return w.of(args[1]) if not w.of(args[0]) and args[1].ndim > 0 else None


def _layer_norm(w: Watch, name: str, args: Sequence, kwargs: dict, given: list, found: Any) -> int | None:
    return _first(w, name, args, kwargs, given, found) if len(args[1]) < args[0].ndim else None


def _group_norm(w: Watch, name: str, args: Sequence, kwargs: dict, given: list, found: Any) -> int | None:
    return _first(w, name, args, kwargs, given, found) if args[3] == args[0].shape[0] else None


def _batch_norm(w: Watch, name: str, args: Sequence, kwargs: dict, given: list, found: Any) -> int | None:
    """By statistics that were stored before: an affine map."""
    trains = name == "native_batch_norm" and args[5]
    return _first(w, name, args, kwargs, given, found) if not trains else None


def _nll(w: Watch, name: str, args: Sequence, kwargs: dict, given: list, found: Any) -> int | None:
    apart = args[3] == 0 and w.of(args[0]) == w.of(args[1]) and args[0].ndim >= 2
    return w.of(args[0]) if apart and not any(w.of(t) for t in given[2:]) else None


def _gathered(w: Watch, name: str, args: Sequence, kwargs: dict, given: list, found: Any) -> int | None:
    same = w.of(args[0]) == w.of(args[2]) and args[0].shape[0] == args[2].shape[0]
    return w.of(args[0]) if same and args[1] % args[0].ndim != 0 else None


_RULES: dict[str, Callable[..., int | None]] = {
    "view": _viewed, "_unsafe_view": _viewed, "reshape": _viewed, "_reshape_alias": _viewed, "expand": _expanded,
    "permute": _permuted, "transpose": _permuted, "slice": _sliced, "cat": _joined, "stack": _joined,
    "constant_pad_nd": _padded, "mm": _times_shared, "addmm": _times_shared, "mv": _times_shared, "bmm": _products,
    "_scaled_dot_product_flash_attention_for_cpu": _products, "convolution": _convolved, "embedding": _embedded,
    "native_layer_norm": _layer_norm, "_fused_rms_norm": _layer_norm, "native_group_norm": _group_norm,
    "native_batch_norm": _batch_norm, "_native_batch_norm_legit_no_training": _batch_norm, "nll_loss_forward": _nll,
    "nll_loss2d_forward": _nll, "gather": _gathered,
}  # fmt: skip
