"""Both tutorials, typed from top to bottom: what they write is written, what they run is run.

The researcher's in one folder. The hospitals' in four, with three nodes and the coordinator in one process: messages go
through a grid in memory in the place of Flower's SuperLink. The lines that start processes (start-superlink.sh and
start.sh) are looked at here and typed in test_pages_walked.py. `pip install` is not typed.
"""

import os
import shutil
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from typed import about_a_job, shell_lines, told_apart, typed
from walked import Block, blocks, execute, lines_of, python_of, write

RESEARCHER, HOSPITALS = "docs/tutorials/researcher.md", "docs/tutorials/hospitals.md"
USERS = ("docs/coordinator.md", "docs/hospital.md", "docs/sites.md", "docs/how-to/certificate.md")  # of a job
HOSPITALS_TEXT = (Path(__file__).parents[2] / HOSPITALS).read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_researchers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {}
    printed = ""
    with jax.enable_x64(False):
        for block in blocks(RESEARCHER):
            match block.lang:
                case "sh":
                    lines = [line for line in lines_of(block) if not line.startswith("pip install")]
                    printed = "".join(typed(line, capsys, monkeypatch) for line in lines)
                case _ if block.title:
                    write(block, tmp_path)
                case "python":
                    execute(block, space)
                    printed = capsys.readouterr().out
                case lang:
                    assert lang == "text", f"{block}: nobody runs it"
                    assert not (apart := told_apart(block.code, printed)), f"{block}: {apart}"
    assert "DP-FedGD" in (tmp_path / "runs" / "second" / "report.html").read_text()
    assert set(tomllib.loads((tmp_path / "tuned.toml").read_text())["methods"]) == {"DP-FedGD", "Nesterov"}


def test_another_output_than_the_page_shows_is_noticed():
    shown = "a run: 93.89 % after 100 rounds,\nepsilon 5"
    assert not told_apart(shown, "a run: 94.17 % after 100\nrounds, epsilon 5\n")
    for other in ("a run: 91.89 % after 100 rounds, epsilon 5", "a run: 93.89 % after 101 rounds, epsilon 5",
                  "a run: 93.89 % after 100 rounds", ""):  # fmt: skip
        assert told_apart(shown, other)


def test_its_client_method_is_the_example():
    (shown,) = [b for b in blocks(RESEARCHER) if b.title == "heavyball.py"]
    assert shown.code == (Path(__file__).parents[2] / "examples" / "heavyball.py").read_text()


class Federation:
    """Who types the hospitals' page, each in a folder of its own."""

    def __init__(self, folder: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
        self.desk, self.type = folder / "desk", lambda line: typed(line, capsys, monkeypatch)
        self.hospitals = [folder / name for name in ("berlin", "lyon", "turin")]
        self.desk.mkdir()

    def coordinator(self, line: str) -> None:
        os.chdir(self.desk)
        if line.endswith(".sh"):
            assert os.access(self.desk / line, os.X_OK)
            return
        self.type(line)
        if " init " in line:
            self.hand_out()

    def hand_out(self) -> None:
        for number, folder in enumerate(self.hospitals, start=1):
            shutil.move(self.desk / "fed" / "nodes" / f"node-{number}", folder)
            shutil.copy(self.desk / f"{folder.name}.csv", folder / "records.csv")

    def each_hospital(self, line: str) -> None:
        for folder in self.hospitals:
            os.chdir(folder)
            if line == "./start.sh check":  # as the script has it, but for the connection
                assert "WRONG" not in self.type("fedsofim node check --policy policy.toml")
            elif line.startswith("fedsofim certificate verify"):
                self.checks_the_certificate(line, folder)
            elif line == "./start.sh":
                assert os.access(folder / line, os.X_OK)
            else:
                self.type(line)

    def checks_the_certificate(self, line: str, folder: Path) -> None:
        """With what the coordinator sent, and the ledger that is here."""
        shutil.copy(self.desk / "jobs" / "first" / "certificate.json", folder)
        shutil.copytree(self.desk / "fed" / "server" / "node-keys", folder / "node-keys")
        name = f"node-{self.hospitals.index(folder) + 1}"
        (shown,) = [line for line in HOSPITALS_TEXT.splitlines() if "`holds:" in line]
        told = shown.split("`")[1].replace("node-1", name)
        assert told in self.type(line).splitlines()

    def one_hospital(self, line: str) -> None:
        os.chdir(self.hospitals[0])
        if not Path("model").exists():
            shutil.copytree(self.desk / "model", "model")
            shutil.copy(self.desk / "new.csv", "new.csv")
        self.type(line)

    def follow(self, server: Path, order: Any, conduct: Any) -> None:
        """In the place of Flower: the coordinator's loop, over a grid that asks the nodes' own app."""
        from fake_grid import FakeClock, FakeGrid, numbered
        from fedsofim.deploy.flower.strategy import MethodStrategy
        from fedsofim.deploy.policy import read_policy

        policies = [read_policy(folder / "policy.toml") for folder in self.hospitals]
        self.grid = FakeGrid(numbered(policies))
        MethodStrategy(order, conduct, clock=FakeClock()).start(self.grid)


@pytest.mark.slow
def test_the_hospitals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    pytest.importorskip("flwr", reason="needs Flower: pip install 'fedsofim[flower]'")
    monkeypatch.setenv("FEDSOFIM_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    people = Federation(tmp_path, capsys, monkeypatch)
    monkeypatch.setattr("fedsofim.cli.deployment.follow", people.follow)
    types = {"coordinator": people.coordinator, "each hospital": people.each_hospital}
    with jax.enable_x64(False):
        for block in blocks(HOSPITALS):
            if block.lang == "sh":
                for line in lines_of(block):
                    if not line.startswith("pip install"):
                        types.get(block.title, people.one_hospital)(line)
            else:
                done_by_hand(block, people)
        card_and_predictions(people)
        what_other_pages_do_with_the_job(people)
        what_the_coordinators_page_shows_in_python(people)


def done_by_hand(block: Block, people: Federation) -> None:
    """What is not a command: a file that the coordinator writes, or a few lines of Python."""
    os.chdir(people.hospitals[0] if block.title == "the hospital that uses it" else people.desk)
    if block.lang == "python":
        execute(block, {})
    elif block.title:
        write(block, people.desk)
    else:
        assert block.code in (people.hospitals[0] / "policy.toml").read_text(), f"{block}: not what the template says"


def card_and_predictions(people: Federation) -> None:
    told = (people.hospitals[0] / "predictions.csv").read_text().splitlines()
    assert len(told) == 6 and "patient" in told[0]
    assert not list((people.desk / "jobs" / "first").glob("*.csv"))  # no record came there


def what_other_pages_do_with_the_job(people: Federation) -> None:
    """Its model is used at the desk, its certificate at a hospital."""
    lines = {page: [line for line in shell_lines(page) if about_a_job(line)] for page in USERS}
    assert all(lines.values())
    shutil.rmtree(people.desk / "model")  # the tutorial's; the coordinator's page makes it as well
    for line in dict.fromkeys(line for page in USERS for line in lines[page]):
        (people.one_hospital if "--ledger ledger.db" in line else people.coordinator)(line)
    assert (people.desk / "together.csv").exists()


def what_the_coordinators_page_shows_in_python(people: Federation) -> None:
    """docs/coordinator.md: the job's model on an array, and a second job from an app of one's own."""

    from fake_grid import FakeClock

    class App:
        def main(self):
            return lambda function: function

    os.chdir(people.desk)
    use, own_app = python_of("docs/coordinator.md")
    space: dict[str, Any] = {"x": np.zeros((2, 7)), "app": App()}
    execute(use, space)
    assert len(space["classes"]) == 2
    execute(own_app, space)
    space["MethodStrategy"] = partial(space["MethodStrategy"], clock=FakeClock())  # no time is waited for
    space["main"](people.grid, None)
    assert (people.desk / "jobs" / "mine" / "certificate.json").exists()
