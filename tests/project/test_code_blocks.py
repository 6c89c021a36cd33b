"""Every code block of the docs: Python is executed, commands are held against the program, TOML against its readers.

Executed elsewhere: both tutorials and docs/coordinator.md (test_tutorials.py), docs/models.md (test_models_page.py),
README.md and CONTRIBUTING.md (test_docs.py); commands are typed in test_commands_typed.py. Not executed: blocks marked
`text` (a drawing of letters, a table, a folder's files).
"""

import re
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import jax
import pytest
import typer.main

import docs_worlds as worlds
from fedsofim.cli.app import app
from fedsofim.data.schema import schema_of
from fedsofim.deploy import policy
from fedsofim.experiments import grid_file
from walked import PAGES, ROOT, Block, blocks, execute, lines_of, python_of

ALL = [block for page in PAGES for block in blocks(page)]
ELSEWHERE = {"README.md", "CONTRIBUTING.md", "docs/models.md", "docs/coordinator.md"}
EXECUTED = [p for p in PAGES if python_of(p) and p not in ELSEWHERE and "tutorials" not in p]


# --- Python -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("page", EXECUTED)
def test_python_on_the_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """From top to bottom, in a folder that has what the page speaks of."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDSOFIM_DATA", str(tmp_path))
    prepare: Callable[[Path], dict[str, Any]] = worlds.WORLDS.get(page, lambda folder: {})
    with jax.enable_x64(False):
        space = prepare(tmp_path)
        for block in python_of(page):
            execute(block, space)


def test_every_world_is_of_a_page():
    assert set(worlds.WORLDS) <= set(EXECUTED)


def test_the_table_of_guesses_is_what_its_block_prints(capsys):
    page = "docs/explanation/accounting.md"
    execute(python_of(page)[0], {})
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    shown = re.findall(r"^\| ([\d.]+) \| (\d+) \|$", (ROOT / page).read_text(), re.M)
    assert [tuple(p) for p in printed] == shown


# --- commands -----------------------------------------------------------------------------------------------

COMMANDS = [(b, line) for b in ALL if b.lang == "sh" for line in lines_of(b)]
OURS = [(b, line) for b, line in COMMANDS if line.startswith("fedsofim ")]
PROGRAM: click.Command = typer.main.get_command(app)
MADE_BEFORE = {"fed/server/start-superlink.sh", "./start.sh", "./start.sh check"}  # by `federation init`


def test_every_command_in_a_block_is_one_that_the_program_takes():
    """Names, options, their values, and what is needed: all but whether files are there."""
    assert len(OURS) > 60
    wrong = {f"{block}: {line}": said for block, line in OURS if (said := refused(line))}
    assert not wrong


def refused(line: str) -> str:
    words = shlex.split(line.partition(" > ")[0])[1:]
    command = PROGRAM
    path = ["fedsofim"]
    while isinstance(command, click.Group) and words and words[0] in command.commands:
        path.append(words[0])
        command, words = command.commands[words[0]], words[1:]
    if isinstance(command, click.Group) and words and not words[0].startswith("-"):
        return f"there is no {words[0]}"
    try:
        command.make_context(" ".join(path), words)
    except click.exceptions.ClickException as error:
        return "" if "does not exist" in error.format_message() else error.format_message()
    return ""


def test_a_wrong_command_is_noticed():
    for line in ("fedsofim rum", "fedsofim run --epsilom 1", "fedsofim run --clients many", "fedsofim predict model"):
        assert refused(line)


def test_other_commands_name_what_is_there():
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for block, line in [(b, line) for b, line in COMMANDS if not line.startswith("fedsofim ")]:
        words = shlex.split(line)
        match words[0]:
            case "make":
                assert words[1] in targets, block
            case "python":
                assert (ROOT / words[1]).is_file(), block
            case "FEDSOFIM_FUZZ=20000":
                assert words[1:4] == ["python", "-m", "pytest"], block
                assert all((ROOT / file).is_file() for file in words[4:]), block
            case "pip":
                assert set(re.findall(r"\w+", words[2].removeprefix("fedsofim"))) <= set(extras), block
            case _:
                assert line in MADE_BEFORE, f"{block}: nobody knows {line}"


# --- TOML ---------------------------------------------------------------------------------------------------

TOML = [block for block in ALL if block.lang == "toml"]
SECTIONS = {**policy._FIELDS, "work": policy.Work.__dataclass_fields__}


@pytest.mark.parametrize("block", TOML, ids=str)
def test_toml_is_what_its_reader_takes(block: Block):
    table = tomllib.loads(block.code)
    if "columns" in table:
        part = {"another": {"kind": "number", "range": [0, 1]}}  # a page may show one column of a schema
        assert schema_of(table | {"columns": table["columns"] | part}, block.page).columns
    elif set(table) <= {*SECTIONS, "peers"}:
        assert all(set(table[name]) <= set(SECTIONS[name]) for name in table if name != "peers")
    elif "project" in table:
        groups = ("methods", "models", "datasets")
        assert set(table["project"]["entry-points"]) <= {f"fedsofim.{group}" for group in groups}
    else:
        assert set(table) <= set(grid_file._KEYS)


def test_every_block_has_a_language_that_somebody_looks_at():
    assert not [str(block) for block in ALL if block.lang not in {"python", "sh", "toml", "text"}]


@pytest.mark.parametrize("page", PAGES)
def test_no_fence_is_overlooked(page: str):
    """Every line that opens or closes a block belongs to one that was read."""
    fences = re.findall(r"^ *(?:```|~~~)", (ROOT / page).read_text(), re.M)
    assert len(fences) == 2 * len(blocks(page))


#: Pages whose `text` blocks are compared with what was printed (test_tutorials.py), and what shows no output.
PRINTED = {"docs/tutorials/researcher.md"}
NO_OUTPUT = {"docs/architecture.md", "docs/data.md"}  # the tree of the source; a table, and files in a folder


def test_text_that_a_program_printed_is_compared():
    assert {block.page for block in ALL if block.lang == "text"} == PRINTED | NO_OUTPUT
