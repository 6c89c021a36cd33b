"""`fedsofim tune --private`: a search whose whole cost is in the epsilon of the model that comes out.

A trial draws settings from the list that is asked for, trains on the records that are kept, and counts right answers
on those held out, with noise. Which records are held out is decided by their places. So a record is in one of the two
parts, and a trial costs it the mu of that part alone; both have the same. The model of the best trial is the result: it
is released with its settings and its noisy score, and nothing is trained again. What the best of the trials costs, and
why: core/selection.py. The losing trials, and where it was drawn their number, are told nobody and written nowhere; so
a stopped search cannot go on. Noise and number are of this machine's entropy, unless a seed is given: then the search
can be done again and is the same one, and whoever knows the seed knows both.
"""

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedsofim import models
from fedsofim.core.budget import Budget
from fedsofim.core.evaluation import Measured
from fedsofim.core.gaussian import epsilon_of
from fedsofim.core.keys import key_of
from fedsofim.core.plan import Plan
from fedsofim.core.selection import EveryTrial, Way, cheapest
from fedsofim.core.summary import privacy_summary
from fedsofim.data.partition import Split
from fedsofim.errors import InputError
from fedsofim.experiments.grid import Entry, Experiment
from fedsofim.experiments.reading import read_dataset
from fedsofim.experiments.tuning import Search, Settings, fixed_in, set_apart, stages
from fedsofim.experiments.whom import EVERY_RECORD
from fedsofim.files import write_text
from fedsofim.formats import EXPERIMENT
from fedsofim.methods import make
from fedsofim.progress import SILENT, Progress
from fedsofim.recipes import settings_in
from fedsofim.simulation import sweep
from fedsofim.simulation.preparing import prepare
from fedsofim.simulation.private_count import count
from fedsofim.simulation.run import Run
from fedsofim.simulation.simulator import a_seed_nobody_knows, all_finite
from fedsofim.simulation.training import Given, choices_for, planned
from fedsofim.trained.folder import save_model
from fedsofim.trained.model import Trained

SEARCH = "search.json"


@dataclass(frozen=True, kw_only=True)
class Job:
    """A private search before it begins: all of it is public."""

    experiment: Experiment
    budget: Budget
    listed: tuple[tuple[Entry, Settings], ...]  # what a trial may draw
    way: Way
    mu: float  # of one trial
    rounds: int | None
    seed: int | None  # None: of this machine's entropy

    @property
    def epsilon(self) -> float:
        """Of what is released."""
        return self.way.epsilon(self.mu, self.budget.delta)

    @property
    def trial(self) -> Budget:
        """The budget of one trial's training: its mu as an epsilon."""
        return Budget(epsilon_of(self.mu, self.budget.delta), self.budget.delta)


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One trial, as long as nobody else sees it."""

    entry: Entry
    settings: Settings
    score: Measured
    run: Run


@dataclass(frozen=True, kw_only=True)
class Found:
    """What is released."""

    entry: Entry
    settings: Settings
    score: Measured
    model: Trained
    ledger: dict[str, Any]

    def summary(self) -> dict[str, Any]:
        """As plain data: what `--json` prints."""
        result = self.model.facts["result"]
        metric = {k: v for k, v in result.items() if k.startswith("final_")}
        return {
            "method": self.entry.method,
            "label": self.entry.label,
            "settings": self.settings,
            "score": str(self.score),
            **metric,
            **self.ledger,
        }


def planned_search(experiment: Experiment, search: Search, grids: dict[str, Any], rounds: int | None) -> Job:
    """The cheapest way to look through what is asked for, and what each trial may cost."""
    if len(experiment.epsilons) != 1 or len(experiment.partitions) != 1 or len(experiment.datasets) != 1:
        raise InputError(
            f"{experiment.name} lists {len(experiment.epsilons)} epsilons, {len(experiment.partitions)} partitions and "
            f"{len(experiment.datasets)} datasets; a private search is one release under one budget: list one of each"
        )
    if experiment.whoms != (EVERY_RECORD,) or any(entry.epsilons for entry in experiment.entries):
        raise InputError(
            f"{experiment.name} chooses whom a run protects, who takes part, or a budget of each client's own; a "
            "private search is priced for records, all clients and one budget"
        )
    budget = Budget(experiment.epsilons[0], experiment.delta)
    listed = tuple(
        (entry, {**settings, **fixed_in(entry)})
        for entry in experiment.entries
        for stage in stages(search, entry.method, grids.get(entry.label))
        for settings in stage
    )
    way, mu = cheapest(budget, len(listed))
    return Job(experiment=experiment, budget=budget, listed=listed, way=way, mu=mu, rounds=rounds, seed=search.seed)


def search_privately(
    job: Job, search: Search, folder: Path, source: Path | None = None, progress: Progress = SILENT
) -> Found:
    """The best of the trials; all else is forgotten."""
    data = read_dataset(job.experiment.datasets[0], folder, job.experiment.reading, source)
    kept, rows = set_apart(job.experiment.partitions[0].deal(data), search)
    random = np.random.default_rng(None if job.seed is None else [job.seed, 1])
    best: Tried | None = None
    for done, (entry, settings) in enumerate(_drawn(job, random), start=1):
        seed = a_seed_nobody_knows() if job.seed is None else int(random.integers(2**31))
        tried = _trial(job, kept, rows, entry, settings, seed)
        if best is None or tried.score.accuracy > best.score.accuracy:
            best = tried
        if isinstance(job.way, EveryTrial):  # how many were drawn is not for a bar to tell
            progress.at(done)
    progress.at(job.way.mean)
    if best is None:
        raise InputError(
            "the number of trials was drawn, and it was none: nothing was trained. The budget is spent all the same, "
            "since another draw would be another search"
        )
    return _released(job, best)


def _drawn(job: Job, random: np.random.Generator) -> list[tuple[Entry, Settings]]:
    """Every setting once, or as many draws from the list as were drawn."""
    if isinstance(job.way, EveryTrial):
        return list(job.listed)
    return [job.listed[int(i)] for i in random.integers(len(job.listed), size=job.way.draw(random))]


def _trial(job: Job, kept: Split, rows: np.ndarray, entry: Entry, settings: Settings, seed: int) -> Tried:
    """Trained on what is kept, scored on what is not."""
    e, data = job.experiment, kept.dataset
    model = models.unless_head(e.model, e.model_settings)
    recipe = entry.recipe or e.recipe
    chosen = choices_for(kept, job.trial, recipe=recipe, trust=e.trust, model=model)
    used = settings_in(chosen, entry.method, settings)
    fixed, numbers, hyper = sweep.divided(used, entry.method)
    given = Given(
        method=sweep.sweepable(entry.method, fixed, numbers), rounds=job.rounds, clip=e.clip,
        weights=entry.weights or e.weights, model=model,
        preparation=None if e.standardize is None else e.standardize.steps(),
    )  # fmt: skip
    plan = planned(kept, job.trial, recipe=recipe, trust=e.trust, given=given)[0]
    _check_price(plan, job.mu)
    seen, made = prepare(plan, kept, seed)
    params, trace = sweep.simulate_with(plan, seen, seed, hyper, every=plan.rounds)
    x, y = made.map(data.x_train[rows]), data.y_train[rows]
    score = count(plan, params, x, y, job.mu, jax.random.fold_in(key_of(seed), 7))
    if not all_finite(params):
        score = replace(score, accuracy=-math.inf)
    plain = replace(plan, method=make(entry.method, used, job.budget.epsilon))
    run = Run(
        plan=plain, split=kept, seed=job.seed, params=params, trace=trace, seconds=0.0, chosen=chosen, prepared=made
    )
    return Tried(entry=entry, settings=settings, score=score, run=run)


def _check_price(plan: Plan, mu: float) -> None:
    """A trial that is not at most mu-GDP would not be covered."""
    if plan.mu is None or not plan.mu <= mu * (1 + 1e-9):
        raise InputError(
            f"a trial of {plan.method.name} has mu {plan.mu}, and the search is priced for trials of mu {mu:.6g}; a "
            "method with sampled records or with a wrong account cannot be searched privately"
        )


def _released(job: Job, best: Tried) -> Found:
    ledger = ledger_of(job, best.run.plan)
    model = best.run.model
    facts = {**model.facts, "privacy": ledger}
    return Found(
        entry=best.entry, settings=best.settings, score=best.score, model=replace(model, facts=facts), ledger=ledger
    )


def ledger_of(job: Job, plan: Plan) -> dict[str, Any]:
    """One trial's ledger, what the search makes of it, and the epsilon of both."""
    trial = privacy_summary(plan)
    search = {
        "way": str(job.way),
        "settings": len(job.listed),
        "trials_in_the_mean": job.way.mean,
        "trial_mu": job.mu,
        "trial_epsilon": job.trial.epsilon,
        "scored_by": "a noisy count of right answers on held-out training records, at the same mu",
        "trained_again": "nothing: the model is the best trial's own, trained without the held-out records",
    }
    return {**trial, "epsilon": job.epsilon, "delta": job.budget.delta, "mu": None, "search": search}


def write_found(found: Found, out: Path, folder: Path) -> None:
    """The settings as TOML that an experiment reads, and the model in a folder, with its ledger."""
    label, ledger = found.entry.label, found.ledger
    lines = [
        f"# Settings chosen by `fedsofim tune --private`: {ledger['search']['way']}.",
        f"# Search and model together: epsilon {ledger['epsilon']:.6g} at delta {ledger['delta']:g}.",
        f"# The model is in {folder.name}/.",
        "# Training anew with these settings on the same records is another run, which costs its own epsilon.",
        f"format = {EXPERIMENT.writes}",
        "",
        f'[methods."{label}"]',
        f"method = {json.dumps(found.entry.method)}",
        *(f"{k} = {json.dumps(v)}" for k, v in found.settings.items()),
    ]
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, "\n".join(lines) + "\n")
    save_model(found.model, folder)
    write_text(folder / SEARCH, json.dumps(found.summary(), indent=2, default=str))
