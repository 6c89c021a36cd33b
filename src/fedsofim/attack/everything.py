"""Everything at once: each kind of mechanism attacked as it is, and each broken engine, in one table."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import optax

from fedsofim.attack.broken import BROKEN, broken_engine
from fedsofim.attack.nodes import attack_nodes, target_of
from fedsofim.attack.one_run import OneRun, attack_one_run
from fedsofim.attack.setting import Setting, honest
from fedsofim.attack.verdicts import TRIALS, Verdict, attack
from fedsofim.core.budget import Budget
from fedsofim.core.feature_moments import FeatureMoments
from fedsofim.core.method import OneGradient, server_method
from fedsofim.core.phase import Phase
from fedsofim.methods import make
from fedsofim.progress import SILENT, Progress

_NODE_BUDGET = 10.0  # epsilon: a node answers slowly, and few trials tell only large budgets from larger ones
_ONE_RUN_BUDGET = 5.0
_TELLING = 200  # pairs: the victim alone has mu sqrt(3) times the promised one, which fewer trials may not tell
FORGETFUL = "secure sum, forgetful nodes"


@dataclass(frozen=True)
class Row:
    """One line of the table: what is attacked, how, and whether it must be caught."""

    what: str
    run: Callable[[], Verdict]
    broken: bool = False


@dataclass(frozen=True)
class Line:
    """A row with its verdict."""

    row: Row
    verdict: Verdict

    @property
    def as_it_should(self) -> bool:
        return self.verdict.broken == self.row.broken


def rows(budget: Budget, *, pairs: int = TRIALS, confidence: float = 0.99, seed: int = 0) -> list[Row]:
    """All rows under one budget; nodes and the one run under larger ones of their own."""
    effort: dict[str, Any] = {"pairs": pairs, "confidence": confidence, "seed": seed}
    setting = Setting(method=make("fedgd"), budget=budget)
    right = [Row(what, lambda s=s: attack(honest(s), **effort)) for what, s in _settings(setting).items()]
    forgetful = Row(FORGETFUL, lambda: _forgetful(setting, pairs, confidence), broken=True)
    return [*right, *_special(setting, pairs, confidence, seed), *_wrong(setting, effort), forgetful]


def _settings(plain: Setting) -> dict[str, Setting]:
    """What is attacked by repeating runs."""

    def of(name: str, /, rounds: int = 70, **settings: Any) -> Setting:
        return replace(plain, method=make(name, settings), rounds=rounds)

    sampled = server_method("sampled", optax.sgd(0.1), OneGradient(sample=0.25))
    moments = replace(plain, preparation=(FeatureMoments(share=0.5),), features=64, phases=(Phase.MOMENTS,))
    return {
        "fedgd": of("fedgd"),
        "fedsofim": of("fedsofim"),
        "fedsofim, its own server": replace(of("fedsofim"), own_server=True),
        "fedavg, 5 steps x 10 rounds": of("fedavg", 10),
        "scaffold, 5 steps x 10 rounds": of("scaffold", 10),
        "adafedprox, 5 steps x 10 rounds": of("adafedprox", 10),
        "fedfc, the whole run": of("fedfc"),
        "fedfc, covariance alone": replace(of("fedfc"), phases=(Phase.SETUP,)),
        "feature moments alone": moments,
        "ftrl, tree noise": of("ftrl"),
        "ftrl, diagonal noise": of("ftrl", noise="diagonal"),
        "sampled records, rate 1/4": replace(plain, method=sampled),
    }


def _special(plain: Setting, pairs: int, confidence: float, seed: int) -> list[Row]:
    """Deployed nodes, a secure sum, one run."""
    deployed, asks = _deployed(plain), _asks(pairs)
    once = OneRun(setting=replace(plain, method=make("fedsofim"), budget=Budget(_ONE_RUN_BUDGET, plain.budget.delta)))
    return [
        Row(
            "deployed node, 1 round",
            lambda: attack_nodes(target_of(deployed), pairs=asks, confidence=confidence),
        ),
        Row(
            "secure sum of 3 nodes, 1 round",
            lambda: attack_nodes(target_of(deployed, nodes=3), pairs=asks, confidence=confidence),
        ),
        Row(
            "secure sum, 3 of 4 nodes, 1 round",
            lambda: attack_nodes(target_of(deployed, nodes=4, min_clients=3), pairs=asks, confidence=confidence),
        ),
        Row("fedsofim, one training", lambda: attack_one_run(once, confidence=confidence, seed=seed)),
    ]


def _deployed(plain: Setting) -> Setting:
    return replace(plain, budget=Budget(_NODE_BUDGET, plain.budget.delta), rounds=1)


def _asks(pairs: int) -> int:
    return max(40, pairs // 100)


def _forgetful(plain: Setting, pairs: int, confidence: float) -> Verdict:
    """Nodes that help to open two sums of one request, with and without a client."""
    target = target_of(_deployed(plain), nodes=4, min_clients=3, forgetful=True)
    return attack_nodes(target, pairs=max(_TELLING, _asks(pairs)), confidence=confidence)


def _wrong(plain: Setting, effort: dict[str, Any]) -> list[Row]:
    return [Row(name, lambda name=name: attack(broken_engine(name, plain), **effort), broken=True) for name in BROKEN]


def attack_all(table: list[Row], progress: Progress = SILENT) -> Iterator[Line]:
    """Every row in turn."""
    for done, row in enumerate(table):
        progress.at(done)
        yield Line(row, replace(row.run(), what=row.what))
    progress.at(len(table))
