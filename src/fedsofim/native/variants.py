"""What the C++ is compiled to, once for each generation of x86-64 processors, and which of those a processor can run.

A wheel has these objects in `native/shipped/`, put there by hatch_build.py, which reads this file on its own: it
imports nothing but Python's library.

>>> best({"avx", "avx2"})  # no fused multiply-add
'baseline'
"""

import hashlib
import platform
from collections.abc import Set
from pathlib import Path

HERE = Path(__file__).parent
SHIPPED = HERE / "shipped"
NAMES = ("sums", "momentum")
HEADERS = ("tile.h", "lanes.h", "crew.h")
FLAGS = ("-std=gnu++17", "-O3", "-fno-math-errno", "-fno-exceptions", "-shared", "-fPIC")
LINKED = ("-Wl,--as-needed",)  # shipped objects need the C library alone
MARCH = {"avx512": "x86-64-v4", "avx2": "x86-64-v3", "baseline": "x86-64"}  # the first that runs is the quickest

_AVX2 = frozenset(["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"])  # as /proc/cpuinfo has them
_AVX512 = _AVX2 | frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"])
NEEDED: dict[str, Set[str]] = {"avx512": _AVX512, "avx2": _AVX2, "baseline": frozenset()}


def flags_here() -> set[str]:
    """What this processor can do and its system lets programs use; nothing where that cannot be read."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((set(line.partition(":")[2].split()) for line in lines if line.startswith("flags")), set())


def runnable(flags: Set[str]) -> list[str]:
    """The variants for a processor with these flags, the best first."""
    return [name for name in MARCH if flags >= NEEDED[name]]


def best(flags: Set[str]) -> str:
    return runnable(flags)[0]


def has_variants() -> bool:
    """Is this a machine that objects are shipped for?"""
    return (platform.system(), platform.machine()) == ("Linux", "x86_64")


def source_digest(name: str) -> str:
    """Of a pass's C++ and its flags: an object that other sources made is not taken for this one's."""
    sha = hashlib.sha256(repr((FLAGS, LINKED, MARCH)).encode())
    for file in (f"{name}.cc", *HEADERS):
        sha.update((HERE / file).read_bytes())
    return sha.hexdigest()[:16]


def shipped_file(name: str, variant: str) -> Path:
    return SHIPPED / f"{name}-{variant}-{source_digest(name)}.so"
