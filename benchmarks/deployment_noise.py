"""Cost of deployment noise for one release, beside OpenDP's where that is installed.

python benchmarks/deployment_noise.py     # docs/results/deployment-noise, and the table of docs/node.md
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedsofim.deploy.noise import Bits, fresh_secret, lattice_normal

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "experiments"))

import pages  # pyright: ignore[reportMissingImports]

CASES = {650: "10 classes, 64 features", 50_000: ""}


def fastest(run: Callable[[], object], repeats: int) -> float:
    """Seconds of computing time."""
    times = []
    for _ in range(repeats):
        began = time.process_time()
        run()
        times.append(time.process_time() - began)
    return min(times)


def opendp_release(count: int) -> Callable[[], object] | None:
    """A release of so many zeros by OpenDP's exact Gaussian; None where it is not installed."""
    try:
        import opendp.prelude as dp  # type: ignore[import-not-found]
    except ImportError:
        return None
    dp.enable_features("contrib", "idealized-numerics")
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=count)
    release = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=62.4)
    return lambda: release([0.0] * count)


def measured(count: int) -> dict[str, Any]:
    peer = opendp_release(count)
    ours = fastest(lambda: lattice_normal(Bits(fresh_secret()), count), 20)
    return {"numbers": count, "seconds": f"{ours:.3g}", "opendp": f"{fastest(peer, 5):.3g}" if peer else ""}


def markdown(rows: list[dict[str, Any]]) -> str:
    return pages.markdown(["numbers in a release", "this sampler", "OpenDP `make_gaussian`", "ratio"], map(line, rows))


def line(row: dict[str, Any]) -> list[str]:
    count, ours = int(row["numbers"]), float(row["seconds"])
    what = f"{count:,} ({CASES[count]})" if CASES[count] else f"{count:,}"
    if not row["opendp"]:
        return [what, f"{ours:.2g} s", "not installed", "-"]
    return [what, f"{ours:.2g} s", f"{float(row['opendp']):.2g} s", f"{float(row['opendp']) / ours:.2g}"]


def main() -> None:
    rows = list(map(measured, CASES))
    print(markdown(rows))
    pages.keep("deployment-noise", markdown(rows), rows)


if __name__ == "__main__":
    main()
