"""Many fuzzed programs, counted: programs by their numbers, so that a run can be resumed and shared out."""

import json
import random
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from fuzz_generator import Seeded, program
from fuzz_grammar import Node
from fuzz_judge import FATES, Outcome, judge
from fuzz_shrink import shrunk

PLANTED = (0, 0, 1, 1, 2)  # how many leaks are planted in a program: one of these
SECOND = 10  # the second opinion, which compiles, is asked about every so many accepted programs
WHOLE = 100  # and the oracle takes the engine's whole release, compiled, for every so many
SHRUNK = 2  # wrong programs of a kind are cut down, in each process
WRONG = ("WRONGLY ACCEPTED", "WRONGLY REFUSED", "unjudged")


class Line(NamedTuple):
    """One program's fate, as a line of a journal."""

    number: int
    planted: int
    fate: str
    why: str
    odd: tuple[str, ...]
    text: str
    shrunk: str  # of a wrong one


def tree_of(seed: int, number: int) -> tuple[Node, int]:
    """The number-th program of a seed, and how many leaks are planted in it."""
    choices = random.Random(f"{seed}/{number}")
    planted = choices.choice(PLANTED)
    return program(Seeded(choices), planted=planted), planted


def line_of(seed: int, number: int) -> Line:
    """Make, judge, and if it was judged wrongly shrink one program."""
    tree, planted = tree_of(seed, number)
    outcome = judge(tree, asked_twice=number % SECOND == 0, whole=number % WHOLE == 0)
    small = str(smallest(tree, outcome)) if outcome.fate in WRONG and _new(outcome) else ""
    return Line(number, planted, outcome.fate, outcome.why, outcome.odd, str(tree), small)


_known: Counter = Counter()


def _new(outcome: Outcome) -> bool:
    """Is it one of the first of its kind in this process? Shrinking takes as long as many programs."""
    _known[outcome.fate, kind(outcome.why)] += 1
    return _known[outcome.fate, kind(outcome.why)] <= SHRUNK


def smallest(tree: Node, outcome: Outcome, tries: int = 60) -> Node:
    """The smallest program found with the same fate for the same kind of reason."""

    def same(other: Node) -> bool:
        found = judge(other, asked_twice=outcome.fate == "WRONGLY REFUSED")
        return found.fate == outcome.fate and kind(found.why) == kind(outcome.why)

    return shrunk(tree, same, tries)


def kind(why: str) -> str:
    """The word a reason begins with, if it is the oracle's; otherwise its beginning."""
    return why.split(":")[0] if ":" in why[:20] else why[:40]


def summary(lines: Iterable[Line]) -> dict[str, Any]:
    """What the report says: counts by fate, by whether leaks were planted, and every wrong one with its text."""
    lines = list(lines)
    fates = Counter(line.fate for line in lines)
    wrong = [line for line in lines if line.fate in WRONG]
    by_size = sorted(wrong, key=lambda line: (not line.shrunk, len(line.shrunk or line.text)))
    return {
        "programs": len(lines),
        "fates": {fate: fates[fate] for fate in FATES},
        "honest": dict(Counter(line.fate for line in lines if not line.odd)),
        "leaks by kind": dict(Counter(kind(line.why) for line in lines if line.fate == "WRONGLY ACCEPTED")),
        "refusals": dict(Counter(line.why[:60] for line in lines if line.fate == "refused").most_common(30)),
        "wrong": [line._asdict() for line in by_size[:50]],
    }


def read_lines(text: str) -> list[Line]:
    """Lines of a journal; a last one that was cut off is left out."""
    out = []
    for row in text.splitlines():
        try:
            out.append(Line(**json.loads(row)))
        except json.JSONDecodeError:
            continue
    return out
