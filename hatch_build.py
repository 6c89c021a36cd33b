"""Puts the C++ passes, compiled, into a wheel: one object for each generation of x86-64 processors.

A wheel with objects has the tag of the machines it is for; without a compiler or without JAX's headers it is a wheel
for any machine, and they are compiled at first use there (src/fedsofim/native). FEDSOFIM_WHEEL=pure asks for that.
To have objects, build where JAX is installed: `make release`, or `pip wheel --no-build-isolation .`.
"""

import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SWITCH = "FEDSOFIM_WHEEL"
MANYLINUX = (2, 17)  # of glibc: what an object asks for must be no newer, or the wheel is for machines like this one
ALONE = {"libc.so.6", "libm.so.6"}


class NoObjects(Exception):
    """Why a wheel goes without."""


class CompiledPasses(BuildHookInterface):
    """Of wheels, not of editable installs."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or version == "editable":
            return
        self.folder = Path(tempfile.mkdtemp(prefix="fedsofim-wheel-"))
        try:
            objects = compiled(variants_of(Path(self.root)), self.folder)
        except NoObjects as reason:
            self.app.display_warning(f"a wheel without compiled passes: {reason}")
            return
        build_data["force_include"] |= {str(o): f"fedsofim/native/shipped/{o.name}" for o in objects}
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag([o for o in objects if o.suffix == '.so'])}"
        self.app.display_info(f"{len(objects) - 1} compiled passes, {build_data['tag']}")

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        shutil.rmtree(getattr(self, "folder", ""), ignore_errors=True)


def variants_of(root: Path) -> ModuleType:
    """native/variants.py on its own: the package around it needs what is not installed where wheels are built."""
    spec = importlib.util.spec_from_file_location("variants", root / "src/fedsofim/native/variants.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compiled(variants: ModuleType, folder: Path) -> list[Path]:
    """Every pass for every generation, and a file that says how they were made."""
    if os.environ.get(SWITCH) == "pure":
        raise NoObjects(f"{SWITCH}=pure")
    if not variants.has_variants():
        raise NoObjects("objects are made on Linux for x86-64 only")
    cxx, (headers, jaxlib) = compiler(), jax_headers()
    out = [
        compile_one(cxx, headers, variants, name, variant, folder)
        for name in variants.NAMES
        for variant in variants.MARCH
    ]
    made = {"compiler": first_line([cxx, "--version"]), "jaxlib": jaxlib}
    about = made | {"flags": variants.FLAGS, "march": variants.MARCH}
    (folder / "built.json").write_text(json.dumps(about, indent=1))
    return [*out, folder / "built.json"]


def compiler() -> str:
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    found = [path for path in map(shutil.which, names) if path]
    if not found:
        raise NoObjects(f"no C++ compiler: looked for {', '.join(names)}")
    return found[0]


def jax_headers() -> tuple[Path, str]:
    """JAX's header of calls, and the version it is of. An object runs with every jaxlib that speaks this interface."""
    spec = importlib.util.find_spec("jaxlib")
    folder = Path(next(iter(spec.submodule_search_locations or []), "")) / "include" if spec else Path()
    if not (folder / "xla" / "ffi" / "api" / "c_api.h").exists():
        raise NoObjects("jaxlib is not installed where this wheel is built (pip wheel --no-build-isolation)")
    return folder, importlib.metadata.version("jaxlib")


def compile_one(cxx: str, headers: Path, variants: ModuleType, name: str, variant: str, folder: Path) -> Path:
    out = folder / variants.shipped_file(name, variant).name
    flags = [*variants.FLAGS, *variants.LINKED, "-s", f"-march={variants.MARCH[variant]}", "-mtune=generic"]
    command = [cxx, *flags, "-I", str(headers), "-o", str(out), str(variants.HERE / f"{name}.cc")]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode:
        raise NoObjects(f"{cxx} failed: {(done.stderr.strip() or 'no reason given').splitlines()[-1]}")
    return out


def first_line(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True).stdout.partition("\n")[0]


def platform_tag(objects: list[Path]) -> str:
    """manylinux only where every object asks for no newer C library and for nothing else; else this machine's kind."""
    needs = [asked_for(o) for o in objects]
    fine = all(libraries <= ALONE and newest <= MANYLINUX for libraries, newest in needs)
    return "manylinux_{}_{}_x86_64".format(*MANYLINUX) if fine else "linux_x86_64"


def asked_for(path: Path) -> tuple[set[str], tuple[int, ...]]:
    """The libraries that an object needs, and the newest version of glibc among its symbols."""
    if not shutil.which("readelf"):
        return {"unknown: no readelf here"}, ()
    text = subprocess.run(["readelf", "-W", "-d", "-V", str(path)], capture_output=True, text=True, check=True).stdout
    versions = [tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([\d.]+)", text)]
    return set(re.findall(r"NEEDED.*\[(.+?)\]", text)), max(versions, default=())
