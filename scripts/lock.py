"""Write requirements-dev.lock: the versions of this environment's packages, which `make test` was run with.

    make lock                            after `make install` in a fresh environment, and a `make test` that passed
    python scripts/lock.py --check       in an environment made by `make install LOCKED=1`: is it what the file says?

No hashes and no addresses: where packages come from is for whoever installs to say. `make install LOCKED=1` takes
these versions; `tests/project/test_lock.py` holds the file against pyproject.toml.
"""

import argparse
import platform
import sys

from dependencies import ROOT, closure, developed_with, public_version, required

LOCK = ROOT / "requirements-dev.lock"
HEAD = """\
# What fedsofim[{extras}] was developed and tested with,
# on Python {python}, {system}. Made by `make lock`; installed by `make install LOCKED=1`.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; an error where the two differ")
    if parser.parse_args().check:
        if wrong := differences(pins(LOCK.read_text()), pins(text())):
            sys.exit("\n".join([f"{LOCK.name} is not what is installed here:", *wrong, "make lock writes it anew"]))
        print(f"{LOCK.name}: {len(pins(LOCK.read_text()))} packages, all of them installed at these versions")
        return
    LOCK.write_text(text())
    print(f"{LOCK.name}: {len(pins(LOCK.read_text()))} packages")


def pins(text: str) -> dict[str, str]:
    """Versions by name.

    >>> pins("# about\\na==1.0\\nb==2\\n")
    {'a': '1.0', 'b': '2'}
    """
    return dict(line.split("==") for line in text.splitlines() if not line.startswith("#"))


def differences(locked: dict[str, str], here: dict[str, str]) -> list[str]:
    """A line for each package that is not the same in both.

    >>> differences({"a": "1.0", "b": "2", "c": "3"}, {"a": "1.0", "b": "2.1", "d": "4"})
    ['b: 2 in the file, 2.1 here', 'c: 3 in the file, not needed here', 'd: not in the file, 4 here']
    """
    names = sorted(name for name in locked.keys() | here.keys() if locked.get(name) != here.get(name))
    said = [(f"{locked[n]} in" if n in locked else "not in", f"{here[n]} here" if n in here else "not needed here")
            for n in names]  # fmt: skip
    return [f"{name}: {file} the file, {now}" for name, (file, now) in zip(names, said, strict=True)]


def text() -> str:
    python = ".".join(platform.python_version_tuple()[:2])
    system = f"{platform.system()} {platform.machine()}"
    head = HEAD.format(extras=",".join(developed_with()), python=python, system=system)
    packages = closure(required(developed_with()))
    return head + "".join(f"{name}=={public_version(p)}\n" for name, p in packages.items())


if __name__ == "__main__":
    main()
