"""A node's signature under what it states: made with the node's own key, checked by anybody who has the public half.

What is signed is the whole statement as canonical JSON, the ledger's identity and the end of its chain among it. So a
coordinator can neither change a statement nor leave a line out, and a ledger that is shown later either has that very
history or another one (chain.py).
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedsofim.errors import InputError

_FIELD = "signature"


def public_half(key: Path) -> str:
    """Of a node's own key, as OpenSSH writes it."""
    from cryptography.hazmat.primitives import serialization

    public = _private(key).public_key()
    return public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()


def signed(statement: Mapping[str, Any], key: Path) -> dict[str, Any]:
    """The statement with its signature."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    content = {**statement, "public_key": public_half(key)}
    made = _private(key).sign(_canonical(content), ec.ECDSA(hashes.SHA384()))
    return content | {_FIELD: base64.b64encode(made).decode()}


def _private(key: Path) -> Any:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        mine = serialization.load_ssh_private_key(key.read_bytes(), None)
    except (OSError, ValueError) as error:
        raise InputError(f"{key}: the node's key cannot be read ({error})") from error
    if not isinstance(mine, ec.EllipticCurvePrivateKey):
        raise InputError(f"{key}: a key of another kind; expected an OpenSSH key, ecdsa of 384 bits")
    return mine


def is_signed(statement: Mapping[str, Any]) -> bool:
    return _FIELD in statement


def trouble_with(statement: Mapping[str, Any], known: str | None = None) -> str | None:
    """What is wrong with a statement's signature; `known` is the public key that its node is known by."""
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    if not is_signed(statement):
        return "its statement is not signed"
    content = {name: value for name, value in statement.items() if name != _FIELD}
    try:
        key = serialization.load_ssh_public_key(str(content["public_key"]).encode())
        assert isinstance(key, ec.EllipticCurvePublicKey)
        key.verify(base64.b64decode(statement[_FIELD], validate=True), _canonical(content), ec.ECDSA(hashes.SHA384()))
    except InvalidSignature:
        return "its signature is not of this statement: something in it was changed"
    except (ValueError, KeyError, TypeError, AssertionError, UnsupportedAlgorithm):
        return "its signature or public key cannot be read"
    if known is not None and str(content["public_key"]).split()[:2] != known.split()[:2]:
        return "it is signed with another key than its node is known by"
    return None


def fingerprint(statement: Mapping[str, Any]) -> str:
    """A short name of the key, as ssh-keygen -l shows it."""
    try:
        blob = base64.b64decode(str(statement["public_key"]).split()[1])
    except (KeyError, IndexError, ValueError):
        return "unreadable"
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def known_keys(folder: Path) -> dict[str, str]:
    """Public keys by the names of their nodes: a coordinator's server/node-keys."""
    found = {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.pub"))}
    if not found:
        raise InputError(f"{folder}: there are no public keys here (NAME.pub); a server's folder has them in node-keys")
    return found


def _canonical(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
