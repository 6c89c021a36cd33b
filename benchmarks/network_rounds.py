"""Networks against a plain gradient and other libraries: an MLP on 64 features, and a small CNN on 28 x 28 images.

The CNN is the one of Opacus' and of TensorFlow Privacy's tutorials: two strided convolutions, each with a maximum over
2 x 2, and two layers. 50,000 records at 20 clients, as in the reference problem.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import rivals
from clock import Ratio, by_turns, seconds, timed
from ours import ROUNDS, round_of
from problem import BETA, LR, RHO
from results import Line, PeerLine
from targets import Target

from fedsofim.core.budget import NO_PRIVACY, Budget
from fedsofim.core.clipping import guarded
from fedsofim.core.door import Door, Facts
from fedsofim.core.method import Method
from fedsofim.core.models import Model
from fedsofim.core.round import federated_round
from fedsofim.data.dataset import Dataset
from fedsofim.data.partition import Split, split
from fedsofim.methods.fedsofim import fedsofim
from fedsofim.simulation.simulator import Static, cohort_of, start
from fedsofim.simulation.training import plan_for

CLIP = 1.0
BLOCKS = (250, 500, 1_000, 2_500, 5_000)  # records of a plain gradient's blocks; one block of all is tried too
Params = dict[str, Any]


def mlp_logits(p: Params, x: jax.Array) -> jax.Array:
    return jax.nn.relu(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]


def cnn_logits(p: Params, x: jax.Array) -> jax.Array:
    h = _pooled(jax.nn.relu(_conv(x.reshape(-1, 28, 28, 1), p["k1"], 3) + p["b1"]))
    h = _pooled(jax.nn.relu(_conv(h, p["k2"], 0) + p["b2"]))
    h = jax.nn.relu(h.reshape(len(h), -1) @ p["w3"] + p["b3"])
    return h @ p["w4"] + p["b4"]


def _conv(x: jax.Array, kernel: jax.Array, padding: int) -> jax.Array:
    edges = [(padding, padding)] * 2
    return jax.lax.conv_general_dilated(x, kernel, (2, 2), edges, dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _pooled(h: jax.Array) -> jax.Array:
    return jax.lax.reduce_window(h, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 1, 1, 1), "VALID")


@dataclass(frozen=True)
class Network:
    name: str
    features: int
    shapes: dict[str, tuple[int, ...]]
    logits: Callable[[Params, jax.Array], jax.Array]  # of a batch
    over_plain: float  # the targets: our round over a plain gradient, at most
    peers: dict[str, float]  # a peer's round over ours, at least

    def params(self) -> Params:
        random = np.random.default_rng(1)
        return {k: _random(random, shape) for k, shape in self.shapes.items()}

    def loss(self, p: Params, x: jax.Array, y: jax.Array) -> jax.Array:
        return -jax.nn.log_softmax(self.logits(p, x[None])[0])[y]

    def model(self) -> Model:
        return Model(lambda key, shape, classes: self.params(), self.loss, self.logits)


def _random(random: np.random.Generator, shape: tuple[int, ...]) -> jax.Array:
    fan_in = np.prod(shape[:-1]) if len(shape) > 1 else 100
    return jnp.asarray(random.standard_normal(shape, np.float32) / np.float32(np.sqrt(fan_in)))


FLOORS = {rivals.JAX_PRIVACY: 5.0, rivals.OPACUS: 2.0}
MLP = Network(
    "MLP 64-256-10", 64, {"b1": (256,), "b2": (10,), "w1": (64, 256), "w2": (256, 10)}, mlp_logits, 1.1, FLOORS
)
CNN = Network(
    "CNN on 28 x 28", 784,
    {"b1": (16,), "b2": (32,), "b3": (32,), "b4": (10,), "k1": (8, 8, 1, 16), "k2": (4, 4, 16, 32), "w3": (512, 32),
     "w4": (32, 10)},
    cnn_logits, 0.6, FLOORS,
)  # fmt: skip
NETWORKS = (MLP, CNN)
TORCH_PLAIN = rivals.Peer("PyTorch, plain gradient", "torch_plain.py", (rivals.TORCH, ("numpy",)))
PEERS = (
    rivals.Peer(rivals.OPACUS, "opacus_network.py", (rivals.TORCH, ("opacus",))),
    rivals.Peer(rivals.JAX_PRIVACY, "jax_privacy_network.py", (("jax-privacy",),)),
)


def problem(network: Network, records: int) -> Split:
    """Records of a network's shape, labels balanced, the paper's split over 20 clients."""
    random = np.random.default_rng(0)
    x = random.standard_normal((records, network.features), np.float32)
    y = random.permutation(np.arange(records) % 10).astype(np.int32)
    data = Dataset.of("synthetic", x_train=x, y_train=y, x_test=x[:100], y_test=y[:100])
    return split(data, 20)


def write(network: Network, data: Split, std: float, path: Path) -> None:
    """The problem as the peers read it: records in the order of their clients, parameters by name."""
    order = np.concatenate(data.parts)
    params = {f"params/{k}": np.asarray(v) for k, v in network.params().items()}
    np.savez(
        path, x=data.dataset.x_train[order], y=data.dataset.y_train[order], sizes=np.array(data.sizes), clip=CLIP,
        std=std, lr=LR, rho=RHO, beta=BETA, **params,  # type: ignore[arg-type]
    )  # fmt: skip


# --- ours and the plain gradient ----------------------------------------------------------------------------


def our_round(network: Network, data: Split) -> tuple[Callable[[], object], float]:
    """A round of DP-FedSOFIM with its noise and step; and the noise on a client's sum."""
    plan = plan_for(data, fedsofim(lr=LR, rho=RHO, beta=BETA), Budget(5.0), ROUNDS, model=network.model(), clip=CLIP)
    return round_of(plan, data), plan.sum_std


def our_sums(network: Network, data: Split) -> np.ndarray:
    """Every client's clipped sum without noise, (clients, d), parameters in the order of their names."""

    def row(tree: Params) -> jax.Array:
        return jnp.concatenate([tree[k].reshape(-1) for k in sorted(tree)])

    def kept(door: Door, params: Any, state: Any, memory: Any) -> tuple[Any, Any]:
        total = door.gradient(params)
        return total, row(total)

    def server(mean: Any, state: Any, params: Any, facts: Facts) -> tuple[Any, Any]:
        return mean, state

    method = Method("sums", kept, server, memory=lambda params: jnp.zeros_like(row(params)))
    plan = plan_for(data, method, NO_PRIVACY, 1, model=network.model(), clip=CLIP / guarded(1.0))
    rules, key = Static.of(plan, False, every=1).rules, jax.random.key(0)
    once = jax.jit(lambda cohort, carry: federated_round(rules, cohort, carry, jnp.int32(0)))
    return np.asarray(once(cohort_of(plan, data, key, False), start(plan, data, key)).memory)


def plain_gradients(network: Network, data: Split, blocks: Sequence[int] = BLOCKS) -> dict[str, Callable[[], object]]:
    """The gradient of the summed loss over all records, not private: of all at once, and block after block."""
    x, y = jnp.asarray(data.dataset.x_train), jnp.asarray(data.dataset.y_train)
    params = network.params()

    total = _total(network)
    whole = jax.jit(jax.grad(total))
    found: dict[str, Callable[[], object]] = {"all at once": lambda: jax.block_until_ready(whole(params, x, y))}
    for size in (size for size in blocks if size <= len(y)):
        found[f"in blocks of {size:,}"] = _in_blocks(jax.grad(total), params, x, y, size)
    return found


def _total(network: Network) -> Callable[[Params, jax.Array, jax.Array], jax.Array]:
    """The summed loss of a batch."""

    def total(p: Params, x: jax.Array, y: jax.Array) -> jax.Array:
        return -jnp.sum(jnp.take_along_axis(jax.nn.log_softmax(network.logits(p, x)), y[:, None], axis=1))

    return total


def _in_blocks(
    gradient: Callable, params: Params, x: jax.Array, y: jax.Array, size: int, rest: bool = False
) -> Callable[[], object]:
    """The gradient block after block; `rest`: with the records that fill no whole block, else they are left out."""
    count = len(y) // size
    blocks = x[: count * size].reshape(count, size, *x.shape[1:]), y[: count * size].reshape(count, size)
    left = (x[count * size :], y[count * size :]) if rest else (x[:0], y[:0])

    @jax.jit
    def run(params: Params, blocks: tuple[jax.Array, jax.Array]) -> Params:
        def add(total: Params, block: tuple[jax.Array, jax.Array]) -> tuple[Params, None]:
            return jax.tree.map(jnp.add, total, gradient(params, *block)), None

        total = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), blocks)[0]
        return add(total, left)[0] if len(left[1]) else total

    return lambda: jax.block_until_ready(run(params, blocks))


# --- the section --------------------------------------------------------------------------------------------


def measure(
    network: Network, records: int, turns: int, peers: bool, tell: Callable[[str], None]
) -> tuple[list[Line], list[PeerLine], list[Target]]:
    """Our round over plain gradients, and peers' rounds over ours; nothing is timed before the sums agree."""
    data = problem(network, records)
    ours, std = our_round(network, data)
    tell(f"{network.name}: plain gradients")
    tried = plain_gradients(network, data)
    how = min(tried, key=lambda k: _second(tried[k]))  # at the size that is measured: another size has another best
    times = by_turns({"ours": timed(ours), "plain": timed(tried[how])}, turns, repeats=1)
    lines = [Line(f"{network.name}, JAX {how}", Ratio.of(times["ours"], times["plain"]))]
    lines += _plain_by_torch(network, data, std, ours, turns, tell) if peers else []
    worst = max(lines, key=lambda line: line.ratio.median)  # over the fastest plain gradient
    for line in lines:
        tell(f"  {line.ratio.median:.2f} of {line.name}")
    targets = [
        Target(f"{network.name}: round over the fastest plain gradient", "at most", network.over_plain, worst.ratio)
    ]
    if not peers:
        return lines, [], targets
    found = _peers(network, data, std, ours, turns, tell)
    by_name = {line.name: line for line in found}
    targets += [
        Target(f"{network.name}: {name}, over our round", "at least", floor, by_name[f"{network.name}, {name}"].ratio,
               note=by_name[f"{network.name}, {name}"].reason)
        for name, floor in network.peers.items()
    ]  # fmt: skip
    return lines, found, targets


def _plain_by_torch(
    network: Network, data: Split, std: float, ours: Callable[[], object], turns: int, tell: Callable
) -> list[Line]:
    """Our round over PyTorch's plain gradient, once both gradients were found to agree; nothing where it is missing."""
    order = np.concatenate(data.parts)
    x, y = jnp.asarray(data.dataset.x_train[order]), jnp.asarray(data.dataset.y_train[order])
    total = _in_blocks(jax.grad(_total(network)), network.params(), x, y, 1_000, rest=True)()
    row = np.concatenate([np.asarray(total[k]).reshape(-1) for k in sorted(total)])[None]  # type: ignore[index]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.npz"
        write(network, data, std, path)
        outcome = rivals.compare(TORCH_PLAIN, path, row, ours, turns, repeats=1)
    if not outcome.theirs or not outcome.ours:
        tell(f"  {TORCH_PLAIN.name}: {outcome.reason}")
        return []
    how = outcome.version.partition(", ")[2]
    return [Line(f"{network.name}, PyTorch {how}", Ratio.of(outcome.ours, outcome.theirs))]


def _second(run: Callable[[], object]) -> float:
    """Seconds of a second run; the first one compiles."""
    run()
    return seconds(run)


def _peers(network: Network, data: Split, std: float, ours: Callable[[], object], turns: int, tell: Callable) -> list:
    sums, lines = our_sums(network, data), []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.npz"
        write(network, data, std, path)
        for peer in PEERS:
            tell(f"{network.name}: {peer.name}")
            outcome = rivals.compare(peer, path, sums, ours, turns, repeats=1)
            ratio = Ratio.of(outcome.theirs, outcome.ours) if outcome.theirs and outcome.ours else None
            kind = "" if ratio else f"{'wrong' if outcome.wrong else 'missing'}: {outcome.reason}"
            lines.append(PeerLine(f"{network.name}, {peer.name}", outcome.version, ratio, kind))
            tell(f"  {kind or f'{ratio.median:.1f} x our time'}")  # type: ignore[union-attr]
    return lines
