"""`make results`: remake every table, figure and number of README and docs that came from a run.

The list of them is scripts/results_list.py.

    python scripts/make_results.py --dry-run                     what there is, what is skipped and why, how long
    python scripts/make_results.py --only paper-cifar10-noniid   one of them; --only may be given several times
    python scripts/make_results.py --features FOLDER --tables FOLDER --published FOLDER   all of them

What is done is noted in RUNS/done.jsonl with a digest of the code and of what it read, and is not done again until one
of these changes. Inside, experiments go on where their own journals end: stop it at any time. What needs data that is
not here is skipped with a sentence, and then not all is made: exit code 1, or 0 with --allow-missing. What each took,
also before it was stopped, is kept in docs/results/minutes.json: minutes by the clock and of computing, and the digest
of the package that made it. At the end numbers that pages quote are written anew (scripts/quoted.py); `git diff docs`
then shows what moved.
"""

import argparse
import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import quoted
from results_list import RESULTS, Result

from fedsofim.errors import InputError, unknown
from fedsofim.experiments.journal import append, mend, read_lines
from fedsofim.experiments.versions import SOURCE, what_it_does
from fedsofim.files import data_folder, write_text

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 20.0  # seconds that a program has to end its own processes
MINUTES = ROOT / "docs" / "results" / "minutes.json"
HINTS = {
    "features": "a folder with cifar10_resnet20.npz and pathmnist_resnet20.npz, or `fedsofim features` of that name",
    "tables": "made by experiments/recipe/make_tables.py, see experiments/recipe/TABLES.md",
    "published": "the paper's tables as CSV, which are not part of the project",
}


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # however it is stopped, what it took is noted
    given = arguments()
    chosen = [r for r in RESULTS if not given.only or r.name in given.only]
    places = {name: getattr(given, name) for name in ("runs", *HINTS)}
    done = finished(given.runs / "done.jsonl")
    if given.dry_run:
        print(listing(chosen, places, done))
        return
    failed = [r.name for number, r in enumerate(chosen, 1) if not attempt(r, f"{number}/{len(chosen)}", places, done)]
    for page in quoted.renew():
        say(f"numbers written anew: {page.relative_to(ROOT)}")
    skipped = [r.name for r in chosen if missing(r, places)]
    if skipped:
        say(f"not made, {len(skipped)} of {len(chosen)}, for want of data (above): {', '.join(skipped)}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}; run it again, it goes on where it was")
    sys.exit(bool(skipped) and not given.allow_missing)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", metavar="NAME", help="of `--dry-run`'s list; several times")
    parser.add_argument("--dry-run", action="store_true", help="list, run nothing")
    parser.add_argument("--allow-missing", action="store_true", help="exit code 0 though data was missing for some")
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
    scripts = [ROOT / w for c in result.commands for w in c if w.endswith(".py")]
    for path in (*scripts, *(ROOT / name for name in result.inputs)):
        sha.update(path.read_bytes())
    return hashlib.sha256(sha.digest() + package().encode()).hexdigest()[:16]


@cache
def package() -> str:
    """A digest of what the package does: comments may change."""
    sha = hashlib.sha256()
    for path in sorted(p for p in SOURCE.rglob("*") if p.suffix in (".py", ".cc", ".h", ".csv")):
        text = path.read_text(encoding="utf-8")
        sha.update((what_it_does(text) if path.suffix == ".py" else text).encode())
    return sha.hexdigest()


def finished(path: Path) -> dict[str, str]:
    """What was made, and of what."""
    mend(path)
    return {line["name"]: line["digest"] for line in read_lines(path) if line["done"]} if path.exists() else {}


def attempt(result: Result, number: str, places: Mapping[str, Path], done: Mapping[str, str]) -> bool:
    """Make one of them, or say why not; False if it failed."""
    if reason := missing(result, places):
        return say(f"{number} {result.name}: skipped: {reason}")
    digest = digest_of(result)
    if done.get(result.name) == digest:
        return say(f"{number} {result.name}: done before, of the same code")
    say(f"{number} {result.name}: {result.what}, {duration(result)}")
    places = {**places, "own": places["runs"] / f"{result.name}-{digest}"}
    spent, whole = Spent(result.name, digest, places["runs"] / "done.jsonl"), False
    try:
        for command in result.commands:
            if ran(filled(command, places)):
                return not say(f"{number} {result.name}: failed in: {' '.join(command)}")
        whole = True
    finally:
        spent.note(done=whole)
    return say(f"{number} {result.name}: {spent.said()}, wrote {', '.join(result.outputs)}")


def ran(command: list[str]) -> int:
    """A program's exit code; if this one is stopped the program is, and waited for, so that its time counts."""
    process = subprocess.Popen(command, cwd=ROOT, env=environment())
    try:
        return process.wait()
    except BaseException:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise


class Spent:
    """Minutes of a result: by the clock, and of computing by the programs that were started; over all its attempts."""

    def __init__(self, name: str, digest: str, journal: Path) -> None:
        self.name, self.digest, self.journal = name, digest, journal
        self.began = (time.monotonic(), computing())

    def note(self, *, done: bool) -> None:
        took = {"minutes": time.monotonic() - self.began[0], "cpu": computing() - self.began[1]}
        line = {key: round(value / 60, 4) for key, value in took.items()}
        self.journal.parent.mkdir(parents=True, exist_ok=True)
        append(self.journal, {"name": self.name, "digest": self.digest, "done": done, **line})
        if done:
            kept = minutes() | {self.name: self.whole() | {"code": package()}}
            write_text(MINUTES, json.dumps({r.name: kept[r.name] for r in RESULTS if r.name in kept}, indent=1) + "\n")

    def whole(self) -> dict[str, float]:
        mine = [line for line in read_lines(self.journal) if (line["name"], line["digest"]) == (self.name, self.digest)]
        return {key: round(sum(line[key] for line in mine), 1) for key in ("minutes", "cpu")}

    def said(self) -> str:
        return in_words(self.whole())


def computing() -> float:
    """Seconds of computing of all programs that this one started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def minutes() -> dict[str, dict[str, Any]]:
    """What each result took when it was last made, and by which code."""
    return json.loads(MINUTES.read_text()) if MINUTES.exists() else {}


def in_words(took: Mapping[str, Any]) -> str:
    return f"{took['minutes']:g} minutes ({took['cpu']:g} of computing)"


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
    took = minutes().get(result.name)
    return in_words(took) if took else "time not known"


def listing(chosen: list[Result], places: Mapping[str, Path], done: Mapping[str, str]) -> str:
    """One line for each, and the sum of what is known."""
    lines = []
    for r in chosen:
        state = missing(r, places) or ("done before" if done.get(r.name) == digest_of(r) else "to do")
        lines.append(f"{r.name:28} {duration(r):36} {state}")
    known = [took for name, took in minutes().items() if name in {r.name for r in chosen}]
    whole = {key: round(sum(took[key] for took in known)) for key in ("minutes", "cpu")}
    unknown_ = [r.name for r in chosen if r.name not in minutes()]
    rest = f"; nobody has measured {', '.join(unknown_)}" if unknown_ else ""
    return "\n".join([*lines, f"{in_words(whole)} when they were last made{rest}"])


if __name__ == "__main__":
    try:
        main()
    except InputError as problem:
        sys.exit(str(problem))
    except KeyboardInterrupt:
        sys.exit("stopped; run it again, it goes on where it was")
