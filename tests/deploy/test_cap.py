"""The cap holds over the whole life of a ledger: jobs, servers, crashes, and whoever asks at the same time."""

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

import fedsofim
import ledgers
from fedsofim.core.accounting import Charge, calibrate
from fedsofim.core.budget import Budget
from fedsofim.deploy.account import Account
from fedsofim.deploy.lines import epsilon_of_lines
from fedsofim.errors import Refused
from ledgers import DELTA, ask, cap_of, charged, line, made, open_


def supported() -> dict[str, str]:
    """The environment as it is now, for a program that reads the helpers of tests, and this very source."""
    source = Path(fedsofim.__file__).parents[1]
    return {**os.environ, "PYTHONPATH": f"{Path(ledgers.__file__).parent}{os.pathsep}{source}"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def test_seventy_rounds_and_not_one_more(path: Path):
    charge = Charge(site=0, label="gradient", clip=10.0, ratio=2.0, releases=70, weight=70.0)
    multiplier = calibrate([charge], Budget(1.0, DELTA))[0]
    for t in range(70):
        open_(path, ask(t), [line(multiplier)], cap=1.0)
    assert epsilon_of_lines([each for _, each in Account(path).entries()], DELTA) == pytest.approx(1.0, rel=1e-6)
    with pytest.raises(Refused, match="above the cap of 1 "):
        open_(path, ask(70), [line(multiplier)], cap=1.0)
    assert charged(path) == 70


def test_the_cap_holds_over_jobs_and_servers_together(path: Path):
    cap = cap_of(5)
    for i in range(5):
        opened = open_(path, ask(i % 2, job=f"job {i}"), cap=cap)
        Account(path).close_ask(opened.number, b"reply", b"")
    for job in ("job 0", "a new one", "job 4"):
        with pytest.raises(Refused, match="above the cap"):
            open_(path, ask(5, job=job), cap=cap)
    assert open_(path, ask(0, job="job 0"), cap=cap).reply == b"reply"
    assert charged(path) == 5


def test_a_crashed_ask_counts_against_the_cap_once(path: Path):
    cap = cap_of(2)
    for question in ("first", "first", "second", "second"):
        open_(path, ask(question=question), cap=cap)
    with pytest.raises(Refused, match="above the cap"):
        open_(path, ask(question="third"), cap=cap)


def test_the_operator_may_lower_the_cap(path: Path):
    open_(path, ask(0), cap=cap_of(9))
    open_(path, ask(1), cap=cap_of(9))
    with pytest.raises(Refused, match="above the cap"):
        open_(path, ask(2), cap=cap_of(2))


def test_the_reason_says_how_much_there_was_and_would_be(path: Path):
    open_(path, ask(0))
    with pytest.raises(Refused) as caught:
        open_(path, ask(1), cap=cap_of(1))
    for number in (cap_of(1), cap_of(2)):
        assert f"{number:.6g}" in str(caught.value)


@pytest.mark.parametrize("bad", [0.0, 1e-3])
def test_no_noise_passes_no_cap(path: Path, bad: float):
    with pytest.raises(Refused, match="above the cap"):
        open_(path, ask(), [line(bad)], cap=100.0)


def test_a_delta_used_up_by_the_sampler_has_no_epsilon():
    assert epsilon_of_lines([line(coordinates=10**15)], DELTA) == float("inf")
    assert epsilon_of_lines([], DELTA) == 0.0


def test_lines_compose_in_any_order_and_grouping(path: Path):
    lines = [line(5.0), line(7.0), line(5.0), line(5.0, weight=4.0), line(7.0)]
    for t, each in enumerate(lines):
        open_(path, ask(t), [each])
    stored = [each for _, each in Account(path).entries()]
    assert stored == lines
    assert epsilon_of_lines(stored, DELTA) == pytest.approx(epsilon_of_lines(lines[::-1], DELTA), rel=1e-12)
    assert epsilon_of_lines(stored, DELTA) > epsilon_of_lines(lines[:-1], DELTA)


def test_asking_at_once_cannot_pass_the_cap_twice(path: Path):
    allowed, per_thread = 12, 6
    cap, passed, refused, other = cap_of(allowed), [], [], []
    made(path)
    together = threading.Barrier(6)

    def work(number: int) -> None:
        together.wait()
        for t in range(per_thread):
            try:
                passed.append(open_(path, ask(t, job=f"job {number}"), cap=cap))
            except Refused as error:
                refused.append(error)
            except Exception as error:
                other.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not other
    assert (len(passed), len(refused)) == (allowed, 36 - allowed)
    assert len({opened.number for opened in passed}) == allowed
    assert charged(path) == allowed


@pytest.mark.slow
def test_processes_asking_at_once_cannot_pass_the_cap_twice(path: Path):
    allowed = 9
    script = textwrap.dedent("""
        import sys
        from pathlib import Path
        from ledgers import ask, open_
        from fedsofim.errors import Refused
        path, who, cap = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
        passed = 0
        for t in range(8):
            try:
                open_(path, ask(t, job=who), cap=cap)
                passed += 1
            except Refused:
                pass
        print(passed)
    """)
    command = [sys.executable, "-c", script, str(made(path))]
    running = [
        subprocess.Popen([*command, who, repr(cap_of(allowed))], stdout=subprocess.PIPE, text=True, env=supported())
        for who in "ab"
    ]
    passed = [int(process.communicate(timeout=600)[0]) for process in running]
    assert sum(passed) == allowed
    assert charged(path) == allowed
