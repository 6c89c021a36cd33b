"""Methods, models and datasets of one's own, without an edit here: a Python file, or an installed package.

A file `heavyball.py` holds a function `heavyball`; a package names the same kind of function by an entry point:

    [project.entry-points."fedsofim.methods"]
    heavyball = "mypackage.heavyball:heavyball"

Names inside this library win over entry points, so that no package can put itself in the place of a published method.
"""

import hashlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from fedsofim.errors import InputError, shown

Kind = Literal["method", "model", "dataset"]


def installed(kind: Kind) -> dict[str, EntryPoint]:
    """What installed packages offer, by name."""
    return {entry.name: entry for entry in _entries(kind)}


def _entries(kind: Kind) -> tuple[EntryPoint, ...]:
    return _offered(entry_points, kind, tuple(sys.path))


@lru_cache(maxsize=16)
def _offered(look: Callable[..., Any], kind: Kind, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Looked for once in the life of a process: it opens every installed package, and a node asks at every turn."""
    return tuple(look(group=f"fedsofim.{kind}s"))


def is_file(name: Any) -> bool:
    """Does a name mean a Python file?

    >>> is_file("./heavyball.py"), is_file("fedsofim")
    (True, False)
    """
    return str(name).endswith(".py")


def from_package(kind: Kind, name: str) -> tuple[Callable[..., Any], ModuleType]:
    """The function an installed package offers under a name, and the module it stands in."""
    offers = [entry for entry in _entries(kind) if entry.name == name]
    if len({entry.value for entry in offers}) > 1:
        who = " and ".join(sorted(f"{_package(entry)} ({entry.value})" for entry in offers))
        raise InputError(f"the {kind} '{name}' is offered by {who}; uninstall one of them")
    entry = offers[0]
    try:
        build = entry.load()
    except (Exception, SystemExit) as error:  # whatever a stranger's package raises
        raise InputError(f"the {kind} '{name}' of an installed package cannot be loaded: {error!r}") from error
    if not callable(build):
        raise InputError(
            f"the {kind} '{name}' of an installed package is {shown(build)}; expected a function that gives it"
        )
    return build, sys.modules[entry.module]


def from_file(kind: Kind, name: str | Path) -> tuple[Callable[..., Any], ModuleType]:
    """The function of the file's own name, and the file as a module."""
    path = _path(kind, name)
    module = _module(path, path.read_bytes())
    wanted = path.stem.replace("-", "_")
    build = getattr(module, wanted, None)
    if not callable(build):
        raise InputError(f"{path}: has no function {wanted}; expected one of the file's own name that gives the {kind}")
    return build, module


def identity(kind: Kind, name: str) -> str:
    """What a stranger's name means now: the file's content, or the package with its version; the bare name if ours."""
    if is_file(name):
        path = _path(kind, name)
        return f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"
    found = installed(kind).get(name)
    return name if found is None else f"{name} of {_package(found)}"


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "an unknown package"


def called(kind: Kind, name: Any, build: Callable[..., Any], wanted: type, settings: Mapping[str, Any]) -> Any:
    """What a stranger's function gives, if it is of the kind it should be; what goes wrong in it is told in a line."""
    try:
        value = build(**settings)
    except InputError:
        raise
    except (Exception, SystemExit) as error:  # whatever a third party's function raises
        where = _where(error, Path(build.__code__.co_filename)) if hasattr(build, "__code__") else ""
        if kind == "dataset":  # its errors may quote records
            raise InputError(
                f"{name}: {where}{type(error).__name__}; its text is not shown, because it may quote a record. Call "
                "the function by itself to see it"
            ) from None
        raise InputError(f"{name}: {where}{type(error).__name__}: {error}") from error
    if not isinstance(value, wanted):
        raise InputError(f"{name} gave a {type(value).__name__}; expected a fs.{wanted.__name__}, to be a {kind}")
    return value


def _path(kind: Kind, name: str | Path) -> Path:
    path = Path(name).expanduser().resolve()
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected Python with a function that gives the {kind}")
    return path


@lru_cache(maxsize=64)
def _module(path: Path, content: bytes) -> ModuleType:
    """A file as a module; read again when it has changed."""
    name = f"fedsofim_file_{path.stem}_{hashlib.sha256(str(path).encode() + content).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: Python cannot read it")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and type hints look themselves up there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever a stranger's file raises
        del sys.modules[name]
        raise InputError(f"{path}: {_where(error, path)}{type(error).__name__}: {error}") from error
    return module


def _where(error: BaseException, path: Path) -> str:
    """The line of the file at which it went wrong."""
    if isinstance(error, SyntaxError):
        return ""  # says it itself
    lines, trace = [], error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    return f"line {lines[-1]}: " if lines else ""
