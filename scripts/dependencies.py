"""What requirements bring with them, read off the installed packages: for the lockfile and the bill of materials."""

import importlib.metadata
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]


def developed_with() -> list[str]:
    """The extras that `make install` installs."""
    (extras,) = re.findall(r'-e "\.\[(.+)\]"', (ROOT / "Makefile").read_text())
    return extras.split(",")


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def required(extras: Iterable[str] = ()) -> list[Requirement]:
    """What the project asks for itself, with some of its extras."""
    about = project()
    lines = [*about["dependencies"], *(line for extra in extras for line in about["optional-dependencies"][extra])]
    return [Requirement(line) for line in lines]


def closure(wanted: Iterable[Requirement]) -> dict[str, importlib.metadata.Distribution]:
    """Every installed package that these need, directly or not, by its normalised name; an error if one is missing."""
    found: dict[str, importlib.metadata.Distribution] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(r, extra) for r in wanted for extra in ("", *r.extras)]
    while waiting:
        requirement, extra = waiting.pop()
        key = (canonicalize_name(requirement.name), extra)
        if key in seen:
            continue
        seen.add(key)
        found[key[0]] = importlib.metadata.distribution(requirement.name)
        waiting += [(r, e) for r in needed_by(found[key[0]], extra) for e in ("", *r.extras)]
    return dict(sorted(found.items()))


def needed_by(package: importlib.metadata.Distribution, extra: str) -> Iterator[Requirement]:
    """What a package needs here, on this Python and this system."""
    for line in package.requires or []:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement


def public_version(package: importlib.metadata.Distribution) -> str:
    """Without the part that says which build it is: 2.13.0 of 2.13.0+cpu."""
    return package.version.partition("+")[0]


def licence(package: importlib.metadata.Distribution) -> str:
    """As its own metadata has it."""
    about = package.metadata.json
    classified = [c.rpartition(" :: ")[2] for c in about.get("classifier", []) if c.startswith("License ::")]
    stated = about.get("license_expression") or next(iter(classified), "") or about.get("license") or ""
    return str(stated).strip().partition("\n")[0][:80] or "not stated"
