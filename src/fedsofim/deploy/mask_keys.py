"""Does everybody mean the same mask keys? Compared by digests before anything is charged.

Masks cancel only if each of two nodes has the other's key. A node believes its operator's [peers] and no server: what a
job says of keys is only compared with them.
"""

import base64
import hashlib

from fedsofim.deploy.policy import Policy
from fedsofim.deploy.wire import Job
from fedsofim.errors import InputError, Refused

_BYTES = 32  # of a public X25519 key


def own_mask_key(policy: Policy) -> str:
    """Digest of the public half of this node's mask key."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    if policy.mask_key is None:
        raise Refused("this node has no mask key; its policy names none")
    try:
        secret = X25519PrivateKey.from_private_bytes(base64.b64decode(policy.mask_key.read_bytes(), validate=False))
    except (OSError, ValueError) as error:
        raise InputError("this node's mask key cannot be read; make one with `fedsofim federation mask-key`") from error
    return _digest(secret.public_key().public_bytes_raw())


def peer_mask_keys(policy: Policy) -> dict[str, str]:
    """Digests of the others' public mask keys, as this node's operator has them."""
    found = {}
    for name, text in policy.peers:
        try:
            raw = base64.b64decode(text, validate=True)
        except ValueError:
            raw = b""
        if len(raw) != _BYTES:
            raise InputError(f"[peers] has no mask key for {name}: expected {_BYTES} bytes in base64, as printed by "
                             "`fedsofim federation mask-key`")  # fmt: skip
        found[name] = _digest(raw)
    return found


def check_keys(policy: Policy, job: Job) -> None:
    """Refuse a secure sum whose clients have other mask keys than this node's operator was given."""
    if job.trust != "secure-sum":
        return
    known = peer_mask_keys(policy) | {policy.name: own_mask_key(policy)}
    for name, _ in job.peers:
        if name not in known:
            raise Refused(f"{name} is not among this node's peers; its operator has not agreed to sum with it")
        if job.mask_keys.get(name) == known[name]:
            continue
        if name == policy.name:
            raise Refused(f"the job was begun with another mask key of {name} than it has now; start a new job")
        raise Refused(f"the mask key of {name} in this node's [peers] is not the one that {name} uses; the operators "
                      f"of {policy.name} and {name} should compare them")  # fmt: skip


def _digest(public: bytes) -> str:
    return hashlib.sha256(b"fedsofim mask key 1" + public).hexdigest()
