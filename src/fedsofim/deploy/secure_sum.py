"""Secure summation: the server learns Σ_i w_i·g_i and nothing else, so that clients may share the noise.

Every pair of nodes has a secret (X25519, keys known to both operators beforehand, never through the server). On the
lattice of noise.py a node uploads, modulo 2^64,

    y_i = Σ_j round(a_i·clip(∇_j)/g) + floor(2^32·z_i) + Σ_{k: i before k} m_ik - Σ_{k: k before i} m_ik,

a_i = w_i/|D_i|, m_ik a stream of uniform words from the pair's secret and the digest of the request. The masks cancel
in Σ_i y_i, and only if every node was asked exactly the same thing. One node missing, and the sum is noise: a
round needs all.

Noise: with s the std that would hide one client's sum alone and A = max a_i, the average needs std A·s; each of n
clients draws A·s/sqrt(n). A node knows P clients (its policy's peers and itself) and believes of h of them (its
policy's `secure_sum_min_clients`, itself among them) that they draw theirs and keep their secrets; not of which. The
server picks the n that sum, and may pick all P - h others first: at least max(1, n - (P - h)) of the n are to be
trusted, and with that many in the place of h the node charges itself at std A·s·sqrt(h/n) (`trusted_among`). Sums of
floored
normals: floor(w_1) + ... + floor(w_n) has, up to exp(-2π²·2^64), the law of floor(Σw + n-1 uniforms), a
post-processing of the Gaussian mechanism with noise Σw; so the price is the Gaussian one.

What may be summed: any phase in which a client releases once, with fresh noise, be it asked in every round (a gradient)
or once (a step of a preparation). Nothing above is about gradients or rounds. It takes that
* replacing a record moves a_i·S_i by at most a_i·ratio·clip, which core/queries.py proves for every query. A second
  moment is summed as the half vector that its ratio is about; the matrix is made of it afterwards;
* no two requests share masks or noise: the masks' label is the digest of job, phase, round and arrays, the noise is a
  function of the job's secret and that digest, so that of one request every node has one answer for ever. (Were noise
  fresh at each computation, a server could ask honest peers again and again and average theirs away.) The job's secret
  lies in the ledger, so a job names every client's ledger, and a node with another one refuses it;
* phases compose as rounds do: what a later one sums depends on earlier sums only through what was released, and maps
  each record by itself, so its mu² is added.
A method's setup is not summed: it may release more than once, and need not be a sum over the client's size.
"""

import base64
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedsofim.deploy.noise import BITS, Bits, lattice_std
from fedsofim.deploy.sane import is_name
from fedsofim.errors import InputError, Refused, is_whole

_LABEL = b"fedsofim pairwise mask 1"
_MOST = 10**12  # records of one client


@dataclass(frozen=True)
class Shares:
    """Who sums, in order: names and a_i = w_i/|D_i|. Everything about shared noise follows from it and s."""

    names: tuple[str, ...]
    factors: tuple[float, ...]

    @staticmethod
    def of(peers: Sequence[tuple[str, int]], weights: str) -> "Shares":
        """From names and sizes, for uniform weights 1/n or weights by size."""
        total = sum(size for _, size in peers)
        a = [1 / (len(peers) * size) if weights == "uniform" else 1 / total for _, size in peers]
        return Shares(tuple(name for name, _ in peers), tuple(a))

    def std(self, full: float, sensitivity: float, coordinates: int) -> float:
        """Noise std of each client on the average; large enough that rounding is paid for by all of them."""
        share = max(self.factors) * full / math.sqrt(len(self.names))
        return lattice_std(share, sensitivity * min(self.factors), coordinates)

    def multiplier(self, name: str, full: float, honest: int) -> float:
        """Noise multiplier that the node may claim for its own records, if `honest` clients draw their noise."""
        mine = self.factors[self.names.index(name)]
        return full * max(self.factors) / mine * math.sqrt(min(honest, len(self.names)) / len(self.names))


def trusted_among(summing: int, known: int, trusted: int) -> int:
    """How many of the clients in a sum are to be trusted, if `trusted` of all `known` ones are and the worst sum.

    >>> trusted_among(summing=5, known=5, trusted=3), trusted_among(summing=3, known=5, trusted=3)
    (3, 1)
    """
    return max(1, summing - (known - trusted))


def new_key(path: Path) -> str:
    """A node's mask key in a file of its own; returns the public half, for the other operators."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    from fedsofim.deploy.credentials import write_secret

    key = X25519PrivateKey.generate()
    write_secret(path, base64.b64encode(key.private_bytes_raw()) + b"\n")
    return base64.b64encode(key.public_key().public_bytes_raw()).decode()


def pair_secrets(name: str, key: Path, peers: Mapping[str, str], among: Sequence[str]) -> dict[str, bytes]:
    """The secret shared with each of the others `among` whom the sum runs."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    try:
        mine = X25519PrivateKey.from_private_bytes(base64.b64decode(key.read_bytes()))
        theirs = {n: X25519PublicKey.from_public_bytes(base64.b64decode(peers[n])) for n in among if n != name}
    except KeyError as error:
        raise Refused(
            f"{error.args[0]} is not among this node's peers; its operator has not agreed to sum with it"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"the mask keys of this node cannot be read ({error})") from error
    out = {}
    for other, public in theirs.items():
        both = "\n".join(sorted((name, other))).encode()
        out[other] = hashlib.sha256(_LABEL + mine.exchange(public) + both).digest()
    return out


def masks(name: str, secrets: Mapping[str, bytes], digest: str, count: int) -> np.ndarray:
    """The node's masks for one request, added up modulo 2^64: they cancel over all nodes."""
    total = np.zeros(count, np.uint64)
    for other, secret in sorted(secrets.items()):
        words = Bits(secret, digest).words(count)
        total = total + words if name < other else total - words  # uint64 wraps around
    return total


def masked(whole: np.ndarray, noise: np.ndarray, mask: np.ndarray) -> np.ndarray:
    return (whole + noise).astype(np.int64).view(np.uint64) + mask


def unmasked(uploads: Sequence[np.ndarray], step: float) -> np.ndarray:
    """Σ_i of the masked uploads, in the data's units."""
    total = np.zeros_like(uploads[0])
    for upload in uploads:
        total = total + upload
    return total.view(np.int64).astype(np.float64) * step


def step_of(std: float) -> float:
    return std * 2.0**-BITS


def as_peers(value: Any) -> tuple[tuple[str, int], ...]:
    """Names and sizes as terms carry them."""
    try:
        peers = tuple((name, size) for name, size in value)
    except (TypeError, ValueError) as error:
        raise InputError("the job's peers make no sense; expected pairs of a name and a size") from error
    if not all(is_name(name) and is_whole(size) and size <= _MOST for name, size in peers):
        raise InputError("the job's peers make no sense; expected pairs of a plain name and a number of records")
    names = [name for name, _ in peers]
    if len(set(names)) != len(names) or any(size < 1 for _, size in peers):
        raise InputError("the job's peers make no sense; expected different names, each with at least one record")
    return peers
