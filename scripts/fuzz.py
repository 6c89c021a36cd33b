"""The long run of the fuzzer: thousands of client programs through the audit, each judged by running it.

    python scripts/fuzz.py --programs 20000 --seed 0 --jobs 2 --out runs/fuzz --page

Every program is a line in OUT/seed-S.jsonl, so a run that was stopped goes on where it was; OUT/report.json has the
counts. With --page docs/results/fuzz keeps them, and docs/fuzzing.md has the table. Exit 1 if a leak was accepted, an
honest program refused, a program could not be judged, or the run was stopped.
"""

import argparse
import contextlib
import gc
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "experiments")]
MEANT = {  # the fates, as the page says them
    "accepted": "accepted, and the oracle finds no leak",
    "WRONGLY ACCEPTED": "**wrongly accepted**",
    "refused": "refused: something in it is against the rules",
    "WRONGLY REFUSED": "wrongly refused: honest, and the oracle finds no leak",
    "caught by the second opinion": "let through by the walk, and caught by the second opinion",
    "not a program": "not a program: JAX itself cannot trace it",
    "unjudged": "accepted, and the oracle could not run it",
    "all": "all",
}
AT_ONCE = 50  # programs to a task
RENEWED = 100  # tasks to a worker, which then has 4 GB; a new one compiles or reads from disk everything anew


def prepare(cache: str) -> None:
    """One thread for each worker, and compiled operations kept on disk: thousands of programs share them."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when numpy is imported, so first
    import jax

    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def work(seed: int, numbers: list[int]) -> list[dict]:
    """Some programs, in a worker."""
    from fuzz_report import line_of

    lines = [line_of(seed, n)._asdict() for n in numbers]
    gc.collect()
    gc.freeze()  # what JAX keeps is looked through once, not at every collection
    return lines


def results(seed: int, numbers: list[int], jobs: int, cache: str) -> Iterator[list[dict]]:
    """The programs' lines as they are done."""
    tasks = [numbers[i : i + AT_ONCE] for i in range(0, len(numbers), AT_ONCE)]
    # workers are renewed, since JAX keeps every small compiled operation for as long as a process lives; not by
    # max_tasks_per_child, which can hang in Python 3.11
    for i in range(0, len(tasks), RENEWED * jobs):
        pool = ProcessPoolExecutor(jobs, get_context("spawn"), initializer=prepare, initargs=(cache,))
        try:
            for done in as_completed([pool.submit(work, seed, task) for task in tasks[i : i + RENEWED * jobs]]):
                yield done.result()
        finally:
            pool.shutdown(cancel_futures=True)


def kept(report: dict) -> None:
    """The counts in docs/results/fuzz, and the table on the page."""
    import pages  # pyright: ignore[reportMissingImports]

    pages.keep("fuzz", markdown(report))
    pages.path_of("fuzz").with_name("report.json").write_text(json.dumps(report, indent=1) + "\n")


def markdown(report: dict) -> str:
    import pages  # pyright: ignore[reportMissingImports]

    from fuzz_judge import FATES

    counts = [(fate, report["fates"][fate], report["honest"].get(fate, 0)) for fate in FATES]
    whole = ("all", report["programs"], sum(report["honest"].values()))
    rows = [(MEANT[fate], f"{programs:,}", f"{honest:,}") for fate, programs, honest in [*counts, whole]]
    return pages.markdown(["fate", "programs", "honest ones among them"], rows)


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # however it is stopped, workers end with it
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--programs", type=int, default=20_000)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--jobs", type=int, default=2)
    options.add_argument("--out", type=Path, default=Path("runs/fuzz"))
    options.add_argument("--page", action="store_true", help="keep the counts in docs/results, and write the page")
    given = options.parse_args()
    from fedsofim.progress import progress_bar
    from fuzz_report import Line, read_lines, summary

    given.out.mkdir(parents=True, exist_ok=True)
    journal = given.out / f"seed-{given.seed}.jsonl"
    known = {line.number: line for line in read_lines(journal.read_text() if journal.exists() else "")}
    left = [n for n in range(given.programs) if n not in known]
    began = time.monotonic()
    bar = progress_bar("programs", total=given.programs)
    with journal.open("a") as file, bar as progress, contextlib.suppress(KeyboardInterrupt):
        for lines in results(given.seed, left, given.jobs, str(given.out / "compiled")):
            file.writelines(json.dumps(line) + "\n" for line in lines)
            file.flush()
            known |= {line["number"]: Line(**line) for line in lines}
            progress.at(len(known))
    report = summary(known[n] for n in sorted(known) if n < given.programs) | {
        "command": f"python scripts/fuzz.py --programs {given.programs} --seed {given.seed} --jobs {given.jobs}",
        "seconds of this run": round(time.monotonic() - began),
        "programs of this run": len(left),
        "versions": {"python": platform.python_version(), **{n: version(n) for n in ("jax", "numpy", "fedsofim")}},
    }
    (given.out / "report.json").write_text(json.dumps(report, indent=1))
    if given.page:
        kept(report)
    print(json.dumps(report["fates"], indent=1))
    wrong = any(report["fates"][fate] for fate in ("WRONGLY ACCEPTED", "WRONGLY REFUSED", "unjudged"))
    return int(wrong or report["programs"] < given.programs)


if __name__ == "__main__":
    sys.exit(main())
