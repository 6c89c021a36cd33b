"""Somebody who types what a page prints, in its order, in a folder, in this process."""

import re
import shlex
from pathlib import Path

import pytest

from commands import run_here
from walked import Block, blocks, lines_of, write

ACCURACY = re.compile(r"(\d+\.\d+)(?= %)")


def typed(line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, ends: int = 0) -> str:
    """A line of fedsofim's, which must succeed, or end with another code; what it printed, a `>` into a file."""
    command, _, file = line.partition(" > ")
    words = shlex.split(command)
    assert words[0] == "fedsofim", line
    done = run_here(capsys, monkeypatch, *words[1:])
    assert done.returncode == ends, f"{line}: {done.stdout}{done.stderr}"
    if file:
        Path(file).write_text(done.stdout, encoding="utf-8")
    return done.stdout


def told_apart(shown: str, printed: str, points: float = 1.0) -> str:
    """What a page shows of a program's output, and what was printed: nothing, or both where they differ.

    Lines may be broken elsewhere. An accuracy (`93.89 %`) moves with rounding, and may be so many points away.
    """
    pages, ours = (ACCURACY.split(" ".join(text.split())) for text in (shown, printed))
    near = all(abs(float(a) - float(b)) <= points for a, b in zip(pages[1::2], ours[1::2], strict=False))
    return "" if pages[::2] == ours[::2] and near else f"the page shows:\n{shown}\nprinted was:\n{printed}"


def shell_lines(page: str) -> list[str]:
    """Every line that a page tells its reader to type."""
    return [line for block in blocks(page) if block.lang == "sh" for line in lines_of(block)]


#: test_pages_walked.py types it, with processes.
FIRST_JOB = "fedsofim serve fed/server --job jobs/first --epsilon 1 --clients 3"


def about_a_job(line: str) -> bool:
    """Whether it uses what a federation made: a job's model, a certificate. test_tutorials.py has one."""
    return line.startswith(("fedsofim predict jobs/", "fedsofim model jobs/", "fedsofim certificate "))


def of_a_file(block: Block) -> bool:
    """Whether its title names what the block is to be saved as."""
    return re.fullmatch(r"[\w.-]+\.\w+", block.title) is not None


def write_if_a_file(block: Block, folder: Path) -> None:
    if of_a_file(block):
        write(block, folder)
