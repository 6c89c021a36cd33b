"""The C++ beside this file as a library: shipped with a wheel, or compiled once for this very processor and kept in the
cache folder."""

import hashlib
import importlib.metadata
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

import jax

from fedsofim.files import cache_folder
from fedsofim.native.variants import FLAGS, HEADERS, flags_here, has_variants, runnable, shipped_file

FOR_THIS_PROCESSOR = (("-march=native",), ("-mcpu=native",), ())  # not every compiler knows every one
_PATIENCE = 120  # seconds until a compiler that does not end is given up


class NotBuilt(Exception):
    """Why there is no library: the caller does without."""


def shipped(name: str, variant: str | None = None) -> tuple[Path, str]:
    """The object that came with this package for `variant`, by default the best that runs here; and its name."""
    able = runnable(flags_here()) if has_variants() else []
    wanted = [v for v in able if variant in (None, v)]
    found = [v for v in wanted if shipped_file(name, v).exists()]
    if not wanted:
        can = f"this machine runs {', '.join(able)}" if able else "objects are shipped for x86-64 under Linux only"
        raise NotBuilt(f"no shipped object {variant or ''} for this processor; {can}")
    if not found:
        raise NotBuilt("no object came with this package for this processor")
    return shipped_file(name, found[0]), found[0]


def library(name: str) -> Path:
    """The compiled `name`.cc: from the cache, or compiled now."""
    source = Path(__file__).with_name(f"{name}.cc")
    target = cache_folder() / "native" / f"{name}-{fingerprint(source)}.so"
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _check_owner(target.parent)
        if not target.exists():
            _compile(compiler(), source, target)
    except OSError as problem:
        raise NotBuilt(f"cannot write {target}: {problem.strerror}") from None
    return target


def _check_owner(folder: Path) -> None:
    """What lies here is loaded and run, so nobody else may put anything here."""
    about = folder.stat()
    if about.st_uid != os.getuid() or about.st_mode & 0o022:
        raise NotBuilt(f"others can write to {folder}: chmod go-w it, or set FEDSOFIM_CACHE to a folder of your own")


def compiler() -> str:
    """The C++ compiler: CXX if set, else the system's own."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    found = [path for path in map(shutil.which, names) if path]
    if not found:
        raise NotBuilt(f"no C++ compiler: looked for {', '.join(names)}")
    return found[0]


def fingerprint(source: Path) -> str:
    """Of everything that a library depends on; a home folder may be shared by machines with other processors."""
    how = (FLAGS, FOR_THIS_PROCESSOR, importlib.metadata.version("jaxlib"), platform.machine())
    sha = hashlib.sha256(repr(how).encode())
    for path in (source, *(source.with_name(name) for name in HEADERS)):
        sha.update(path.read_bytes())
    sha.update(_processor().encode())
    return sha.hexdigest()[:16]


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return platform.processor()
    lines = info.read_text().splitlines()
    return "".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features", "CPU"))}))


def _compile(cxx: str, source: Path, target: Path) -> None:
    """Compile beside the target and move it there, so that nobody ever loads half a library."""
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        out = Path(folder) / target.name
        failures = [_attempt(cxx, processor, source, out) for processor in FOR_THIS_PROCESSOR if not out.exists()]
        if not out.exists():
            raise NotBuilt(f"{cxx} failed: {failures[-1]}")
        out.replace(target)


def _attempt(cxx: str, processor: tuple[str, ...], source: Path, out: Path) -> str:
    """Run the compiler; what it said is wrong."""
    command = [cxx, *FLAGS, *processor, "-I", jax.ffi.include_dir(), "-o", str(out), str(source)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_PATIENCE)
        return _first_error(done.stderr)
    except subprocess.TimeoutExpired:
        raise NotBuilt(f"{cxx} took more than {_PATIENCE} s") from None


def _first_error(text: str) -> str:
    """
    >>> _first_error("In file a:\\na:3: error: no such thing\\nmore")
    'a:3: error: no such thing'
    """
    lines = [line for line in text.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line), lines[-1] if lines else "no reason given")
