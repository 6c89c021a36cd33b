"""The numbers of docs/theory.md, computed: docs/results/theory/numbers.json.

    python experiments/theory_numbers.py --features FEATURES

The constants are those of the paper's setting on CIFAR-10's features at epsilon 10, as `fedsofim theory --constants
records` has them; the small worlds are those of tests/theory, which hold the claims around these numbers.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from scipy.integrate import quad
from scipy.linalg import solve_discrete_lyapunov
from scipy.special import ndtr

import fedsofim as fs
from fedsofim.files import write_text
from fedsofim.theory.buffer import noise_left
from fedsofim.theory.constants import Constants, sigma_g_of
from fedsofim.theory.heads import from_records
from fedsofim.theory.statement import all_bounds

OUT = Path(__file__).resolve().parents[1] / "docs" / "results" / "theory" / "numbers.json"
PUBLISHED = {"C_g": 10.0, "rho": 0.5, "beta": 0.9, "eta": 0.8, "rounds": 70}
RIDGE = 5e-4


def published(features: Path) -> dict[str, Any]:
    """What the analysis says at the published setting, and what follows of steps."""
    split = fs.split(fs.load(features / "cifar10_resnet20.npz"), clients=20, alpha=0.5)
    head = from_records(split, C_g=PUBLISHED["C_g"], ridge=RIDGE)
    known = {name: getattr(head, name) for name in ("L", "mu", "G_max", "zeta_max", "gap", "start_gradient", "d")}
    sigma = sigma_g_of(fs.Budget(10.0, 1e-5), int(PUBLISHED["rounds"]), len(split.sizes))
    k = Constants(**PUBLISHED, **known, sizes=split.sizes, sigma_g=sigma)  # type: ignore[arg-type]
    found = all_bounds(k, taus=None, delta_M=0.05, corrected=False, general=None, mu_pl=None)
    floor, round_ = found["floors"]["strong_convexity"], found["round"]
    return found | {
        "head": head.summary(),
        "times the noise bound": found["noise"]["nu2_bound"] / found["noise"]["nu2"],
        "times what is known": floor["floor"] / floor["trivial"],
        "times the stable step": k.eta / k.rho / (2 / k.L),
        "L eta": k.L * k.eta,
        "(1 - beta) rho": (1 - k.beta) * k.rho,
        "times the paper's client cost": round_["all_clients_multiplications"] / round_["paper_says_all_clients"],
    }


def uphill(gradient: float, before: float, beta: float, rho: float, noise: float) -> float:
    """E[H·G] of one coordinate, G normal around the gradient, by quadrature."""

    def step(z: float) -> float:
        G = gradient + noise * z
        return G / (rho + (beta * before + (1 - beta) * G) ** 2) * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)

    empty = (-beta * before / (1 - beta) - gradient) / noise  # where the buffer is empty and H largest
    return sum(quad(step, low, high, limit=500)[0] for low, high in ((-40.0, empty), (empty, 40.0)))


def buffer_variance(step: float, beta: float = 0.9) -> float:
    """Var(M) over the lemma's, for F = θ²/2 and gradient descent: by Lyapunov's equation."""
    A = np.array([[1 - step, 0.0], [1 - beta, beta]])  # of (θ, M)
    B = np.array([[-step], [1 - beta]])
    return float(solve_discrete_lyapunov(A, B @ B.T)[1, 1] / noise_left(beta))


def shown(rho: float = 1e-4, eta: float = 0.1, noise: float = 0.05, epsilon: float = 1.0) -> dict[str, float]:
    """DP-FedSOFIM on the record whose gradient is 0 up to |θ| = 1 and z beyond: how often the first step, with β = 0,
    leaves the flat part, and what the second release then shows of z above exp(epsilon)."""
    middle, width = eta / 2, math.sqrt(eta * eta / 4 - rho)  # |ηG/(ρ + G²)| > 1 for |G| between these two
    leaves = 2 * float(ndtr((middle + width) / noise) - ndtr((middle - width) / noise))

    def beyond(mean: float) -> float:  # the second release is above one half
        return leaves * float(ndtr((mean - 0.5) / noise)) + (1 - leaves) * float(ndtr(-0.5 / noise))

    return {"leaves": leaves, "delta": beyond(1.0) - math.exp(epsilon) * beyond(-1.0)}


def composed(rounds: int = 70, delta: float = 1e-5) -> float:
    """What simple composition says of a run that spends epsilon 1."""
    return rounds * fs.epsilon_of(fs.mu_of(1.0, delta) / math.sqrt(rounds), delta / rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=Path, required=True)
    found = {
        "published": published(parser.parse_args().features),
        "uphill": uphill(1.0, 10.0, 0.8, 0.5, 40.0),
        "buffer": [{"step": step, "times": buffer_variance(step)} for step in (0.05, 0.5, 1.99)],
        "shown": shown(),
        "composed": composed(),
    }
    OUT.parent.mkdir(parents=True, exist_ok=True)
    write_text(OUT, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
