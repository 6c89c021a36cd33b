"""Every price of sampled releases held between the bounds of a second accountant (tests/support/loss_curves.py).

    python scripts/sampled_prices.py

A line for each rate, number of releases and budget: the epsilon that the library names, and between which parts of the
budget's delta the true delta at that epsilon lies. Ends with 1 if one lies wholly above, or would not at 0.99·epsilon.
The sums of it go into docs/results/sampled-prices.
"""

import itertools
import json
import sys
from pathlib import Path

from fedsofim.core.accounting import Charge, calibrate, spent
from fedsofim.core.budget import Budget

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "results" / "sampled-prices" / "prices.json"
sys.path.insert(0, str(ROOT / "tests" / "support"))

from loss_curves import Bounds, deltas  # noqa: E402

RATES, TIMES, EPSILONS = (0.001, 0.01, 0.05, 0.1, 0.2, 0.5, 0.9), (1, 10, 70, 500, 5000), (0.5, 4.0)
DELTA = 1e-5


def parts(rate: float, times: int, epsilon: float) -> tuple[float, Bounds, Bounds]:
    """The epsilon that is named, and the bounds of delta at it and at 99 % of it."""
    site = Charge(site=0, label="gradient", clip=1.0, ratio=2.0, releases=times, weight=times, sample=rate)
    multipliers = calibrate([site], Budget(epsilon, DELTA))
    claimed = spent([site], multipliers, DELTA)
    found, less = deltas(2 / multipliers[0], rate, times, [claimed, 0.99 * claimed])
    return claimed, found, less


def main() -> int:
    print("rate    releases  epsilon   delta at it, over the budget's")
    lows, highs, least = [], [], []
    for rate, times, epsilon in itertools.product(RATES, TIMES, EPSILONS):
        claimed, found, less = parts(rate, times, epsilon)
        low, high = found.low / DELTA, found.high / DELTA
        lows, highs, least = [*lows, low], [*highs, high], [*least, less.low / DELTA]
        print(f"{rate:<7g} {times:<9d} {claimed:.5f}   {low:.5f} to {high:.5f}", flush=True)
    wrong, noticed = (sum(low > 1 for low in found) for found in (lows, least))
    dearest, next_one = sorted(highs)[:2]
    apart = max(high - low for high, low in zip(highs, lows, strict=True))
    told = {
        "prices": len(lows), "refuted": wrong, "refuted if an epsilon were 1 % smaller": noticed,
        "percent of delta that bounds are apart, at most": 100 * apart,
        "percent of delta above the budget's, at most": 100 * (max(highs) - 1),
        "percent of delta that the dearest has": 100 * dearest, "and the next one": 100 * next_one,
    }  # fmt: skip
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(told, indent=1) + "\n")
    print(json.dumps(told, indent=1))
    return int(wrong > 0 or noticed < len(lows))


if __name__ == "__main__":
    sys.exit(main())
