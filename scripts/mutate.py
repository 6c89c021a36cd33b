"""Plant bugs one at a time in a copy of the tree and see whether the tests notice: `make mutate`, docs/mutation.md.

python scripts/mutate.py                    everything, resumed where the last run of this tree ended
python scripts/mutate.py --own-only         only our own list (scripts/mutations/planted/)
python scripts/mutate.py --file core/walk.py --only NAME --sample 20 --seed 1
python scripts/mutate.py --check            do all entries of our list still fit the source? No test is run
"""

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from mutations import report
from mutations.mutant import Mutant, planted, tests_for
from mutations.operators import sampled
from mutations.report import Verdict
from mutations.trials import all_tried, copy_tree, digest_of, workers

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    args = _arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    tree = copy_tree(args.tree.resolve(), args.out / "tree")  # others may go on editing
    own, rotten = planted(tree)
    for entry in rotten:
        print(f"ERROR: {entry.name}: {entry.why}", file=sys.stderr)
    if args.check:
        print(f"{len(own)} entries fit the source, {len(rotten)} do not")
        return 1 if rotten else 0
    mutants = own if args.own_only else own + sampled(tree, args.sample, args.seed)
    mutants = [m for m in mutants if m.file.startswith(tuple(args.file or [""])) and (args.only or "") in m.name]
    verdicts = _verdicts(args, tree, mutants)
    untried = len(mutants) - len(verdicts)
    if untried:
        print(f"ERROR: {untried} bugs were not planted, since the tests of their files fail without any")
    whole = not (args.own_only or args.file or args.only or untried or rotten)
    return _told(args, verdicts, digest_of(tree, "src"), whole) or (1 if untried or rotten else 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--own-only", action="store_true", help="only our own list")
    parser.add_argument("--file", action="append", help="only bugs in this file or folder, for example core/walk.py")
    parser.add_argument("--only", metavar="NAME", help="only bugs whose name has this in it")
    parser.add_argument("--sample", type=int, default=8, metavar="N", help="of cosmic-ray's, so many a file")
    parser.add_argument("--seed", type=int, default=0, help="of that sample")
    parser.add_argument("--jobs", type=int, default=2, help="workers side by side")
    parser.add_argument("--timeout", type=float, default=5.0, help="times what the tests take without a bug")
    parser.add_argument("--anew", action="store_true", help="forget what an earlier run found")
    parser.add_argument(
        "--tests-added", action="store_true", help="tests were only added since: try again what was not noticed"
    )
    parser.add_argument("--check", action="store_true", help="only see whether our list still fits the source")
    parser.add_argument("--tree", type=Path, default=ROOT, help="the tree to plant in a copy of")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "mutate", help="copies, journal and results")
    parser.add_argument("--page", type=Path, help="write the tables into this page (docs/mutation.md)")
    return parser.parse_args()


# --- the trials ---------------------------------------------------------------------------------------------


def _verdicts(args: argparse.Namespace, tree: Path, mutants: list[Mutant]) -> list[Verdict]:
    journal, digest, tests = args.out / "journal.jsonl", digest_of(tree, "src"), digest_of(tree, "tests")
    if args.anew:
        journal.unlink(missing_ok=True)
    kept = report.read_journal(journal)
    known = {key: entry for key, entry in kept.items() if _holds(entry, tests, args.tests_added)}
    found = {m.key(digest): _verdict(m, known[m.key(digest)]) for m in mutants if m.key(digest) in known}
    todo = {m.key(digest): m for m in mutants if m.key(digest) not in found}
    print(f"{len(mutants)} bugs to plant, {len(found)} known from an earlier run of this tree", file=sys.stderr)
    if todo:
        with workers(tree, args.out, args.jobs) as made:
            seconds = _unmutated(made, {tuple(tests_for(m.file)) for m in todo.values()}, args.out, digest + tests)
            bar = _Bar(len(todo))

            def done(job: dict[str, Any], verdict: dict[str, Any]) -> None:
                mutant = todo[job["key"]]
                found[job["key"]] = _verdict(mutant, verdict)
                report.append(journal, job["key"], tests, found[job["key"]])
                bar.at(found[job["key"]])

            sound = {key: m for key, m in todo.items() if tuple(tests_for(m.file)) in seconds}
            all_tried(made, [_job(key, m, args.timeout, seconds) for key, m in sound.items()], done)
    return [replace(found[m.key(digest)], mutant=m) for m in mutants if m.key(digest) in found]  # both may have one bug


def _holds(entry: dict[str, Any], tests: str, added: bool) -> bool:
    """Does a verdict hold for these tests? A bug that was noticed stays so if tests were only added since."""
    return entry["tests"] == tests or (added and entry["outcome"] != "survived")


def _verdict(mutant: Mutant, entry: dict[str, Any]) -> Verdict:
    return Verdict(mutant=mutant, **{k: entry[k] for k in ("outcome", "seconds", "cpu", "by")})


def _job(key: str, mutant: Mutant, times: float, seconds: dict[tuple[str, ...], float]) -> dict[str, Any]:
    tests = tests_for(mutant.file)
    limit = max(60.0, times * seconds[tuple(tests)])
    return {"key": key, "file": mutant.file, "text": mutant.text, "tests": tests, "timeout": limit}


def _unmutated(made: Any, lists: set[tuple[str, ...]], out: Path, digest: str) -> dict[tuple[str, ...], float]:
    """Seconds that each list of tests takes. Those that fail without a bug say nothing: an error, and no bug is planted
    for them."""
    kept = out / f"unmutated-{digest}.json"  # of this tree: not again when a run is resumed
    seconds = {tuple(t): s for t, s in json.loads(kept.read_text())} if kept.is_file() else {}

    def done(job: dict[str, Any], verdict: dict[str, Any]) -> None:
        if verdict["outcome"] != "survived":
            print(f"ERROR: fails without any bug, mend that first: {verdict['by']}", file=sys.stderr)
            return
        seconds[tuple(job["tests"])] = verdict["seconds"]
        kept.write_text(json.dumps(list(seconds.items())))
        took = f"{verdict['seconds']:6.1f} s ({verdict['cpu']:.1f} s of computing)"
        print(f"  {took}  {' '.join(job['tests'])}", file=sys.stderr)

    jobs = [{"file": None, "tests": list(t), "timeout": 1800} for t in sorted(lists) if t not in seconds]
    all_tried(made, jobs, done)
    return seconds


class _Bar:
    """A line on a terminal that is written over; elsewhere only survivors are told as they are found."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.noticed, self.began = total, 0, 0, time.monotonic()

    def at(self, verdict: Verdict) -> None:
        self.done, self.noticed = self.done + 1, self.noticed + verdict.noticed
        if not verdict.noticed:
            print(f"\rsurvived: {verdict.mutant.name}: {verdict.mutant.after[:100]}", file=sys.stderr)
        if sys.stderr.isatty() or self.done % 25 == 0 or self.done == self.total:
            left = (time.monotonic() - self.began) / self.done * (self.total - self.done) / 60
            part = int(30 * self.done / self.total)
            end = "" if sys.stderr.isatty() and self.done < self.total else "\n"
            line = f"\r[{'#' * part:<30}] {self.done}/{self.total}, {self.noticed} noticed, {left:.0f} min left "
            print(line, end=end, file=sys.stderr, flush=True)


# --- the report ---------------------------------------------------------------------------------------------


def _told(args: argparse.Namespace, verdicts: list[Verdict], digest: str, whole: bool) -> int:
    """Print and write what was found; 1 unless enough was noticed and every survivor is explained."""
    (args.out / "results.json").write_text(report.as_json(verdicts, digest), encoding="utf-8")
    if args.page is not None and whole:
        report.write_tables(args.page, report.tables(verdicts))
    unexplained = [v for v, why in report.survivors(verdicts) if why is None]
    for v in unexplained:
        print(f"NOT EXPLAINED: {v.mutant.name}\n  - {v.mutant.before}\n  + {v.mutant.after}")
    noticed = report.percent(verdicts)
    spent = sum(v.cpu for v in verdicts) / 60
    print(f"{len(verdicts)} planted, {noticed:.1f} % noticed, {len(unexplained)} survivors without a reason")
    print(f"{spent:.0f} minutes of computing; {args.out / 'results.json'}")
    return 1 if unexplained or noticed < report.WANTED else 0


if __name__ == "__main__":
    sys.exit(main())
