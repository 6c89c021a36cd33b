"""What one answer of a node costs, by the size of its model: an MLP of JAX's and the same as a torch module.

    python scripts/measure_node_models.py            # docs/results/node-models, and the table of docs/node.md

One node, 64 features, 10 classes, one hidden layer; the first answer of a job compiles, the second is measured. On one
thread, in CPU seconds of the process, so that a busy machine changes them little.
"""

import argparse
import os
import resource
import sys
import tempfile
import time
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"

import numpy as np  # read by the libraries when they start

from fedsofim import extensions
from fedsofim.core.models import Model
from fedsofim.deploy.clients import clients_of
from fedsofim.deploy.node import answer, hello
from fedsofim.deploy.order import Order
from fedsofim.deploy.policy import Policy, read_policy
from fedsofim.deploy.server import start_job, step
from fedsofim.models.adapters import from_torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "experiments"))

import pages  # pyright: ignore[reportMissingImports]

FEATURES, CLASSES = 64, 10
SIZES = (10**4, 10**5, 10**6)
MODELS = ("mlp", "torch_mlp")
HEAD = ("parameters", "`mlp`", "the same as a torch module", "message", "largest memory so far")


def torch_mlp(hidden: int = 64) -> Model:
    from torch import nn  # pyright: ignore[reportMissingImports]

    return from_torch(nn.Sequential(nn.Linear(FEATURES, hidden), nn.Tanh(), nn.Linear(hidden, CLASSES)))


def node(folder: Path, records: int) -> Policy:
    random = np.random.default_rng(0)
    x = random.normal(size=(records, FEATURES)).astype(np.float32)
    np.savez(folder / "records.npz", x=x, y=random.integers(CLASSES, size=records))
    (folder / "policy.toml").write_text(
        f'[node]\nname = "n"\ndata = "records.npz"\nclasses = {CLASSES}\nledger = "ledger.db"\n'
        f'witness = "witness"\n[budget]\nepsilon = 9.0\ndelta = 1e-5\n[limits]\nsmallest_multiplier = 0.01\n'
        f'largest_clip = 10.0\nmethods = ["fedgd"]\nmodels = ["mlp", "torch_mlp"]\n'
    )
    policy = read_policy(folder / "policy.toml")
    policy.account.create()
    return policy


def measured(model: str, numbers: int, records: int) -> float:
    """CPU seconds of the second answer of a job."""
    hidden = (numbers - CLASSES) // (FEATURES + CLASSES + 1)
    order = Order(
        method="fedgd", recipe="paper", model=model, model_settings=(("hidden", str(hidden)),), epsilon=1.0, rounds=2,
        clients=1,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        policy = node(Path(folder), records)
        now = start_job(order, clients_of([hello(policy)], 1))
        now = step(now, {"n": answer(policy, now.request())})
        request = now.request()
        began = time.process_time()
        answer(policy, request)
        return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1000)
    records = parser.parse_args().records
    offered = EntryPoint("torch_mlp", f"{__name__}:torch_mlp", "fedsofim.models")
    offers = lambda group: [offered] if group == offered.group else []  # noqa: E731
    extensions.entry_points = offers  # pyright: ignore[reportPrivateImportUsage]
    rows = []
    for numbers in SIZES:
        costs = {model: round(measured(model, numbers, records), 3) for model in MODELS}
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        rows.append({"parameters": numbers, "records": records, **costs, "GB": round(memory, 2)})
        print(rows[-1], flush=True)
    pages.keep("node-models", markdown(rows), rows)


def markdown(rows: list[dict[str, Any]]) -> str:
    return pages.markdown(HEAD, map(line, rows), left=0)


def line(row: dict[str, Any]) -> list[str]:
    numbers, times = int(row["parameters"]), [f"{float(f'{float(row[model]):.2g}'):g} s" for model in MODELS]
    return [f"{numbers:,}", *times, f"{4 * numbers / 1e6:g} MB", f"{float(row['GB']):.2g} GB"]


if __name__ == "__main__":
    main()
