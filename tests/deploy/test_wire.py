"""A job's terms as a node receives them: checked before anything is built, and no file of a server's is ever loaded."""

import math
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from fedsofim import extensions, methods
from fedsofim.deploy import wire
from fedsofim.deploy.node import answer, consider
from fedsofim.deploy.policy import Policy
from fedsofim.deploy.wire import Job, Request, programs_of
from fedsofim.errors import InputError, Refused
from nodes import asked, charges, refusal

# --- terms --------------------------------------------------------------------------------------------------


BROKEN = {
    "not JSON": "{",
    "not terms": '{"id": "x"}',
    "a list": "[]",
    "a number": "3",
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_terms_that_cannot_be_read(text: str):
    with pytest.raises(InputError, match="terms"):
        Job.read(text)


SENSELESS = [
    {"rounds": 0}, {"rounds": 1.5}, {"rounds": True}, {"clip": 0.0}, {"clip": -1.0}, {"clip": math.nan},
    {"clip": "10"}, {"stds": {"round": [-1.0]}}, {"stds": {"round": [math.nan]}}, {"stds": {"other": [1.0]}},
    {"stds": [1.0]}, {"shape": ()}, {"shape": (0,)}, {"classes": 0}, {"id": ""}, {"id": "x" * 65},
    {"noise_std": math.nan}, {"method": 3}, {"settings": []}, {"clients": 0},
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("changed", SENSELESS, ids=str)
def test_senseless_terms(nodes: list[Policy], changed: dict[str, Any]):
    job = asked(nodes).job
    assert Job.read(job.text()) == job
    with pytest.raises(InputError, match="terms"):
        Job.read(replace(job, **changed).text())


# --- no file of a server's ----------------------------------------------------------------------------------


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A method's file that betrays when it is loaded."""
    path = tmp_path / "evil.py"
    path.write_text(f"open({str(tmp_path / 'loaded')!r}, 'w').close()\ndef evil():\n    return None\n")
    return path


def file_names(trap: Path) -> list[str]:
    return [str(trap), f"./{trap.name}", trap.name, f"../{trap.parent.name}/{trap.name}"]


def with_method(request: Request, name: str) -> Request:
    """A request as a server may make it: its terms were never read here."""
    return request._replace(job=replace(request.job, method=name, settings={}))


def test_a_job_naming_a_file_is_refused_where_it_is_read(nodes: list[Policy], trap: Path, monkeypatch):
    monkeypatch.chdir(trap.parent)
    job = asked(nodes).job
    for name in [*file_names(trap), "fedsofim.methods.fedgd", "os", "", "fedgo"]:
        with pytest.raises(Refused, match="not installed here"):
            Job.read(replace(job, method=name).text())
    assert not (trap.parent / "loaded").exists()


def test_a_node_loads_no_file_named_by_a_server(nodes: list[Policy], trap: Path, monkeypatch):
    """Not even where the job never went through the wire, nor where a policy was made to list the file."""
    monkeypatch.chdir(trap.parent)
    request = asked(nodes)
    for name in file_names(trap):
        job = with_method(request, name).job
        assert "not allowed here" in refusal(nodes[0], with_method(request, name))
        with pytest.raises(Refused, match="not allowed here"):
            consider(nodes[0], job)
        careless = replace(nodes[0], methods=(name,))
        for act in (
            lambda p=careless, n=name: answer(p, with_method(request, n)),
            lambda p=careless, j=job: consider(p, j),
        ):
            with pytest.raises(Refused, match="not installed here"):
                act()
        with pytest.raises(Refused, match="not installed here"):
            programs_of(job, 7)
    assert not (trap.parent / "loaded").exists()
    assert charges(nodes[0]) == 0


def test_a_package_that_calls_its_method_like_a_file_does_not_open_the_door(
    nodes: list[Policy], trap: Path, monkeypatch
):
    job = asked(nodes).job
    monkeypatch.setattr(extensions, "installed", lambda kind: {str(trap): None})
    assert str(trap) in methods.names()
    with pytest.raises(Refused, match="not installed here"):
        Job.read(replace(job, method=str(trap)).text())


def test_terms_are_checked_before_anything_is_built(nodes: list[Policy], monkeypatch):
    """In `consider` too: a method that the policy does not list is not even traced."""
    request = asked(nodes, "scaffold")
    strict = replace(nodes[0], methods=("fedgd",))
    monkeypatch.setattr(wire, "read_programs", lambda *a: pytest.fail("a program was built"))
    monkeypatch.setattr(methods, "make", lambda *a, **k: pytest.fail("a method was made"))
    for act in (lambda: consider(strict, request.job), lambda: answer(strict, request)):
        with pytest.raises(Refused, match="scaffold is not allowed here; allowed: fedgd"):
            act()


def test_a_method_of_a_package_installed_on_the_node_runs(nodes: list[Policy], monkeypatch):
    offered = EntryPoint("theirs", "fedsofim.methods.fedgd:fedgd", "fedsofim.methods")
    monkeypatch.setattr(extensions, "entry_points", lambda group: [offered])
    request = asked(nodes, "theirs", settings=(("lr", "0.5"),))
    assert "not allowed here" in refusal(nodes[0], request)
    answer(replace(nodes[0], methods=("theirs",)), request)
    assert charges(nodes[0]) == 1


def test_installed_packages_are_looked_for_once_in_a_process(nodes: list[Policy], monkeypatch):
    """Not for every message: reading what all packages offer takes longer than answering."""
    looked: list[str] = []
    monkeypatch.setattr(extensions, "entry_points", lambda group: looked.append(group) or [])
    text = asked(nodes).job.text()
    for _ in range(3):
        Job.read(text)
    assert sorted(looked) == ["fedsofim.methods", "fedsofim.models"]
