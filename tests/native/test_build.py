"""The library: built once, for this machine, from a folder of one's own; done without where it cannot be."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from fedsofim import native
from fedsofim.native import build

WHY_NOT = native.why_not("sums")
needs_compiler = pytest.mark.skipif(bool(WHY_NOT), reason=f"it is left to XLA here: {WHY_NOT}")


def test_the_switch_turns_it_off(monkeypatch):
    monkeypatch.setenv(native.SWITCH, "0")
    assert native.why_not() == "FEDSOFIM_NATIVE=0"


def test_without_a_compiler_there_is_a_reason(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDSOFIM_CACHE", str(tmp_path))
    monkeypatch.setenv("CXX", "a-compiler-that-is-not-there")
    with pytest.raises(build.NotBuilt, match=r"no C\+\+ compiler: looked for a-compiler-that-is-not-there"):
        build.library("sums")


@pytest.mark.slow
@needs_compiler
def test_the_library_is_built_once(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDSOFIM_CACHE", str(tmp_path))
    first = build.library("sums")
    monkeypatch.setenv("CXX", "a-compiler-that-is-not-there")  # not needed any more
    assert build.library("sums") == first
    assert [p.name for p in (tmp_path / "native").iterdir()] == [first.name]


@needs_compiler
def test_code_that_does_not_compile_leaves_a_reason_and_no_files(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDSOFIM_CACHE", str(tmp_path))
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-DkLanes=("))
    with pytest.raises(build.NotBuilt, match=r"failed: .*error"):
        build.library("sums")
    assert not list((tmp_path / "native").iterdir())


def test_a_cache_that_cannot_be_written_is_a_reason(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDSOFIM_CACHE", str(tmp_path / "file"))
    with pytest.raises(build.NotBuilt, match="cannot write"):
        build.library("sums")


@pytest.mark.slow
@needs_compiler
def test_a_library_from_a_folder_that_others_can_write_is_not_loaded(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDSOFIM_CACHE", str(tmp_path))
    folder = build.library("sums").parent
    folder.chmod(0o777)
    with pytest.raises(build.NotBuilt, match="others can write"):
        build.library("sums")
    folder.chmod(0o755)
    assert build.library("sums").exists()


def test_other_sources_or_processors_are_another_library(monkeypatch):
    sums, momentum = (Path(build.__file__).with_name(name) for name in ("sums.cc", "momentum.cc"))
    before = build.fingerprint(sums)
    assert build.fingerprint(sums) == before != build.fingerprint(momentum)
    monkeypatch.setattr(build, "_processor", lambda: "another one")
    assert build.fingerprint(sums) != before


@pytest.mark.slow
def test_a_machine_without_a_compiler_trains_all_the_same(tmp_path):
    code = (
        "import fedsofim as fs; from fedsofim import native;"
        "data = fs.split(fs.load('digits'), clients=3, iid=True);"
        "run = fs.train(data, fs.fedsofim(), fs.Budget(5.0), rounds=2, recipe='paper');"
        "print(native.why_not(), run.accuracy)"
    )
    environment = os.environ | {"CXX": "a-compiler-that-is-not-there", "FEDSOFIM_CACHE": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "no C++ compiler" in done.stdout and done.stderr == ""


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_a_thread_that_comes_late_touches_nothing_that_is_gone(sanitizer, tmp_path):
    program, source = tmp_path / "late", Path(__file__).with_name("late_helpers.cc")
    flags = ["-std=gnu++17", "-O1", "-march=native", "-pthread", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
    folders = ["-I", str(Path(native.__file__).parent), "-I", jax.ffi.include_dir()]
    command = [build.compiler(), str(source), *folders, *flags, "-o", str(program)]
    built = subprocess.run(command, capture_output=True, text=True)
    if built.returncode != 0 and "cannot find" in built.stderr:
        pytest.skip(f"no library for -fsanitize={sanitizer} here")
    assert built.returncode == 0, built.stderr
    done = subprocess.run([str(program)], capture_output=True, text=True)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("this kernel spreads addresses wider than the compiler's sanitizer knows")
    assert (done.returncode, done.stdout) == (0, "equal\n"), done.stderr
