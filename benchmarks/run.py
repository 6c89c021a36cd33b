"""Measure everything: a round against its own products, against other libraries, against its size.

    make bench                                   # all of it, and writes docs/performance.md, .png and .json
    python benchmarks/run.py --only ours         # without the other libraries; writes nothing unless --out is given
    python benchmarks/run.py --quick             # small sizes and few repeats: to see that it works
    python benchmarks/run.py --page              # write the page and the figure again from docs/performance.json

Times are compared only within one run, where everything that is compared takes turns. Nothing is timed before it has
been shown to compute what we compute.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import figure
import machine
import measure
import page
from growth import ONE
from measure import Effort
from problem import make
from results import Results, load, save
from targets import row

DOCS = Path(__file__).parents[1] / "docs"


def run(effort: Effort, with_peers: bool, tell: Callable[[str], None]) -> Results:
    """Every section in turn."""
    described = machine.describe()
    data = make()
    tell(f"clients of {min(data.sizes):,} to {max(data.sizes):,} records")
    measure.check_ourselves(data)
    tell("the reference round, its products and its parts")
    times = measure.reference(data, effort)
    reference, parts, targets = measure.reference_lines(times)
    peers = measure.peers(data, effort, tell) if with_peers else []
    padding = measure.padding(data, effort, tell)
    steps, step_curves, step_targets = measure.server_steps(times[ONE], effort, tell)
    curves = measure.growth_curves(times[ONE], effort, tell) + step_curves
    fresh = measure.in_fresh_processes(effort, tell)
    targets += measure.peer_targets(peers) + measure.fresh_targets(fresh) + step_targets
    targets.append(measure.growth_target(curves))
    return Results(
        described, tuple(targets), reference, parts, tuple(peers), tuple(padding), tuple(steps), tuple(curves), fresh
    )


def write(results: Results, folder: Path) -> None:
    """The page, its figure and the numbers behind both."""
    folder.mkdir(parents=True, exist_ok=True)
    save(results, folder / "performance.json")
    figure.draw(results, folder / "performance.png")
    (folder / "performance.md").write_text(page.render(results))


def teller() -> Callable[[str], None]:
    """Progress with the time since the start."""
    began = time.perf_counter()
    return lambda text: print(f"[{time.perf_counter() - began:5.0f} s] {text}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["ours"], help="leave the other libraries out")
    parser.add_argument("--quick", action="store_true", help="small sizes and few repeats")
    parser.add_argument("--page", action="store_true", help="measure nothing; write the page from the last numbers")
    parser.add_argument("--out", type=Path, help="where to write; a whole run writes docs/")
    given = parser.parse_args()
    whole = not given.quick and not given.only
    out = given.out or (DOCS if whole or given.page else None)
    results = load(DOCS / "performance.json") if given.page else run(Effort(given.quick), not given.only, teller())
    for target in results.targets:
        print(" | ".join(row(target)))
    if out is not None:
        write(results, out)
        print(f"written to {out}")
    return 0 if results.complete else 1


if __name__ == "__main__":
    sys.exit(main())
