"""A Flower Strategy that runs any method of the library under a budget, with checkpoints.

    @app.main()
    def main(grid, context):
        strategy = MethodStrategy(Order("fedsofim", epsilon=1.0, clients=3, rounds=70), folder=Path("job"))
        result = strategy.start(grid)

The nodes must run fedsofim's ClientApp. What it does beyond averaging: it introduces itself to the nodes, plans the
noise for their sizes, checks every upload, asks again where one is missing or unsound, gives up by name, and keeps a
checkpoint after every round, from which `resume=True` goes on bit-identically.
"""

import json
import time
from collections.abc import Callable, Iterable
from logging import INFO, WARNING, getLogger
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedsofim.deploy import certificate, server
from fedsofim.deploy.checkpoint import CHECKPOINT, PROGRESS, restore, save
from fedsofim.deploy.flower.messages import Reply, ask_message, exchange, opened, query_message
from fedsofim.deploy.server import Order, Progress
from fedsofim.deploy.wire import Arrays
from fedsofim.errors import InputError
from fedsofim.files import write_whole

_LOG = getLogger("flwr")


class RoundFailed(InputError):
    """A round could not be averaged over every client; the last checkpoint stands."""


class MethodStrategy(Strategy):
    """One job of one method. `folder` keeps checkpoint and certificate; `attempts` to get each round whole;
    `ask_first` whether every node would allow the whole job."""

    def __init__(
        self,
        order: Order,
        folder: Path,
        *,
        resume: bool = False,
        attempts: int = 3,
        patience: float = 120.0,
        ask_first: bool = True,
    ) -> None:
        self.order, self.folder, self.resume = order, Path(folder), resume
        self.attempts, self.patience, self.ask_first = attempts, patience, ask_first
        self.timeout = 600.0
        self.progress: Progress | None = None
        self.nodes: dict[str, int] = {}  # Flower's number of each node, by the node's own name

    # --- the loop ---

    def start(  # type: ignore[override]  # Flower's signature, but nothing except the grid is needed
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int | None = None,
        timeout: float = 600.0,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Train to the end of the order, or for `num_rounds` more rounds."""
        self.timeout = timeout
        self._begin(grid, initial_arrays)
        self.summary()
        result = Result()
        result.arrays = self._arrays()
        last = self.order.rounds if num_rounds is None else min(self.order.rounds, self._now.round + num_rounds)
        while self._now.phase != "round" or self._now.round < last:
            before = self._now
            replies = self._ask(grid)
            self._advance(replies)
            if before.phase == "round":
                result.arrays = self._arrays()
                self._report(evaluate_fn, result)
        if self._now.finished:
            self._certify(grid)
        return result

    def _begin(self, grid: Grid, initial: ArrayRecord | None) -> None:
        path = self.folder / CHECKPOINT
        if self.resume:
            self.progress = restore(path)
            self.order = self.progress.order
            self._meet(grid)
            return
        if path.exists():
            raise InputError(f"{path}: a job is here already; resume it, or choose another folder")
        hellos = self._introductions(grid, self.order.clients)
        clients = server.clients_of(list(hellos.values()), self.order)
        self.nodes = {h["node"]: number for number, h in hellos.items()}
        progress = server.begin(self.order, clients)
        self.progress = progress if initial is None else server.with_params(progress, _tree(initial, progress.params))
        if self.ask_first:
            self._consider(grid)
        save(self.progress, path)

    def _consider(self, grid: Grid) -> None:
        """Would every node allow the whole job? Better known now than when the others have spent half their budget."""
        names = {number: name for name, number in self.nodes.items()}
        asked = [query_message("consider", number, self._now.job) for number in names]
        replies = {names[n]: reply for n, reply in exchange(grid, asked, self.timeout).items()}
        against = {
            k: r.error or f"refused: {r.facts['refused']}"
            for k, r in replies.items()
            if r.error or "refused" in r.facts
        }
        if against:
            reasons = "; ".join(f"{name}: {why}" for name, why in sorted(against.items()))
            raise InputError(f"the job was not begun, nothing was spent ({reasons})")

    def _advance(self, uploads: dict[str, Arrays]) -> None:
        self.progress = server.advance(self._now, uploads)
        save(self.progress, self.folder / CHECKPOINT)

    def _ask(self, grid: Grid) -> dict[str, Arrays]:
        """One sound upload of every client, asking again up to `attempts` times; or RoundFailed, by name."""
        sound: dict[str, Arrays] = {}
        trouble: dict[str, str] = {}
        for attempt in range(self.attempts):
            if attempt:
                self._meet(grid)
            missing = [c.name for c in self._now.clients if c.name not in sound]
            request = self._now.request()
            nodes = {self.nodes[name]: name for name in missing}
            replies = exchange(grid, [ask_message(request, number) for number in nodes], self.timeout)
            sound, trouble = self._sorted(sound, {nodes[n]: reply for n, reply in replies.items()})
            if not trouble:
                return sound
            for name, why in trouble.items():
                _LOG.log(WARNING, "fedsofim: %s rejected: %s", name, why)
            if any(why.startswith("refused") for why in trouble.values()):
                break  # a policy does not change its mind
        raise self._failure(trouble)

    def _failure(self, trouble: dict[str, str]) -> RoundFailed:
        names = "; ".join(f"{name}: {why}" for name, why in sorted(trouble.items()))
        return RoundFailed(f"round {self._now.round + 1} failed, nothing was averaged, the checkpoint stands ({names})")

    def _sorted(self, sound: dict[str, Arrays], replies: dict[str, Reply]) -> tuple[dict[str, Arrays], dict[str, str]]:
        """Replies parted into sound uploads and, by node, what is wrong with the rest."""
        trouble, uploads = {}, dict(sound)
        for name, reply in replies.items():
            if reply.error:
                trouble[name] = f"no upload: {reply.error}"
            elif reply.facts.get("node") != name:
                trouble[name] = f"its reply calls itself {reply.facts.get('node')}"
            elif "refused" in reply.facts:
                trouble[name] = f"refused: {reply.facts['refused']}"
            else:
                uploads[name] = reply.arrays
        wrong = server.faults(self._now, uploads)
        return {k: v for k, v in uploads.items() if k not in wrong}, trouble | wrong

    # --- nodes ---

    def _introductions(self, grid: Grid, wanted: int) -> dict[int, dict[str, Any]]:
        """Every connected node's hello, once as many as wanted have said it, or when patience ends."""
        known: dict[int, dict[str, Any]] = {}
        end = time.monotonic() + self.patience
        while True:
            fresh = [n for n in grid.get_node_ids() if n not in known]
            asked = [query_message("hello", n) for n in fresh]
            for number, reply in exchange(grid, asked, min(self.timeout, self.patience)).items():
                if "refused" in reply.facts:
                    raise InputError(f"{reply.facts.get('node')} does not take part: {reply.facts['refused']}")
                if not reply.error and isinstance(reply.facts.get("node"), str):
                    known[number] = reply.facts
            if len(known) >= wanted:
                break
            if time.monotonic() > end:
                names = sorted(h["node"] for h in known.values())
                raise InputError(
                    f"{len(known)} nodes answered in {self.patience:g} s ({names}); the job is for {wanted}"
                )
            time.sleep(1)
        return known

    def _meet(self, grid: Grid) -> None:
        """Find the job's clients again, after a restart of theirs or ours; they must be who they were."""
        hellos = self._introductions(grid, len(self._now.clients))
        found: dict[str, tuple[int, dict[str, Any]]] = {}
        for number, h in hellos.items():
            if h["node"] in found:
                raise InputError(f"two nodes call themselves {h['node']}; give each a name of its own in its policy")
            found[h["node"]] = (number, h)
        for client in self._now.clients:
            if client.name not in found:
                raise InputError(f"the job's client {client.name} is not connected; start its node and resume")
            _, h = found[client.name]
            if client != server.client_of(h):
                raise InputError(f"{client.name} has other records than when the job began; start a new job")
        self.nodes = {c.name: found[c.name][0] for c in self._now.clients}

    def _certify(self, grid: Grid) -> None:
        names = {number: name for name, number in self.nodes.items()}
        replies = exchange(grid, [query_message("account", n) for n in names], self.timeout)
        statements = {names[n]: reply.facts for n, reply in replies.items() if certificate.sound(reply.facts)}
        for name in set(names.values()) - set(statements):
            _LOG.log(WARNING, "fedsofim: %s did not state its account; the certificate is without it", name)
        certificate.write(certificate.certificate(self._now.job.id, statements), self.folder)

    # --- Flower's own interface ---

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The round's messages, one for each client; the state they depend on is the strategy's own."""
        if self.progress is None:
            self._begin(grid, arrays or None)
        return [ask_message(self._now.request(), number) for number in self.nodes.values()]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """One step from one round of replies, without asking again (`start` does); all clients or RoundFailed."""
        names = {number: name for name, number in self.nodes.items()}
        absent = {name: Reply({}, {}, "no answer came") for name in self.nodes}
        came = {names[m.metadata.src_node_id]: opened(m) for m in replies if m.metadata.src_node_id in names}
        sound, trouble = self._sorted({}, absent | came)
        if trouble:
            raise self._failure(trouble)
        self._advance(sound)
        return self._arrays(), None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nothing: a figure computed on private records would be one more release."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        return None

    def summary(self) -> None:
        if self.progress is None:  # Flower's own loop asks before the nodes were met
            _LOG.log(INFO, "fedsofim: %s for %d clients", self.order.method, self.order.clients)
            return
        p = self._now.plan
        _LOG.log(
            INFO,
            "fedsofim: job %s: %s, %d clients, %d rounds, epsilon %.6g at delta %g for each",
            self._now.job.id, p.method.name, len(p.sizes), p.rounds, p.epsilon, self.order.delta,
        )  # fmt: skip

    # --- small things ---

    @property
    def _now(self) -> Progress:
        if self.progress is None:
            raise RuntimeError("the strategy was not started")
        return self.progress

    def _arrays(self) -> ArrayRecord:
        leaves = jax.tree.leaves(self._now.params)
        return ArrayRecord({f"params{i}": Array(np.asarray(leaf)) for i, leaf in enumerate(leaves)})

    def _report(self, evaluate: Callable[[int, ArrayRecord], MetricRecord | None] | None, result: Result) -> None:
        done, text = self._now.round, ""
        if evaluate is not None and (metrics := evaluate(done, self._arrays())) is not None:
            result.evaluate_metrics_serverapp[done] = metrics
            text = ", ".join(f"{k} {v}" for k, v in metrics.items())
        _LOG.log(INFO, "fedsofim: round %d/%d done %s", done, self.order.rounds, text)
        facts = {"round": done, "rounds": self.order.rounds, "text": text}
        write_whole(self.folder / PROGRESS, lambda f: f.write(json.dumps(facts).encode()))


def _tree(arrays: ArrayRecord, like: Any) -> Any:
    leaves, structure = jax.tree.flatten(like)
    return jax.tree.unflatten(structure, [arrays[f"params{i}"].numpy() for i in range(len(leaves))])
