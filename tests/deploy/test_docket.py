"""The docket: what was asked and decided, newest kept, never more than its bytes, never a reason to fail."""

import json
import math
from pathlib import Path

import pytest

from fedsofim.deploy import docket
from fedsofim.deploy.docket import Note, Verdict, Visit, enter, noted, visits
from fedsofim.errors import Refused


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def bytes_of(ledger: Path) -> int:
    return sum(p.stat().st_size for p in ledger.parent.glob("ledger.db.docket*"))


def test_however_often_anybody_asks_it_keeps_the_newest_in_bounded_bytes(ledger: Path, monkeypatch):
    monkeypatch.setattr(docket, "MOST", 20_000)
    for number in range(400):
        enter(ledger, Visit(at=number, verdict=Verdict.CHARGED, why="x" * number))
        assert bytes_of(ledger) <= 20_000
    found = visits(ledger, 1000)
    assert [v.at for v in found] == [399 - i for i in range(len(found))]
    assert len(found) >= 10
    assert len(visits(ledger, 3)) == 3


DAY = 86_400.0


def test_questions_that_cost_nothing_cannot_wash_out_the_others(ledger: Path):
    """An attacker who asks 20,000 free questions a day leaves no more than a day has room for."""
    enter(ledger, Visit(at=0, verdict=Verdict.REFUSED, what="THE ATTACK", why="refused: less noise"))
    enter(ledger, Visit(at=1, verdict=Verdict.CHARGED, what="THE CHARGE"))
    for number in range(2_000):
        enter(ledger, Visit(at=2, verdict=(Verdict.REFUSED, Verdict.FREE, Verdict.FAILED)[number % 3], why="w" * 600))
    enter(ledger, Visit(at=3, verdict=Verdict.CHARGED, what="LATER"))
    found = visits(ledger, 10_000)
    assert {"THE ATTACK", "THE CHARGE", "LATER"} <= {v.what for v in found}
    assert len(found) == docket.A_DAY + 3
    assert found[0].verdict is Verdict.NOT_LISTED and found[0].why.startswith(f"{2_001 - docket.A_DAY} more questions")
    enter(ledger, Visit(at=DAY + 1, verdict=Verdict.REFUSED, what="NEXT DAY"))
    newest = visits(ledger, 2)
    assert [v.what for v in newest] == ["NEXT DAY", ""] and newest[1].verdict is Verdict.NOT_LISTED


def test_a_line_stays_for_months_whatever_is_asked(ledger: Path):
    worst = Visit(
        at=0, verdict=Verdict.REFUSED, **dict.fromkeys(("who", "what", "job", "method", "phase", "why"), "x" * 10**4)
    )
    enter(ledger, worst)
    assert docket.MOST / 2 / (bytes_of(ledger) * docket.A_DAY) > 80


@pytest.mark.parametrize("text", ["", "{", "[]", '{"day": 3}', '{"day": "x", "asked": 1}', '{"day": "1970-01-01"}'])
def test_a_count_that_makes_no_sense_begins_anew(ledger: Path, text: str):
    ledger.with_name("ledger.db.docket.count").write_text(text)
    enter(ledger, Visit(at=0, verdict=Verdict.REFUSED, what="A"))
    assert [v.what for v in visits(ledger, 5)] == ["A"]


def test_no_text_in_it_is_long(ledger: Path):
    enter(ledger, Visit(at=0, verdict=Verdict.REFUSED, why="y" * 10**6, job="j" * 10**6))
    assert bytes_of(ledger) < 2_000
    assert ledger.with_name("ledger.db.docket").stat().st_mode & 0o077 == 0


def test_what_became_of_a_question_is_noted_and_told_on(ledger: Path):
    with noted(ledger, "run 1", "consider", Verdict.ALLOWED, Note()):
        pass
    with pytest.raises(Refused), noted(ledger, "run 1", "ask", Verdict.CHARGED, Note()):
        raise Refused("too dear")
    with pytest.raises(ZeroDivisionError), noted(ledger, "run 1", "ask", Verdict.CHARGED, Note()):
        raise ZeroDivisionError("record 17 is Meier")
    with noted(ledger, "run 1", "hello", None, Note()):
        pass
    found = visits(ledger, 10)
    assert [(v.verdict, v.what) for v in found] == [("failed", "ask"), ("refused", "ask"), ("allowed", "consider")]
    assert found[1].why == "too dear"
    assert "Meier" not in ledger.with_name("ledger.db.docket").read_text()


GOOD = json.dumps(dict(vars(Visit(at=1.0, verdict=Verdict.REFUSED, why="w"))))


@pytest.mark.parametrize("line", [
    "", "{", "[]", "null", "3", "[" * 100_000, '{"at": 1}', GOOD.replace('"w"', "3"), GOOD.replace("1.0", '"1"'),
    GOOD.replace("refused", "praised"), GOOD.replace('"round": null', '"round": "x"'), "\ufffd\x00",
    GOOD.replace('"spent": null', '"spent": []'),
])  # fmt: skip
def test_a_line_that_makes_no_sense_is_left_out(ledger: Path, line: str):
    ledger.with_name("ledger.db.docket").write_text(f"{line}\n{GOOD}\n")
    assert [v.why for v in visits(ledger, 10)] == ["w"]


def test_what_was_spent_without_bound_comes_back(ledger: Path):
    enter(ledger, Visit(at=0, verdict=Verdict.CHARGED, ask=1, spent=math.inf))
    assert visits(ledger, 1)[0].spent == math.inf


def test_what_cannot_be_noted_is_decided_all_the_same(tmp_path: Path):
    nowhere = tmp_path / "no such folder" / "ledger.db"
    done = []
    with noted(nowhere, "run 1", "consider", Verdict.ALLOWED, Note()):
        done.append(1)
    assert done
    assert visits(nowhere, 10) == []
