"""Strict mode for every test: 64-bit numbers where asked for, no silent promotion, warnings are errors."""

import gc
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when numpy is imported; others wait by turning round

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import jax
import pytest
from jax._src import compiler, lru_cache

from fedsofim.data.partition import Split
from fedsofim.simulation import training
from toy import make_toy

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")

gc.set_threshold(50_000, 20, 50)  # what JAX keeps is much to look through at every collection

#: Loop by loop in place of fusions, in one piece: most of what is left of compiling once LLVM optimises nothing.
QUICKLY = {"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 1}
AS_USERS_DO = compiler.get_compile_options
ROOM = 2 << 30  # bytes free in memory for what tests write
KEPT_DAYS = 3  # after which a program is compiled anew, so that old ones do not pile up
SHARED = Path(__file__).resolve().parents[1].parent / "shared"


def pytest_configure(config: pytest.Config) -> None:
    _write_to_memory()
    _keep_compiled(config)


def _write_to_memory() -> None:
    """Ledgers wait for the disk at every entry: in memory, where files can be executed and there is room, they do not.

    What a test wrote is removed once it passed (pyproject.toml), so this stays small.
    """
    memory = Path("/dev/shm")
    usable = memory.is_dir() and os.access(memory, os.W_OK) and not os.statvfs(memory).f_flag & os.ST_NOEXEC
    if usable and shutil.disk_usage(memory).free > ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))


def _keep_compiled(config: pytest.Config) -> None:
    """A program is compiled once for all workers, and for the next run of the tests: half of what a run costs is XLA.

    JAX finds it by its text, XLA's options and version, so a changed program is another one. What calls back into
    Python it does not keep. `pytest --cache-clear`, or `-p no:cacheprovider`, and everything is compiled anew.
    """
    if not hasattr(config, "cache"):
        return
    folder = config.cache.mkdir("compiled")
    if not hasattr(config, "workerinput"):
        _drop_before(folder, time.time() - KEPT_DAYS * 86400)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    lru_cache.LRUCache.put = _put_whole


def _put_whole(self: lru_cache.LRUCache, key: str, value: bytes) -> None:
    """As JAX does, but a file is there whole or not at all: another worker may be looking for it.

    Where it cannot be written (a full disk, `--cache-clear` meanwhile), it is not kept.
    """
    part = self.path / f"{os.getpid()}-{threading.get_ident()}-part"
    with suppress(OSError):
        part.write_bytes(value)
        part.replace(self.path / f"{key}-cache")


def _drop_before(folder: Path, then: float) -> None:
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # other tests began at the same time
            if path.stat().st_mtime < then:
                path.unlink()


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What nodes remember of their ledgers goes into a folder of the tests' own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDSOFIM_STATE", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session", autouse=True)
def noise_that_repeats() -> Iterator[None]:
    """Runs without a seed have noise of the machine's entropy, with which a test would pass on some days only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "a_seed_nobody_knows", lambda: 0)
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
    """The folder of the paper's own features and source; not part of the project, so absent on a user's machine."""
    if not (SHARED / "data").is_dir():
        pytest.skip("needs the paper's features, which are not part of the project, in shared/data beside the checkout")
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
