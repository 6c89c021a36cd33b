"""Many clients of which few take part in a round, and records of which few are drawn: what a round takes then.

    python benchmarks/crowd.py                    # writes docs/crowd.json, which the page about performance shows
    python benchmarks/crowd.py run 100000 1000    # one federation in a process of its own: a line of JSON

Made-up records, three at each client. A round's time is that of the later ones of a compiled run; the rest (dealing,
pricing, laying out, compiling) is told apart.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import machine
import numpy as np

OUT = Path(__file__).parents[1] / "docs" / "crowd.json"
FEDERATIONS = ((1_000, 10), (1_000, 100), (10_000, 100), (100_000, 100), (100_000, 1_000))
RATES = (1.0, 0.5, 0.3, 0.1, 0.03, 0.01)
RECORDS, FEATURES, CLASSES = 3, 64, 10  # at a client
ROUNDS = 200
#: Models: how often each round is timed, and the problem where it is not the reference problem.
KINDS: dict[str, tuple[int, dict[str, Any]]] = {
    "linear": (400, {}),
    "mlp": (40, {"records": 20_000, "features": 256}),
    "cnn": (12, {"records": 4_000, "features": 784}),
}


def federation(clients: int, participants: int) -> dict[str, Any]:
    """One run of DP-FedSOFIM under secure sum, timed in parts."""
    import jax

    import fedsofim as fs
    from fedsofim.core.round import federated_round
    from fedsofim.data.dataset import Dataset
    from fedsofim.simulation import simulator
    from fedsofim.simulation.training import plan_for

    random = np.random.default_rng(0)
    y = random.integers(0, CLASSES, clients * RECORDS)
    x = random.normal(size=(CLASSES, FEATURES))[y] + 2 * random.normal(size=(len(y), FEATURES))
    data = Dataset.of("made-up", x_train=x.astype(np.float32), y_train=y, x_test=x[:1000], y_test=y[:1000])
    began = time.perf_counter()
    split = fs.split(data, clients=clients, iid=True, min_size=1)
    dealt = time.perf_counter()
    plan = plan_for(split, fs.fedsofim(), fs.Budget(5.0), ROUNDS, trust="secure-sum", participants=participants)
    priced = time.perf_counter()
    simulator.native.prepare()
    init_key, noise_key = simulator.keys(0)
    cohort = simulator.cohort_of(plan, split, noise_key, plan.pooled)
    carry = simulator.start(plan, split, init_key)
    rules = simulator.Static.of(plan, plan.pooled, ROUNDS).rules

    def rounds(carry: Any, cohort: Any, first: Any) -> Any:
        return jax.lax.fori_loop(first, first + 20, lambda t, c: federated_round(rules, cohort, c, t), carry)

    compiled = jax.jit(rounds)
    carry = jax.block_until_ready(compiled(carry, cohort, np.int32(0)))
    laid = time.perf_counter()
    seconds = []
    for first in range(20, ROUNDS, 20):
        start = time.perf_counter()
        carry = jax.block_until_ready(compiled(carry, cohort, np.int32(first)))
        seconds.append((time.perf_counter() - start) / 20)
    return {
        "clients": clients, "participants": participants, "dealing": dealt - began, "pricing": priced - dealt,
        "laying out and compiling": laid - priced, "a round": min(seconds),
        "a round, median": float(np.median(seconds)), "GB": peak(),
    }  # fmt: skip


def peak() -> float:
    """GB. Not by getrusage, which counts what the process was that started this one."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1e6


def drawn(kind: str) -> dict[str, dict[str, float]]:
    """A round's time at each rate over that of a round that reads all records: one of each in turn, often, so that all
    meet the same load."""
    from clock import Ratio, Times, seconds
    from ours import round_of
    from problem import BETA, CLIP, LR, RHO, Shape, make

    import fedsofim as fs
    from fedsofim.core.budget import Budget
    from fedsofim.models import make as model_of
    from fedsofim.simulation.training import plan_for

    repeats, shape = KINDS[kind]
    data = make(Shape(**shape))
    method, model = fs.fedsofim(lr=LR, rho=RHO, beta=BETA), model_of(kind, {})
    plans = {r: plan_for(data, method, Budget(1.0), 70, model=model, clip=CLIP, batch_rate=r) for r in RATES}
    runs = {str(rate): round_of(plan, data) for rate, plan in plans.items()}
    taken = [{name: seconds(run) for name, run in runs.items()} for _ in range(repeats)][repeats // 10 :]
    times = {name: Times(tuple(turn[name] for turn in taken)) for name in runs}
    ratios = {name: Ratio.of(mine, times["1.0"]) for name, mine in times.items()}
    return {name: {"median": r.median, "minimum": r.minimum} for name, r in ratios.items()}


def main() -> None:
    if sys.argv[1:2] == ["run"]:
        print(json.dumps(federation(int(sys.argv[2]), int(sys.argv[3]))))
        return
    found: dict[str, Any] = {
        "machine": machine.describe(),
        "drawn": {kind: drawn(kind) for kind in KINDS},
        "federations": [],
    }
    for clients, participants in FEDERATIONS:
        command = [sys.executable, __file__, "run", str(clients), str(participants)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found["federations"].append(json.loads(done.stdout.splitlines()[-1]))
        OUT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
