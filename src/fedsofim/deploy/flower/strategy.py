"""A Flower Strategy that runs any method of the library under a budget, with checkpoints.

    @app.main()
    def main(grid, context):
        order = Order(method="fedsofim", epsilon=1.0, clients=3, rounds=70)
        result = MethodStrategy(order, Conduct(folder="job")).start(grid)

The nodes must run fedsofim's ClientApp. What it does beyond averaging: it introduces itself to the nodes, plans the
noise for their sizes, checks every upload, asks again where one is missing or unsound, gives up by name, and keeps a
checkpoint after every round, from which `resume=True` goes on bit-identically.
"""

import json
import time
from collections.abc import Callable, Container, Iterable
from dataclasses import replace
from logging import INFO, WARNING, getLogger
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedsofim.core.phase import Phase
from fedsofim.data.schema import read_schema
from fedsofim.deploy import certificate
from fedsofim.deploy.certificate_membership import entry_of
from fedsofim.deploy.checkpoint import CHECKPOINT, PROGRESS, restore, save
from fedsofim.deploy.clients import check_names, check_same_schema, clients_of
from fedsofim.deploy.false_sums import in_words, left_out
from fedsofim.deploy.flower.meeting import chosen, give_back, introductions, meet_again, remember
from fedsofim.deploy.flower.messages import Reply, anew_message, ask_message, opened, query_message
from fedsofim.deploy.flower.open_sums import forget, step_from, still_open
from fedsofim.deploy.flower.post import Clock, Post
from fedsofim.deploy.flower.stating import statements_of
from fedsofim.deploy.job_lock import alone
from fedsofim.deploy.job_state import JobState
from fedsofim.deploy.order import Conduct, Order, for_named
from fedsofim.deploy.presence import fewest
from fedsofim.deploy.round_notes import job_in_words, note_round, plan_in_words, spending_in, standing_of
from fedsofim.deploy.server import start_job, thrown_away, with_params
from fedsofim.deploy.unmasking import FalseSumError, OpenSum, TooFew
from fedsofim.deploy.uploads import faults, upload_bytes
from fedsofim.deploy.wire import MOST_ATTEMPTS, Arrays
from fedsofim.errors import InputError
from fedsofim.files import write_text

_LOG = getLogger("flwr")
Measure = Callable[[int, ArrayRecord], MetricRecord | None]


class RoundFailed(InputError):
    """A round could not be averaged over every client; the last checkpoint stands."""


class MethodStrategy(Strategy):
    """One job of one method."""

    def __init__(self, order: Order, conduct: Conduct, *, clock: Clock = time) -> None:
        self.order, self.conduct, self.folder = order, conduct, Path(conduct.folder)
        self.clock = clock
        self.job_state: JobState | None = None
        self.post: Post | None = None  # of Flower's own loop, where that is used
        self.nodes: dict[str, int] = {}  # Flower's number of each node, by the node's own name
        self.spent: dict[str, dict[str, Any]] = {}  # what each said last that it has spent
        self.why: dict[str, str] = {}  # why the last round had to do without somebody
        self.late_now: frozenset[int] = frozenset()  # nodes that still work on a round that is over

    # --- the loop ---

    def start(  # type: ignore[override]  # Flower's signature, but nothing except the grid is needed
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int | None = None,
        timeout: float | None = None,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Measure | None = None,
    ) -> Result:
        """Train to the end of the order, or for `num_rounds` more rounds."""
        if timeout is not None:
            self.conduct = replace(self.conduct, timeout=timeout)
        with alone(self.folder):
            return self._run(grid, initial_arrays, num_rounds, evaluate_fn)

    def _run(
        self, grid: Grid, initial_arrays: ArrayRecord | None, num_rounds: int | None, evaluate_fn: Measure | None
    ) -> Result:
        post, result = Post(grid, self.clock), Result()
        self._start_job(post, initial_arrays)
        self.summary()
        self._note("")
        result.arrays = self._arrays()
        rounds = self.now.job.rounds
        last = rounds if num_rounds is None else min(rounds, self.now.round + num_rounds)
        while self.now.phase is not Phase.ROUND or self.now.round < last:
            phase = self.now.phase
            if not self._step(still_open(self.now, self.folder) or self._ask(post), post):
                continue
            if phase is Phase.ROUND:
                result.arrays = self._arrays()
                self._report(evaluate_fn, result)
            elif phase is Phase.EVALUATION:
                self._tell(result)
        if self.now.finished:
            self._certify(post)
        return result

    def _start_job(self, post: Post, initial: ArrayRecord | None) -> None:
        path = self.folder / CHECKPOINT
        if self.conduct.resume:
            self.job_state = restore(path)
            self.order = self.job_state.order
            self.nodes = meet_again(post, self.now.clients, self.conduct, fewest(self.now), self._waiting)
            self.nodes = give_back(post, self.nodes, self.conduct, fewest(self.now))
            return
        if path.exists():
            raise InputError(f"{path}: a job is here already; resume it, or choose another folder")
        hellos = self._introduced(post)
        clients = clients_of(list(hellos.values()), self.order.clients)
        if self.conduct.schema:
            check_same_schema(clients, read_schema(self.conduct.schema))
        self.job_state = start_job(self.order, clients)
        self.nodes = {h["node"]: number for number, h in hellos.items()}
        if initial is not None:
            self.job_state = with_params(self.now, _tree(initial, self.now.params))
        if self.conduct.ask_first:
            self._consider(post)
        save(self.now, path)

    def _introduced(self, post: Post) -> dict[int, Any]:
        """The hellos of the job's clients. Where rounds may do without some, so may the job, if these refuse."""
        self.order = for_named(self.order, self.conduct)
        wanted, least = self.order.clients, self.order.min_clients or self.order.clients
        hellos = introductions(post, wanted, self.conduct, self._waiting, least=least)
        check_names([hello["node"] for hello in hellos.values()])
        numbers = {hello["node"]: number for number, hello in hellos.items()}
        kept = give_back(post, numbers, self.conduct, least)
        hellos = chosen({number: hello for number, hello in hellos.items() if hello["node"] in kept}, wanted)
        if len(hellos) < wanted:
            _LOG.log(WARNING, "fedsofim: the job begins with %d clients in place of %d", len(hellos), wanted)
            self.order = replace(self.order, clients=len(hellos))
        return hellos

    def _consider(self, post: Post) -> None:
        """Would every node allow the whole job? Better known now than when the others have spent half their budget."""
        asked = [query_message("consider", number, self.now.job) for number in self.nodes.values()]
        replies = post.exchange(asked, self.conduct.timeout)
        against = {name: why for name, number in self.nodes.items() if (why := _against(replies[number]))}
        if against:
            reasons = "; ".join(f"{name}: {why}" for name, why in sorted(against.items()))
            raise InputError(f"the job was not begun, nothing was spent ({reasons})")

    def _ask(self, post: Post) -> dict[str, Arrays]:
        """One sound upload of every client, asking again up to `attempts` times; or RoundFailed, by name."""
        sound: dict[str, Arrays] = {}
        trouble: dict[str, str] = {}
        out = dict.fromkeys(left_out(self.now), "it is left out, because a sum over it and others was false")
        self._check_retry(post, out)
        for attempt in range(self.conduct.attempts):
            if attempt:
                self.nodes = meet_again(post, self.now.clients, self.conduct, fewest(self.now))
            request, here = self.now.request(), self._here(post) - set(out)
            missing = {self.nodes[c.name]: c.name for c in self.now.clients if c.name not in sound and c.name in here}
            enough = fewest(self.now) - len(sound) if fewest(self.now) < len(self.now.clients) else None
            unused = {number: len(self.now.late.get(name, ())) for number, name in missing.items()}
            messages = [ask_message(request, number, unused[number]) for number in missing]
            replies = post.exchange(messages, self.conduct.timeout, enough, room=upload_bytes(self.now))
            sound, trouble = self._sorted(sound, {missing[n]: reply for n, reply in replies.items()})
            trouble |= {c.name: self._away(c.name) for c in self.now.clients if c.name not in here | set(sound)} | out
            if len(sound) >= fewest(self.now):
                self.why = trouble
                for name, why in sorted(trouble.items()):
                    _LOG.log(WARNING, "fedsofim: round %d goes on without %s: %s", self.now.round + 1, name, why)
                return sound
            for name, why in trouble.items():
                _LOG.log(WARNING, "fedsofim: %s rejected: %s", name, why)
            if any(why.startswith("refused") for why in trouble.values()):
                break  # a policy does not change its mind
        raise self._failure(trouble)

    def _away(self, name: str) -> str:
        late = self.nodes.get(name) in self.late_now
        return "it still works on an earlier round, and is not asked" if late else "it is not connected"

    def _check_retry(self, post: Post, out: Container[str]) -> None:
        """A sum that came out false costs as much again. Is there a retry left, and would every node allow it?"""
        if not self.now.attempt:
            return
        said = in_words(self.now)
        if len(self.now.false_sums) > min(self.conduct.retries, MOST_ATTEMPTS):
            raise self._failure({"its sum": f"{said}. All {self.conduct.retries} retries of the job were used; resume "
                                            "with more --retries, or start a new job without the liar"})  # fmt: skip
        request = self.now.request()
        asked = {name: number for name, number in self.nodes.items() if name not in out}
        replies = post.exchange([anew_message(request, number) for number in asked.values()], self.conduct.timeout)
        against = {name: why for name, number in asked.items() if (why := _against(replies[number]))}
        refused = {name: why for name, why in against.items() if why.startswith("refused")}
        if len(asked) - len(refused) < fewest(self.now):
            raise self._failure(refused | {"its sum": f"{said}. It is not asked anew, and nothing more was spent"})
        _LOG.log(WARNING, "fedsofim: round %d is asked anew, which is charged again: %s", self.now.round + 1, said)

    def _here(self, post: Post) -> set[str]:
        """Which clients can be asked. Where all are needed, all are asked: one that is away may be back in time."""
        if fewest(self.now) == len(self.now.clients):
            return {c.name for c in self.now.clients}
        connected = set(post.grid.get_node_ids())
        missing = any(c.name not in self.nodes or self.nodes[c.name] not in connected for c in self.now.clients)
        if missing and connected - set(self.nodes.values()):  # somebody is back under another number
            self.nodes |= meet_again(post, self.now.clients, self.conduct, fewest(self.now))
        self._note_late(post)
        here = {name for name, number in self.nodes.items() if number in connected}
        free = {name for name in here if self.nodes[name] not in self.late_now}
        return free if len(free - set(left_out(self.now))) >= fewest(self.now) else here

    def _note_late(self, post: Post) -> None:
        """Who still works on a round that is over, and whose answers to such rounds have come."""
        self.late_now, came = post.late()
        names = {number: name for name, number in self.nodes.items()}
        for number, round in came:
            if (name := names.get(number)) is not None and round not in self.now.late.get(name, ()):
                rounds = (*self.now.late.get(name, ()), round)
                self.job_state = replace(self.now, late={**self.now.late, name: rounds})
                text = "fedsofim: the answer of %s to round %d came too late: it was charged, and is not used"
                _LOG.log(WARNING, text, name, round + 1)

    def _sorted(self, sound: dict[str, Arrays], replies: dict[str, Reply]) -> tuple[dict[str, Arrays], dict[str, str]]:
        """Replies parted into sound uploads and, by node, what is wrong with the rest."""
        trouble, uploads = {}, dict(sound)
        for name, reply in replies.items():
            if reply.error:
                trouble[name] = f"no upload: {reply.error}"
            elif reply.facts.get("node") != name:
                trouble[name] = f"its reply calls itself {reply.facts.get('node')}"
            elif why := _against(reply):
                trouble[name] = why
            else:
                uploads[name] = reply.arrays
                self.spent[name] = {**self.spent.get(name, {}), **spending_in(reply.facts)}
        wrong = faults(self.now, uploads)
        return {k: v for k, v in uploads.items() if k not in wrong}, trouble | wrong

    def _failure(self, trouble: dict[str, str]) -> RoundFailed:
        names = "; ".join(f"{name}: {why}" for name, why in sorted(trouble.items()))
        names = names or "too few clients answered"
        return RoundFailed(f"round {self.now.round + 1} failed, nothing was averaged, the checkpoint stands ({names})")

    def _step(self, came: dict[str, Arrays] | OpenSum, post: Post) -> bool:
        """One step; False if a sum came out false, which is thrown away and asked for anew."""
        before = self.now
        try:
            self.job_state = step_from(self.now, came, post, self.nodes, replace(self.conduct, folder=str(self.folder)))
        except TooFew as error:
            raise self._failure({"its sum": str(error)}) from error
        except FalseSumError as error:
            _LOG.log(WARNING, "fedsofim: round %d: %s", before.round + 1, error)
            self.job_state = thrown_away(before, error)
            save(self.job_state, self.folder / CHECKPOINT)
            forget(self.folder)
            return False
        save(self.job_state, self.folder / CHECKPOINT)
        if before.attempt:
            out = left_out(before)
            text = (
                f"without {out[0]}, which probably answered falsely and is left out from here on"
                if out
                else "with the same clients: who answered falsely before is not known"
            )
            _LOG.log(WARNING, "fedsofim: round %d: its sum is right %s", before.round + 1, text)
        return True

    def _certify(self, post: Post) -> None:
        self._note_late(post)
        statements = statements_of(post, self.now.clients, self.nodes, self.conduct, self._note, self.now.late)
        remember(self.conduct, statements)
        statements = {name: said for name, said in statements.items() if entry_of(said, self.now.job.id) is not None}
        silent = {c.name for c in self.now.clients} - set(statements)
        document = certificate.document_of(self.now.job.id, statements, self.now.absent, silent)
        certificate.write(document, self.folder)

    # --- Flower's own interface ---

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The round's messages, one for each client; the state they depend on is the strategy's own."""
        self.post = Post(grid, self.clock)
        if self.job_state is None:
            self._start_job(self.post, arrays or None)
        return [ask_message(self.now.request(), number) for number in self.nodes.values()]

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
        assert self.post is not None  # configure_train came before
        if not self._step(sound, self.post):
            raise self._failure({"its sum": in_words(self.now)})
        return self._arrays(), None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nothing: a figure computed on private records would be one more release."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        return None

    def summary(self) -> None:
        if self.job_state is None:  # Flower's own loop asks before the nodes were met
            what = self.order.method or f"the recipe {self.order.recipe}"
            _LOG.log(INFO, "fedsofim: %s for %d clients", what, self.order.clients)
            return
        for line in plan_in_words(self.now):
            _LOG.log(INFO, "fedsofim: %s", line)

    # --- small things ---

    @property
    def now(self) -> JobState:
        """The job as it stands."""
        if self.job_state is None:
            raise RuntimeError("the strategy was not started")
        return self.job_state

    def _arrays(self) -> ArrayRecord:
        leaves = jax.tree.leaves(self.now.params)
        return ArrayRecord({f"params{i}": Array(np.asarray(leaf)) for i, leaf in enumerate(leaves)})

    def _report(self, measure: Measure | None, result: Result) -> None:
        done, text = self.now.round, ""
        if measure is not None and (metrics := measure(done, self._arrays())) is not None:
            result.evaluate_metrics_serverapp[done] = metrics
            text = ", ".join(f"{k} {v}" for k, v in metrics.items())
        note_round(self.folder, self.now, self.why, result.evaluate_metrics_serverapp.get(done, {}))
        _LOG.log(INFO, "fedsofim: round %d/%d done %s", done, self.now.job.rounds, text)
        self._note(text)

    def _tell(self, result: Result) -> None:
        """What the nodes counted."""
        found = self.now.measured[-1]
        result.evaluate_metrics_clientapp[found.after] = MetricRecord(
            {"accuracy": found.accuracy, "standard_error": found.error, "records": found.records}
        )
        _LOG.log(INFO, "fedsofim: after round %d: %s", found.after, found)
        self._note(str(found))

    def _waiting(self, text: str) -> None:
        """What the job waits for, for whoever follows it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(self.folder / PROGRESS, json.dumps({"waiting": text}))

    def _note(self, text: str) -> None:
        """How far the job is and what it does, for whoever follows it."""
        job = self.now.job
        facts = {"round": self.now.round, "rounds": job.rounds, "text": text, "job": job_in_words(job), "why": self.why}
        write_text(self.folder / PROGRESS, json.dumps(facts | standing_of(self.now, self.spent)))


def _against(reply: Reply) -> str:
    """Why a node does not do what it was asked; empty if it does."""
    return reply.error or (f"refused: {reply.facts['refused']}" if "refused" in reply.facts else "")


def _tree(arrays: ArrayRecord, like: Any) -> Any:
    leaves, structure = jax.tree.flatten(like)
    return jax.tree.unflatten(structure, [arrays[f"params{i}"].numpy() for i in range(len(leaves))])
