"""Everything the analysis says about given constants, as plain data: what `fedsofim theory --json` prints."""

import math
from dataclasses import dataclass, fields
from typing import Any

from fedsofim.errors import InputError, shown
from fedsofim.theory import buffer, complexity, momentum_form, uncoupled
from fedsofim.theory.constants import Constants
from fedsofim.theory.descent import Taus, best_taus, c_grad, gamma, general_gamma, least_taus
from fedsofim.theory.floors import Floor, fedgd_floor, gap_floor, stationarity_after, stationarity_floor
from fedsofim.theory.preconditioner import operator_bound, quadratic_lower


@dataclass(frozen=True)
class General:
    """Any private update G = ∇F + b + ξ: |b| <= B, and E|G|² <= G_0² + d·ν²."""

    B: float
    G_0: float

    def __post_init__(self) -> None:
        for name in ("B", "G_0"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InputError(f"{name} is {shown(getattr(self, name))}; expected a finite number >= 0")


def all_bounds(
    k: Constants,
    *,
    taus: Taus | None = None,
    delta_M: float = 0.05,
    corrected: bool = False,
    general: General | None = None,
    mu_pl: float | None = None,
) -> dict[str, Any]:
    """All quantities of the paper's analysis and of ours; taus None: the best ones; μ_PL None: μ."""
    used = best_taus(k) if taus is None else taus
    return {
        "constants": _constants(k),
        "noise": _noise(k),
        "buffer": _buffer(k, delta_M),
        "preconditioner": _preconditioner(k, delta_M),
        "descent": _descent(k, used, delta_M, chosen=taus is None),
        "floors": _floors(k, used, delta_M, k.mu if mu_pl is None else mu_pl),
        "general_update": None if general is None else _general(k, general, taus),
        "momentum_form": _momentum(k, corrected),
        "round": complexity.per_round(k.sizes, k.d),
        "conditions": conditions(k, used),
        "notes": notes(k),
    }


def _general(k: Constants, given: General, taus: Taus | None) -> dict[str, Any]:
    """Γ_B and its floors. E|M|² is at most the largest E|G|², by convexity alone: G_0² + d·ν². |∇F| is at most G_max,
    or else G_0 + B, since E|G|² = |∇F + b|² + d·ν²."""
    second, largest = given.G_0**2 + k.noise2, given.G_0 + given.B if k.G_max is None else k.G_max
    sizes = {"bias": given.B, "second_moment": second, "buffer": second, "gradient": largest}
    if taus is None:
        fixed = general_gamma(k, Taus(1.0, 1.0), **sizes)
        rest = (fixed.coupling + fixed.smoothness) / k.eta
        taus = least_taus(rest, given.B / k.rho, math.sqrt(k.noise2) / k.rho, 1 / k.rho)
    parts, c = general_gamma(k, taus, **sizes), c_grad(k.rho, taus)
    still = parts.total / (k.eta * c) if c > 0 else math.inf
    return {
        "B": given.B,
        "G_0": given.G_0,
        "tau_1": taus.bias,
        "tau_2": taus.noise,
        "c_grad": c,
        "Gamma_B": parts.total,
        "stationarity": _finite(still),
        "gap": None if k.mu is None else _finite(still / (2 * k.mu)),
        "stationarity_trivial": largest**2,
        "vacuous": not still < largest**2,
    }


def _constants(k: Constants) -> dict[str, Any]:
    return {f.name: getattr(k, f.name) for f in fields(k) if f.name != "sizes"} | {
        "n": k.n,
        "records": sum(k.sizes),
        "m_min": min(k.sizes),
        "gradient_used": k.gradient,
    }


def _noise(k: Constants) -> dict[str, Any]:
    return {"nu2": k.nu2, "nu2_bound": k.nu2_bound, "nu": math.sqrt(k.nu2), "length": math.sqrt(k.noise2)}


def _buffer(k: Constants, delta_M: float) -> dict[str, Any]:
    return {
        "E_G2": buffer.aggregate_bound(k),
        "M_bar2": buffer.buffer_bound(k),
        "M_bar2_sharper": buffer.sharper_bound(k),
        "M_bar2_with_bias_correction": buffer.aggregate_bound(k),
        "noise_left": buffer.noise_left(k.beta),
        "delta_M": delta_M,
        "M_delta2": buffer.event_bound(k, delta_M),
        "M_delta2_sharper": buffer.sharper_event_bound(k, delta_M),
    }


def _preconditioner(k: Constants, delta_M: float) -> dict[str, Any]:
    """Operator and quadratic bounds, and the coefficient on the bounded-momentum event before Young's terms."""
    return {
        "largest_eigenvalue": operator_bound(k.rho),
        "least_eigenvalue_at_M_bar": quadratic_lower(k.rho, buffer.buffer_bound(k)),
        "least_eigenvalue_on_event": quadratic_lower(k.rho, buffer.event_bound(k, delta_M)),
        "least_eigenvalue_on_sharper_event": quadratic_lower(k.rho, buffer.sharper_event_bound(k, delta_M)),
    }


def _descent(k: Constants, taus: Taus, delta_M: float, chosen: bool) -> dict[str, Any]:
    """One step: c_∇ and Γ for every round, Γ of the first (nothing in the buffer), and the coefficient on the event."""
    parts, c = gamma(k, taus), c_grad(k.rho, taus)
    event = quadratic_lower(k.rho, buffer.event_bound(k, delta_M))
    return {
        "tau_1": taus.bias,
        "tau_2": taus.noise,
        "taus": "the best ones" if chosen else "as given",
        "c_grad": c,
        "c_grad_on_event": event - (taus.bias + taus.noise) / 2,
        "Gamma": parts.total,
        "Gamma_parts": parts._asdict(),
        "Gamma_first_round": gamma(k, taus, buffer=buffer.recursion(k, 0.0)).total,
    }


def _floors(k: Constants, taus: Taus, delta_M: float, mu_pl: float | None) -> dict[str, Any]:
    still = stationarity_floor(k, taus)
    found: dict[str, Any] = {"stationarity": _floor(still) | {"after_all_rounds": None}}
    if k.gap is not None:
        found["stationarity"]["after_all_rounds"] = _finite(stationarity_after(k, still, k.gap))
    if mu_pl is not None:
        found["polyak_lojasiewicz"] = _told(k, gap_floor(k, mu_pl, taus))
    if k.mu is None:
        return found
    ours = uncoupled.uncoupled_floor(k, delta_M)
    assert ours.floor is not None
    found["strong_convexity"] = _told(k, gap_floor(k, k.mu, taus))
    found["fedgd"] = _told(k, fedgd_floor(k, k.mu))
    found["ours"] = _told(k, ours.floor)
    found["ours"] |= {"kappa": ours.kappa, "largest_step": ours.step, "delta_M": delta_M}
    return found


def _floor(floor: Floor) -> dict[str, Any]:
    return {
        "of": floor.what,
        "floor": _finite(floor.value),
        "trivial": floor.trivial,
        "vacuous": floor.vacuous,
        "rate": floor.rate,
        "c": floor.coefficient,
    }


def _told(k: Constants, floor: Floor) -> dict[str, Any]:
    """A floor with the bound after all rounds, where the first gap is known."""
    return _floor(floor) | {"after_all_rounds": None if k.gap is None else _finite(floor.after(k.rounds, k.gap))}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _momentum(k: Constants, corrected: bool) -> dict[str, Any]:
    found = momentum_form.momentum_bounds(k, corrected)
    return {
        "largest_step": found.step,
        "typical_step": momentum_form.typical_step(k, corrected),
        "largest_drift": found.drift,
        "largest_gradient": found.gradient,
        "mean_squared_error_of_M": found.error,
        "bias_correction": corrected,
        "stationarity": found.stationarity,
        "stationarity_trivial": 1.0,
        "gap": found.gap,
        "gap_trivial": found.trivial_gap,
        "gap_vacuous": found.gap is None or found.trivial_gap is None or found.gap >= found.trivial_gap,
        "vacuous": found.vacuous,
    }


def conditions(k: Constants, taus: Taus) -> list[dict[str, Any]]:
    """What the theorems ask for, and what they need to say anything."""
    c, M2 = c_grad(k.rho, taus), buffer.buffer_bound(k)
    found = [
        _condition("c_grad > 0", c > 0, f"tau_1 + tau_2 = {sum(taus):.4g}, below 2/rho = {2 / k.rho:.4g}"),
        _condition("rho > M_bar²", k.rho > M2, f"rho = {k.rho:.4g}, M_bar² = {M2:.4g}; else every floor is vacuous"),
    ]
    if k.mu is not None:
        limit = 1 / (2 * k.mu * c) if c > 0 else 0.0
        found.append(_condition("eta < 1/(2 mu c_grad)", k.eta < limit, f"eta = {k.eta:.4g}, limit {limit:.4g}"))
    stable = 2 * k.rho / k.L
    found.append(
        _condition(
            "eta < 2 rho/L",
            k.eta < stable,
            f"eta = {k.eta:.4g}, limit {stable:.4g}; across M the gradient form is gradient descent at eta/rho",
        )
    )
    return found


def _condition(what: str, holds: bool, how: str) -> dict[str, Any]:
    return {"condition": what, "holds": bool(holds), "how": how}


def notes(k: Constants) -> list[str]:
    """What a reader must know before believing a number."""
    found = [
        "G_max and zeta_max bound every iterate: with Gaussian noise and a strongly convex F no such bound holds "
        "surely, so the theorem is about paths as long as they stay where it does",
        "proved for the gradient form; the published numbers come from the momentum form, whose bounds are its own",
    ]
    if k.G_max is not None and k.G_max > k.C_g + k.zeta_max:
        found.append(f"G_max is cut to C_g + zeta_max = {k.gradient:.4g}, which clipping implies")
    return found
