"""`make results`: remake every table, figure and number of README and docs that came from a run.

The list of them is scripts/results_list.py.

    python scripts/make_results.py --dry-run                     what there is, what is skipped and why, how long
    python scripts/make_results.py --only paper-cifar10-noniid   one of them; --only may be given several times
    python scripts/make_results.py --features ../shared/data --published ../shared/published --tables runs/tables

What is done is noted in RUNS/done.jsonl with a digest of the code and of what it read, and is not done again until one
of these changes. Inside, experiments go on where their own journals end: stop it at any time. What needs data that is
not here is skipped with a sentence. `git diff docs` then shows what moved.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from results_list import RESULTS, Result

from fedsofim.errors import InputError, unknown
from fedsofim.experiments.journal import append, mend, read_lines
from fedsofim.experiments.versions import SOURCE
from fedsofim.files import data_folder

ROOT = Path(__file__).resolve().parents[1]
HINTS = {
    "features": "a folder with cifar10_resnet20.npz and pathmnist_resnet20.npz, or `fedsofim features` of that name",
    "tables": "made by experiments/recipe/make_tables.py, see experiments/recipe/TABLES.md",
    "published": "the paper's tables as CSV, which are not part of the project",
}


def main() -> None:
    given = arguments()
    chosen = [r for r in RESULTS if not given.only or r.name in given.only]
    places = {name: getattr(given, name) for name in ("runs", *HINTS)}
    done = finished(given.runs / "done.jsonl")
    if given.dry_run:
        print(listing(chosen, places, done))
        return
    failed = [r.name for number, r in enumerate(chosen, 1) if not attempt(r, f"{number}/{len(chosen)}", places, done)]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}; run it again, it goes on where it was")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", metavar="NAME", help="of `--dry-run`'s list; several times")
    parser.add_argument("--dry-run", action="store_true", help="list, run nothing")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "results", help="where journals are kept")
    parser.add_argument("--features", type=Path, default=data_folder(), help=HINTS["features"])
    parser.add_argument("--tables", type=Path, default=ROOT / "runs" / "tables", help=HINTS["tables"])
    parser.add_argument("--published", type=Path, default=ROOT / "runs" / "published", help=HINTS["published"])
    given = parser.parse_args()
    names = [r.name for r in RESULTS]
    for name in set(given.only or []) - set(names):
        parser.error(str(unknown("result", name, names)))
    return given


def missing(result: Result, places: Mapping[str, Path]) -> str:
    """Why a result cannot be made here; empty if it can."""
    gone = [name for name in result.needs if not places[name].is_dir() or not any(places[name].iterdir())]
    return "; ".join(f"no --{name} in {places[name]} ({HINTS[name]})" for name in gone)


def digest_of(result: Result) -> str:
    """Of everything that a result follows from, but for data: the package, the files it names, the commands."""
    sha = hashlib.sha256(repr(result.commands).encode())
    code = [p for p in sorted(SOURCE.rglob("*")) if p.suffix in (".py", ".cc", ".h", ".csv")]
    scripts = [ROOT / w for c in result.commands for w in c if w.endswith(".py")]
    for path in (*code, *scripts, *(ROOT / name for name in result.inputs)):
        sha.update(path.read_bytes())
    return sha.hexdigest()[:16]


def finished(path: Path) -> dict[str, str]:
    """What was made, and of what."""
    mend(path)
    return {line["name"]: line["digest"] for line in read_lines(path)} if path.exists() else {}


def attempt(result: Result, number: str, places: Mapping[str, Path], done: Mapping[str, str]) -> bool:
    """Make one of them, or say why not; False if it failed."""
    if reason := missing(result, places):
        return say(f"{number} {result.name}: skipped: {reason}")
    digest = digest_of(result)
    if done.get(result.name) == digest:
        return say(f"{number} {result.name}: done before, of the same code")
    say(f"{number} {result.name}: {result.what}, {duration(result)}")
    began = time.monotonic()
    for command in result.commands:
        if subprocess.run(filled(command, places), cwd=ROOT, env=environment()).returncode:
            return not say(f"{number} {result.name}: failed in: {' '.join(command)}")
    took = round((time.monotonic() - began) / 60, 1)
    places["runs"].mkdir(parents=True, exist_ok=True)
    append(places["runs"] / "done.jsonl", {"name": result.name, "digest": digest, "minutes": took})
    hand = f"; by hand: {result.by_hand}" if result.by_hand else ""
    return say(f"{number} {result.name}: {took} minutes, wrote {', '.join(result.outputs)}{hand}")


def filled(command: tuple[str, ...], places: Mapping[str, Path]) -> list[str]:
    """A command with the places in it, by this environment's own programs."""
    first, *rest = [word.format(**places) for word in command]
    own = {"python": [sys.executable], "fedsofim": [sys.executable, "-m", "fedsofim"]}
    return [*own.get(first, [first]), *rest]


def environment() -> dict[str, str]:
    return os.environ | {"MPLBACKEND": "agg"}


def say(text: str) -> bool:
    print(text, flush=True)
    return True


def duration(result: Result) -> str:
    if result.minutes is None:
        return "time not known"
    return f"{result.minutes:g} minutes ({'recorded' if result.recorded else 'estimated'})"


def listing(chosen: list[Result], places: Mapping[str, Path], done: Mapping[str, str]) -> str:
    """One line for each, and the sum of what is known."""
    lines = []
    for r in chosen:
        state = missing(r, places) or ("done before" if done.get(r.name) == digest_of(r) else "to do")
        lines.append(f"{r.name:26} {duration(r):28} {state}")
    known, open_ = sum(r.minutes or 0 for r in chosen), [r.name for r in chosen if r.minutes is None]
    rest = f"; not counted, since nobody recorded it: {', '.join(open_)}" if open_ else ""
    return "\n".join([*lines, f"{known:.0f} minutes on two idle cores, mostly estimated{rest}"])


if __name__ == "__main__":
    try:
        main()
    except InputError as problem:
        sys.exit(str(problem))
