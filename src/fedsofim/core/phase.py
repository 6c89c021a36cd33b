"""The phases of a run, in the order they happen, and the name of a release site within it."""

from enum import StrEnum
from typing import NamedTuple


class Phase(StrEnum):
    """Every phase is one program of a client; all but the rounds and the evaluations run once."""

    SCALES = "scales"  # how large each column is, where units may differ
    MOMENTS = "moments"  # mean or second moment of the features; every client prepares its own by them
    SETUP = "setup"  # the method's own release before round 1
    ROUND = "round"
    EVALUATION = "evaluation"  # a noisy count of right answers, after some of the rounds

    def times(self, rounds: int, evaluations: int = 0) -> int:
        """How often its program runs.

        >>> Phase.SETUP.times(rounds=70), Phase.ROUND.times(rounds=70), Phase.EVALUATION.times(70, evaluations=7)
        (1, 70, 7)
        """
        return {Phase.ROUND: rounds, Phase.EVALUATION: evaluations}.get(self, 1)


class SiteKey(NamedTuple):
    """Which release of a run: the phase, and the number the door gave it in that phase's program."""

    phase: Phase
    number: int
