"""The real command line under combinations of its options: no traceback, JSON under --json, folders that can be read.

`make fuzz` draws thousands (scripts/fuzz_commands.py); these are some hundreds, always the same ones.
"""

import itertools
from pathlib import Path

import jax
import pytest

from combinations import COMMANDS, METHODS, Combination, Judged, judge, make_results, pairwise, usual, write_files
from fedsofim import methods
from fedsofim.cli.app import app

pytestmark = pytest.mark.longest

#: How many of the pairwise combinations, and of those with few options that are not as usual.
DRAWN = {"run": (50, 110), "privacy": (30, 20), "partition": (15, 10), "plan": (2, 2), "limit": (1, 1),
         "theory": (16, 4), "audit": (2, 2), "tune": (4, 0)}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("combinations")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        write_files(path)
        with jax.enable_x64(False):
            make_results()
            yield path


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_no_combination_ends_in_a_traceback(folder: Path, command: str):
    met, few = DRAWN.get(command, (12, 4))
    drawn = [*itertools.islice(pairwise(command), met), *usual(command, 2, seed=0, number=few)]
    judged = Judged()
    with jax.numpy_dtype_promotion("standard"):
        for combination in drawn:
            judge(combination, folder / "out", judged)
    assert not judged.failures, "\n".join(judged.failures)
    assert judged.ran, judged.table()


@pytest.mark.slow
@pytest.mark.parametrize("output", [(), ("--json",), ("--out", "OUT")], ids=["table", "json", "folder"])
def test_every_method_runs_and_is_shown(folder: Path, output: tuple[str, ...]):
    judged = Judged()
    with jax.numpy_dtype_promotion("standard"):
        for method in METHODS:
            words = (*method, "--dataset", "digits", "--clients", "2", "--partition", "iid", "--rounds", "1", *output)
            judge(Combination("run", words), folder / "out", judged)
    assert (judged.ran, judged.failures) == (len(METHODS), [])


@pytest.mark.parametrize(
    "words",
    [
        ("audit", "--broken", "list", "--json"),  # it printed text
        ("compare", "e.toml", "--out", "t.csv", "--dry-run"),  # "digest.key: Not a directory"
        ("run", "--method", "scaffold", "--dataset", "digits", "--clients", "2", "--rounds", "1"),
        ("run", "--method", "adafedprox", "--dataset", "digits", "--trust", "secure-sum", "--weights", "size", "--clip",
         "1e-3", "--epsilon", "no-privacy", "--model", "cnn", "--clients", "7", "--partition", "iid", "--rounds", "2",
         "--seed", "3"),
        ("run", "--dataset", "digits", "--method", "fedfc", "--model", "cnn", "--set-model", "channels=2,2",
         "--clients", "2", "--rounds", "1", "--clip", "1", "--epsilon", "20", "--set", "preset=as_published"),
    ],
    ids=lambda words: " ".join(words[:3]),
)  # fmt: skip
def test_what_was_found_stays_mended(folder: Path, words: tuple[str, ...]):
    judged = Judged()
    with jax.numpy_dtype_promotion("standard"):
        judge(Combination(words[0], words[1:]), folder / "out", judged)
    assert judged.failures == [] and "Not a directory" not in str(judged.refused)


def test_every_published_method_and_every_command_is_drawn():
    drawn = {words[1] for words in METHODS}
    assert set(methods.PUBLISHED) <= drawn
    known = {command.callback.__name__ for command in app.registered_commands if command.callback}
    elsewhere = {"demo", "features", "serve"}  # minutes of work, or other processes: their own tests run them
    assert known - elsewhere == set(COMMANDS)


def test_a_command_that_breaks_is_noticed(folder: Path, monkeypatch: pytest.MonkeyPatch):
    judged = Judged()
    broken = Combination("methods", ("--json",))
    for stand_in in (lambda: 1 / 0, lambda: print("{not json"), lambda: print('{"a": NaN}')):
        monkeypatch.setattr("combinations.in_process", _calling(stand_in))
        judge(broken, folder / "out", judged)
    assert len(judged.failures) == 3 and "ZeroDivisionError" in judged.failures[0]


def _calling(stand_in):
    import contextlib
    import io
    import traceback

    from commands import Done

    def in_process(*words):
        out, err, code = io.StringIO(), io.StringIO(), 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                stand_in()
            except Exception:
                traceback.print_exc()
                code = 1
        return Done(code, out.getvalue(), err.getvalue())

    return in_process
