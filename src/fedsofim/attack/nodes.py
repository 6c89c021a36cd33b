"""A deployed node attacked through its real message path: terms and arrays as bytes in, an answer as bytes out.

For every trial a temporary node is asked as a coordinator would ask it: its policy is read, the request is checked,
priced and charged to a ledger on disk, and the noise comes from the operating system, on the lattice. The attacker is
the coordinator, or, for secure sums, someone who sees every masked upload and adds them up.
"""

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsofim.attack.scoring import Seen
from fedsofim.attack.setting import CLASSES, Setting, honest
from fedsofim.attack.two_sums import Forgetful, as_seen, forgetful, helped_by
from fedsofim.attack.verdicts import Verdict, check_effort, judged
from fedsofim.attack.worlds import Worlds, loudest
from fedsofim.core.phase import Phase
from fedsofim.deploy.clients import clients_of
from fedsofim.deploy.job_state import JobState
from fedsofim.deploy.node import answer, hello
from fedsofim.deploy.order import Order
from fedsofim.deploy.packing import from_bytes, to_bytes
from fedsofim.deploy.policy import Policy, read_policy
from fedsofim.deploy.secure_sum import new_key
from fedsofim.deploy.server import start_job
from fedsofim.deploy.unmasking import open_sum_of, unmasked
from fedsofim.deploy.uploads import mean, mean_of_sum
from fedsofim.deploy.wire import Arrays, Job, Request
from fedsofim.errors import InputError
from fedsofim.progress import SILENT, Progress

ASKS = 400  # pairs of jobs, unless told otherwise: a node answers tens of requests a second
_IN_MEMORY = Path("/dev/shm")  # where there is one: a ledger waits for the disk at every charge
_JOBS_A_LEDGER = 25  # then a node of its own: an account's work grows with its length


@dataclass(frozen=True, kw_only=True)
class Target:
    """What is asked of the nodes: an order, and how many of them sum securely (1: one node, unmasked)."""

    order: Order
    setting: Setting  # the same, as the simulator would run it: for the canary and the claim
    nodes: int = 1
    forgetful: bool = False  # broken on purpose: nodes that reveal for every set they are told (two_sums.py)

    @property
    def can_lose(self) -> bool:
        return self.order.min_clients is not None


def target_of(
    setting: Setting,
    settings: tuple[tuple[str, str], ...] = (),
    nodes: int = 1,
    min_clients: int | None = None,
    forgetful: bool = False,
) -> Target:
    """The order of a setting. Nodes have the head as their model, and methods by name.

    Where `min_clients` are enough, the coordinator says that a node is lost, or asks for two sums of one request.
    """
    order = Order(
        recipe="paper",
        method=setting.method.name,
        settings=settings,
        epsilon=setting.budget.epsilon,
        delta=setting.budget.delta,
        rounds=setting.rounds,
        clip=setting.clip,
        clients=nodes,
        trust="local" if nodes == 1 else "secure-sum",
        min_clients=min_clients,
    )
    return Target(order=order, setting=setting, nodes=nodes, forgetful=forgetful)


def attack_nodes(
    target: Target, *, pairs: int = ASKS, confidence: float = 0.99, progress: Progress = SILENT, what: str = ""
) -> Verdict:
    """The verdict on deployed nodes. Their noise is the operating system's, so no two attacks are alike."""
    check_effort(pairs, confidence)
    began = time.perf_counter()
    engine = honest(replace(target.setting, phases=(Phase.ROUND,)))
    if len(engine.plan.programs) > 1:
        raise InputError("a deployed node is attacked in its rounds; choose a method without a setup")
    worlds = loudest(engine)
    with tempfile.TemporaryDirectory(dir=_IN_MEMORY if _IN_MEMORY.is_dir() else None) as folder:
        seen = _observe(target, worlds, pairs, Path(folder), progress)
    name = what or f"{target.order.method} (deployed)"
    return judged(name, engine.claim, seen, confidence, lambda: time.perf_counter() - began)


def _observe(target: Target, worlds: Worlds, pairs: int, folder: Path, progress: Progress) -> Seen:
    """z and m of every pair of jobs, as trials.py has them."""
    apart, middle = _silent(target, worlds, folder)
    alone = _alone(target, worlds, folder) if target.can_lose else {}
    length = np.linalg.norm(apart)
    both: dict[bool, list[np.ndarray]] = {True: [], False: []}
    for first in range(0, pairs, _JOBS_A_LEDGER):
        for plus in both:
            policies = _policies(target, worlds, plus, folder / f"{first}{plus}", private=True)
            now = _started(target, policies)
            for job in range(first, min(first + _JOBS_A_LEDGER, pairs)):
                trial = replace(now, job=replace(now.job, id=f"trial{job}"))
                rows = _opened(policies, trial, alone) if target.can_lose else _job(policies, trial)
                both[plus].append((rows - middle) @ (apart / length))
        progress.at(min(first + _JOBS_A_LEDGER, pairs))
    z = {plus: np.stack(rows) for plus, rows in both.items()}
    distances = np.full_like(z[True], length)
    return Seen(z[True], z[False], distances, distances)


def _silent(target: Target, worlds: Worlds, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """How far apart the two worlds' answers are and what lies between them: from nodes that add no noise.

    Under secure sum these are the plain nodes' mean: a mask needs noise to be drawn, the sum does not.
    """
    plain = _without_noise(target)
    answers = {}
    for plus in (True, False):
        policies = _policies(plain, worlds, plus, folder / f"silent{plus}", private=False)
        answers[plus] = _job(policies, _started(plain, policies))[0]
    return answers[True] - answers[False], (answers[True] + answers[False]) / 2


def _alone(target: Target, worlds: Worlds, folder: Path) -> dict[str, np.ndarray]:
    """What each node but the first adds to the mean without noise: the same in both worlds, known to the attacker."""
    plain = _without_noise(target)
    policies = _policies(plain, worlds, True, folder / "alone", private=False)
    request = _started(plain, policies).request()
    return {p.name: _asked(p, request)["upload0"].astype(np.float64).ravel() / target.nodes for p in policies[1:]}


def _without_noise(target: Target) -> Target:
    return replace(target, order=replace(target.order, epsilon="no-privacy", trust="local", rounds=1, min_clients=None))


# --- nodes and their jobs -----------------------------------------------------------------------------------


def _policies(target: Target, worlds: Worlds, plus: bool, folder: Path, private: bool) -> list[Policy]:
    """Temporary nodes; the first one holds the canary, the others what both worlds share."""
    names = [f"node{i}" for i in range(target.nodes)]
    summing = target.order.trust == "secure-sum"
    keys = {}
    for name in names:
        (folder / name).mkdir(parents=True)
        x, y = worlds.records(plus) if name == names[0] else (worlds.x, worlds.y)
        np.savez(folder / name / "records.npz", x=x, y=y)
        if summing:
            keys[name] = new_key(folder / name / "mask.key")
    for name in names:
        peers = {other: key for other, key in keys.items() if other != name}
        (folder / name / "policy.toml").write_text(_policy_text(target, name, peers, private), encoding="utf-8")
    policies = [read_policy(folder / name / "policy.toml") for name in names]
    for policy in policies:
        policy.account.create()
    return [forgetful(policy) for policy in policies] if target.forgetful else policies


def _policy_text(target: Target, name: str, peers: dict[str, str], private: bool) -> str:
    """A policy with room for every trial: what is measured is one job, what is charged are many."""
    epsilon, smallest = ("1e9", "1e-9") if private else ('"no-privacy"', "0")
    mask = 'mask_key = "mask.key"\n' if peers else ""
    trusted = f"secure_sum_min_clients = {target.nodes}\n\n[peers]\n" if peers else ""
    return (
        f'[node]\nname = "{name}"\ndata = "records.npz"\nclasses = {CLASSES}\nledger = "ledger.db"\n'
        f'witness = "witness.json"\n{mask}\n'
        f"[budget]\nepsilon = {epsilon}\ndelta = {target.order.delta}\n\n"
        f"[limits]\nsmallest_multiplier = {smallest}\nlargest_clip = {target.order.clip}\n"
        f'methods = ["{target.order.method}"]\n{trusted}'
        + "".join(f'{other} = "{key}"\n' for other, key in peers.items())
    )


def _started(target: Target, policies: Sequence[Policy]) -> JobState:
    """The job as a coordinator starts it, but with parameters where the canary is loud: a server may send anything."""
    now = start_job(target.order, clients_of([hello(p) for p in policies], target.nodes))
    return replace(now, params=jax.tree.map(jnp.zeros_like, now.params))


def _job(policies: Sequence[Policy], now: JobState) -> np.ndarray:
    """What leaves in all rounds of a job, a row each; the parameters are held."""
    rows = []
    for t in range(now.job.rounds):
        at = replace(now, round=t)
        uploads = [_asked(policy, at.request()) for policy in policies]
        released: Any = mean(at, uploads)
        rows.append(np.concatenate([np.asarray(a, np.float64).ravel() for a in jax.tree.leaves(released)]))
    return np.stack(rows)


def _opened(policies: Sequence[Policy], now: JobState, alone: Mapping[str, np.ndarray]) -> np.ndarray:
    """The same for sums that can do without some nodes: the least noise in which the coordinator gets the first one.

    Either as few as are enough are said to be there, or two sums are asked for (two_sums.py). What others would add is
    added, to have every row in the same units.
    """
    rows = []
    for t in range(now.job.rounds):
        at = replace(now, round=t)
        uploads = {policy.name: _asked(policy, at.request()) for policy in policies}
        if isinstance(policies[0], Forgetful):
            total, there = as_seen(policies, at, uploads)
        else:
            there = list(uploads)[: now.job.min_clients]
            few = open_sum_of(at, {name: uploads[name] for name in there})
            assert few is not None
            total = unmasked(few, helped_by(policies))
        row = np.asarray(mean_of_sum(at, total, list(uploads)), np.float64).ravel()
        rows.append(row + sum(value for name, value in alone.items() if name not in there))
    return np.stack(rows)


def _asked(policy: Policy, request: Request) -> Arrays:
    """One question and its answer, through the bytes that travel."""
    sent = (request.job.text(), str(request.phase), request.round, to_bytes(request.arrays))
    received = Request(Job.read(sent[0]), Phase(sent[1]), sent[2], from_bytes(sent[3]))
    return from_bytes(to_bytes(answer(policy, received)))
