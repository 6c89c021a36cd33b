"""A plan as plain data: what a run releases and costs, as `--json`, results and reports state it."""

import math
from collections.abc import Iterable
from html import escape
from typing import Any

from fedsofim.core.accounting import Charge
from fedsofim.core.budget import stated
from fedsofim.core.leaves import told
from fedsofim.core.phase import Phase
from fedsofim.core.plan import Plan
from fedsofim.core.site import per_record
from fedsofim.protection import PROTECTED


def privacy_summary(p: Plan) -> dict[str, Any]:
    """What a run releases and costs, as plain data."""
    return {
        "epsilon": stated(p.epsilon),
        "delta": p.delta,
        "mu": p.mu if p.mu is not None and math.isfinite(p.mu) else None,
        "sigma_g": p.sigma_g,
        "noise_std": p.noise_std,
        "clip": p.clip if math.isfinite(p.clip) else None,
        "rounds": p.rounds,
        "releases": p.releases,
        "unit": p.unit,
        "protects": PROTECTED[p.unit],
        "participants": p.participants,
        "batch_rate": p.batch_rate,
        "client_rate": p.client_rate,
        "trust": p.trust,
        "weights": p.weights,
        "note": p.method.note,
        "formed": formed(p),
        "ledger": [_entry(p, c, std) for phase in p.programs for c, std in _priced(p, phase)],
    }


def formed(p: Plan) -> dict[str, str]:
    """By release, how much of a record's vector has to be formed to sum it; closed forms are not listed."""
    sites = [site for program in p.programs.values() for site in program.sites]
    return {site.label: told(vector.leaves()) for site in sites for vector in per_record(site.query)}


def _priced(p: Plan, phase: Phase) -> Iterable[tuple[Charge, float]]:
    return zip(p.programs[phase].charges, p.stds(phase), strict=True)


def _entry(p: Plan, c: Charge, std: float) -> dict[str, Any]:
    """One line of the ledger. `unit_releases` is what it costs, in independent releases of unit noise; a number in
    `charged_as` means the account is wrong on purpose (a preset that reruns a published one)."""
    multiplier = p.multipliers[c.site]
    numbers = {"clip": c.clip, "sensitivity": c.ratio * c.clip, "multiplier": multiplier, "std": std}
    return {
        "what": c.label,
        "releases": c.releases,
        "unit_releases": c.weight,
        "charged_as": c.charged,
        **{k: v if math.isfinite(v) else None for k, v in numbers.items()},
        "sampled": c.sample,
        "attendance": c.attendance,
        "share": c.share,
        "of_mu2": _part(p, c, multiplier),
    }


def _part(p: Plan, c: Charge, multiplier: float) -> float | None:
    """The part of the run's mu² that this line spends; None where there is no mu, or nothing is charged."""
    if p.mu is None or not math.isfinite(p.mu) or c.charged is not None:
        return None
    return c.ratio**2 * c.weight / multiplier**2 / p.mu**2


def as_html(p: Plan) -> str:
    """A plan for notebooks: the ledger as a table, and what it adds up to."""
    heads = ("released", "times", "part of mu²", "noise std / clip")
    rows = [
        (e["what"], e["releases"], _shown(e["of_mu2"], ".1%"), _shown(e["multiplier"], ".4g"))
        for e in privacy_summary(p)["ledger"]
    ]
    head = "".join(f"<th>{escape(h)}</th>" for h in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(v))}</td>" for v in row) + "</tr>" for row in rows)
    spent = stated(p.epsilon)
    told = f"{spent:.6g} at delta {p.delta:g}" if isinstance(spent, float) else str(spent)
    return (
        f"<div><strong>Plan of {escape(p.method.name)}</strong>: {p.rounds} rounds at {len(p.sizes)} clients, epsilon "
        f"{told}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
