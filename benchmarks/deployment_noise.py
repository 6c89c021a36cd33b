"""Cost of deployment noise for one release, beside OpenDP's where that is installed."""

import time
from collections.abc import Callable

from fedsofim.deploy.noise import Bits, fresh_secret, lattice_normal


def fastest(run: Callable[[], object], repeats: int = 5) -> float:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
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


def main() -> None:
    for count in (650, 50_000):
        ours = fastest(lambda count=count: lattice_normal(Bits(fresh_secret()), count))
        peer = opendp_release(count)
        theirs = f"OpenDP {fastest(peer, 3) / ours:.1f} times as long" if peer else "OpenDP is not installed here"
        print(f"{count} numbers: {ours:.4f} s; {theirs}")


if __name__ == "__main__":
    main()
