"""A ledger's entries as a chain: each link is a digest of the one before and of what the entry says.

    link_0 = H(identity),   link_n = H(link_{n-1}, entry n),   seal_n = HMAC(key, link_n)

Whoever changes, drops or reorders an entry changes every link after it, so one link that is kept elsewhere
(witness.py) or was signed (certificate.py) speaks for everything before it. Links can be recomputed by anybody who has
the ledger; seals only by who has the key, which is never in the ledger: its owner's node refuses entries that another
hand appended.
"""

import hashlib
import hmac
import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

_LABEL = b"fedsofim ledger 2\n"


class Link(NamedTuple):
    """The end of a chain: how many entries there are, and the digest of all of them."""

    number: int
    digest: bytes


class Entry(NamedTuple):
    """One entry as it is stored, beside the link and the seal that were stored with it."""

    said: Sequence[Any]
    link: bytes
    seal: bytes


def first_link(identity: str) -> Link:
    return Link(0, hashlib.sha256(_LABEL + identity.encode()).digest())


def next_link(last: Link, said: Sequence[Any]) -> Link:
    """The link after an entry that says this."""
    text = json.dumps([last.number + 1, *said], separators=(",", ":"))
    return Link(last.number + 1, hashlib.sha256(last.digest + text.encode()).digest())


def seal_of(key: bytes, link: Link) -> bytes:
    return hmac.digest(key, link.digest, "sha256")


def broken_at(identity: str, entries: Iterable[Entry], key: bytes | None) -> tuple[int, list[Link]]:
    """(number of the first entry that does not follow from those before it, or 0; all links up to there).

    Without the key seals are not looked at.
    """
    links = [first_link(identity)]
    for entry in entries:
        link = next_link(links[-1], entry.said)
        sealed = key is None or hmac.compare_digest(entry.seal, seal_of(key, link))
        if link.digest != entry.link or not sealed:
            return link.number, links
        links.append(link)
    return 0, links
