"""Secure summation: the server learns Σ_i w_i·g_i and nothing else, so that clients may share the noise.

Every pair of nodes has a secret (X25519, keys known to both operators beforehand, never through the server). On the
lattice of noise.py a node uploads, modulo 2^64,

    y_i = Σ_j round(a_i·clip(∇_j)/g) + floor(2^32·z_i) + m_i + Σ_{k: i before k} m_ik - Σ_{k: k before i} m_ik,

a_i = w_i/|D_i|. m_ik is a stream from the pair's seed of this request, a keyed function of the pair's secret and the
request's digest: it cancels in Σ_i y_i, and only if every node was asked exactly the same thing. Where all n clients
are needed (t = n) m_i = 0 and nothing else is ever sent. Where t < n are enough (`min_clients`; SecAgg, Bonawitz et al.
2017, with the seeds of each round in the upload as in Flamingo, Ma et al. 2023), m_i is a stream from a seed b_i of
this request and node alone, and

1. with y_i goes a parcel for every client (parcels.py): its pieces of b_i and of each seed of i's pairs, t of n
   (pieces.py), sealed with the pair's secret (ChaCha20-Poly1305);
2. the server fixes S, at least t clients whose uploads it has, and asks for pieces: of b_i for i in S, and of the seeds
   of pairs (i, k), i in S and k not. With t answers it takes off all masks of Σ_{i in S} y_i, and of nothing else.

**Never both.** y_i is open to who has b_i and the seeds of i's pairs. A node stands by one S for each request, for
ever: the first it was told, in its ledger before it says anything (survivors.py). For S = all it answers at once.
Any smaller S must first be agreed on: a node answers if t clients, itself among them, have authenticated to it that
they were told the same S. Of n clients let c collude with the server. To open two different sets takes t - c honest
nodes for each, no node twice, of n - c: impossible if 2t > n + c. A node refuses a job where that does not follow from
its policy. So one S at most has t pieces. Then for honest i in S: b_i is known, and of a seed between two honest
clients of S only the colluders' c < t pieces are, so the honest uploads are uniform given their sum. For honest i
not in S: fewer than t pieces of b_i are out, so y_i is uniform. Seeds are of one request: what is revealed says nothing
of another's, and who was lost may come back. What was told is forgotten if ledger and witness are set back together
(witness.py); a client that seals nonsense spoils the sum, under its name.

Noise: with s the std that would hide one client's sum alone and A = max a_i, the average needs std A·s; each client
draws A·s/sqrt(t), so that any t have it. A node knows P clients (its policy's peers and itself) and believes of h of
them (`secure_sum_min_clients`, itself among them) that they draw theirs and keep their secrets; not of which. The
server picks who sums, and may pick all P - h others first: of the t that may be all, at least max(1, t - (P - h)) are
to be trusted, and the node charges itself at std A·s·sqrt(that/t) (`trusted_among`). Sums of floored normals:
floor(w_1) + ... + floor(w_n) has, up to exp(-2π²·2^64), the law of floor(Σw + n-1 uniforms), a post-processing of the
Gaussian mechanism with noise Σw; so the price is the Gaussian one.

What may be summed: any phase in which a client releases once, with fresh noise, be it asked in every round (a gradient)
or once (a step of a preparation). Nothing above is about gradients or rounds. It takes that
* replacing a record moves a_i·S_i by at most a_i·ratio·clip, which core/queries.py proves for every query. A second
  moment is summed as the half vector that its ratio is about; the matrix is made of it afterwards;
* no two requests share masks, seeds or noise: all are functions of the digest of job, phase, round and arrays, and of
  a pair's or the job's secret, so that of one request every node has one answer for ever. (Were noise fresh at each
  computation, a server could ask honest peers again and again and average theirs away.) The job's secret lies in the
  ledger, so a job names every client's ledger, and a node with another one refuses it;
* phases compose as rounds do: what a later one sums depends on earlier sums only through what was released, and maps
  each record by itself, so its mu² is added.
A method's setup is not summed: it may release more than once, and need not be a sum over the client's size.
Not hidden: who takes part in which round. Not prevented: a false upload (docs/threats.md).
"""

import base64
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedsofim.deploy.noise import BITS, lattice_std
from fedsofim.deploy.pieces import SECRET
from fedsofim.deploy.sane import is_name
from fedsofim.errors import InputError, Refused, is_whole

_LABEL = b"fedsofim pairwise mask 1"
_MOST = 10**12  # records of one client


@dataclass(frozen=True)
class Shares:
    """Who sums, in order: names and a_i = w_i/|D_i|, and how many are enough. With s, all about shared noise."""

    names: tuple[str, ...]
    factors: tuple[float, ...]
    enough: int

    @staticmethod
    def of(peers: Sequence[tuple[str, int]], weights: str, enough: int = 0) -> "Shares":
        """From names and sizes, for uniform weights 1/n or weights by size; 0: all are needed."""
        total = sum(size for _, size in peers)
        a = [1 / (len(peers) * size) if weights == "uniform" else 1 / total for _, size in peers]
        return Shares(tuple(name for name, _ in peers), tuple(a), enough or len(peers))

    def std(self, full: float, sensitivity: float, coordinates: int) -> float:
        """Noise std of each client on the average; large enough that rounding is paid for by all of them."""
        share = max(self.factors) * full / math.sqrt(self.enough)
        return lattice_std(share, sensitivity * min(self.factors), coordinates)

    def multiplier(self, name: str, full: float, honest: int) -> float:
        """Noise multiplier that the node may claim for its own records, if `honest` clients draw their noise."""
        mine = self.factors[self.names.index(name)]
        return full * max(self.factors) / mine * math.sqrt(min(honest, self.enough) / self.enough)


def trusted_among(summing: int, known: int, trusted: int) -> int:
    """How many of the clients in a sum are to be trusted, if `trusted` of all `known` ones are and the worst sum.

    >>> trusted_among(summing=5, known=5, trusted=3), trusted_among(summing=3, known=5, trusted=3)
    (3, 1)
    """
    return max(1, summing - (known - trusted))


def fewest_safe(clients: int, known: int, trusted: int) -> int:
    """The smallest t of n clients with which no two sums of one request can be opened: 2t > n + c.

    >>> fewest_safe(clients=10, known=10, trusted=10), fewest_safe(clients=10, known=10, trusted=7)
    (6, 7)
    """
    colluding = clients - trusted_among(clients, known, trusted)
    return (clients + colluding) // 2 + 1


# --- keys, seeds and masks ----------------------------------------------------------------------------------


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


def derived(secret: bytes, *purpose: str) -> bytes:
    """32 bytes for one purpose (HKDF-Expand); whoever has them knows neither the secret nor another purpose's."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

    return HKDFExpand(hashes.SHA256(), 32, "\n".join(("fedsofim sum 1", *purpose)).encode()).derive(secret)


def seed_of(secret: bytes, what: str, digest: str) -> bytes:
    """The seed of one mask of one request: of a pair ("pair") from its secret, of a node ("own") from the request's."""
    return derived(secret, what, digest)[:SECRET]


def stream(seed: bytes, count: int) -> np.ndarray:
    """So many uniform words from a seed (ChaCha20, a key of its own for each seed): a mask."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

    cipher = Cipher(ChaCha20(derived(seed, "stream"), bytes(16)), None)
    return np.frombuffer(cipher.encryptor().update(bytes(8 * count)), "<u8")


def masks(name: str, secrets: Mapping[str, bytes], digest: str, count: int) -> np.ndarray:
    """The node's masks with all others for one request, added up modulo 2^64: they cancel over all nodes."""
    total = np.zeros(count, np.uint64)
    for other, secret in sorted(secrets.items()):
        total += pair_mask(name, other, seed_of(secret, "pair", digest), count)  # uint64 wraps around
    return total


def pair_mask(name: str, other: str, seed: bytes, count: int) -> np.ndarray:
    """What `name` adds for its pair with another: the other adds the opposite."""
    words = stream(seed, count)
    return words if name < other else np.uint64(0) - words


def masked(whole: np.ndarray, noise: np.ndarray, mask: np.ndarray) -> np.ndarray:
    return (whole + noise).astype(np.int64).view(np.uint64) + mask


def added(uploads: Sequence[np.ndarray]) -> np.ndarray:
    """Σ_i of masked uploads, modulo 2^64."""
    total = np.zeros_like(uploads[0])
    for upload in uploads:
        total = total + upload
    return total


def in_units(total: np.ndarray, step: float) -> np.ndarray:
    """A sum whose masks are off, in the data's units."""
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
