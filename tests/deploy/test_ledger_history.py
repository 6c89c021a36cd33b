"""A ledger is made once, and an empty, missing, cut, edited or older one never counts as a new one."""

import json
import os
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from fedsofim.deploy import ledger_file
from fedsofim.deploy.account import Account
from fedsofim.deploy.chain import Entry, broken_at, first_link, next_link, seal_of
from fedsofim.deploy.node import answer, hello
from fedsofim.deploy.policy import Policy
from fedsofim.deploy.server import step
from fedsofim.deploy.witness import advance, place_of, read_witness
from fedsofim.errors import InputError
from ledgers import ask, cap_of, charged, line, open_
from nodes import ask_all, asked, charges, make_node, make_nodes, records_of, started


@pytest.fixture
def path(tmp_path: Path) -> Path:
    Account(tmp_path / "ledger.db").create()
    return tmp_path / "ledger.db"


def sql(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        for statement in statements:
            db.execute(statement)
    db.close()


def told(policy: Policy, nodes: list[Policy]) -> str:
    """Why a node releases nothing, asked or introduced."""
    with pytest.raises(InputError) as caught:
        answer(policy, asked(nodes[1:], clients=2))
    with pytest.raises(InputError):
        hello(policy)
    return str(caught.value)


@pytest.mark.parametrize(
    "how", ["its time put back", "as it comes", "right after the commit", "right after, its time too"]
)
def test_an_edit_is_noticed_by_the_running_node_at_the_next_question(path: Path, how: str, monkeypatch):
    """Not only at its next start: a spent cap would answer for ever."""
    edit = "UPDATE charges SET multiplier = multiplier * 1000"

    def edited() -> None:
        found = path.stat()
        sql(path, edit)
        if "time" in how:
            os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))

    if how.startswith("right after"):
        look, armed = ledger_file._state, [False]

        def late(place: Path):
            if armed[0] and sys._getframe(1).f_code.co_name == "used" and not _in_transaction(path):
                armed[0] = False
                edited()
            return look(place)

        open_(path, ask(1))
        monkeypatch.setattr(ledger_file, "_state", late)
        armed[0] = True
        open_(path, ask(2))
        assert not armed[0]
    else:
        open_(path, ask(1))
        edited()
    with pytest.raises(InputError, match="was changed"):
        open_(path, ask(3))


def _in_transaction(path: Path) -> bool:
    """Does anybody hold the right to write the ledger?"""
    try:
        with closing(sqlite3.connect(path, timeout=0)) as db:
            db.execute("BEGIN IMMEDIATE")
            db.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return True
    return False


# --- made once ----------------------------------------------------------------------------------------------


def test_a_missing_ledger_is_no_new_one(nodes: list[Policy]):
    answer(nodes[0], asked(nodes))
    nodes[0].ledger.unlink()
    assert "there is no ledger" in told(nodes[0], nodes)
    assert not nodes[0].ledger.exists()
    with pytest.raises(InputError, match="it is gone"):  # nor can it be made again by accident
        nodes[0].account.create()


def test_a_first_start_without_a_ledger_says_how_to_make_it(tmp_path: Path, nodes: list[Policy]):
    policy = make_node(tmp_path / "new", *records_of(0))
    place_of(policy.account.identity()).unlink()
    policy.ledger.unlink()
    assert "fedsofim ledger create --policy" in told(policy, nodes)
    policy.account.create()
    assert hello(policy)["size"] == 7


def test_an_empty_file_is_no_ledger(nodes: list[Policy]):
    answer(nodes[0], asked(nodes))
    nodes[0].ledger.write_bytes(b"")
    assert "the ledger is empty" in told(nodes[0], nodes)


def test_damage_that_sqlite_itself_cannot_tell_in_text_is_told(path: Path):
    open_(path, ask(0))
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE charges", b"CREATE \x87ABLE charges"))
    with pytest.raises(InputError, match="the ledger cannot be used"):
        open_(path, ask(1))
    with pytest.raises(InputError, match="the ledger cannot be used"):
        Account(path).entries()


def test_a_ledger_is_never_overwritten(path: Path):
    before = path.read_bytes()
    with pytest.raises(InputError, match="never overwritten"):
        Account(path).create()
    assert path.read_bytes() == before


def test_a_ledger_and_its_witness_are_for_their_owners_eyes(path: Path):
    for file in (path, place_of(Account(path).identity())):
        assert file.stat().st_mode & 0o777 == 0o600


# --- no older than it was -----------------------------------------------------------------------------------


def test_an_older_copy_is_refused(nodes: list[Policy]):
    older = nodes[0].ledger.with_name("older.db")
    answer(nodes[0], asked(nodes))
    shutil.copy(nodes[0].ledger, older)
    answer(nodes[0], asked(nodes))
    shutil.copy(older, nodes[0].ledger)
    assert "older copy" in told(nodes[0], nodes)


def test_an_older_copy_under_tree_noise_would_give_the_difference_away_and_is_refused(tmp_path: Path):
    """DP-FTRL: the job's secret in the old copy would be drawn from again, at other numbers."""
    nodes = make_nodes(tmp_path)
    now = started(nodes, "ftrl")
    now = step(now, ask_all(nodes, now))
    older = nodes[0].ledger.with_name("older.db")
    shutil.copy(nodes[0].ledger, older)  # it holds the job's secret
    answer(nodes[0], request := now.request())
    shutil.copy(older, nodes[0].ledger)
    other = request._replace(arrays={name: array + 1 for name, array in request.arrays.items()})
    with pytest.raises(InputError, match="older copy"):
        answer(nodes[0], other)


def test_another_history_of_the_same_length_is_refused(path: Path, tmp_path: Path):
    copy = tmp_path / "copy.db"
    shutil.copy(path, copy)
    open_(path, ask(0))
    shutil.copy(copy, path)
    sql(path, "PRAGMA user_version=1")
    place, real = place_of(Account(path).identity()), read_witness(place_of(Account(path).identity()))
    assert real is not None
    found = json.loads(place.read_text()) | {"count": 0, "digest": first_link(real.ledger).digest.hex()}
    saved = place.read_text()
    place.write_text(json.dumps(found))  # as if it had never seen the first history
    open_(path, ask(1))
    place.write_text(saved)
    with pytest.raises(InputError, match="another history"):
        open_(path, ask(2))


def test_without_its_witness_a_ledger_is_not_used_until_its_operator_says_so(path: Path):
    open_(path, ask(0))
    identity = Account(path).identity()
    place_of(identity).unlink()
    with pytest.raises(InputError, match="fedsofim ledger adopt"):
        open_(path, ask(1))
    assert charged(path) == 1  # anybody may still read it
    assert ledger_file.adopt(path, None).number == 1
    open_(path, ask(1))
    assert charged(path) == 2
    with pytest.raises(InputError, match="has a witness already"):
        ledger_file.adopt(path, None)


def test_a_witness_that_a_crash_left_behind_catches_up(path: Path):
    """Killed after the ledger was written and before the witness was: nothing had left."""
    place = place_of(Account(path).identity())
    before = place.read_text()
    open_(path, ask(0))
    place.write_text(before)
    open_(path, ask(1), cap=cap_of(2))
    known = read_witness(place)
    assert known is not None and known.last.number == 2


def test_a_witness_never_goes_back(path: Path):
    place = place_of(Account(path).identity())
    open_(path, ask(0))
    open_(path, ask(1))
    known = read_witness(place)
    advance(place, first_link("x"))
    assert read_witness(place) == known


@pytest.mark.parametrize("text", ["", "{}", '{"count": "x"}', "[1]", "\x00"])
def test_a_damaged_witness_is_an_error_to_read(path: Path, text: str):
    place_of(Account(path).identity()).write_text(text)
    with pytest.raises(InputError, match="witness cannot be read"):
        open_(path, ask(0))


def test_a_policy_may_keep_its_witness_elsewhere(tmp_path: Path):
    account = Account(tmp_path / "ledger.db", tmp_path / "apart" / "witness.json")
    account.create()
    assert (tmp_path / "apart" / "witness.json").is_file()
    assert account.standing().last.number == 0
    assert not place_of(account.identity()).exists()


# --- its own history ----------------------------------------------------------------------------------------

EDITS = {
    "a cheaper charge": "UPDATE charges SET multiplier = multiplier * 2 WHERE id = 1",
    "a charge dropped": "DELETE FROM charges WHERE id = 1",
    "a charge moved": "UPDATE charges SET ask = 2 WHERE id = 1",
    "another round": "UPDATE asks SET round = 5 WHERE id = 1",
    "another question": "UPDATE asks SET digest = 'x' WHERE id = 2",
    "another answer": "UPDATE asks SET answer = 'x' WHERE id = 1",
    "another secret": "UPDATE jobs SET secret = x'00'",
    "other terms": "UPDATE jobs SET terms = '{}'",
    "a link dropped": "DELETE FROM chain WHERE number = 2",
    "an ask that nobody charged": "INSERT INTO asks SELECT 9, job, phase, 7, 'y', at, answer, reply, memory FROM asks",
    "a seal of another hand": "UPDATE chain SET seal = x'00' WHERE number = 3",
    "a job of another kind": "UPDATE jobs SET terms = x'ff', job = 3",
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_ledger_is_refused(path: Path, edit: str):
    Account(path).close_ask(open_(path, ask(0)).number, b"reply", b"")
    open_(path, ask(1))
    statement = EDITS[edit].replace("FROM asks", "FROM asks WHERE id = 1") if "INSERT" in EDITS[edit] else EDITS[edit]
    sql(path, "PRAGMA foreign_keys=OFF", statement)
    with pytest.raises(InputError, match="nothing is released"):
        open_(path, ask(2))
    if "seal" not in edit:  # which only its own node can check
        with pytest.raises(InputError):
            Account(path).entries()


def test_a_reply_that_was_exchanged_does_not_leave(path: Path):
    Account(path).close_ask(open_(path, ask(0)).number, b"reply", b"")
    sql(path, "UPDATE asks SET reply = x'00'")
    with pytest.raises(InputError, match="not the one that was given"):
        open_(path, ask(0))


def test_every_link_depends_on_everything_before_it():
    first = first_link("a")
    assert first != first_link("b")
    one, other = next_link(first, ["charge", 1]), next_link(first, ["charge", 2])
    assert one != other
    assert next_link(one, ["x"]) != next_link(other, ["x"])
    assert seal_of(b"k", one) != seal_of(b"l", one)
    entries = [Entry(["charge", 1], one.digest, seal_of(b"k", one))]
    assert broken_at("a", entries, b"k")[0] == broken_at("a", entries, None)[0] == 0
    assert broken_at("a", entries, b"l")[0] == broken_at("b", entries, None)[0] == 1


def test_a_long_ledger_is_read_once_by_a_process_and_anew_when_it_changed(path: Path, monkeypatch):
    read: list[int] = []
    real = broken_at
    monkeypatch.setattr(ledger_file, "broken_at", lambda *a: read.append(1) or real(*a))
    for t in range(3):
        open_(path, ask(t))
    assert len(read) == 1
    sql(path, "UPDATE charges SET multiplier = 99 WHERE id = 1")
    with pytest.raises(InputError, match="entry 1 of the ledger was changed"):
        open_(path, ask(3))


def test_charges_stay_as_they_were(path: Path):
    open_(path, ask(0), [line(3.7), line(5.1, weight=0.25)])
    assert [each.multiplier for _, each in Account(path).entries()] == [3.7, 5.1]
    end = Account(path).link()
    assert end is not None and end.number == 1
    assert Account(path).link(0) is None or Account(path).link(0) == first_link(Account(path).identity())
    assert Account(path).link(7) is None


def test_charging_a_node_is_seen_in_its_standing(nodes: list[Policy]):
    before = nodes[0].account.standing()
    answer(nodes[0], asked(nodes))
    after = nodes[0].account.standing()
    assert (before.last.number, after.last.number) == (0, 2)  # the charge and the answer
    assert charges(nodes[0]) == 1
