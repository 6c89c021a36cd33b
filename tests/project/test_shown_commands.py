"""Commands that the pages for sites show: each exists with its options, and a node's own ones do what the page says."""

import re
import shlex
from pathlib import Path

import click
import pytest
import typer.main

from commands import run_here
from fedsofim.cli.app import app
from nodes import X, Y, policy_toml, write_records
from not_typed import NOT_TYPED
from typed import about_a_job, shell_lines

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("docs/sites.md", "docs/node.md", "docs/coordinator.md")


def commands_on(page: str) -> list[list[str]]:
    """The words of every `fedsofim ...` on a page, in a block or between backticks."""
    fenced = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
    text = (ROOT / page).read_text()
    inline = re.findall(r"`(fedsofim [^`]*)`", re.sub(r"\s+", " ", fenced.sub("", text)))
    blocks = re.findall(r"^ *(fedsofim [^#\n]*)", "\n".join(fenced.findall(text)), re.MULTILINE)
    return [shlex.split(c)[1:] for c in dict.fromkeys(c.strip() for c in inline + blocks)]


def found(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that the words name, and what follows."""
    command: click.Command = typer.main.get_command(app)
    while isinstance(command, click.Group) and words and words[0] in command.commands:
        command, words = command.commands[words[0]], words[1:]
    return command, words


def test_somebody_types_every_line_of_a_block_for_sites():
    """Here, or in test_tutorials.py what is about a certificate, or nobody, with a reason."""
    for line in shell_lines("docs/sites.md"):
        assert tuple(line.split()[1:3]) in RUN or about_a_job(line) or line in NOT_TYPED, line


@pytest.mark.parametrize("page", PAGES)
def test_every_command_on_the_page_exists_with_its_options(page: str):
    shown = commands_on(page)
    assert len(shown) >= 5
    for words in shown:
        command, rest = found(words)
        assert rest[:1] != words[:1] or words[0] == "...", f"{page}: there is no command {words[0]}"
        known = {option for parameter in command.params for option in parameter.opts}
        unknown = {word for word in rest if word.startswith("--")} - known
        assert not unknown, f"{page}: {' '.join(words)}"


RUN = [("ledger", "create"), ("node", "check"), ("ledger", "show"), ("node", "stop"), ("node", "resume"),
       ("federation", "mask-key")]  # fmt: skip


def test_the_nodes_own_commands_work_in_its_folder_as_they_are_shown(tmp_path: Path, monkeypatch, capsys):
    pytest.importorskip("cryptography", reason="needs cryptography: pip install 'fedsofim[flower]'")
    write_records(tmp_path, X, Y)
    (tmp_path / "policy.toml").write_text(policy_toml())
    monkeypatch.chdir(tmp_path)
    shown = [words for words in commands_on("docs/sites.md") if tuple(words[:2]) in RUN]
    assert sorted({tuple(words[:2]) for words in shown}) == sorted(RUN)
    for words in sorted(shown, key=lambda words: RUN.index((words[0], words[1]))):
        done = run_here(capsys, monkeypatch, *words)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "mask.key").exists()
    assert not (tmp_path / "ledger.db.stopped").exists()
