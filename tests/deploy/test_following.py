"""A job is followed by the files it leaves: what it does once its nodes have come, then every round, then the end."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedsofim.deploy import following, registration
from fedsofim.deploy.checkpoint import CHECKPOINT, OUTCOME, PROGRESS
from fedsofim.deploy.following import follow
from fedsofim.deploy.order import Conduct, Order
from fedsofim.errors import InputError


@pytest.fixture
def job(tmp_path: Path, monkeypatch) -> Path:
    """A job's folder; the server's process does what a test says at its next look, and nothing takes time."""
    (tmp_path / "server" / "flwr").mkdir(parents=True)
    config = '[superlink.federation]\naddress = "127.0.0.1:9092"\n'
    (tmp_path / "server" / "flwr" / "config.toml").write_text(config)
    (tmp_path / "job").mkdir()
    monkeypatch.setattr(following, "register", lambda server: [])
    monkeypatch.setattr(following, "link_answers", lambda server: True)
    monkeypatch.setattr(following, "submit", lambda server, config: 7)
    return tmp_path / "job"


def at_each_look(monkeypatch, *acts: tuple[Path, dict[str, Any]]) -> None:
    left = list(acts)

    def sleep(seconds: float) -> None:
        path, facts = left.pop(0)
        path.write_text(json.dumps(facts))

    monkeypatch.setattr("fedsofim.deploy.following.time.sleep", sleep)


def test_a_folder_that_starts_the_superlink_for_everybody_is_refused(job: Path):
    script = job.parent / "server" / "start-superlink.sh"
    script.write_text('#!/bin/sh\nexec flower-superlink --host 0.0.0.0 --port 9092 "$@"\n')
    with pytest.raises(InputError, match="could run code on this machine"):
        follow(job.parent / "server", Order(), Conduct(folder=str(job)))


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
        follow(job.parent / "server", Order(recipe="paper", method="fedgd", rounds=3), Conduct(folder=str(job)))
    assert capsys.readouterr().out == "run 7 submitted: fedgd, 3 nodes\n"


# --- never in the dark --------------------------------------------------------------------------------------


class Passing:
    """Time that passes by looking at the job."""

    def __init__(self, *acts: Any) -> None:
        self.now, self.acts = 0.0, list(acts)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        assert self.now < 60, "nobody was told anything"
        if self.acts:
            self.acts.pop(0)()


def failed(job: Path, monkeypatch, *acts: Any, status: str = "running") -> tuple[str, float]:
    """What the coordinator is told, and after how many seconds."""
    clock = Passing(*acts)
    monkeypatch.setattr(following, "time", clock)
    monkeypatch.setattr(following, "run_status", lambda server, run: status)
    with pytest.raises(InputError) as caught:
        follow(job.parent / "server", Order(recipe="paper", method="fedgd", rounds=3), Conduct(folder=str(job)))
    return str(caught.value), clock.now


def test_a_superlink_that_was_never_started_is_said_at_once(job: Path, monkeypatch):
    monkeypatch.setattr(following, "link_answers", lambda server: False)
    text, after = failed(job, monkeypatch)
    assert "no SuperLink answers at 127.0.0.1:9092" in text and "start-superlink.sh" in text
    assert after == 0


def test_a_superlink_that_is_killed_is_said_within_ten_seconds(job: Path, monkeypatch):
    (job / CHECKPOINT).touch()
    gone = lambda: monkeypatch.setattr(following, "link_answers", lambda server: False)  # noqa: E731
    text, after = failed(job, monkeypatch, gone)
    assert "is gone" in text and "start-superlink.sh" in text and "--resume" in text
    assert after <= 10


def test_a_full_disk_is_said_within_ten_seconds(job: Path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=0))
    text, after = failed(job, monkeypatch, status="finished:failed")
    assert "is full" in text and "make room" in text
    assert after <= 10


def test_a_process_that_ended_without_a_word(job: Path, monkeypatch):
    begun = lambda: (job / PROGRESS).write_text('{"waiting": "nobody is here"}')  # noqa: E731
    text, after = failed(job, monkeypatch, begun, status="finished:failed")
    assert "the SuperLink's log says why" in text
    assert after <= 10


def test_a_process_that_never_came_up_is_started_again(job: Path, monkeypatch, capsys):
    """Flower's token for it runs out after 30 s, which a busy machine may need to start it."""
    runs = iter((7, 8))
    monkeypatch.setattr(following, "submit", lambda server, config: next(runs))
    monkeypatch.setattr(following, "time", Passing())
    ends = {7: lambda: "finished:failed", 8: lambda: (job / OUTCOME).write_text('{"finished": 3}') and "running"}
    monkeypatch.setattr(following, "run_status", lambda server, run: ends[run]())
    follow(job.parent / "server", Order(recipe="paper", method="fedgd", rounds=3), Conduct(folder=str(job)))
    said = capsys.readouterr().out
    assert "did not come up; once more" in said and "run 8 submitted" in said and "finished" in said


def test_a_process_that_never_comes_up_is_given_up_in_words(job: Path, monkeypatch):
    text, after = failed(job, monkeypatch, status="finished:failed")
    assert "did not come up in 3 starts" in text and "the same command again" in text
    assert after <= 30


def test_a_job_that_goes_on_is_not_asked_after(job: Path, monkeypatch):
    """A question is a process of Flower's own; news in the job's folder answers it already."""
    rounds = [lambda n=n: (job / PROGRESS).write_text(json.dumps({"round": n, "rounds": 90})) for n in range(90)]
    monkeypatch.setattr(following, "time", Passing(*rounds, lambda: (job / OUTCOME).write_text('{"finished": 90}')))
    monkeypatch.setattr(following, "run_status", lambda server, run: pytest.fail("asked"))
    follow(job.parent / "server", Order(recipe="paper", method="fedgd", rounds=90), Conduct(folder=str(job)))


def test_a_servers_process_that_does_not_start_is_said(job: Path, monkeypatch, capsys):
    ends = [lambda: None] * 40 + [lambda: (job / OUTCOME).write_text('{"failed": "no"}')]
    failed(job, monkeypatch, *ends)
    assert capsys.readouterr().out.count("has not started the server's process yet") == 1


def test_nothing_is_said_of_resuming_where_nothing_was_begun(job: Path, monkeypatch):
    text, _ = failed(job, monkeypatch, lambda: (job / OUTCOME).write_text('{"failed": "2 nodes answered"}'))
    assert "--resume" not in text and "the same command again" in text


def test_who_is_waited_for_is_said_as_it_changes(job: Path, monkeypatch, capsys):
    say = [lambda n=n: (job / PROGRESS).write_text(json.dumps({"waiting": f"{n} of 3 are here"})) for n in (1, 1, 2)]
    failed(job, monkeypatch, *say, lambda: (job / OUTCOME).write_text('{"failed": "no"}'))
    assert capsys.readouterr().out.splitlines()[1:] == ["1 of 3 are here", "2 of 3 are here"]


# --- keys ---------------------------------------------------------------------------------------------------


def test_a_replaced_key_is_made_known_and_the_old_one_taken_back(tmp_path: Path, monkeypatch):
    keys = tmp_path / "node-keys"
    keys.mkdir()
    asked: list[list[str]] = []
    numbers = iter("123")

    def flwr(arguments: list[str], env: Any) -> dict[str, Any]:
        asked.append(arguments[1:3])
        return {"success": True, "node-id": next(numbers)} if arguments[1] == "register" else {"success": True}

    monkeypatch.setattr(registration, "flwr", flwr)
    monkeypatch.setattr(registration, "server_environment", lambda server: {})
    (keys / "a.pub").write_text("first\n")
    assert registration.register(tmp_path) == registration.register(tmp_path) == []
    (keys / "a.pub").write_text("second\n")
    (said,) = registration.register(tmp_path)
    assert "the key of a was replaced" in said
    assert asked == [["register", str(keys / "a.pub")], ["register", str(keys / "a.pub")], ["unregister", "1"]]
    monkeypatch.setattr(registration, "flwr", lambda *a: {"success": False, "error-message": "no"})
    (keys / "a.pub").write_text("third\n")
    with pytest.raises(InputError, match="did not take the key of a: no"):
        registration.register(tmp_path)
