"""Strict mode for every test: 64-bit numbers where asked for, no silent promotion, warnings are errors."""

import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jax
import pytest
from jax._src import compiler

from fedsofim.data.partition import Split
from toy import make_toy

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")

gc.set_threshold(50_000, 20, 50)  # what JAX keeps is much to look through at every collection

#: Loop by loop in place of fusions, in one piece: most of what is left of compiling once LLVM optimises nothing.
QUICKLY = {"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 1}
AS_USERS_DO = compiler.get_compile_options
SHARED = Path(__file__).resolve().parents[1].parent / "shared"


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What nodes remember of their ledgers goes into a folder of the tests' own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDSOFIM_STATE", str(tmp_path_factory.mktemp("state")))
        yield


@cache
def known() -> dict[str, Any]:
    """QUICKLY, or nothing where XLA no longer has such options: then tests take longer, and find the same."""
    try:
        jax.jit(lambda: 0).lower().compile(compiler_options=QUICKLY)
    except jax.errors.JaxRuntimeError:
        return {}
    return QUICKLY


def in_a_hurry(*args: Any, env_options_overrides: dict[str, Any] | None = None, **kwargs: Any) -> Any:
    """How JAX would compile, and QUICKLY."""
    return AS_USERS_DO(*args, env_options_overrides={**known(), **(env_options_overrides or {})}, **kwargs)


@pytest.fixture(scope="module", autouse=True)
def quickly_compiled(request: pytest.FixtureRequest) -> None:
    """Programs are compiled without most optimisations, which is most of what a test of a tiny run costs.

    Modules marked `optimised`, which are about roundings, compile as users do; so does whatever runs in a process of
    its own, by the command line or in a federation. What is compiled is forgotten where the one follows the other.
    """
    quickly = not any(mark.name == "optimised" for mark in request.node.iter_markers())
    if quickly != jax.config.read("jax_disable_most_optimizations"):
        jax.clear_caches()
        jax.config.update("jax_disable_most_optimizations", quickly)
        compiler.get_compile_options = in_a_hurry if quickly and known() else AS_USERS_DO


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of the paper's own features; not part of the project, so absent on a user's machine."""
    if not (SHARED / "data").is_dir():
        pytest.skip("needs the paper's features in ../shared, which is not part of the project")
    return SHARED


@pytest.fixture(scope="session")
def toy() -> Split:
    """Three classes in five dimensions at four clients of very unequal size."""
    return make_toy()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest test first: while one worker is at it, the others do the rest. Then what is compiled as users do, so
    that a worker forgets once what it has compiled, and while that is little: forgetting much takes seconds."""
    marked = [{mark.name for mark in item.iter_markers()} for item in items]
    order = sorted(range(len(items)), key=lambda i: ("longest" not in marked[i], "optimised" not in marked[i]))
    items[:] = [items[i] for i in order]
