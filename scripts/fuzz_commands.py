"""Draw thousands of combinations of the command line's options, run each, and print what was refused.

    python scripts/fuzz_commands.py --draws 5000 --seed 0

The table of refusals is for people: a combination that is refused without need is a bug of another kind.
"""

import argparse
import itertools
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from combinations import COMMANDS, Combination, Judged, judge, make_results, pairwise, usual, write_files
from fedsofim.progress import progress_bar

#: Part of the draws that each command has; the others share what is left.
SHARES = {"run": 0.6, "privacy": 0.12, "partition": 0.08, "limit": 0.01, "plan": 0.02, "audit": 0.02, "tune": 0.01}


def drawn(command: str, number: int, seed: int) -> list[Combination]:
    """Draw combinations of one command: every pair of choices first, then some with few unusual choices."""
    pairs = itertools.islice(pairwise(command, seed), number // 2)
    found = list(pairs)
    left = number - len(found)
    return [*found, *(c for k in (1, 2, 3) for c in usual(command, k, seed + k, left // 3 + 1))][:number]


def main() -> None:
    """Draw, run and judge; exit with 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commands", nargs="*", default=list(COMMANDS))
    given = parser.parse_args()
    rest = (1 - sum(SHARES.values())) / len(set(COMMANDS) - set(SHARES))
    todo = [c for name in given.commands for c in drawn(name, round(given.draws * SHARES.get(name, rest)), given.seed)]
    judged = Judged()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_files(Path(folder))
        make_results()
        with progress_bar("combinations", len(todo)) as progress:
            for done, combination in enumerate(todo, start=1):
                judge(combination, Path(folder) / "out", judged)
                progress.at(done)
        os.chdir("/")
    print(judged.table())
    print("\n".join(judged.failures))
    sys.exit(bool(judged.failures))


if __name__ == "__main__":
    main()
