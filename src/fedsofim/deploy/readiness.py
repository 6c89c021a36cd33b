"""`fedsofim node check`: everything that is wrong with a node before it joins, and what its budget would allow."""

import datetime
import math
import socket
import ssl
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import NamedTuple

from fedsofim.core.budget import in_words
from fedsofim.data.columns import feature_names
from fedsofim.data.unit_rows import together
from fedsofim.deploy.clocks import NOTICED, ahead_of, is_off
from fedsofim.deploy.clocks import in_words as in_clocks
from fedsofim.deploy.lines import Line, epsilon_of_lines
from fedsofim.deploy.mask_keys import own_mask_key, peer_mask_keys
from fedsofim.deploy.policy import Policy, read_policy
from fedsofim.deploy.records import Data, DataProblem, read_data
from fedsofim.deploy.whom import check_past
from fedsofim.errors import InputError, Refused
from fedsofim.protection import PROTECTED

_MULTIPLIERS = (1.0, 10.0, 100.0)  # noise std over clip, for which the rounds that are left are counted
_SOON = datetime.timedelta(days=30)


class Finding(NamedTuple):
    """One thing that was looked at: right or not, and in words."""

    right: bool
    text: str

    @property
    def mark(self) -> str:
        return "ok" if self.right else "WRONG"


class Note(Finding):
    """Nothing that keeps a node from joining, and for its operator to judge."""

    @property
    def mark(self) -> str:
        return "note"


def findings(policy: Path, superlink: str | None, certificates: Path | None, key: Path | None) -> Iterator[Finding]:
    """One by one, for the operator's eyes; what depends on what is wrong already is left out."""
    try:
        read = read_policy(policy)
    except InputError as error:
        yield Finding(False, str(error))
        return
    yield Finding(True, f"policy of {read.name}: epsilon {in_words(read.epsilon)} at delta {read.delta:g}, "
                        f"for {PROTECTED[read.unit]}, methods {', '.join(read.methods)}")  # fmt: skip
    yield from _of_data(read)
    yield from _of_ledger(read)
    yield from _of_masks(read)
    if key is not None:
        yield _of_key(key)
    if certificates is not None:
        yield _of_authority(certificates)
    if superlink is not None:
        yield (found := _of_connection(superlink, certificates))
        yield from _of_clock(superlink, certificates) if found.right else ()


def _of_data(policy: Policy) -> Iterator[Finding]:
    """Everything that is wrong with the records, with row and column: here, and nowhere that others read."""
    if policy.schema is not None:
        yield Finding(True, f"schema: {len(feature_names(policy.schema))} features, {policy.classes} classes")
        if leaks := policy.schema.leaks_in_words:
            yield Note(True, f"schema: {leaks} were read off records, which epsilon does not cover")
    try:
        data = read_data(policy)
    except DataProblem as error:
        yield Finding(False, error.details)
        yield from (Note(True, remark) for remark in error.remarks)
        return
    of = "" if policy.unit != "person" else f" of {data.units} persons, at most {_largest(data)} of one,"
    yield Finding(True, f"data: {len(data.y)} records{of} of {data.x.shape[1]} features in {policy.classes} classes")
    yield from (Note(True, remark) for remark in data.remarks)


def _largest(data: Data) -> int:
    """For the operator's eyes: how many records the person with most has."""
    return 1 if data.whose is None else together([data.whose])


def _of_ledger(policy: Policy) -> Iterator[Finding]:
    try:
        entries = policy.account.standing().last.number
        lines = [line for _, line in policy.account.entries()]
    except InputError as error:
        yield Finding(False, str(error))
        return
    try:
        check_past(policy)
    except Refused as refused:
        yield Finding(False, str(refused))
    spent = epsilon_of_lines(lines, policy.delta)
    yield Finding(True, f"ledger: whole, {entries} entries, epsilon {in_words(spent)} spent")
    if math.isfinite(policy.epsilon):
        for multiplier in sorted({policy.smallest_multiplier, *_MULTIPLIERS}):
            if multiplier >= policy.smallest_multiplier:
                left = rounds_left(lines, policy, multiplier)
                yield Finding(True, f"budget: {left} more releases at noise multiplier {multiplier:g}")


def rounds_left(lines: list[Line], policy: Policy, multiplier: float) -> int:
    """How many releases of a clipped sum at this multiplier the cap still allows; at most as many as are counted."""
    low, high = 0, policy.work.requests
    while low < high:
        middle = (low + high + 1) // 2
        more = Line(
            label="", clip=1.0, ratio=2.0, multiplier=multiplier, releases=middle, weight=middle, sample=1.0,
            coordinates=1,
        )  # fmt: skip
        within = epsilon_of_lines([*lines, more], policy.delta) <= policy.epsilon
        low, high = (middle, high) if within else (low, middle - 1)
    return low


def _of_masks(policy: Policy) -> Iterator[Finding]:
    """The node's own mask key and its peers', where secure sums are allowed. Whether peers use these keys, the job's
    first question tells, before anything is charged."""
    if policy.secure_sum_min_clients == 0 or policy.mask_key is None:
        return
    try:
        own_mask_key(policy)
        peers = peer_mask_keys(policy)
    except InputError as error:
        yield Finding(False, str(error))
        return
    if policy.mask_key.stat().st_mode & 0o077:
        yield Finding(False, f"{policy.mask_key}: others on this machine can read it; chmod 600 {policy.mask_key}")
    else:
        yield Finding(True, f"mask key: {policy.mask_key}, peers {', '.join(peers)}")


def _of_key(key: Path) -> Finding:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    try:
        found = load_ssh_private_key(key.read_bytes(), None)
    except (OSError, ValueError) as error:
        return Finding(False, f"{key}: the node's key cannot be read ({error}); expected an OpenSSH key, ecdsa 384")
    if not isinstance(found, ec.EllipticCurvePrivateKey):
        return Finding(False, f"{key}: a key of another kind; expected an OpenSSH key, ecdsa of 384 bits")
    if key.stat().st_mode & 0o077:
        return Finding(False, f"{key}: others on this machine can read the key; chmod 600 {key}")
    return Finding(True, f"key: {key}")


def _of_authority(certificates: Path) -> Finding:
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificate(certificates.read_bytes())
    except (OSError, ValueError) as error:
        return Finding(False, f"{certificates}: the federation's certificate cannot be read ({error})")
    left = found.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    if left < _SOON:
        return Finding(False, f"{certificates}: it ends on {found.not_valid_after_utc:%Y-%m-%d}; ask the coordinator")
    return Finding(True, f"certificate of the federation: until {found.not_valid_after_utc:%Y-%m-%d}")


def _of_connection(superlink: str, certificates: Path | None) -> Finding:
    """Is the SuperLink there, and is it the one that the federation's authority certified?"""
    host, _, port = superlink.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=5) as plain:
            if certificates is not None:
                context = ssl.create_default_context(cafile=str(certificates))
                context.wrap_socket(plain, server_hostname=host.strip("[]")).close()
    except ssl.SSLError as error:
        return Finding(False, f"{superlink}: it is not the server of this federation's certificate ({error.reason})")
    except (OSError, ValueError) as error:
        return Finding(False, f"{superlink}: the SuperLink cannot be reached ({error}); does it run, is the port open?")
    return Finding(True, f"connection: {superlink} answers" + (" with TLS" if certificates else ", not encrypted"))


def _of_clock(superlink: str, certificates: Path | None) -> Iterator[Finding]:
    """By the time in the coordinator's answer, if it gives one: a node's calls are signed with their time."""
    host, _, port = superlink.rpartition(":")
    how = {"host": host.strip("[]"), "port": int(port), "timeout": 5}
    context = None if certificates is None else ssl.create_default_context(cafile=str(certificates))
    http = HTTPConnection(**how) if context is None else HTTPSConnection(**how, context=context)
    try:
        http.request("GET", "/")
        date = http.getresponse().headers.get("date")
    except (OSError, HTTPException):
        return
    finally:
        http.close()
    ahead = ahead_of(date, datetime.datetime.now(datetime.UTC))
    if ahead is None:
        return
    if abs(ahead) >= NOTICED:
        text = f"clock: this machine's is {in_clocks(ahead)} the coordinator's; correct it, for example with NTP"
        yield Finding(False, f"{text}, or the coordinator turns this node away") if is_off(ahead) else Note(True, text)
    else:
        yield Finding(True, "clock: within seconds of the coordinator's")
