"""A job is followed by the files it leaves: what it does once its nodes have come, then every round, then the end."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedsofim.deploy import following
from fedsofim.deploy.checkpoint import OUTCOME, PROGRESS
from fedsofim.deploy.following import follow
from fedsofim.deploy.order import Conduct, Order
from fedsofim.errors import InputError


@pytest.fixture
def job(tmp_path: Path, monkeypatch) -> Path:
    """A job's folder; the server's process does what a test says at its next look, and nothing takes time."""
    (tmp_path / "server" / "flwr").mkdir(parents=True)
    (tmp_path / "server" / "flwr" / "config.toml").touch()
    (tmp_path / "job").mkdir()
    monkeypatch.setattr(following, "register", lambda server: None)
    monkeypatch.setattr(following, "submit", lambda server, config: 7)
    return tmp_path / "job"


def at_each_look(monkeypatch, *acts: tuple[Path, dict[str, Any]]) -> None:
    left = list(acts)

    def sleep(seconds: float) -> None:
        path, facts = left.pop(0)
        path.write_text(json.dumps(facts))

    monkeypatch.setattr("fedsofim.deploy.following.time.sleep", sleep)


def test_what_the_recipe_chose_is_said_when_it_is_known(job: Path, monkeypatch, capsys):
    at_each_look(
        monkeypatch,
        (job / PROGRESS, {"round": 0, "rounds": 2, "text": "", "job": "fedsofim, 2 rounds, UnitNorm"}),
        (job / PROGRESS, {"round": 1, "rounds": 2, "text": "accuracy 50", "job": "fedsofim, 2 rounds, UnitNorm"}),
        (job / PROGRESS, {"round": 2, "rounds": 2, "text": "accuracy 60", "job": "fedsofim, 2 rounds, UnitNorm"}),
        (job / OUTCOME, {"finished": 2}),
    )
    follow(job.parent / "server", Order(recipe="auto"), Conduct(folder=str(job)))
    assert capsys.readouterr().out.splitlines()[:-1] == [
        "run 7 submitted: the recipe auto, 3 nodes",
        "fedsofim, 2 rounds, UnitNorm",
        "round 1/2 accuracy 50",
        "round 2/2 accuracy 60",
    ]


def test_a_job_that_failed_before_it_began(job: Path, monkeypatch, capsys):
    at_each_look(monkeypatch, (job / OUTCOME, {"failed": "nobody came"}))
    with pytest.raises(InputError, match=r"nobody came\. When that is settled"):
        follow(job.parent / "server", Order(method="fedgd", rounds=3), Conduct(folder=str(job)))
    assert capsys.readouterr().out == "run 7 submitted: fedgd, 3 nodes\n"
