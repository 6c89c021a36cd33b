"""Everything the analysis says about given constants, as plain data: what `fedsofim theory --json` prints."""

import math
from dataclasses import fields
from typing import Any

from fedsofim.theory import buffer, complexity, momentum_form, uncoupled
from fedsofim.theory.constants import Constants
from fedsofim.theory.descent import Taus, best_taus, c_grad, gamma
from fedsofim.theory.floors import Floor, fedgd_floor, gap_floor, stationarity_after, stationarity_floor
from fedsofim.theory.preconditioner import operator_bound, quadratic_lower


def all_bounds(k: Constants, *, taus: Taus | None = None, delta_M: float = 0.05, corrected: bool = False) -> dict:
    """All quantities of the paper's analysis and of ours; taus None: the best ones."""
    used = best_taus(k) if taus is None else taus
    return {
        "constants": _constants(k),
        "noise": _noise(k),
        "buffer": _buffer(k, delta_M),
        "preconditioner": _preconditioner(k, delta_M),
        "descent": _descent(k, used, chosen=taus is None),
        "floors": _floors(k, used, delta_M),
        "momentum_form": _momentum(k, corrected),
        "round": complexity.per_round(k.sizes, k.d),
        "conditions": conditions(k, used),
        "notes": notes(k),
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


def _descent(k: Constants, taus: Taus, chosen: bool) -> dict[str, Any]:
    parts = gamma(k, taus)
    return {
        "tau_1": taus.bias,
        "tau_2": taus.noise,
        "taus": "the best ones" if chosen else "as given",
        "c_grad": c_grad(k.rho, taus),
        "Gamma": parts.total,
        "Gamma_parts": parts._asdict(),
    }


def _floors(k: Constants, taus: Taus, delta_M: float) -> dict[str, Any]:
    still = stationarity_floor(k, taus)
    found: dict[str, Any] = {"stationarity": _floor(still) | {"after_all_rounds": None}}
    if k.gap is not None:
        found["stationarity"]["after_all_rounds"] = _finite(stationarity_after(k, still, k.gap))
    if k.mu is None:
        return found
    ours = uncoupled.uncoupled_floor(k, delta_M)
    assert ours.floor is not None
    for name, floor in (
        ("strong_convexity", gap_floor(k, k.mu, taus)),
        ("fedgd", fedgd_floor(k, k.mu)),
        ("ours", ours.floor),
    ):
        found[name] = _floor(floor) | {"after_all_rounds": None if k.gap is None else _after(k, floor, k.gap)}
    found["polyak_lojasiewicz"] = found["strong_convexity"]  # the same inequality with its own μ
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


def _after(k: Constants, floor: Floor, gap: float) -> float | None:
    return _finite(floor.after(k.rounds, gap))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _momentum(k: Constants, corrected: bool) -> dict[str, Any]:
    found = momentum_form.momentum_bounds(k, corrected)
    return {
        "largest_step": found.step,
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
