"""A node's ledger: charged on disk before anything leaves, never short, and readable whatever happened."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from fedsofim.deploy.account import Account, Opened
from fedsofim.errors import InputError, Refused
from ledgers import SECRET, ask, cap_of, charged, line, made, open_


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


# --- on disk first ------------------------------------------------------------------------------------------


def test_the_charge_is_on_disk_before_there_is_a_reply(path: Path):
    opened = open_(path, ask())
    assert opened.reply is None
    assert Account(path).entries() == [("job", line())]
    with closing(sqlite3.connect(path)) as db:
        (stored,) = db.execute("SELECT count(*) FROM charges").fetchone()
    assert stored == 1


def test_the_question_asked_again_after_the_reply_is_answered_for_free(path: Path):
    opened = open_(path, ask())
    Account(path).close_ask(opened.number, b"reply", b"memory")
    again = open_(path, ask(), cap=0.0)  # nothing is left, and nothing is needed
    assert again.reply == b"reply"
    assert charged(path) == 1


def test_a_crash_before_the_reply_costs_nothing_more(path: Path):
    first = open_(path, ask())
    second = open_(path, ask(), cap=0.0)
    assert (second.reply, second.number, second.secret) == (None, first.number, first.secret)
    assert charged(path) == 1
    Account(path).close_ask(second.number, b"second", b"")
    assert open_(path, ask()).reply == b"second"
    assert charged(path) == 1


def test_of_one_question_no_second_answer_is_ever_kept(path: Path):
    opened = open_(path, ask())
    Account(path).close_ask(opened.number, b"reply", b"")
    with pytest.raises(Refused, match="answered before"):
        Account(path).close_ask(opened.number, b"another reply", b"")
    assert open_(path, ask()).reply == b"reply"
    Account(path).close_ask(opened.number, b"reply", b"")  # computed again, to the same bits


def test_another_question_of_the_same_round_is_charged(path: Path):
    opened = open_(path, ask(question="first"))
    Account(path).close_ask(opened.number, b"reply", b"")
    assert open_(path, ask(question="second")).reply is None
    assert charged(path) == 2


def test_a_refusal_leaves_no_trace(path: Path):
    Account(path).create()
    with pytest.raises(Refused):
        open_(path, ask(), cap=cap_of(1) * 0.9)
    assert charged(path) == 0
    assert Account(path).terms() == {}


def test_replies_of_rounds_long_past_are_computed_again_for_free(path: Path):
    for t in range(8):
        Account(path).close_ask(open_(path, ask(t)).number, b"%d" % t, b"m%d" % t)
    assert open_(path, ask(7)).reply == b"7"
    assert open_(path, ask(6)).reply == b"6"  # a server that resumes goes back one round
    old = open_(path, ask(0), cap=0.0)
    assert old.reply is None
    with pytest.raises(Refused, match="answered before"):
        Account(path).close_ask(old.number, b"other", b"m0")
    Account(path).close_ask(old.number, b"0", b"m0")
    assert charged(path) == 8


def test_replies_are_kept_up_to_the_bytes_that_the_operator_allows(path: Path):
    for job in ("a", "b", "c"):
        opened = open_(path, ask(0, job=job))
        Account(path).close_ask(opened.number, b"x" * 100, b"y" * 20, stored=250)
    kept = {job: open_(path, ask(0, job=job)).reply is not None for job in ("a", "b", "c")}
    assert kept == {"a": False, "b": True, "c": True}
    opened = open_(path, ask(1, job="c"))
    Account(path).close_ask(opened.number, b"x" * 300, b"", stored=250)  # what was just computed is always kept
    assert open_(path, ask(1, job="c")).reply == b"x" * 300


def test_memory_is_kept_for_the_next_round(path: Path):
    account = Account(made(path))
    assert account.memory("job", 0) is None
    account.close_ask(open_(path, ask(0)).number, b"", b"after round 0")
    account.close_ask(open_(path, ask(0, job="other")).number, b"", b"another job's")
    assert Account(path).memory("job", 0) == b"after round 0"
    assert Account(path).memory("job", 1) is None


# --- noise that comes back ----------------------------------------------------------------------------------


def test_a_job_keeps_its_secret_and_jobs_have_different_ones(path: Path):
    assert open_(path, ask(0)).secret == SECRET
    assert open_(path, ask(1), secret=bytes(32)).secret == SECRET
    assert open_(path, ask(0, job="other"), secret=bytes(32)).secret == bytes(32)


def test_in_order_a_second_question_of_a_round_is_refused(path: Path):
    opened = open_(path, ask(0, in_order=True))
    for close in (False, True):
        if close:
            Account(path).close_ask(opened.number, b"reply", b"")
        with pytest.raises(Refused, match="round 1 was asked before"):
            open_(path, ask(0, question="other", in_order=True))
    assert open_(path, ask(0, in_order=True)).reply == b"reply"
    assert charged(path) == 1


def test_in_order_the_same_question_after_a_crash_is_free(path: Path):
    open_(path, ask(0, in_order=True))
    assert open_(path, ask(0, in_order=True), cap=0.0).reply is None
    assert charged(path) == 1


def test_in_order_no_round_may_be_left_out(path: Path):
    with pytest.raises(Refused, match="round 2"):
        open_(path, ask(1, in_order=True))
    open_(path, ask(0, in_order=True))
    with pytest.raises(Refused, match="round 3"):
        open_(path, ask(2, in_order=True))
    open_(path, ask(1, in_order=True))
    open_(path, ask(2, in_order=True))
    with pytest.raises(Refused, match="round 1"):  # nor may one come back with other numbers
        open_(path, ask(0, question="other", in_order=True))
    assert charged(path) == 3


# --- one job, one meaning -----------------------------------------------------------------------------------


def test_other_terms_or_other_records_under_a_jobs_name_are_refused(path: Path):
    opened = open_(path, ask())
    Account(path).close_ask(opened.number, b"reply", b"")
    with pytest.raises(Refused, match="other terms"):
        open_(path, ask(terms='{"method": "fedgd", "rounds": 4}'))
    with pytest.raises(Refused, match="records changed"):
        open_(path, ask(data="other"))
    assert charged(path) == 1
    open_(path, ask(job="new", data="other"))  # under a name of its own it is welcome, and charged
    assert charged(path) == 2


# --- the file -----------------------------------------------------------------------------------------------


def spoiled(path: Path, how: str) -> None:
    content = path.read_bytes()
    half = len(content) // 2
    changed = {
        "header": b"x" * 100 + content[100:],
        "pages": content[:100] + b"\xff" * (len(content) - 100),
        "cut": content[:half],
        "other": b"this is no database at all" * 50,
    }
    path.write_bytes(changed[how])


@pytest.mark.parametrize("how", ["header", "pages", "cut", "other"])
def test_a_damaged_ledger_releases_nothing(path: Path, how: str):
    opened = open_(path, ask())
    Account(path).close_ask(opened.number, b"reply" * 2000, b"")
    spoiled(path, how)
    before = path.read_bytes()
    for what in (ask(), ask(1)):
        with pytest.raises(InputError, match=r"ledger\.db.*nothing is released"):
            open_(path, what)
    with pytest.raises(InputError):
        Account(path).entries()
    assert path.read_bytes() == before


def test_a_ledger_of_another_format_releases_nothing(path: Path):
    open_(path, ask())
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE meta SET value='0' WHERE key='format'")
    db.close()
    with pytest.raises(InputError, match="format"):
        open_(path, ask(1))


@pytest.mark.parametrize("where", ["folder", "nowhere"])
def test_a_ledger_that_cannot_be_opened_is_an_error_to_read(tmp_path: Path, where: str):
    (tmp_path / "folder").mkdir()
    path = {"folder": tmp_path / "folder", "nowhere": tmp_path / "none" / "ledger.db"}[where]
    with pytest.raises(InputError, match=str(path)):
        open_(path, ask())


def test_reading_makes_no_ledger(path: Path):
    for read in (Account(path).entries, Account(path).identity, Account(path).last, Account(path).terms):
        with pytest.raises(InputError, match="no ledger"):
            read()
    assert not path.exists()


def test_an_empty_ledger_has_an_identity_of_its_own(tmp_path: Path):
    first, second = Account(tmp_path / "a.db"), Account(tmp_path / "b.db")
    for account in (first, second):
        account.create()
        assert (account.last(), account.entries(), account.terms()) == (0, [], {})
    assert first.identity() != second.identity()
    assert first.identity() == Account(tmp_path / "a.db").identity() == first.standing().ledger


def test_entries_up_to_a_number(path: Path):
    for t, multiplier in enumerate([3.0, 4.0, 5.0]):
        open_(path, ask(t), [line(multiplier), line(multiplier)])
    account = Account(path)
    assert account.last() == 6
    assert [each.multiplier for _, each in account.entries(4)] == [3.0, 3.0, 4.0, 4.0]


def test_every_write_waits_for_the_disk(path: Path, monkeypatch):
    seen: list[tuple[int, str]] = []

    class Watched(sqlite3.Connection):
        def close(self) -> None:
            modes = (self.execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "journal_mode"))
            seen.append(tuple(modes))  # type: ignore[arg-type]
            super().close()

    made(path)
    real = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: real(*a, **k, factory=Watched))
    opened: Opened = open_(path, ask())
    Account(path).close_ask(opened.number, b"reply", b"")
    monkeypatch.undo()
    assert len(seen) == 2
    for synchronous, journal in seen:
        assert synchronous in (2, 3)  # FULL or EXTRA
        assert journal in ("delete", "truncate", "persist")  # a rollback journal: one file holds everything
    assert not path.with_name("ledger.db-wal").exists()
