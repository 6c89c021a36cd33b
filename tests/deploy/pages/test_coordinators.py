"""The coordinator's page: what the job's files say, whatever they say, and nothing that they do not."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedsofim.core.budget import WITHOUT
from fedsofim.deploy.checkpoint import OUTCOME, PROGRESS
from fedsofim.deploy.pages.coordinators import job_view
from fedsofim.deploy.pages.rendered import facts_of, html_of
from fedsofim.deploy.pages.view import NONE, View
from fedsofim.deploy.round_notes import ROUNDS
from page_marks import Marks
from page_worlds import HOSTILE, make_hostile_job, make_job


def rows(view: View, name: str) -> list[list[str]]:
    (found,) = [t for t in view.tables if t.name == name]
    return [[cell.text for cell in row] for row in found.rows]


def figures(view: View) -> dict[str, str]:
    return {figure.name: figure.value for figure in view.figures}


def test_rounds_presence_accuracy_and_every_clients_epsilon(tmp_path: Path):
    view = job_view(make_job(tmp_path / "first"))
    assert (view.title, view.state.text, view.about) == ("first", "training", "fedgd, 10 rounds")
    assert (view.gauge.value, view.gauge.rest, view.gauge.part) == ("6 of 10", "4 to go", 0.6)
    assert rows(view, "clients") == [
        ["n0", "10", "●●●●●●", "6 of 6", "0.1250", "1", "0.8750", "with its answers"],
        ["n1", "20", "●○●●●●", "5 of 6", "0.3750", "1", "0.6250", "with its answers"],
        ["n2", "30", "●●●●●●", "6 of 6", "0.6250", "1", "0.3750", "with its answers"],
    ]
    assert rows(view, "rounds")[4][2:] == ["2.0", "2 of 3", "50.00 %", "1.8000", "n1"]
    assert [row[0] for row in rows(view, "rounds")] == ["6", "5", "4", "3", "2", "1"]
    assert figures(view)["accuracy"] == "70.00 %"
    assert (figures(view)["pace"], figures(view)["budget"], figures(view)["delta"]) == ("2.0", "ε 1", "1e-5")


def test_the_curve_rises_as_the_accuracy_does(tmp_path: Path):
    curve = job_view(make_job(tmp_path / "first")).curve
    assert curve is not None
    points = [tuple(map(float, p.split(","))) for p in curve.points.split()]
    assert (points[0][0], points[-1][0]) == (0, 100)
    assert [y for _, y in points] == sorted((y for _, y in points), reverse=True)
    assert curve.ends == ("45.00 %", "70.00 %")


def test_of_a_long_job_the_curve_keeps_its_ends_and_few_points(tmp_path: Path):
    curve = job_view(make_job(tmp_path / "first", 3001)).curve
    assert curve is not None
    points = curve.points.split()
    assert len(points) <= 401
    assert points[-1].startswith("100.00,")


def test_what_a_node_signed_counts_more_than_what_it_said(tmp_path: Path):
    folder = make_job(tmp_path / "first")
    signed = {"job": "j", "clients": {"n1": {"epsilon": 0.5, "cap": 2.0}, "n2": "nonsense"}}
    (folder / "certificate.json").write_text(json.dumps(signed))
    (folder / OUTCOME).write_text(json.dumps({"finished": 6}))
    view = job_view(folder)
    assert rows(view, "clients")[1][4:] == ["0.5000", "2", "1.5000", "in the certificate"]
    assert rows(view, "clients")[2][4] == "0.6250"
    assert view.state.text == "finished"
    (folder / "certificate.json").write_text(json.dumps(signed | {"job": "another"}))
    assert rows(job_view(folder), "clients")[1][7] == "with its answers"


def test_before_anything_has_happened_and_after_it_failed(tmp_path: Path):
    view = job_view(tmp_path / "none yet")
    assert (view.state.text, view.gauge.value, view.notices) == ("starting", NONE, ())
    html_of(view, "job", "t")
    (tmp_path / PROGRESS).write_text(json.dumps({"waiting": "waiting for nodes: 1 of 3"}))
    view = job_view(tmp_path)
    assert (view.state.text, view.notices) == ("waiting for nodes", ("waiting for nodes: 1 of 3",))
    (tmp_path / OUTCOME).write_text(json.dumps({"failed": "nobody came"}))
    view = job_view(tmp_path)
    assert (view.state.text, view.notices[-1]) == ("ended early", "nobody came")


def test_a_rehearsal_shows_as_one(tmp_path: Path):
    folder = make_job(tmp_path / "first")
    facts = json.loads((folder / PROGRESS).read_text())
    facts |= {"epsilon": WITHOUT, "clients": [{"name": "n0", "size": 1, "epsilon": WITHOUT, "cap": WITHOUT}]}
    (folder / PROGRESS).write_text(json.dumps(facts))
    view = job_view(folder)
    assert figures(view)["budget"] == WITHOUT
    assert rows(view, "clients")[0][4:7] == [WITHOUT, WITHOUT, NONE]


@pytest.mark.parametrize(
    "value", [None, 3, "x", [], [None], {"a": 1}, 10**400, -1, True, [[]]], ids=lambda v: str(v)[:9]
)
def test_whatever_the_files_say_there_is_a_page(tmp_path: Path, value: Any):
    folder = make_job(tmp_path / "first")
    facts = json.loads((folder / PROGRESS).read_text())
    lines = [json.loads(line) for line in (folder / ROUNDS).read_text().splitlines()]
    for key in facts:
        (folder / PROGRESS).write_text(json.dumps({**facts, key: value}))
        html_of(job_view(folder), "job", "t")
    (folder / PROGRESS).write_text(json.dumps({**facts, "clients": [{key: value} for key in facts["clients"][0]]}))
    for key in lines[0]:
        (folder / ROUNDS).write_text("".join(json.dumps({**line, key: value}) + "\n" for line in lines) + "{\n")
        facts_of(job_view(folder))
    for name in (PROGRESS, OUTCOME, "certificate.json"):
        (folder / name).write_text(json.dumps(value))
        facts_of(job_view(folder))


def test_whatever_a_node_calls_itself_is_shown_and_changes_no_element(tmp_path: Path):
    plain = html_of(job_view(make_job(tmp_path / "a")), "job", "t")
    hostile = html_of(job_view(make_hostile_job(tmp_path / "b")), "job", "t")
    extra = {("li", ())}  # the notices
    assert Marks(hostile).found - extra == Marks(plain).found - extra
    assert Marks(hostile).count == Marks(plain).count + 9 * len(HOSTILE) + 2
    for text in HOSTILE:
        assert text in Marks(hostile).text


def test_without_scripts_the_page_is_whole_and_loads_itself_again(tmp_path: Path):
    page = html_of(job_view(make_job(tmp_path / "first")), "job", "t")
    assert '<noscript><meta http-equiv="refresh" content="5"></noscript>' in page
    for text in ("6 of 10", "70.00 %", "●○●●●●", "with its answers"):
        assert text in page
