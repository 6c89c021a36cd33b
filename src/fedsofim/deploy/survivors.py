"""A node after its upload: which clients a sum is over, and the pieces that open it (secure_sum.py has the argument).

`agree`: the server says whom the sum is over; the node writes that down, once for each request and for ever, and gives
every other client a vote that it was told so. `reveal`: the node opens its parcels and hands out its pieces for that
set: of a client in it the piece of its own seed, of a pair that is half in it the piece of the pair's seed. A set of
all clients needs no votes, any smaller one those of `enough` clients. Neither costs anything: what they open was
charged when it was uploaded. Both give the same bits whenever they are asked again.
"""

import hmac
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedsofim.deploy.noise import request_secret
from fedsofim.deploy.parcels import Circle, opened_parcel, with_myself
from fedsofim.deploy.pieces import PIECE
from fedsofim.deploy.policy import Policy
from fedsofim.deploy.secure_sum import derived, pair_secrets
from fedsofim.deploy.wire import Arrays, Job
from fedsofim.errors import InputError, Refused

AGREE, REVEAL = "agree", "reveal"  # what a node is asked
VOTE = 32  # bytes


class NeverRevealed(Refused):
    """This node will never help to open the sum, whoever asks again."""


class Sum(NamedTuple):
    """A request that this node answered, as it needs to know it: with whom, and its secrets with them."""

    circle: Circle
    secrets: Mapping[str, bytes]  # of each pair, and its own under its own name


def agree(policy: Policy, digest: str, present: Any) -> tuple[dict[str, Any], Arrays]:
    """Whom this node takes the sum to be over, the first set it was told, and its votes for it."""
    found = _sum_of(policy, digest)
    told = policy.account.tell(digest, _checked(found.circle, present))
    votes = [
        vote(found.secrets[other], found.circle, told, policy.name) if other != policy.name else bytes(VOTE)
        for other in found.circle.names
    ]
    return {"present": list(told)}, {"votes": np.frombuffer(b"".join(votes), np.uint8).reshape(-1, VOTE)}


def reveal(policy: Policy, digest: str, present: Any, arrays: Arrays) -> Arrays:
    """This node's pieces for one set, for ever; or Refused, and nothing has left."""
    found = _sum_of(policy, digest)
    circle = found.circle
    among = _checked(circle, present)
    lost = [name for name in circle.names if name not in among]
    if lost:
        _check_votes(policy.name, found, among, arrays)
    own = _opened(policy.name, found, "own", among, arrays)
    pairs = _opened(policy.name, found, "pairs", among, arrays) if lost else []
    told = policy.account.tell(digest, among)  # on disk, before anything is said
    if told != among:
        raise NeverRevealed(
            f"this node was told that the sum is over {', '.join(told)}, and now over {', '.join(among)}; it reveals "
            "for one set only, ever"
        )
    out = {"own": _table([row[0] for row in own])}
    if lost:
        places = [circle.number(name) for name in lost]
        pieces = [row[place] for row in pairs for place in places]
        out["pairs"] = _table(pieces).reshape(len(among), len(lost), PIECE)
    return out


def vote(secret: bytes, circle: Circle, present: Sequence[str], voter: str) -> bytes:
    """A client's word to another, under their pair's secret: the sum of this request is over these."""
    text = "\n".join((circle.digest, *present)).encode()
    return hmac.digest(derived(secret, "vote", voter), text, "sha256")


# --- checks -------------------------------------------------------------------------------------------------


def _sum_of(policy: Policy, digest: str) -> Sum:
    """Of a request that was charged and answered here; no other is ever helped with."""
    asked = policy.account.answered(digest)
    if asked is None:
        raise Refused("this node did not answer that request, so it has nothing to reveal of it")
    circle = Circle.of(Job.read(asked.terms), digest)
    if circle is None or policy.mask_key is None:
        raise Refused("that request needs every client; nothing of it is ever revealed")
    secrets = pair_secrets(policy.name, policy.mask_key, dict(policy.peers), circle.names)
    return Sum(circle, with_myself(policy.name, secrets, request_secret(asked.secret, digest)))


def _checked(circle: Circle, present: Any) -> tuple[str, ...]:
    """The set in the job's order, if a sum may be over it."""
    if not isinstance(present, list) or not all(isinstance(name, str) for name in present):
        raise InputError("the request names nobody; expected the list of clients that the sum is over")
    among = tuple(name for name in circle.names if name in present)
    if len(among) != len(present):
        raise Refused("the sum is said to be over clients that are not the job's, or over one of them twice")
    if len(among) < circle.enough:
        raise Refused(
            f"the sum is said to be over {len(among)} clients; the job's noise is for at least {circle.enough}"
        )
    return among


def _check_votes(name: str, found: Sum, among: Sequence[str], arrays: Arrays) -> None:
    """Were enough clients, this one among them, told the same?"""
    circle, given = found.circle, _array(arrays, "votes", (len(found.circle.names), VOTE))
    others = [other for other in circle.names if other != name]
    right = {
        other for other in others
        if hmac.compare_digest(given[circle.number(other)].tobytes(), vote(found.secrets[other], circle, among, other))
    }  # fmt: skip
    if len(right) + 1 < circle.enough:
        without = ", ".join(other for other in others if other not in right)
        raise Refused(
            f"{len(right) + 1} clients were told that the sum is over {', '.join(among)}, and {circle.enough} must "
            f"have been (no word of {without}); nothing is revealed"
        )


def _opened(name: str, found: Sum, part: str, among: Sequence[str], arrays: Arrays) -> list[list[bytes]]:
    """This node's part of the parcel of each client in the sum."""
    shape = found.circle.shapes[f"sealed_{part}"]
    given = _array(arrays, f"sealed_{part}", (len(among), shape[1]))
    try:
        return [
            opened_parcel(found.circle, part, sender, name, found.secrets[sender], sealed)
            for sender, sealed in zip(among, given, strict=True)
        ]
    except Refused as error:
        raise NeverRevealed(str(error)) from error


def _array(arrays: Arrays, name: str, shape: tuple[int, ...]) -> np.ndarray:
    found = arrays.get(name)
    if found is None or found.dtype != np.uint8 or found.shape != shape:
        have = "missing" if found is None else f"{found.dtype}{list(found.shape)}"
        raise InputError(f"the request's array {name} is {have}; expected uint8{list(shape)}")
    return found


def _table(pieces: Sequence[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(pieces), np.uint8).reshape(-1, PIECE)
