"""Build sdist and wheel, install them where there is no compiler, use them outside the checkout without network.

    python scripts/check_wheel.py                 # a small run, and a slice of the tests against the wheel
    python scripts/check_wheel.py --demo          # as CI does: also the whole `fedsofim demo`
    python scripts/check_wheel.py --dist dist     # artefacts that are there already

The environment holds what pyproject.toml asks for and nothing else. Every command after the installation runs with a
PATH that has no compiler and in a network namespace of its own, which needs root (`unshare -n`); where there is none,
--network-allowed goes on without. What is looked for: the shipped object is used and named in the result, every variant
that this processor runs passes the tests of clipped sums, some quick tests of every room pass, the sdist's wheel works
without objects and says so.
"""

import argparse
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from dependencies import closure, required
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
SUMS = ("tests/native/test_sums.py", "tests/native/test_momentum.py")  # by every variant
ONCE = ("tests/core/test_clipping.py", "tests/core/test_plan.py")
#: Of every room: quick ones that need nothing but the package, its tests' own helpers and the examples.
ROOMS = {
    "core": ("accounting", "audit", "budget", "cheats", "door", "forgeries", "gaussian"),
    "data": ("own_data", "partition", "targets"),
    "models": ("models", "parts"),
    "methods": ("contract", "published", "settings"),
    "recipes": ("recipes",),
    "trained": ("models",),
    "simulation": ("simulator", "training"),
    "theory": ("norms",),
    "experiments": ("grid_file", "rows_to_trust", "tuning"),
    "deploy": ("account", "certificate", "ledger_history", "node", "policy"),
    "attack": ("claims", "scoring"),
    "cli": ("commands", "task_options", "whom_commands"),
}
SLICE = (
    *(f"tests/{room}/test_{name}.py" for room, names in ROOMS.items() for name in names),
    *(f"tests/test_{name}.py" for name in ("extensions", "formats", "golden", "tasks")),
)
QUICK = ("-m", "not slow", "--dist", "loadfile")
COPIED = ("tests", "examples", "pyproject.toml")
TOOLS = ("pytest>=8", "pytest-xdist>=3.6", "hypothesis>=6", "hatchling")
#: Is there a way out? An address kept for examples; nothing is sent to it.
ROUTE = """
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
    print("none" if out.connect_ex(("192.0.2.1", 9)) else "NOT CUT")
"""
RUN = ("run", "--dataset", "digits", "--clients", "3", "--rounds", "3", "--recipe", "paper", "--epsilon", "5")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dist", type=Path, help="a folder with a wheel and an sdist; made now if left out")
    parser.add_argument("--demo", action="store_true", help="run the whole demo too: a few minutes")
    parser.add_argument("--python", default="", help="another interpreter; its packages come from the index")
    parser.add_argument("--network-allowed", action="store_true", help="go on where the network cannot be cut")
    given = parser.parse_args()
    cut = network_cut(given.network_allowed)
    with tempfile.TemporaryDirectory(prefix="fedsofim-check-") as name:
        check(Place(Path(name), given.python, cut), given.dist, given.demo)


class Place:
    """A folder outside the checkout, with an environment in which nothing is found but what it holds."""

    def __init__(self, folder: Path, python: str, cut: list[str]) -> None:
        self.folder, self.outer, self.cut = folder, python, cut
        self.python = folder / "env" / "bin" / "python"
        self.began = time.monotonic()

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.began:4.0f} s] {text}", flush=True)

    def environment(self, **more: str) -> dict[str, str]:
        """No compiler on the PATH, no settings of the machine, caches of its own."""
        own = {"PATH": str(self.python.parent), "HOME": str(self.folder), "FEDSOFIM_CACHE": str(self.folder / "cache")}
        return own | {"LANG": "C.UTF-8", "MPLBACKEND": "agg"} | more

    def alone(self, *command: object, **more: str) -> str:
        """A command in that environment, without network unless that is allowed; what it printed."""
        full = [*self.cut, *map(str, command)]
        done = subprocess.run(full, cwd=self.folder, env=self.environment(**more), capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"failed: {' '.join(map(str, command))}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
        return done.stdout


def network_cut(allowed: bool) -> list[str]:
    """What stands before a command that shall have no network: `unshare -n`; nothing only if that is allowed."""
    tool = shutil.which("unshare")
    if tool and subprocess.run([tool, "-n", "true"], capture_output=True).returncode == 0:
        return [tool, "-n"]
    if not allowed:
        sys.exit(
            "the network cannot be cut here: `unshare -n true` fails, which needs Linux and root. Without it nobody "
            "sees whether the wheel needs a network; to check the rest all the same: --network-allowed"
        )
    return []


def check(place: Place, dist: Path | None, demo: bool) -> None:
    wheel, sdist = artefacts(dist or built(place))
    check_wheel(place, wheel)
    check_tests(place)
    if demo:
        check_demo(place)
    check_sdist(place, sdist)
    place.say("all is well" if place.cut else "all is well, but nobody saw whether it does without a network")


def built(place: Place) -> Path:
    """Both, made by the tools of the environment that runs this: it has JAX's headers."""
    out = place.folder / "dist"
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(out)]
    subprocess.run(command, cwd=ROOT, check=True)
    return out


def artefacts(folder: Path) -> tuple[Path, Path]:
    (wheel,), (sdist,) = folder.absolute().glob("*.whl"), folder.absolute().glob("*.tar.gz")
    return wheel, sdist


def pip(place: Place, *args: object, **more: str) -> str:
    """The only step with a network, and with the user's settings of pip; also without a compiler."""
    around = {key: value for key, value in os.environ.items() if key not in ("CC", "CXX", "PYTHONPATH")}
    environment = around | {"PATH": place.environment()["PATH"]} | more
    command = [str(place.python), "-m", "pip", "--disable-pip-version-check", *map(str, args)]
    done = subprocess.run(command, env=environment, cwd=place.folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"pip failed: {done.stderr[-4000:]}")
    return done.stdout + done.stderr


def check_wheel(place: Place, wheel: Path) -> None:
    place.say(f"{wheel.name} into a clean environment")
    if "linux" not in wheel.name or wheel.name.endswith("-any.whl"):
        sys.exit(f"{wheel.name}: has no compiled passes, or its tag does not say so")
    subprocess.run([place.outer or sys.executable, "-m", "venv", place.folder / "env"], check=True)
    if place.outer:
        pip(place, "install", "--no-compile", wheel, *TOOLS)
    else:
        furnish(place)
        pip(place, "install", "--no-compile", "--no-deps", "--no-index", wheel)
    pip(place, "check")
    version = place.alone(place.python, "-V").strip()
    look = "import shutil; print(*filter(None, map(shutil.which, ('c++', 'g++', 'clang++'))))"
    compilers = place.alone(place.python, "-c", look).strip() or "none"
    network = place.alone(place.python, "-c", ROUTE).strip()
    place.say(f"{version}; compilers: {compilers}; network: {network}")
    if compilers != "none":
        sys.exit("this environment is not without a compiler")
    if place.cut and network != "none":
        sys.exit("this environment is not without a network")
    for variant in ("", *variants(place)):
        used = clipped_by(place, FEDSOFIM_NATIVE=variant) if variant else clipped_by(place)
        place.say(f"FEDSOFIM_NATIVE={variant}: sums by: {used}")
        if used != f"shipped {variant or variants(place)[0]}":
            sys.exit("the shipped object is not used")
    if (place.folder / "cache" / "native").exists():
        sys.exit("something was compiled")


def furnish(place: Place) -> None:
    """What the project says that it needs, and nothing else, copied from the environment that runs this."""
    (site,) = (place.folder / "env" / "lib").glob("python3*/site-packages")
    for name, package in closure([*required(), *map(Requirement, TOOLS)]).items():
        if name != "pip":
            copy_package(package, site)


def copy_package(package: importlib.metadata.Distribution, site: Path) -> None:
    """Its files, but for scripts, which lie elsewhere, and byte code."""
    for file in package.files or []:
        if ".." not in file.parts and file.suffix != ".pyc":
            target = site / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(Path(str(package.locate_file(file))), target)


def variants(place: Place) -> list[str]:
    code = "from fedsofim.native.variants import *; print(*runnable(flags_here()))"
    return place.alone(place.python, "-c", code).split()


def clipped_by(place: Place, **more: str) -> str:
    """Who added up in a run of the installed command, as its result states it."""
    out = place.folder / "result"
    shutil.rmtree(out, ignore_errors=True)
    place.alone(place.python.with_name("fedsofim"), *RUN, "--out", out, **more)
    found = json.loads((out / "result.json").read_text())
    return found["versions"]["clipped sums"]


def check_tests(place: Place) -> None:
    """Against what is installed: there is no source of ours in reach."""
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, place.folder / name)
    where = place.alone(place.python, "-c", "import fedsofim; print(fedsofim.__file__)").strip()
    if not where.startswith(str(place.folder / "env")):
        sys.exit(f"the tests would look at {where}")
    for variant in variants(place):
        place.say(f"{variant}: {tested(place, SUMS, FEDSOFIM_NATIVE=variant)}")
    place.say(f"clipping and the plan: {tested(place, ONCE)}")
    place.say(f"of every room: {tested(place, SLICE, QUICK)}")


def tested(place: Place, files: Sequence[str], how: Sequence[str] = (), **more: str) -> str:
    """How many tests ran. Each file has some; those that would be skipped for want of a pass have none to want."""
    report = place.folder / "tests.xml"
    options = ("-n", "2", "-rs", "-p", "no:cacheprovider", f"--junitxml={report}", *how)
    said = place.alone(place.python, "-m", "pytest", *options, *files, **more)
    cases = list(ElementTree.parse(report).iter("testcase"))
    ran = [case.get("classname", "") for case in cases if case.find("skipped") is None]
    without = [file for file in files if file.removesuffix(".py").replace("/", ".") not in ran]
    if "it is left to XLA here" in said or without:
        sys.exit(f"nothing was tested of {', '.join(without) or 'the passes'}: {said[-2000:]}")
    return f"{len(ran)} tests in {len(files)} files passed, {len(cases) - len(ran)} were skipped"


def check_demo(place: Place) -> None:
    place.alone(place.python.with_name("fedsofim"), "demo", "--out", place.folder / "demo")
    made = sorted(p.name for p in (place.folder / "demo").iterdir())
    if "curves.png" not in made or "report.html" not in made:
        sys.exit(f"the demo left {made}")
    place.say(f"the whole demo: {', '.join(made)}")


def check_sdist(place: Place, sdist: Path) -> None:
    """A wheel of the sdist, made where there is no compiler: for any machine, and XLA adds up."""
    alone = ("--no-deps", "--no-build-isolation", "--no-index")
    said = pip(place, "wheel", "--verbose", *alone, "-w", place.folder / "pure", sdist)
    (wheel,) = (place.folder / "pure").glob("*.whl")
    if not wheel.name.endswith("-py3-none-any.whl") or "a wheel without compiled passes" not in said:
        sys.exit(f"{wheel.name}: expected a wheel for any machine, and a warning; pip said: {said[-2000:]}")
    pip(place, "install", "--no-deps", "--no-index", "--force-reinstall", wheel)
    used = clipped_by(place)
    place.say(f"{sdist.name} made {wheel.name}; sums by: {used}")
    if not used.startswith("XLA (no object came with this package"):
        sys.exit("expected XLA: there is neither an object nor a compiler")


if __name__ == "__main__":
    main()
