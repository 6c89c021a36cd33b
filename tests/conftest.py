"""Strict mode for every test: 64-bit numbers where asked for, no silent promotion, warnings are errors."""

from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

from fedsofim.data.partition import Split
from toy import make_toy

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")

SHARED = Path(__file__).resolve().parents[1].parent / "shared"


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What nodes remember of their ledgers goes into a folder of the tests' own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDSOFIM_STATE", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="module", autouse=True)
def quickly_compiled(request: pytest.FixtureRequest) -> Iterator[None]:
    """Programs are compiled without most of LLVM's optimisations, which is most of what a test of a tiny run costs.

    Modules marked `optimised`, which are about roundings, compile as users do; so does whatever runs in a process of
    its own, by the command line or in a federation.
    """
    as_users_do = any(mark.name == "optimised" for mark in request.node.iter_markers())
    if as_users_do:
        jax.clear_caches()
    jax.config.update("jax_disable_most_optimizations", not as_users_do)
    yield
    if as_users_do:
        jax.clear_caches()


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
    """The longest test first: while one worker is at it, the others do the rest."""
    items.sort(key=lambda item: item.get_closest_marker("longest") is None)
