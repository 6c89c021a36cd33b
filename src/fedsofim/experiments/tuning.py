"""`fedsofim tune`: search settings on validation records held out of the training records; the test set is not read.

What this costs in privacy: every trial is a run under the full budget, and the choice between trials reads the
validation records without noise. Neither is in the ledger of the final run. Results with tuned settings are therefore
about which method *can* do better, not guarantees for the records that were searched on.
"""

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedsofim import methods, models
from fedsofim.core.budget import in_words, stated
from fedsofim.data import apart
from fedsofim.data.partition import Split
from fedsofim.errors import InputError, unknown
from fedsofim.experiments import search_spaces
from fedsofim.experiments.grid import Entry, Experiment, budget_at
from fedsofim.experiments.identities import HEAD_IN_ROWS, method_identity, model_identity
from fedsofim.experiments.journal import append, mend, read_lines
from fedsofim.experiments.reading import read_dataset
from fedsofim.experiments.whom import EVERY_RECORD
from fedsofim.files import write_text
from fedsofim.formats import EXPERIMENT
from fedsofim.progress import progress_bar
from fedsofim.simulation import sweep
from fedsofim.trained.measures import in_words as measure_in_words

ROUNDS = 50  # of a trial, where neither the file nor anybody else says how many
STRATEGIES = ("paper", "common", "random", "grid")
NOT_COVERED = (
    "The privacy cost of the search is not covered: every trial spent the full budget on the same records, and the "
    "winner was chosen by reading the validation records without noise."
)
Settings = dict[str, Any]
WORST = {True: 0.0, False: 1e30}  # what a trial that overflowed scores, where more is better and where less is


@dataclass(frozen=True)
class Search:
    """How to look. `trials` bounds each stage (a random part of it is taken); 0 means all of it."""

    strategy: str = "paper"
    rounds: int = ROUNDS
    seed: int | None = 0  # None: of this machine's entropy
    holdout: float = 0.1
    trials: int = 0

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise unknown("strategy", self.strategy, STRATEGIES)
        if not 0 < self.holdout < 1:
            raise InputError(f"holdout is {self.holdout}; expected a share strictly between 0 and 1")
        if self.rounds < 1 or self.trials < 0:
            raise InputError(f"rounds is {self.rounds} and trials {self.trials}; expected at least 1 and 0")


@dataclass(frozen=True)
class Winner:
    entry: Entry
    epsilon: float
    settings: Settings
    score: float  # on the validation records: accuracy in percent, or RMSE
    trials: int
    metric: str = "accuracy"

    @property
    def said(self) -> str:
        return measure_in_words(self.metric, self.score)


def search_settings(
    experiment: Experiment,
    search: Search,
    out: Path,
    folder: Path,
    grids: dict[str, Any],
    source: Path | None = None,
) -> list[Winner]:
    """The best settings of every method and budget, written to `out` as a file that `compare` reads."""
    if len(experiment.datasets) != 1:
        raise InputError(f"{experiment.name} has {len(experiment.datasets)} datasets; tune one at a time")
    if experiment.whoms != (EVERY_RECORD,):
        raise InputError(
            f"{experiment.name} chooses whom a run protects or who takes part; tune searches with all clients and "
            "records, each protected by itself. Leave these keys out of the file that is tuned"
        )
    data = read_dataset(experiment.datasets[0], folder, experiment.reading, source)
    split = held_out(experiment.partitions[0].deal(data), search)
    tuning = Tuning(experiment, search, split, Trials(out.with_suffix(".trials.jsonl")))
    winners = []
    jobs = [(entry, epsilon) for entry in experiment.entries for epsilon in experiment.epsilons]
    with progress_bar(f"tune {experiment.name}", len(jobs)) as progress:
        for done, (entry, epsilon) in enumerate(jobs, start=1):
            winners.append(best(tuning, entry, epsilon, grids.get(entry.label)))
            progress.at(done)
    write_winners(out, winners, search, split)
    return winners


def held_out(split: Split, search: Search) -> Split:
    """The split without a random share of each client's records; those become the set to score on."""
    kept, rows = set_apart(split, search)
    train = kept.dataset
    return replace(kept, dataset=replace(train, x_test=train.x_train[rows], y_test=train.y_train[rows]))


def set_apart(split: Split, search: Search) -> tuple[Split, np.ndarray]:
    """The split without that share, and which rows it is: by their places, so that no record decides it."""
    random = np.random.default_rng(search.seed)
    kept, scored = [], []
    for part in split.parts:
        away = apart.set_apart(len(part), math.ceil(search.holdout * len(part)), random)
        scored.append(part[away])
        kept.append(part[~away])
    description = f"{split.description}, {search.holdout:g} held out"
    return Split(split.dataset, tuple(kept), description), np.sort(np.concatenate(scored))


class Tuning(NamedTuple):
    """What all searches of one call share."""

    experiment: Experiment
    search: Search
    split: Split  # scored on the records held out of it
    trials: "Trials"


def best(tuning: Tuning, entry: Entry, epsilon: float, grid: Any) -> Winner:
    """One method under one budget: stage after stage, the best setting so far stays in the race."""
    trials, task = tuning.trials, tuning.split.dataset.task
    found: list[tuple[float, Settings]] = []
    for stage in stages(tuning.search, entry.method, grid):
        settings = [{**s, **fixed_in(entry)} for s in stage]
        asked = [_trial(tuning, entry, epsilon, s) for s in settings]
        new = [(trial, s) for trial, s in zip(asked, settings, strict=True) if trials.get(trial) is None]
        scores = _scores(tuning, entry.method, [s for _, s in new], epsilon)
        for (trial, _), score in zip(new, scores, strict=True):
            trials.add(trial, float(score) if math.isfinite(score) else WORST[task.higher])
        found += [(trials.get(trial) or 0.0, s) for trial, s in zip(asked, settings, strict=True)]
    best_of = max if task.higher else min
    score, settings = best_of(found, key=lambda pair: pair[0])
    return Winner(entry, epsilon, settings, score, len(found), task.metric)


def _scores(tuning: Tuning, method: str, settings: list[Settings], epsilon: float) -> np.ndarray:
    """The task's one number of each of the settings on the records held out."""
    e, search = tuning.experiment, tuning.search
    return sweep.score(
        tuning.split,
        method,
        settings,
        budget_at(epsilon, e.delta),
        search.rounds,
        seed=search.seed or 0,
        recipe=e.recipe,
        clip=e.clip,
        trust=e.trust,
        weights=e.weights,
        model=models.unless_head(e.model, e.model_settings),
    )


def stages(search: Search, method: str, grid: Any) -> list[list[Settings]]:
    """The settings each stage tries."""
    if search.strategy == "grid":
        if not grid:
            raise InputError(f"{method}: strategy grid needs search = {{lr = [0.1, 1.0]}} in the method's table")
        return [_some(search_spaces.combinations([grid]), search)]
    known = search_spaces.PAPER if search.strategy == "paper" else search_spaces.COMMON
    if method not in known:
        raise InputError(
            f"{method} has no search space; give your own grid (--strategy grid) by search = {{...}} in its table"
        )
    if search.strategy == "random":
        boxes = search_spaces.COMMON[method]
        return [search_spaces.random_settings(boxes, search.trials or search_spaces.TRIALS, search.seed)]
    if search.strategy == "common":
        return [_some(search_spaces.combinations(search_spaces.COMMON[method]), search)]
    return [_some(search_spaces.combinations([box]), search) for box in search_spaces.PAPER[method]]


def _some(settings: list[Settings], search: Search) -> list[Settings]:
    if not search.trials or len(settings) <= search.trials:
        return settings
    chosen = np.random.default_rng(search.seed).choice(len(settings), search.trials, replace=False)
    return [settings[i] for i in sorted(chosen)]


def fixed_in(entry: Entry) -> Settings:
    return {k: v for k, v in entry.settings.items() if k != "preset"}


Trial = dict[str, Any]


def _trial(tuning: Tuning, entry: Entry, epsilon: float, settings: Settings) -> Trial:
    """What is tried, as it is recognised. Of strangers' methods and models also what they are now."""
    trial = {"label": entry.label, "epsilon": stated(epsilon), "settings": json.dumps(settings, sort_keys=True)}
    method, e = method_identity(entry.method), tuning.experiment
    model = model_identity(e.model, e.model_settings)
    trial |= {"method": method} if entry.method not in methods.PUBLISHED else {}
    trial |= {"recipe": tuning.experiment.recipe} if tuning.experiment.recipe != "paper" else {}
    return trial | ({"model": model} if model != HEAD_IN_ROWS else {})


class Trials:
    """Finished trials on disk, so that a stopped search goes on where it was."""

    def __init__(self, path: Path) -> None:
        self.path = path
        mend(path)
        lines = read_lines(path) if path.exists() else []
        self.known = {self._key(trial): trial["accuracy"] for trial in lines}

    def get(self, asked: Trial) -> float | None:
        return self.known.get(self._key(asked))

    def add(self, asked: Trial, score: float) -> None:
        """Record a trial."""
        score = round(score, 4)
        self.known[self._key(asked)] = score
        append(self.path, {**asked, "accuracy": score})

    @staticmethod
    def _key(trial: Trial) -> tuple:
        return tuple(trial.get(name) for name in ("label", "epsilon", "settings", "method", "model", "recipe"))


def write_winners(path: Path, winners: list[Winner], search: Search, split: Split) -> None:
    """The winners as TOML, with how they were found and what that did not cover."""
    lines = [
        f"# Settings chosen by `fedsofim tune --strategy {search.strategy}` on {split.dataset.name}:",
        f"# {search.rounds} rounds, seed {search.seed}, scored on {search.holdout:g} of each client's records.",
        f"# {NOT_COVERED}",
        f"format = {EXPERIMENT.writes}",
    ]
    for label in dict.fromkeys(w.entry.label for w in winners):
        mine = [w for w in winners if w.entry.label == label]
        lines += ["", f'[methods."{label}"]', f"method = {json.dumps(mine[0].entry.method)}"]
        for w in mine:
            lines += [f'[methods."{label}"."{in_words(w.epsilon)}"]  # validation {w.said}, {w.trials} trials']
            lines += [f"{k} = {json.dumps(v)}" for k, v in w.settings.items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "\n".join(lines) + "\n")
