"""Every price of sampled releases held between the bounds of a second accountant (tests/support/loss_curves.py).

    python scripts/sampled_prices.py

A line for each rate, number of releases and budget: the epsilon that the library names, and between which parts of the
budget's delta the true delta at that epsilon lies. Ends with 1 if one lies wholly above, or would not at 0.99·epsilon.
"""

import itertools
import sys
from pathlib import Path

from fedsofim.core.accounting import Charge, calibrate, spent
from fedsofim.core.budget import Budget

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from loss_curves import Bounds, deltas

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
    wrong, apart = sum(low > 1 for low in lows), max(h - low for h, low in zip(highs, lows, strict=True))
    noticed = sum(low > 1 for low in least)
    print(f"{len(lows)} prices, {wrong} refuted; bounds at most {apart:.2%} apart")
    print(
        f"delta is at most {max(highs) - 1:.2%} above the budget's; the dearest prices have {sorted(highs)[:2]} of it"
    )
    print(f"an epsilon 1 % smaller is refuted in {noticed}")
    return int(wrong > 0 or noticed < len(lows))


if __name__ == "__main__":
    sys.exit(main())
