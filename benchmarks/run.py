"""Measure everything: a round against its own products, against other libraries, against its size.

    make bench                                   # all of it, and writes docs/performance.md, .png and .json
    python benchmarks/run.py --only ours         # without the other libraries; writes nothing unless --out is given
    python benchmarks/run.py --only networks     # networks only, beside what the last run found of everything else
    python benchmarks/run.py --quick             # small sizes and few repeats: to see that it works
    python benchmarks/run.py --page              # write the page and the figure again from docs/performance.json

Times are compared only within one run, where everything that is compared takes turns. Nothing is timed before it has
been shown to compute what we compute.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import figure
import machine
import measure
import network_rounds
import page
from measure import Effort
from parts import kernel_parts
from problem import make
from results import Results, load, save
from targets import row

from fedsofim import native

DOCS = Path(__file__).parents[1] / "docs"


def run(effort: Effort, with_peers: bool, tell: Callable[[str], None]) -> Iterator[Results]:
    """Every section in turn, each handed out as soon as it is there: a run that is stopped has not been for nothing."""
    found, data = Results(machine.describe(), native=native.why_not()), make()
    tell(f"clients of {min(data.sizes):,} to {max(data.sizes):,} records")
    measure.check_ourselves(data)
    tell("the reference round, its products and its parts")
    reference, parts, targets = measure.reference_lines(measure.reference(data, effort))
    unit, kernel = kernel_parts()
    found = replace(found, reference=reference, parts=parts, kernel=kernel, multiplications=unit)
    yield (found := replace(found, targets=tuple(targets)))
    peers = tuple(measure.peers(data, effort, tell)) if with_peers else ()
    yield (found := replace(found, peers=peers, targets=(*found.targets, *measure.peer_targets(peers))))
    for more in with_networks(found, effort, with_peers, tell):
        yield (found := more)
    fresh = measure.in_fresh_processes(effort, tell)
    yield (found := replace(found, fresh=fresh, targets=(*found.targets, *measure.fresh_targets(fresh))))
    yield (found := replace(found, padding=tuple(measure.padding(data, effort, tell))))
    steps, step_curves, target = measure.server_steps(data, effort, tell)
    yield (found := replace(found, steps=tuple(steps), curves=tuple(step_curves), targets=(*found.targets, target)))
    curves = (*measure.growth_curves(data, effort, tell), *step_curves)
    yield replace(found, curves=curves, targets=(*found.targets, measure.growth_target(curves)))


def with_networks(found: Results, effort: Effort, peers: bool, tell: Callable[[str], None]) -> Iterator[Results]:
    """The same results with the networks measured, in place of what was known of them."""
    names = tuple(network.name for network in network_rounds.NETWORKS)
    found = replace(found, networks=(), network_peers=())
    found = replace(found, targets=tuple(t for t in found.targets if not t.what.startswith(names)))
    for network in network_rounds.NETWORKS:
        lines, rivals, targets = network_rounds.measure(network, effort.records, effort.long_turns, peers, tell)
        found = replace(found, networks=(*found.networks, *lines), network_peers=(*found.network_peers, *rivals))
        yield (found := replace(found, targets=(*found.targets, *targets)))


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
    parser.add_argument("--only", choices=["ours", "networks"], help="no other libraries; or only networks, into docs/")
    parser.add_argument("--quick", action="store_true", help="small sizes and few repeats")
    parser.add_argument("--page", action="store_true", help="measure nothing; write the page from the last numbers")
    parser.add_argument("--out", type=Path, help="where to write; a whole run writes docs/")
    given = parser.parse_args()
    whole = not given.quick and given.only != "ours"
    out = given.out or (DOCS if whole or given.page else None)
    effort, tell = Effort(given.quick), teller()
    if given.page or given.only == "networks":
        last = load(DOCS / "performance.json")
        found = [last] if given.page else with_networks(last, effort, True, tell)
    else:
        found = run(effort, not given.only, tell)
    results = Results()
    for results in found:
        if out is not None:
            write(results, out)
    for target in results.targets:
        print(" | ".join(row(target)))
    if out is not None:
        print(f"written to {out}")
    return 0 if results.complete else 1


if __name__ == "__main__":
    sys.exit(main())
