"""Few programs are compiled, and none twice: compiling is most of a short run."""

from collections.abc import Callable

import jax
import pytest

from fedsofim.core.budget import Budget
from fedsofim.methods.fedsofim import fedsofim
from fedsofim.simulation.training import train

pytestmark = pytest.mark.optimised  # and so early, when there is little to forget


def compiled(work: Callable[[], object]) -> list[str]:
    """The programs that were compiled meanwhile, by name."""
    found: list[str] = []

    def listen(event: str, duration_secs: float, **about: str | int) -> None:
        if event.endswith("backend_compile_duration"):
            found.append(str(about.get("fun_name")))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        work()
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    return found


@pytest.mark.slow
def test_a_run_compiles_few_programs_however_many_rounds(toy):
    """Every operation outside of a program is one more to compile: 24 of them were most of a cold run."""
    for rounds in (20, 23, 7):
        jax.clear_caches()
        found = compiled(lambda n=rounds: train(toy, fedsofim(), Budget(1.0), n, recipe="paper"))
        assert len(found) == 5, found  # four of the run, and the second opinion's
        assert sum("look" in name for name in found) == 1
        assert sum("rounds_between" in name for name in found) == 1


@pytest.mark.slow
def test_other_seeds_and_budgets_compile_nothing(toy):
    train(toy, fedsofim(lr=0.8), Budget(1.0), 12, recipe="paper")
    assert not compiled(lambda: train(toy, fedsofim(lr=0.8), Budget(3.0), 12, recipe="paper", seed=5))
    assert compiled(lambda: train(toy, fedsofim(lr=0.7), Budget(3.0), 12, recipe="paper", seed=5))
