"""`make release`: everything that a version is published as, in dist/.

    fedsofim-V-....whl      with the compiled passes; its tag says for which machines
    fedsofim-V.tar.gz       the source
    fedsofim-V.cdx.json     bill of materials (CycloneDX 1.6): what the wheel needs, as it was tested, with licences
    CHANGELOG-V.md          the section of the changelog
    SHA256SUMS              of all of these

Nothing is uploaded. `scripts/check_wheel.py --dist dist --demo` looks at the result before anybody does.
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

from dependencies import ROOT, closure, licence, needed_by, project, public_version, required
from packaging.utils import canonicalize_name

DIST = ROOT / "dist"


def main() -> None:
    version = project()["version"]
    section = section_of((ROOT / "CHANGELOG.md").read_text(), version)
    shutil.rmtree(DIST, ignore_errors=True)
    build()
    (wheel,) = DIST.glob("*.whl")
    (DIST / f"CHANGELOG-{version}.md").write_text(section)
    (DIST / f"fedsofim-{version}.cdx.json").write_text(json.dumps(materials(version, wheel), indent=1) + "\n")
    (DIST / "SHA256SUMS").write_text(sums(DIST))
    print((DIST / "SHA256SUMS").read_text(), end="")
    if "unreleased" in section.partition("\n")[0]:
        print(f"CHANGELOG.md calls {version} unreleased: give it a date before it is published")


def build() -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(DIST)]
    subprocess.run(command, cwd=ROOT, check=True)
    (wheel,) = DIST.glob("*.whl")
    if wheel.name.endswith("-any.whl"):
        sys.exit(f"{wheel.name}: no compiled passes; a release needs a C++ compiler (the build's warning says why)")


def section_of(changelog: str, version: str) -> str:
    """The part of a changelog about one version.

    >>> section_of("# Changelog\\n\\n## 2.0 (today)\\n- new\\n\\n## 1.0\\n- old\\n", "2.0")
    '## 2.0 (today)\\n- new\\n'
    """
    found = re.search(rf"^## {re.escape(version)}\b.*?(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if not found:
        sys.exit(f"CHANGELOG.md has no section for {version}")
    return found[0].rstrip() + "\n"


def materials(version: str, wheel: Path) -> dict[str, Any]:
    """A bill of materials: the wheel, and every package that a plain installation of it brings."""
    packages = closure(required())
    own = {
        "type": "library", "name": "fedsofim", "version": version, "bom-ref": "fedsofim",
        "purl": f"pkg:pypi/fedsofim@{version}", "licenses": [{"license": {"id": project()["license"]}}],
        "hashes": [{"alg": "SHA-256", "content": digest(wheel)}],
    }  # fmt: skip
    depends = {"fedsofim": [canonicalize_name(r.name) for r in required()]}
    depends |= {name: [canonicalize_name(r.name) for r in needed_by(p, "")] for name, p in packages.items()}
    return {
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, digest(wheel))}",
        "metadata": {"component": own},
        "components": [component(name, package) for name, package in packages.items()],
        "dependencies": [{"ref": name, "dependsOn": sorted(set(of))} for name, of in depends.items()],
    }  # fmt: skip


def component(name: str, package: Any) -> dict[str, Any]:
    version = public_version(package)
    return {
        "type": "library", "name": name, "version": version, "bom-ref": name, "purl": f"pkg:pypi/{name}@{version}",
        "licenses": [{"license": {"name": licence(package)}}],
    }  # fmt: skip


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def sums(folder: Path) -> str:
    """As `sha256sum --check` reads them."""
    return "".join(f"{digest(path)}  {path.name}\n" for path in sorted(folder.iterdir()) if path.name != "SHA256SUMS")


if __name__ == "__main__":
    main()
