"""Write requirements-dev.lock: the versions of this environment's packages, which `make test` was run with.

    make lock          after `make install` in a fresh environment, and a `make test` that passed

No hashes and no addresses: where packages come from is for whoever installs to say. `make install LOCKED=1` takes
these versions; `tests/project/test_lock.py` holds the file against pyproject.toml.
"""

import platform
from pathlib import Path

from dependencies import ROOT, closure, developed_with, public_version, required

LOCK = ROOT / "requirements-dev.lock"
HEAD = """\
# What fedsofim[{extras}] was developed and tested with,
# on Python {python}, {system}. Made by `make lock`; installed by `make install LOCKED=1`.
"""


def main() -> None:
    LOCK.write_text(text())
    print(f"{Path(LOCK).name}: {len(LOCK.read_text().splitlines()) - 2} packages")


def text() -> str:
    python = ".".join(platform.python_version_tuple()[:2])
    system = f"{platform.system()} {platform.machine()}"
    head = HEAD.format(extras=",".join(developed_with()), python=python, system=system)
    packages = closure(required(developed_with()))
    return head + "".join(f"{name}=={public_version(p)}\n" for name, p in packages.items())


if __name__ == "__main__":
    main()
