"""The operator's page: its numbers are the ledger's, every request has its verdict, and text stays text."""

import html
import math
import re
from pathlib import Path
from typing import Any

import pytest

from fedsofim.core.budget import WITHOUT
from fedsofim.deploy.certificate import statement
from fedsofim.deploy.docket import Verdict, Visit, enter
from fedsofim.deploy.lines import epsilon_of_lines
from fedsofim.deploy.pages import operators
from fedsofim.deploy.pages.operators import Operators
from fedsofim.deploy.pages.rendered import facts_of, html_of
from fedsofim.deploy.pages.view import Table, View
from fedsofim.deploy.policy import Policy
from fedsofim.deploy.stopping import stop, stopped_since
from nodes import REHEARSAL
from page_marks import Marks
from page_worlds import HOSTILE, LINE, charge, make_hostile, make_watched


def watched(policy: Policy) -> Operators:
    return Operators(policy.data.parent / "policy.toml", lambda: "connected to h:1")


def table(view: View, name: str) -> Table:
    (found,) = [t for t in view.tables if t.name == name]
    return found


def column(view: View, name: str, label: str) -> list[str]:
    found = table(view, name)
    (place,) = [i for i, c in enumerate(found.columns) if c.label == label]
    return [row[place].text for row in found.rows]


def test_the_gauge_is_the_ledgers_account(tmp_path: Path):
    policy = make_watched(tmp_path)
    view, spent = watched(policy).view(), statement(policy)["epsilon"]
    assert view.gauge.part == spent / policy.epsilon
    shown, left = float(view.gauge.value.removeprefix("ε ")), float(view.gauge.rest.removesuffix(" left"))
    assert spent <= shown < spent + 1e-4, "never less than was spent"
    assert policy.epsilon - spent - 1e-4 < left <= policy.epsilon - spent, "never more than is left"
    assert view.gauge.ends == ("0", "cap 1")


def test_every_request_has_its_price_its_verdict_and_who_asked(tmp_path: Path):
    policy = make_watched(tmp_path)
    view = watched(policy).view()
    assert column(view, "requests", "Verdict") == [
        "refused: it would cost too much", "charged; no answer was made", "answered", "answered",
    ]  # fmt: skip
    assert column(view, "requests", "Asked by") == ["run 72, h:1", *["run 71, h:1"] * 3]
    assert column(view, "requests", "Job") == ["job-2", *["job-1"] * 3]
    assert column(view, "requests", "Question") == ["round 7", "round 3 of 5", "round 2 of 5", "round 1 of 5"]
    price = epsilon_of_lines([LINE], policy.delta)
    shown = [float(p) for p in column(view, "requests", "Price ε") if p != "\N{EN DASH}"]
    assert shown == pytest.approx([price] * 3, abs=1e-4)
    after = [epsilon_of_lines([LINE] * n, policy.delta) for n in (3, 2, 1)]
    assert [float(p) for p in column(view, "requests", "Spent after ε") if p != "\N{EN DASH}"] == pytest.approx(
        after, abs=1e-4
    )
    assert column(view, "jobs", "Requests") == ["3"]


def test_what_was_asked_again_and_what_was_kept_back_are_told_apart(tmp_path: Path):
    policy = make_watched(tmp_path)
    (tmp_path / "ledger.db.docket").unlink()
    about: Any = {"what": "ask", "job": "job-1", "phase": "round"}
    enter(policy.ledger, Visit(at=5e9, verdict=Verdict.FREE, round=1, ask=2, **about))
    enter(policy.ledger, Visit(at=1.0, verdict=Verdict.REFUSED, round=1, ask=2, spent=0.5, why="stopped", **about))
    said = column(watched(policy).view(), "requests", "Verdict")
    assert said == ["answered again, free", "charged; no answer was made", "charged, not sent: stopped", "answered"]


def test_a_request_that_the_docket_forgot_is_still_there_with_its_price(tmp_path: Path):
    policy = make_watched(tmp_path)
    for path in tmp_path.glob("ledger.db.docket*"):
        path.unlink()
    view = watched(policy).view()
    assert column(view, "requests", "Verdict") == ["charged; no answer was made", "answered", "answered"]
    assert "\N{EN DASH}" not in column(view, "requests", "Price ε")


def test_the_page_follows_the_ledger_and_looks_only_where_it_changed(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(operators, "_EASE", 0.0)
    policy, looks = make_watched(tmp_path), []
    real = operators.look_at
    monkeypatch.setattr(operators, "look_at", lambda *a: (looks.append(1), real(*a))[1])
    page = watched(policy)
    first = [page.view().gauge for _ in range(3)]
    assert (len(looks), len(set(first))) == (1, 1)
    charge(policy, "job-1", 3)
    assert page.view().gauge.part > first[0].part
    assert len(looks) == 2


def test_stopping_and_resuming_from_the_page(tmp_path: Path):
    policy = make_watched(tmp_path)
    page = watched(policy)
    assert (page.view().stopped, page.view().state.text) == (False, "answering")
    page.stop()
    assert stopped_since(policy.ledger) is not None
    assert page.view().stopped and page.view().state.text.startswith("stopped since")
    page.resume()
    assert stopped_since(policy.ledger) is None
    assert {"stopped by you", "resumed by you"} <= set(column(page.view(), "requests", "Verdict"))
    assert "the page" in column(page.view(), "requests", "Asked by")


@pytest.mark.parametrize("harm", ["gone", "cut", "older", "policy"])
def test_a_ledger_that_cannot_be_used_is_told_and_no_number_is_made_up(tmp_path: Path, harm: str):
    policy = make_watched(tmp_path)
    older = policy.ledger.read_bytes()
    charge(policy, "job-1", 4)
    if harm == "gone":
        policy.ledger.unlink()
    elif harm == "cut":
        policy.ledger.write_bytes(older[: len(older) // 2])
    elif harm == "older":
        policy.ledger.write_bytes(older)
    else:
        (tmp_path / "policy.toml").write_text("[node]\n")
    view = watched(policy).view()
    assert view.state.text == "nothing is answered"
    assert view.gauge.value == "unknown"
    assert len(view.notices) == 1
    html_of(view, "node", "t")


def test_a_rehearsal_says_that_nothing_is_protected(tmp_path: Path):
    policy = make_watched(tmp_path, **REHEARSAL)
    gauge = watched(policy).view().gauge
    assert math.isinf(policy.epsilon)
    assert (gauge.value, gauge.tone) == (WITHOUT, "bad")


# --- text stays text ----------------------------------------------------------------------------------------


def test_whatever_a_stranger_writes_is_shown_and_changes_no_element(tmp_path: Path):
    plain = html_of(watched(make_watched(tmp_path / "a")).view(), "node", "t")
    hostile = html_of(watched(make_hostile(tmp_path / "b")).view(), "node", "t")
    assert Marks(hostile).found == Marks(plain).found
    rows = 2 * len(HOSTILE) * 8 + len(HOSTILE) * 9  # requests and refusals; jobs: a row and eight cells each
    assert Marks(hostile).count == Marks(plain).count + rows
    for text in HOSTILE:
        assert text in Marks(hostile).text
        assert text not in hostile.replace(html.escape(text), "") or text == html.escape(text)


def test_the_page_asks_nobody_for_anything_and_has_no_handlers(tmp_path: Path):
    page = html_of(watched(make_hostile(tmp_path)).view(), "node", "t")
    tags = Marks(page).found
    assert not [name for _, names in tags for name in names if name.startswith("on") or name == "style"]
    assert {t for t, names in tags if {"src", "href"} & set(names)} == {"link"}
    assert re.findall(r'href="([^"]*)"', page) == ["data:,"]
    assert "url(" not in page and "@import" not in page


def test_what_turns_text_round_or_is_endless_is_shown_as_such(tmp_path: Path):
    policy = make_watched(tmp_path)
    enter(policy.ledger, Visit(at=0, verdict=Verdict.REFUSED, why="a\u202eb\x1b[2Jc\n" + "d" * 900, who="\u0000"))
    enter(policy.ledger, Visit(at=math.inf, verdict=Verdict.REFUSED, why=""))
    page = facts_of(watched(policy).view())
    assert "u202e" not in page and "u001b" not in page and "u0000" not in page
    assert "d" * 500 not in page


def test_a_stop_shows_in_the_form_that_is_offered(tmp_path: Path):
    policy = make_watched(tmp_path)
    shown = [bool(re.search(r'<form id="stop"[^>]* hidden', html_of(watched(policy).view(), "node", "t")))]
    stop(policy.ledger)
    shown += [bool(re.search(r'<form id="stop"[^>]* hidden', html_of(watched(policy).view(), "node", "t")))]
    assert shown == [False, True]
