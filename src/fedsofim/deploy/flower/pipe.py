"""Frames between a node and its worker: a line of JSON with the sizes of some parts, then the parts.

`put` and `get` block, which is right for a worker. A node uses `exchanged`: it has a deadline, writes and reads at the
same time, and lets the node do other things meanwhile.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import IO, Any

_WAKES = 0.1  # seconds after which a node does something else, at most
_CHUNK = 1 << 16
_DIE_WITH_PARENT = 1  # of Linux's prctl
_LINE = 8_000_000  # bytes of a frame's first line, at most

Frame = tuple[dict[str, Any], dict[str, bytes]]


def put(file: IO[bytes], facts: Mapping[str, Any], parts: Mapping[str, bytes]) -> None:
    """Write one frame."""
    file.write(_bytes(facts, parts))
    file.flush()


def _bytes(facts: Mapping[str, Any], parts: Mapping[str, bytes]) -> bytes:
    head = {"facts": dict(facts), "parts": {name: len(part) for name, part in parts.items()}}
    return json.dumps(head).encode() + b"\n" + b"".join(parts.values())


def get(file: IO[bytes]) -> Frame | None:
    """Read the next frame; None at the end."""
    line = file.readline()
    if not line.endswith(b"\n"):
        return None
    head = json.loads(line)
    parts = {name: file.read(size) for name, size in head["parts"].items()}
    if any(len(parts[name]) != size for name, size in head["parts"].items()):
        return None
    return head["facts"], parts


def exchanged(
    to: IO[bytes], back: IO[bytes], facts: Mapping[str, Any], parts: Mapping[str, bytes], end: float,
    meanwhile: Callable[[], None],
) -> Frame | None:  # fmt: skip
    """Write one frame and read the one that comes back; None if the other side ended.

    Args:
        to: The other side's standard input, a pipe.
        back: Its standard output, a pipe.
        facts: Of the frame.
        parts: Of the frame, by name.
        end: When to give up, by `time.monotonic`.
        meanwhile: Called ten times a second. What it raises ends the exchange.

    Raises:
        TimeoutError: If `end` came first.
        OSError: If a pipe broke.
        ValueError: If what came back is no frame.
    """
    left, came, needed = memoryview(_bytes(facts, parts)), bytearray(), -1
    writing, reading = to.fileno(), back.fileno()
    os.set_blocking(writing, False)
    os.set_blocking(reading, False)
    woken = time.monotonic()
    while True:
        ready, free, _ = select.select([reading], [writing] if left else [], [], _WAKES)
        if free:
            with contextlib.suppress(BlockingIOError):
                left = left[os.write(writing, left[:_CHUNK]) :]
        if ready:
            block = os.read(reading, _CHUNK)
            if not block:
                return None
            came += block
            needed = _size(came) if needed < 0 else needed
            if 0 <= needed <= len(came):
                return _frame(came)
        if time.monotonic() > end:
            raise TimeoutError
        if time.monotonic() > woken + _WAKES:
            meanwhile()
            woken = time.monotonic()


def _size(came: bytearray) -> int:
    """How long the frame is whose beginning came; -1 until its first line is complete."""
    line = came.find(b"\n")
    if line < 0:
        if len(came) > _LINE:
            raise ValueError("the worker's answer has no beginning")
        return -1
    return line + 1 + sum(json.loads(bytes(came[:line]))["parts"].values())


def _frame(came: bytearray) -> Frame:
    at = came.find(b"\n") + 1
    head, parts = json.loads(bytes(came[:at])), {}
    for name, size in head["parts"].items():
        parts[name] = bytes(came[at : at + size])
        at += size
    return head["facts"], parts


def die_with(parent: int) -> None:
    """End when the parent ends, even if that is killed; elsewhere than on Linux, when the next letter does not come."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit("the node has ended")
