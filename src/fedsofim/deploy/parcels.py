"""What goes with a masked upload where clients may be lost: for every client a parcel, through the server, sealed.

Client i cuts n + 1 secrets of this request: its own seed b_i and the seed of each of its pairs. Parcel k holds the
pieces number k of all of them, in two parts, since without losses only the first is ever opened. As arrays, in the
job's order of names:

    sealed_own    n x 48                one piece of b_i, for each holder, with its tag
    sealed_pairs  n x (32·n + 16)       n pieces: of the seed of i's pair with each client (zeros for i itself)
    marks         (n + 1) x (n + 1) x 16  digests of all pieces, by holder and secret, and in the last row of the
                                        secrets: who gives back another piece, or cut another secret, is known by name

A seal's key is of one pair, direction, part and request, and all that is sealed follows from the request: a key is used
for one text only, so the nonce may be 0. A mark tells nothing: what it is a digest of has 248 random bits.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedsofim.deploy.noise import Bits
from fedsofim.deploy.pieces import PIECE, cut
from fedsofim.deploy.secure_sum import derived, seed_of
from fedsofim.deploy.wire import Job
from fedsofim.errors import Refused

MARK, _TAG = 16, 16  # bytes


@dataclass(frozen=True)
class Circle:
    """Who sums in one request, in the job's order, and how many of them are enough."""

    names: tuple[str, ...]
    enough: int
    digest: str  # of the request

    @staticmethod
    def of(job: Job, digest: str) -> "Circle | None":
        """Of a request of a job whose sums can do without some of its clients; None where all are needed."""
        some = job.trust == "secure-sum" and 0 < job.min_clients < job.clients
        return Circle(tuple(dict(job.peers)), job.min_clients, digest) if some else None

    def number(self, name: str) -> int:
        return self.names.index(name)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the arrays that go with an upload."""
        n = len(self.names)
        return {
            "sealed_own": (n, PIECE + _TAG),
            "sealed_pairs": (n, PIECE * n + _TAG),
            "marks": (n + 1, n + 1, MARK),
        }


def with_myself(name: str, secrets: Mapping[str, bytes], own: bytes) -> dict[str, bytes]:
    """The pairs' secrets and, as of one more pair, what a node seals for itself with: it keeps nothing else."""
    return {**secrets, name: derived(own, "myself")}


def packed(circle: Circle, name: str, secrets: Mapping[str, bytes], own: bytes) -> dict[str, np.ndarray]:
    """The parcels of one client's upload. `secrets`: of its pairs; `own`: the secret of the request."""
    n = len(circle.names)
    seeds = [seed_of(own, "own", circle.digest)]
    seeds += [seed_of(secrets[other], "pair", circle.digest) if other != name else b"" for other in circle.names]
    pieces = [
        cut(seed, circle.enough, n, Bits(own, f"pieces/{i}")) if seed else [bytes(PIECE)] * n
        for i, seed in enumerate(seeds)
    ]
    to = with_myself(name, secrets, own)
    rows = list(zip(*pieces, strict=True))  # by holder: the piece of every secret
    keys = [to[holder] for holder in circle.names]
    marks = [[mark(piece) for piece in row] for row in [*rows, seeds]]
    return {
        "sealed_own": _table(
            _sealed(key, _purpose(circle, "own", name, holder), row[0])
            for key, holder, row in zip(keys, circle.names, rows, strict=True)
        ),
        "sealed_pairs": _table(
            _sealed(key, _purpose(circle, "pairs", name, holder), b"".join(row[1:]))
            for key, holder, row in zip(keys, circle.names, rows, strict=True)
        ),
        "marks": np.frombuffer(b"".join(b"".join(row) for row in marks), np.uint8).reshape(n + 1, n + 1, MARK),
    }


def opened_parcel(
    circle: Circle, part: str, sender: str, holder: str, secret: bytes, sealed: np.ndarray
) -> list[bytes]:
    """The pieces in one part ("own" or "pairs") of a parcel; Refused, by the sender's name, if it was not sent so."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    key = derived(secret, *_purpose(circle, part, sender, holder))
    try:
        text = ChaCha20Poly1305(key).decrypt(bytes(12), sealed.tobytes(), None)
    except InvalidTag:
        raise Refused(
            f"what {sender} sealed for {holder} cannot be opened: it was changed on the way, is of another request, or "
            f"{sender} has another mask key than this node knows it by; nothing is revealed"
        ) from None
    return [text[i : i + PIECE] for i in range(0, len(text), PIECE)]


def mark(piece: bytes) -> bytes:
    return hashlib.sha256(b"fedsofim piece 1\n" + piece).digest()[:MARK]


def _purpose(circle: Circle, part: str, sender: str, holder: str) -> Sequence[str]:
    return (part, sender, holder, circle.digest)


def _sealed(secret: bytes, purpose: Sequence[str], text: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    return ChaCha20Poly1305(derived(secret, *purpose)).encrypt(bytes(12), text, None)


def _table(rows: Iterable[bytes]) -> np.ndarray:
    return np.stack([np.frombuffer(row, np.uint8) for row in rows])
