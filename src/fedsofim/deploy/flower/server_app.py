"""The ServerApp: a job from Flower's run-config (order.py). `fedsofim serve` starts it."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from fedsofim.core.models import evaluate
from fedsofim.deploy.checkpoint import OUTCOME
from fedsofim.deploy.flower.post import Clock
from fedsofim.deploy.flower.strategy import MethodStrategy
from fedsofim.deploy.job_lock import JobBusyError
from fedsofim.deploy.job_state import JobState
from fedsofim.deploy.order import from_config
from fedsofim.deploy.testing import read_test
from fedsofim.errors import InputError
from fedsofim.files import write_text


def tester(
    name: str, now_of: Callable[[], JobState], schema: str = ""
) -> Callable[[int, ArrayRecord], MetricRecord | None] | None:
    """Accuracy on a public test set that the coordinator has, of records as the nodes hold them; no node is asked.

    `now_of` gives the job as it is: its model, and its preparation, which is known in the first round.
    """
    if not name:
        return None
    x, y = read_test(name, schema)

    @cache
    def records() -> tuple[jax.Array, jax.Array]:
        return jnp.asarray(now_of().map(x)), jnp.asarray(y)

    def measure(round: int, arrays: ArrayRecord) -> MetricRecord:
        now = now_of()
        leaves = [jnp.asarray(arrays[f"params{i}"].numpy()) for i in range(len(arrays))]
        params = jax.tree.unflatten(jax.tree.structure(now.params), leaves)
        accuracy, loss = jax.jit(evaluate, static_argnums=0)(now.plan.model, params, *records())
        return MetricRecord({"accuracy": round_to(accuracy), "loss": round_to(loss)})

    return measure


def round_to(value: Any) -> float:
    return round(float(value), 4)


def run(grid: Grid, config: Mapping[str, Any], clock: Clock = time) -> None:
    """One job to its end. What went wrong is written where the coordinator looks, before Flower sees it."""
    folder = Path(str(config["folder"])).expanduser().absolute()
    try:
        order, conduct = from_config(config)
        strategy = MethodStrategy(order, replace(conduct, folder=str(folder)), clock=clock)
        strategy.start(grid, evaluate_fn=tester(conduct.test, lambda: strategy.now, conduct.schema))
    except JobBusyError as error:  # whose folder it is: how that job ends is for the other server to say
        raise SystemExit(str(error)) from error
    except InputError as error:
        _outcome(folder, {"failed": str(error)})
        raise SystemExit(1) from error
    except OSError as error:
        what = f"{error.filename or folder}: the job could not be kept ({error.strerror or error})"
        _outcome(folder, {"failed": what})
        raise SystemExit(1) from error
    except Exception as error:
        _outcome(folder, {"failed": f"an error in the server's process ({type(error).__name__}: {str(error)[:200]})"})
        raise
    counted = [f"after round {m.after}: {m}" for m in strategy.now.measured]
    _outcome(folder, {"finished": strategy.now.job.rounds} | ({"measured": counted} if counted else {}))


def _outcome(folder: Path, facts: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / OUTCOME, json.dumps(dict(facts)))


app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    run(grid, context.run_config)
