"""The lockfile is in step with pyproject.toml: each of its requirements is pinned, at a version that it allows."""

import re
from pathlib import Path

import pytest
from dependencies import closure, developed_with, required
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
LOCK = (ROOT / "requirements-dev.lock").read_text()
PINNED = dict(line.split("==") for line in LOCK.splitlines() if not line.startswith("#"))


def unmet(requirements: list[Requirement], pinned: dict[str, str]) -> list[str]:
    """Requirements that the lockfile has nothing for, or another version."""
    held = {str(r): pinned.get(canonicalize_name(r.name)) for r in requirements}
    allows = {str(r): r.specifier for r in requirements}
    return [name for name, version in held.items() if version is None or Version(version) not in allows[name]]


def test_what_make_installs_is_known():
    assert {"dev", "flower"} <= set(developed_with())


def test_every_requirement_is_pinned_at_a_version_that_it_allows():
    assert unmet(required(developed_with()), PINNED) == [], "make lock"


def test_a_requirement_that_is_new_or_raised_is_noticed():
    assert unmet([Requirement("numpy>=2.0"), Requirement("a-new-one")], PINNED) == ["a-new-one"]
    assert unmet([Requirement("numpy>=99")], PINNED) == ["numpy>=99"]


def test_nothing_is_pinned_that_nobody_needs():
    """Here, where what is pinned is installed."""
    try:
        needed = closure(required(developed_with()))
    except ModuleNotFoundError as missing:
        pytest.skip(f"not all extras are installed: {missing}")
    if {name: p.version for name, p in needed.items()}.keys() != PINNED.keys():
        different = needed.keys() ^ PINNED.keys()
        versions = [name for name, p in needed.items() if PINNED.get(name) != p.version.partition("+")[0]]
        assert versions, f"make lock: {sorted(different)}"  # other versions need other things


def test_it_is_made_of_names_and_versions_alone():
    assert not re.search(r"://|@|--", LOCK)
    assert all(re.fullmatch(r"[a-z0-9-]+==[\w.]+", line) for line in LOCK.splitlines() if not line.startswith("#"))
