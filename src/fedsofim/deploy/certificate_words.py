"""A certificate in words, for whoever answers for the data."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedsofim.core.budget import WITHOUT, epsilon_stated
from fedsofim.deploy.certificate_membership import entry_of, rounds_in_words
from fedsofim.deploy.signatures import fingerprint, is_signed
from fedsofim.errors import InputError, is_whole
from fedsofim.protection import PROTECTED


def readable(document: Mapping[str, Any]) -> str:
    """The certificate in words."""
    lines = [f"Privacy certificate of job {document['job']}", "", f"Accounting: {document['accounting']}.", ""]
    for name, s in sorted(document["clients"].items()):
        if "epsilon" not in s:
            raise InputError(f"the statement of {name} is damaged: it states no epsilon")
        cap = f", cap {s['cap']:g}" if s.get("cap", WITHOUT) != WITHOUT else ""
        lines.append(f"{name}: {cost(s['epsilon'], s['delta'])} over the life of its data{cap}")
        lines.append(f"  it protects {PROTECTED[unit_of(s)]}")
        for job in s["jobs"]:
            mark = "this job" if job["job"] == document["job"] else "another job"
            lines.append(
                f"  {job['method']} ({mark}, {job['job'][:8]}): {cost(job['epsilon'])} by itself, "
                f"for {PROTECTED[unit_of(job)]}{_charged(job)}"
            )
            lines += [
                f"    {r['releases']} x {r['what']}: sum clipped at {r['clip']:g} per {unit_of(job)}, noise std "
                f"{r['multiplier'] * r['clip']:.6g} (multiplier {r['multiplier']:.6g})"
                + (f", each {unit_of(job)} sampled with probability {r['sampled']:g}" if r["sampled"] < 1 else "")
                for r in job["released"]
            ]
        if is_signed(s):
            lines.append(f"  signed with the key {fingerprint(s)}, over {s.get('entries')} entries of its ledger")
        lines.append("")
    for name, rounds in document.get("absent", {}).items():
        lines.append(f"{name} was not in the average of round{'s' * (len(rounds) > 1)} {', '.join(map(str, rounds))}.")
        lines += _unused(name, rounds, entry_of(document["clients"].get(name), document["job"]))
    if silent := document.get("silent"):
        lines.append(
            f"Nothing is stated of {', '.join(silent)}: ask again by resuming the job when they are there. (Who was "
            "away from the first round to the last was asked for nothing.)"
        )
    lines += [
        "An epsilon holds for whom it protects, at one client, against whoever sees everything that was released.",
        "The smaller it is, the less anybody can tell from all of it whether they were there or somebody else.",
    ]
    return "\n".join(lines) + "\n"


def _unused(name: str, missed: Sequence[int], job: Mapping[str, Any] | None) -> list[str]:
    """More rounds charged than used: its answers to the others came when their rounds were over."""
    if job is None or not (is_whole(job.get("rounds_charged")) and is_whole(job.get("rounds_planned"))):
        return []
    used = job["rounds_planned"] - len(missed)
    if job["rounds_charged"] <= used:
        return []
    return [
        f"  It was charged for {job['rounds_charged']} rounds and used in {used}: what came too late stays charged."
    ]


def _charged(job: Mapping[str, Any]) -> str:
    """For how many of the planned rounds; statements of version 1 do not say."""
    return f", charged for {rounds_in_words(job)}" if "rounds_charged" in job else ""


def cost(epsilon: float | str, delta: float | None = None) -> str:
    """An epsilon with what it is one of, or that there is none."""
    value = epsilon_stated(epsilon)
    if value == math.inf:
        return WITHOUT
    return f"epsilon {value:.6g}" + (f" at delta {delta:g}" if delta is not None else "")


def unit_of(of: Mapping[str, Any]) -> str:
    """Whom a job's terms, or a statement, protect; those of before there were units: records."""
    return str(of.get("unit", "record"))
