"""One attack from beginning to end, and what it says: the attacker's number beside the promise."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsofim.attack.bounds import (
    Estimate,
    Rates,
    best_threshold,
    bounded,
    epsilon_of_rates,
    estimated,
    mu_of_rates,
    refutes,
)
from fedsofim.attack.claims import Claim
from fedsofim.attack.scoring import Scores, Seen, scored
from fedsofim.attack.setting import Engine
from fedsofim.attack.trials import observe
from fedsofim.attack.worlds import loudest
from fedsofim.core.gaussian import epsilon_of
from fedsofim.errors import InputError, expect_whole, shown
from fedsofim.progress import SILENT, Progress

TRIALS = 20_000  # pairs of runs, unless told otherwise
_TRAINING = 0.25  # of the pairs, on which the attacker learns what noise looks like
_FEWEST = 40


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What an attack found. Scores are those on which nothing was chosen."""

    what: str
    claim: Claim
    confidence: float
    trials: int  # canaries that were guessed at, in both worlds together
    releases: int  # uploads that the attacker saw
    scores: Scores
    estimate: Estimate
    mu_lower: float  # with the stated confidence, the mechanism is not mu-GDP for any smaller mu
    epsilon_any: float  # lower bound on epsilon that assumes nothing about the curve
    broken: bool
    seconds: float
    rates: Rates | None = None  # upper bounds on both error rates at the chosen threshold, where rates were bounded

    @property
    def epsilon_lower(self) -> float:
        """Lower bound on epsilon at the claim's delta: along the Gaussian curve where that is what was promised."""
        return self.epsilon_any if self.claim.mu is None else epsilon_of(self.mu_lower, self.claim.delta)

    @property
    def sentence(self) -> str:
        sure = f"{100 * self.confidence:g} % confidence"
        if self.broken:
            return f"CLAIM BROKEN: an attacker tells the two worlds apart better than promised, at {sure}."
        return f"Consistent with the claim: no attack here did better than promised, at {sure}."

    def summary(self) -> dict[str, Any]:
        """As `--json` prints it. A number without bound is null."""
        return {
            "method": self.what,
            "epsilon": self.claim.epsilon,
            "delta": self.claim.delta,
            "mu": self.claim.mu,
            "mu_estimate": _finite(self.estimate.mu),
            "mu_interval": [_finite(self.estimate.low), _finite(self.estimate.high)],
            "mu_lower": _finite(self.mu_lower),
            "epsilon_lower": _finite(self.epsilon_lower),
            "epsilon_lower_any_shape": _finite(self.epsilon_any),
            "confidence": self.confidence,
            "broken": self.broken,
            "verdict": self.sentence,
            "trials": self.trials,
            "releases": self.releases,
            "seconds": round(self.seconds, 3),
        }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def attack(
    engine: Engine,
    *,
    what: str = "",
    pairs: int = TRIALS,
    confidence: float = 0.99,
    seed: int = 0,
    progress: Progress = SILENT,
) -> Verdict:
    """Choose a canary, run both worlds, score, bound."""
    check_effort(pairs, confidence)
    began = time.perf_counter()
    seen = observe(engine, loudest(engine), pairs, seed, progress)
    name = what or engine.setting.method.name
    return judged(name, engine.claim, seen, confidence, lambda: time.perf_counter() - began)


def judged(what: str, claim: Claim, seen: Seen, confidence: float, clock: Callable[[], float]) -> Verdict:
    """The verdict on what was seen: noise and thresholds are learned on the first part, all else on the rest."""
    pairs, channels = seen.plus.shape
    training, test = scored(seen, max(int(_TRAINING * pairs), _FEWEST // 2))
    rates = _held_against(claim, training, test, confidence)
    for_any = _at_best(training, test, lambda r: epsilon_of_rates(r, claim.delta), confidence)
    return Verdict(
        what=what,
        claim=claim,
        confidence=confidence,
        trials=2 * pairs,
        releases=2 * pairs * channels,
        scores=test,
        estimate=estimated(test.plus, test.minus, confidence),
        mu_lower=mu_of_rates(rates),
        epsilon_any=epsilon_of_rates(for_any, claim.delta),
        broken=refutes(rates, claim),
        seconds=clock(),
        rates=rates,
    )


def _at_best(training: Scores, test: Scores, worth: Callable[[Rates], float], confidence: float) -> Rates:
    """The rates' bounds at the threshold that was best in training."""
    place = best_threshold(training.plus, training.minus, worth, confidence)
    return bounded(test.plus, test.minus, place, confidence)


def _held_against(claim: Claim, training: Scores, test: Scores, confidence: float) -> Rates:
    """The rates' bounds at one threshold: half-way between the worlds, which is best against a Gaussian curve."""
    if claim.mu is not None:
        middle = float(np.median(training.plus) + np.median(training.minus)) / 2
        return bounded(test.plus, test.minus, middle, confidence)
    return _at_best(training, test, lambda r: float(claim.least_beta(r.alpha)) - r.beta, confidence)


def check_effort(pairs: int, confidence: float) -> None:
    expect_whole("trials", pairs, _FEWEST)
    if not 0.5 <= confidence < 1:
        raise InputError(f"confidence is {shown(confidence)}; expected a number from 0.5 up to, but not, 1")


def error_rates(scores: Scores, places: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """(alpha, beta) as counted at many thresholds: the measured points of a picture."""
    at = np.quantile(np.concatenate([scores.plus, scores.minus]), np.linspace(0, 1, places))
    alpha = np.mean(scores.minus[None] > at[:, None], axis=1)
    beta = np.mean(scores.plus[None] <= at[:, None], axis=1)
    return alpha, beta
