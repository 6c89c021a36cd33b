"""The lockfile is in step with pyproject.toml: each of its requirements is pinned, at a version that it allows."""

import re
from pathlib import Path

import lock
import pytest
from dependencies import developed_with, required
from lock import differences, pins, text
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
LOCK = (ROOT / "requirements-dev.lock").read_text()
PINNED = pins(LOCK)


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


def test_it_is_what_is_installed_where_its_versions_are():
    """A package too many or too few. `scripts/lock.py --check`, which CI runs in an environment made of the file, also
    looks at the versions."""
    try:
        here = pins(text())
    except ModuleNotFoundError as missing:
        pytest.skip(f"not all extras are installed: {missing}")
    others = [name for name in here.keys() & PINNED.keys() if here[name] != PINNED[name]]
    if others:
        pytest.skip(f"other versions of {', '.join(sorted(others))} are installed, which may need other packages")
    assert differences(PINNED, here) == [], "make lock"


def test_a_package_too_many_too_few_or_of_another_version_is_noticed():
    name, version = next(iter(PINNED.items()))
    assert differences(PINNED, PINNED) == []
    assert differences(PINNED | {"stray": "1"}, PINNED) == ["stray: 1 in the file, not needed here"]
    assert differences(PINNED, PINNED | {"new": "1"}) == ["new: not in the file, 1 here"]
    assert differences(PINNED, PINNED | {name: "0"}) == [f"{name}: {version} in the file, 0 here"]


def test_the_check_fails_where_the_file_names_what_is_not_installed(monkeypatch, tmp_path: Path):
    (tmp_path / "other.lock").write_text(LOCK + "stray==1.0\n")
    monkeypatch.setattr(lock, "LOCK", tmp_path / "other.lock")
    monkeypatch.setattr(lock, "text", lambda: LOCK)
    monkeypatch.setattr("sys.argv", ["lock.py", "--check"])
    with pytest.raises(SystemExit, match=r"stray: 1.0 in the file"):
        lock.main()


def test_ci_installs_it_and_checks_it():
    ci = (ROOT / ".ci" / "run").read_text()
    assert ci.index("LOCKED=1") < ci.index("scripts/lock.py --check") < ci.index("make test")


def test_it_is_made_of_names_and_versions_alone():
    assert not re.search(r"://|@|--", LOCK)
    assert all(re.fullmatch(r"[a-z0-9-]+==[\w.]+", line) for line in LOCK.splitlines() if not line.startswith("#"))
