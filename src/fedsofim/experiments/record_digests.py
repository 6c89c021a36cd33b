"""By what a folder of runs recognises records, and which records anybody may know.

A digest of records that nobody else has is one of every guess at them: who knows all but one record finds that one by
trying. So the digests of your own records are keyed, by a secret that stays in the folder of the runs and is in no
other file. Equal records are recognised in that folder, and nowhere else. Datasets known by name are public, and their
digests are the same everywhere.
"""

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsofim.data.dataset import Dataset
from fedsofim.data.embedded import EMBEDDED
from fedsofim.data.image_sources import IMAGE_SETS
from fedsofim.data.named_features import is_features
from fedsofim.errors import InputError
from fedsofim.experiments.reading import digest

KEY = "digest.key"
_BYTES = 32


def is_public(name: str) -> bool:
    """Is this a dataset known to us by name, which everybody has? A file or package may hold anything.

    >>> is_public("fashion"), is_public("cifar10-resnet20"), is_public("fashion.npz")
    (True, True, False)
    """
    return name in {*EMBEDDED, *IMAGE_SETS} or is_features(name)


def digests_of(data: Mapping[str, Dataset], rows: Sequence[Mapping[str, Any]], key: bytes) -> dict[str, str]:
    """Of each dataset, by what the experiment calls it. Rows of before there was a key go on as they began."""
    stated = {row["digest"] for row in rows}
    plain = {name: digest(found) for name, found in data.items()}
    return {
        name: plain[name] if is_public(name) or plain[name] in stated else digest(found, key)
        for name, found in data.items()
    }


def told_without_key(data: Mapping[str, Dataset], digests: Mapping[str, str]) -> list[str]:
    """Datasets of one's own of which the folder states the bare digest."""
    return [name for name, found in data.items() if not is_public(name) and digests[name] == digest(found)]


def known_key(out: Path) -> bytes:
    """The key of a folder of runs; a new one, kept nowhere, where there is none."""
    try:
        key = bytes.fromhex((out / KEY).read_text(encoding="ascii").strip())
    except FileNotFoundError:
        return secrets.token_bytes(_BYTES)
    except ValueError:
        key = b""
    if len(key) != _BYTES:
        raise InputError(
            f"{out / KEY}: is damaged; expected {2 * _BYTES} hexadecimal digits. Put it back from a copy, or delete "
            "it: every run on records of your own is then done anew"
        )
    return key


def kept_key(out: Path) -> bytes:
    """The same, kept from now on, for its owner's eyes."""
    key = known_key(out)
    if not (out / KEY).exists():
        part = out / f"{KEY}.part"
        part.unlink(missing_ok=True)
        with os.fdopen(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="ascii") as file:
            file.write(key.hex() + "\n")
            file.flush()
            os.fsync(file.fileno())
        part.replace(out / KEY)
    return key
