"""A federation under load and faults: `make soak`, docs/soak.md.

    python scripts/soak.py --minutes 20 --nodes 8 --seed 0 --page docs/soak.md

Two jobs at a time on real processes with TLS, while workers, nodes, servers and the SuperLink are killed, disks are
full and messages get lost or come twice. Then nothing goes wrong any more, jobs under way come to their end, everything
is stopped, and what was promised is held against what happened. Exit 1 if a promise was broken.
"""

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "support")]

from soaking import verdict  # noqa: E402
from soaking.faults import Faults  # noqa: E402
from soaking.federation import Federation, federated  # noqa: E402
from soaking.lanes import Lane, Work, orders  # noqa: E402
from soaking.page import write_page  # noqa: E402


def main() -> int:
    args = _arguments()
    for kind in (signal.SIGTERM, signal.SIGINT):
        signal.signal(kind, lambda *_: sys.exit("stopped; so is everything that was started"))
    folder = Path(args.folder or tempfile.mkdtemp(prefix="soak-")) / "federation"
    began = time.monotonic()
    with federated(folder, args.nodes) as federation:
        faults = Faults(federation, args.seed, args.apart)
        works, alone = soak(federation, faults, 60 * args.minutes, 60 * args.drain)
    broken = verdict.left_running(federation) + verdict.broken_promises(federation, works)
    result = {
        "minutes": round((time.monotonic() - began) / 60, 1),
        "minutes of faults": args.minutes,
        "seed": args.seed,
        "faults": dict(sorted(faults.counts.items())),
        "messages": dict(sorted(faults.messages().items())),
        "ended by themselves and started again": alone,
        "figures": verdict.figures(federation, works),
        "why jobs stopped": verdict.reasons(works),
        "broken promises": broken,
    }
    print(json.dumps(result, indent=2))
    if args.page:
        write_page(args.page, result)
    for promise in broken:
        print(f"BROKEN: {promise}", file=sys.stderr)
    if not broken and not args.folder:
        shutil.rmtree(folder.parent)
    elif broken:
        print(f"everything is in {folder}", file=sys.stderr)
    return 1 if broken else 0


def soak(federation: Federation, faults: Faults, seconds: float, drain: float) -> tuple[list[Work], int]:
    """The jobs, and how often a process ended that nobody had killed."""
    given = orders(len(federation.names))
    lanes = [Lane(federation, name, given[shift:] + given[:shift]) for name, shift in (("a", 0), ("b", 3))]
    end, alone, told = time.monotonic() + seconds, 0, 0.0
    faults.begin()
    busy = True
    while busy and time.monotonic() < end + drain:
        more = time.monotonic() < end
        if more:
            faults.tend()
        else:
            faults.end()
        alone += len(federation.tend())
        busy = sum(lane.tend(more) for lane in lanes) > 0  # each is looked after
        if time.monotonic() > told + 30:
            told = time.monotonic()
            done = sum(len(lane.done) for lane in lanes)
            print(f"{(end - told) / 60:.1f} min left, {done} jobs done, {faults.counts.total()} faults", flush=True)
        time.sleep(0.2)
    for lane in lanes:
        lane.give_up()
    return [work for lane in lanes for work in lane.done], alone


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=20.0, help="of faults")
    parser.add_argument(
        "--drain", type=float, default=10.0, help="minutes at most for jobs under way to end, after that"
    )
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0, help="of which faults come when")
    parser.add_argument("--apart", type=float, default=12.0, help="seconds between faults, on average")
    parser.add_argument("--folder", help="where everything is kept; left out: a temporary one, gone if all is well")
    parser.add_argument("--page", type=Path, help="docs/soak.md: its table and soak.json beside it are written anew")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
