"""Every command that a page prints is typed: here, from top to bottom of its page, in a folder with what it speaks of.

Typed elsewhere: both tutorials (test_tutorials.py), a node's and a coordinator's lines (test_pages_walked.py), those
for sites (test_shown_commands.py), and on every page what uses a job (test_tutorials.py). What nobody types is on a
list, with its reason (tests/support/not_typed.py).
"""

import re
from pathlib import Path

import jax
import pytest

from commands import QUICKLY
from not_typed import NOT_TYPED, REASONS
from typed import FIRST_JOB, about_a_job, shell_lines, typed, write_if_a_file
from typed_worlds import WORLDS
from walked import PAGES, ROOT, blocks, lines_of

ELSEWHERE = {
    "docs/tutorials/researcher.md",
    "docs/tutorials/hospitals.md",
    "docs/coordinator.md",
    "docs/node.md",
    "docs/sites.md",
}

ONCE = {
    "fedsofim federation demo": "README.md",  # half a minute
}


def typed_here(page: str, line: str) -> bool:
    if ONCE.get(line, page) != page:
        return False
    return line not in NOT_TYPED and line != FIRST_JOB and not about_a_job(line)


SHOWN = {page: lines for page in PAGES if (lines := shell_lines(page))}
HERE = [page for page, lines in SHOWN.items() if page not in ELSEWHERE and any(typed_here(page, x) for x in lines)]


@pytest.mark.slow
@pytest.mark.parametrize("page", HERE)
def test_what_the_page_says_to_type_works(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    pytest.importorskip(WORLDS[page].needs)
    monkeypatch.chdir(tmp_path)
    for name, value in QUICKLY.items():
        monkeypatch.setenv(name, value)  # of processes that a command starts
    WORLDS[page].prepare(tmp_path)
    with jax.enable_x64(False):
        for block in blocks(page):
            write_if_a_file(block, tmp_path)
            for line in lines_of(block) if block.lang == "sh" else []:
                if typed_here(page, line):
                    typed(exchanged(page, line), capsys, monkeypatch, ends=WORLDS[page].ends.get(line, 0))


def exchanged(page: str, line: str) -> str:
    for printed, mine in WORLDS[page].exchanged.items():
        line = line.replace(printed, mine)
    return line


def test_every_world_and_every_exchange_is_of_a_page():
    assert set(WORLDS) == set(HERE)
    assert not [(page, printed) for page in HERE for printed in WORLDS[page].exchanged
                if not any(printed in line for line in SHOWN[page])]  # fmt: skip


def test_what_is_typed_once_is_on_that_page():
    assert not [line for line, page in ONCE.items() if line not in SHOWN[page] or page not in HERE]


def test_what_nobody_types_is_still_printed_somewhere():
    gone = NOT_TYPED - {line for lines in SHOWN.values() for line in lines}
    assert not gone, "take them off the list in tests/support/not_typed.py"


def test_a_reason_names_tests_that_are_there():
    named = {name for reason in REASONS for name in re.findall(r"[\w/]+\.py", reason)}
    assert named and not [name for name in named if not list((ROOT / "tests").rglob(name.rpartition("/")[2]))]
