"""What needs a process of its own: compile time from a cold start, and peak memory.

    python benchmarks/fresh.py run|sweep|one-by-one|calls|grid|million [--quick]

prints one line of JSON with its seconds and its peak memory in GB.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

BEGAN = time.perf_counter()
SETTINGS, SEEDS = 24, 3


def whole_run(quick: bool) -> dict[str, float]:
    """70 rounds at 20 clients as a user calls them, everything compiled on the way. The split is JAX's own; a wait for
    the C++ compiler counts as lowering."""
    import jax

    import fedsofim as fs

    imported = time.perf_counter() - BEGAN
    from problem import make

    data, spent = make(), {"tracing": 0.0, "lowering": 0.0, "compiling": 0.0, "programs": 0.0}

    def listen(event: str, duration_secs: float, **_: str | int) -> None:
        kind = JAX_EVENTS.get(event)
        if kind:
            spent[kind] += duration_secs
            spent["programs"] += kind == "compiling"

    jax.monitoring.register_event_duration_secs_listener(listen)
    began = time.perf_counter()
    run = fs.train(data, fs.fedsofim(), fs.Budget(1.0), rounds=70, recipe="paper")
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "imports": imported, "planning": seconds - run.seconds} | spent


#: How JAX names what it does before a program runs.
JAX_EVENTS = {
    "/jax/core/compile/jaxpr_trace_duration": "tracing",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lowering",
    "/jax/core/compile/backend_compile_duration": "compiling",
}


def settings() -> list[dict[str, float]]:
    """24 settings of DP-FedSOFIM, all of the kind that is not compiled in."""
    return [{"lr": 0.2 * (i % 6 + 1), "rho": 0.5 * (i // 6 + 1), "beta": 0.9} for i in range(SETTINGS)]


def sweep_together(quick: bool) -> dict[str, float]:
    """All settings and seeds as one program."""
    from problem import make

    from fedsofim import Budget
    from fedsofim.simulation import sweep

    data, rounds = make(), 7 if quick else 70
    began = time.perf_counter()
    sweep.scores(data, "fedsofim", settings(), Budget(1.0), rounds, seeds=range(SEEDS))
    return {"seconds": time.perf_counter() - began}


def sweep_one_by_one(quick: bool) -> dict[str, float]:
    """The same runs one after another, in the cheapest way: planned and compiled once, scored after the last round."""
    from problem import make

    from fedsofim import Budget
    from fedsofim.simulation import sweep
    from fedsofim.simulation.training import plan_for

    data, rounds = make(), 7 if quick else 70
    began = time.perf_counter()
    fixed, numbers, _ = sweep.divided(settings()[0], "fedsofim")
    plan = plan_for(data, sweep.sweepable("fedsofim", fixed, numbers), Budget(1.0), rounds)
    for given in settings():
        for seed in range(SEEDS):
            sweep.simulate_with(plan, data, seed, sweep.divided(given, "fedsofim")[2], every=rounds)
    return {"seconds": time.perf_counter() - began}


def sweep_by_calls(quick: bool) -> dict[str, float]:
    """Three of the same settings with all seeds as a user would write them: `train` in a loop."""
    from problem import make

    import fedsofim as fs

    data, rounds, chosen = make(), 7 if quick else 70, settings()[::8]
    began = time.perf_counter()
    for given in chosen:
        for seed in range(SEEDS):
            fs.train(
                data, fs.make("fedsofim", given), fs.Budget(1.0), rounds=rounds, recipe="paper", seed=seed, every=rounds
            )
    return {"seconds": time.perf_counter() - began, "runs": len(chosen) * SEEDS}


def paper_grid(quick: bool) -> dict[str, float]:
    """9 methods x 4 budgets x 3 seeds with the published settings, through the runner that `compare` uses."""
    import numpy as np
    from problem import make

    from fedsofim.experiments.grid_file import read_experiment
    from fedsofim.experiments.runner import run_experiment

    grid = read_experiment(Path(__file__).parents[1] / "experiments" / "paper-cifar10-noniid.toml")
    grid = replace(grid, datasets=("synthetic.npz",), rounds=2 if quick else grid.rounds)
    with tempfile.TemporaryDirectory() as folder:
        data = make().dataset
        np.savez(
            Path(folder) / "synthetic.npz",
            x_train=data.x_train, y_train=data.y_train, x_test=data.x_test, y_test=data.y_test,
        )  # fmt: skip
        began = time.perf_counter()
        runs = run_experiment(grid, Path(folder) / "out", Path(folder))
        return {"seconds": time.perf_counter() - began, "runs": runs}


def million(quick: bool) -> dict[str, float]:
    """One client of 1,000,000 records: only its memory is of interest here."""
    from ours import one_theta, round_of
    from problem import Shape, make

    data = make(Shape(records=1_000_000, clients=1, iid=True))
    run = round_of(one_theta(data), data)
    began = time.perf_counter()
    for _ in range(3):
        run()
    return {"seconds": time.perf_counter() - began}


TASKS: dict[str, Callable[[bool], dict[str, float]]] = {
    "run": whole_run,
    "sweep": sweep_together,
    "one-by-one": sweep_one_by_one,
    "calls": sweep_by_calls,
    "grid": paper_grid,
    "million": million,
}


def measure(task: str, quick: bool = False, first: bool = False) -> dict[str, float]:
    """A task in a process of its own: what it measured, and its peak memory in GB. `first`: as on a machine where
    the library has never run, so that the C++ compiler runs too."""
    command = [sys.executable, __file__, task, *(["--quick"] if quick else [])]
    with tempfile.TemporaryDirectory() as empty:
        environment = os.environ | ({"FEDSOFIM_CACHE": empty} if first else {})
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    measured = TASKS[given.task](given.quick)
    print(json.dumps(measured | {"peak": peak_memory()}))


def peak_memory() -> float:
    """The most memory this process has had, in GB. Not from getrusage: that starts at what the parent had when it
    forked, which is the suite's own."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (high,) = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return int(high) * 1024 / 1e9


if __name__ == "__main__":
    main()
