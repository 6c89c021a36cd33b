"""What comes back from the nodes of a job: what is wrong with it, and its mean."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim.core.mechanisms import Independent
from fedsofim.core.phase import Phase
from fedsofim.core.programs import upload_shapes
from fedsofim.core.queries import ratio_of
from fedsofim.deploy.clients import Client
from fedsofim.deploy.execute import coordinates, unmasked_mean
from fedsofim.deploy.job_state import JobState
from fedsofim.deploy.noise import inner
from fedsofim.deploy.parcels import Circle
from fedsofim.deploy.presence import weight_of
from fedsofim.deploy.secure_sum import Shares, added, in_units, step_of
from fedsofim.deploy.steps import OWN
from fedsofim.deploy.unmasking import FalseSumError
from fedsofim.deploy.wire import Arrays

_ABSURD = 1000.0  # times the median norm of the round


def faults(now: JobState, uploads: Mapping[str, Arrays]) -> dict[str, str]:
    """What is wrong with the uploads received, by the name of the node; empty if all can be averaged."""
    wanted = _wanted(now)
    found = {name: why for name, arrays in uploads.items() if (why := _fault(arrays, wanted))}
    if now.masked:
        return found  # each upload by itself looks like noise
    norms = {name: _norm(arrays) for name, arrays in uploads.items() if name not in found}
    # accuracies about one half are about 0 here, and who has a budget of its own may be much louder than the others
    compared = len(norms) >= 3 and now.phase is not Phase.EVALUATION and not now.job.own_stds
    middle = float(np.median(list(norms.values()))) if compared else math.inf
    for client in now.clients:
        norm, largest = norms.get(client.name, 0.0), _largest(now, client)
        if norm > _ABSURD * max(middle, 1e-30):
            why = f"{_ABSURD:g} times the round's median {middle:.3g}"
            found[client.name] = f"its upload has norm {norm:.3g}, more than {why}"
        elif norm > largest:
            found[client.name] = f"its upload has norm {norm:.3g}; clip and noise allow no more than {largest:.3g}"
    return found


def _wanted(now: JobState) -> dict[str, Any]:
    """Shapes of the arrays of one upload. Under masks that is what was released, before the program went on with it,
    and where clients may be lost the parcels for the others."""
    if now.masked:
        circle = Circle.of(now.job, "")
        parcels = {} if circle is None else circle.shapes
        words = jax.ShapeDtypeStruct((_numbers(now),), np.uint64)
        return {"upload0": words} | {key: jax.ShapeDtypeStruct(shape, np.uint8) for key, shape in parcels.items()}
    return {f"upload{i}": s for i, s in enumerate(jax.tree.leaves(upload_shapes(now.program)))}


def upload_bytes(now: JobState) -> int:
    """How many bytes the arrays of one sound upload have."""
    return sum(math.prod(s.shape) * np.dtype(s.dtype).itemsize for s in _wanted(now).values())


def _fault(arrays: Arrays, wanted: Mapping[str, Any]) -> str | None:
    if set(arrays) != set(wanted):
        return f"it sent arrays {str(sorted(arrays))[:200]}; expected {str(sorted(wanted))[:200]}"
    for name, want in wanted.items():
        have = arrays[name]
        if have.dtype != want.dtype or have.shape != want.shape:
            return f"its {name} is {have.dtype}{list(have.shape)}; expected {want.dtype}{list(want.shape)}"
        if np.isnan(have).any():
            return f"its {name} holds NaN"
        if np.isinf(have).any():
            return f"its {name} holds infinity"
    return None


def _largest(now: JobState, client: Client) -> float:
    """What an upload's norm cannot reasonably exceed, where it is one clipped sum over the size with fresh noise."""
    site = now.program.sites[0]
    plain = now.phase in OWN or (now.phase is Phase.ROUND and now.plan.pooled)
    drawn = inner(site.noise)  # an error for a kind that nobody draws
    if not plain or drawn is not site.noise or not isinstance(drawn, Independent) or site.sample < 1:
        return math.inf
    noise = now.job.stds_of(client.name)[now.phase][0] * drawn.scale * (math.sqrt(_numbers(now)) + 10)  # 10 sigma
    return 1.001 * (site.clip + noise / (client.counted if now.phase is Phase.EVALUATION else client.size))


def _norm(arrays: Arrays) -> float:
    return math.sqrt(sum(float(np.sum(np.square(a, dtype=np.float64))) for a in arrays.values()))


def _numbers(now: JobState) -> int:
    """How many numbers the only release of the phase gives."""
    (count,) = coordinates(now.program.jaxpr).values()
    return count


# --- the mean -----------------------------------------------------------------------------------------------


def mean(now: JobState, uploads: Sequence[Arrays], weights: np.ndarray | None = None) -> Any:
    """The weighted mean of sound uploads, one of each client that is there, in the order of the clients."""
    if now.masked:
        return mean_of_sum(now, added([u["upload0"] for u in uploads]), [c.name for c in now.clients])
    shapes, weights = upload_shapes(now.program), now.plan.client_weights if weights is None else weights
    leaves = [np.stack([u[f"upload{i}"] for u in uploads]) for i in range(len(jax.tree.leaves(shapes)))]
    means = [jnp.tensordot(jnp.asarray(weights, leaf.dtype), jnp.asarray(leaf), 1) for leaf in leaves]
    return jax.tree.unflatten(jax.tree.structure(shapes), means)


def mean_of_sum(now: JobState, total: np.ndarray, present: Sequence[str]) -> Any:
    """The same from the sum of masked uploads of those present; if masks are left in it, an error and no step."""
    (site,) = now.program.sites
    shares = Shares.of(now.job.peers, now.job.weights, now.job.min_clients)
    std = shares.std(now.job.stds[now.phase][0], ratio_of(site.query) * site.clip, _numbers(now))
    values = in_units(total, step_of(std))
    largest = site.clip + std * math.sqrt(len(present)) * (math.sqrt(len(values)) + 10)
    if np.linalg.norm(values) > largest:
        raise FalseSumError(
            f"the masks do not cancel: the sum over {', '.join(present)} has norm {np.linalg.norm(values):.3g}, clip "
            f"and noise allow no more than {largest:.3g}. Some node was asked another question, or answered falsely",
            present,
        )
    return unmasked_mean(now.program, now.programs.inputs(now.phase), values / weight_of(now, present))
