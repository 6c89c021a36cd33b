"""Whether the epsilons of a statement follow from the lines that it states."""

import math
from collections.abc import Mapping
from typing import Any

from fedsofim.core.budget import epsilon_stated, stated
from fedsofim.deploy.certificate_words import cost, unit_of
from fedsofim.deploy.lines import Line, epsilon_of_lines
from fedsofim.errors import is_number
from fedsofim.protection import PROTECTED, weakest


def arithmetic(claimed: Mapping[str, Any]) -> list[str]:
    """Do a statement's epsilons follow from its lines? What does not, in words."""
    try:
        jobs = [(job, [_line(row) for row in job["released"]]) for job in claimed["jobs"]]
        wrong = [
            f"states {cost(job['epsilon'])} for job {job['job']}, which does not follow from what was released"
            for job, lines in jobs
            if not close(job["epsilon"], stated(epsilon_of_lines(lines, claimed["delta"])))
        ]
        everything = stated(epsilon_of_lines([line for _, lines in jobs for line in lines], claimed["delta"]))
        if unit_of(claimed) != weakest(unit_of(job) for job in claimed["jobs"]):
            wrong.append(f"says that it protects {PROTECTED[unit_of(claimed)]}, which one of its jobs did not")
        if not close(claimed["epsilon"], everything):
            wrong.append(f"states {cost(claimed['epsilon'])} altogether; its lines give {cost(everything)}")
    except (KeyError, TypeError, ValueError, ArithmeticError):
        return ["what it released cannot be read"]
    return wrong


def _line(row: Mapping[str, Any]) -> Line:
    wanted = ("clip", "sensitivity", "multiplier", "unit_releases", "sampled", "releases", "numbers")
    numbers = [row[name] for name in wanted]
    if not all(is_number(n) and math.isfinite(n) and n >= 0 for n in numbers) or not row["clip"] or not row["releases"]:
        raise ValueError("a line makes no sense")
    return Line(
        label=str(row["what"]), clip=row["clip"], ratio=row["sensitivity"] / row["clip"], multiplier=row["multiplier"],
        releases=row["releases"], weight=row["unit_releases"], sample=row["sampled"], coordinates=row["numbers"],
    )  # fmt: skip


def close(a: float | str, b: float | str) -> bool:
    """Are two epsilons one, but for rounding?"""
    return math.isclose(epsilon_stated(a), epsilon_stated(b), rel_tol=1e-9)
