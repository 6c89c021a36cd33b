"""Objects that come with a wheel: the best that the processor runs, before compiler and XLA; and how they are made.

That they compute the same is looked at where they are: scripts/check_wheel.py runs the tests of sums by each of them.
"""

import importlib.util
from pathlib import Path

import pytest

from fedsofim import InputError, native
from fedsofim.native import build, variants
from fedsofim.native.build import NotBuilt
from fedsofim.simulation.environment import environment_here

ROOT = Path(__file__).resolve().parents[2]
ALL = set(variants.NEEDED["avx512"])


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with an object of every variant, on a machine that runs all of them."""
    monkeypatch.setattr(variants, "SHIPPED", tmp_path)
    monkeypatch.setattr(build, "flags_here", lambda: ALL)
    monkeypatch.setattr(build, "has_variants", lambda: True)
    for variant in variants.MARCH:
        variants.shipped_file("sums", variant).touch()
    return tmp_path


# --- which one ----------------------------------------------------------------------------------------------


def test_the_best_that_the_processor_runs():
    assert variants.runnable(ALL) == ["avx512", "avx2", "baseline"]
    assert variants.best(ALL - {"avx512vl"}) == "avx2"
    assert variants.best(ALL - {"fma"}) == "baseline"
    assert variants.best(set()) == "baseline"


def test_the_best_that_is_there_is_taken(wheel: Path):
    assert build.shipped("sums")[1] == "avx512"
    variants.shipped_file("sums", "avx512").unlink()
    assert build.shipped("sums")[1] == "avx2"
    assert build.shipped("sums", "baseline")[1] == "baseline"


def test_one_that_the_processor_does_not_run_is_never_taken(wheel: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(build, "flags_here", lambda: ALL - {"avx512f"})
    assert build.shipped("sums")[1] == "avx2"
    with pytest.raises(NotBuilt, match="no shipped object avx512 for this processor; this machine runs avx2, baseline"):
        build.shipped("sums", "avx512")


def test_an_object_of_other_sources_is_not_taken(wheel: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(variants, "source_digest", lambda name: "of-other-sources")
    with pytest.raises(NotBuilt, match="no object came with this package"):
        build.shipped("sums")


# --- in which order -----------------------------------------------------------------------------------------


def origin(monkeypatch: pytest.MonkeyPatch, broken: tuple[str, ...] = (), choice: str = "") -> native.Here:
    """Where a pass comes from if XLA refuses what is broken."""

    def register(name: str, path: Path) -> None:
        if path.name in broken:
            raise RuntimeError(f"XLA refuses {path.name}")

    monkeypatch.setenv(native.SWITCH, choice)
    monkeypatch.setattr(native, "_register", register)
    monkeypatch.setattr(build, "shipped", lambda name, variant: (Path("shipped"), variant or "avx2"))
    monkeypatch.setattr(build, "library", lambda name: Path("compiled"))
    return native._registered.__wrapped__("sums")


def test_first_what_was_shipped_then_the_compiler_then_xla(monkeypatch: pytest.MonkeyPatch):
    assert origin(monkeypatch) == native.Here("shipped avx2")
    assert origin(monkeypatch, broken=("shipped",)) == native.Here("compiled here")
    neither = origin(monkeypatch, broken=("shipped", "compiled"))
    assert neither == native.Here(why_not="XLA refuses shipped; XLA refuses compiled")


def test_who_chooses_gets_that_or_xla(monkeypatch: pytest.MonkeyPatch):
    assert origin(monkeypatch, choice="compile").origin == "compiled here"
    assert origin(monkeypatch, choice="baseline").origin == "shipped baseline"
    assert origin(monkeypatch, choice="baseline", broken=("shipped",)).why_not == "XLA refuses shipped"
    with pytest.raises(InputError, match="FEDSOFIM_NATIVE=fast: expected 0, compile or one of avx512, avx2, baseline"):
        origin(monkeypatch, choice="fast")


def test_results_state_who_added_up():
    assert environment_here()["clipped sums"] == native.made_by()
    assert native.made_by().startswith(("shipped", "compiled here", "XLA ("))


# --- how they are made --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hook():
    pytest.importorskip("hatchling")
    path = ROOT / "hatch_build.py"
    if not path.exists():
        pytest.skip("not in a checkout")
    spec = importlib.util.spec_from_file_location("hatch_build", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_wheel_without_compiler_or_headers_says_why(hook, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(variants, "has_variants", lambda: True)
    monkeypatch.setenv("CXX", "a-compiler-that-is-not-there")
    with pytest.raises(hook.NoObjects, match=r"no C.. compiler: looked for a-compiler-that-is-not-there"):
        hook.compiled(variants, tmp_path)
    monkeypatch.setattr(hook, "compiler", lambda: "c++")
    monkeypatch.setattr(hook.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(hook.NoObjects, match="jaxlib is not installed"):
        hook.compiled(variants, tmp_path)
    monkeypatch.setenv(hook.SWITCH, "pure")
    with pytest.raises(hook.NoObjects, match="FEDSOFIM_WHEEL=pure"):
        hook.compiled(variants, tmp_path)


@pytest.mark.parametrize(
    ("libraries", "newest", "tag"),
    [
        ({"libc.so.6", "libm.so.6"}, (2, 16), "manylinux_2_17_x86_64"),
        ({"libc.so.6"}, (2, 34), "linux_x86_64"),
        ({"libc.so.6", "libstdc++.so.6"}, (2, 16), "linux_x86_64"),
    ],
)
def test_the_tag_promises_no_more_than_the_objects_keep(hook, monkeypatch, libraries, newest, tag):
    monkeypatch.setattr(hook, "asked_for", lambda path: (libraries, newest))
    assert hook.platform_tag([Path("x.so")]) == tag


def test_the_hook_reads_the_same_list(hook):
    assert hook.variants_of(ROOT).MARCH == variants.MARCH
