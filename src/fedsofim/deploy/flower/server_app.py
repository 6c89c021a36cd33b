"""The ServerApp: a job from Flower's run-config, whose keys app/pyproject.toml lists. `fedsofim serve` starts it."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

import jax
import jax.numpy as jnp
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from fedsofim.cli.app import settings
from fedsofim.core.models import evaluate, softmax_head
from fedsofim.core.plan import Trust, Weights
from fedsofim.data import load
from fedsofim.deploy.checkpoint import OUTCOME
from fedsofim.deploy.flower.strategy import MethodStrategy
from fedsofim.deploy.server import Order
from fedsofim.errors import InputError, one_of
from fedsofim.files import write_whole


def order_of(config: Mapping[str, Any]) -> Order:
    """The order in a run-config."""
    chosen = settings(str(config["settings"]).split())
    return Order(
        method=str(config["method"]),
        settings=tuple(sorted(chosen.items())),
        epsilon=float(config["epsilon"]),
        delta=float(config["delta"]),
        rounds=int(config["rounds"]),
        clip=float(config["clip"]),
        clients=int(config["clients"]),
        weights=one_of("weights", str(config["weights"]), get_args(Weights)),
        trust=one_of("trust", str(config["trust"]), get_args(Trust)),
        standardize=float(config["standardize"]),
        seed=int(config["seed"]),
    )


def tester(name: str) -> Callable[[int, ArrayRecord], MetricRecord | None] | None:
    """Accuracy on a public test set that the coordinator has; no node is asked."""
    if not name:
        return None
    data = load(name)
    x, y = jnp.asarray(data.x_test), jnp.asarray(data.y_test)

    def measure(round: int, arrays: ArrayRecord) -> MetricRecord:
        (theta,) = (a.numpy() for a in arrays.values())
        accuracy, loss = jax.jit(evaluate, static_argnums=0)(softmax_head(), jnp.asarray(theta), x, y)
        return MetricRecord({"accuracy": round_to(accuracy), "loss": round_to(loss)})

    return measure


def round_to(value: Any) -> float:
    return round(float(value), 4)


def run(grid: Grid, config: Mapping[str, Any]) -> None:
    """One job to its end. What went wrong is written where the coordinator looks, before Flower sees it."""
    folder = Path(str(config["folder"])).expanduser().absolute()
    try:
        strategy = MethodStrategy(
            order_of(config),
            folder,
            resume=bool(config["resume"]),
            attempts=int(config["attempts"]),
            patience=float(config["patience"]),
            ask_first=bool(config["ask-first"]),
        )
        strategy.start(grid, timeout=float(config["timeout"]), evaluate_fn=tester(str(config["test"])))
    except InputError as error:
        _outcome(folder, {"failed": str(error)})
        raise SystemExit(1) from error
    _outcome(folder, {"finished": strategy.order.rounds})


def _outcome(folder: Path, facts: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / OUTCOME, lambda f: f.write(json.dumps(dict(facts)).encode()))


app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    run(grid, context.run_config)
