"""The file of a ledger: made once, opened only if it is whole, its own history, and no older than it was.

Every use is one transaction. Before it, the file is held against itself (the database's own check and the chain of
entries, chain.py) and, where its node uses it, against its witness (witness.py). What fails that is refused with a
sentence, and nothing is released: an empty, missing, cut, edited or older ledger never counts as a new one.
"""

import contextlib
import hashlib
import os
import sqlite3
import uuid
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from fedsofim.deploy.chain import Entry, Link, broken_at, first_link, next_link, seal_of
from fedsofim.deploy.lines import Line
from fedsofim.deploy.witness import Witness, advance, place_of, read_witness, witness_of_place, write_witness
from fedsofim.errors import InputError
from fedsofim.formats import LEDGER, check_format

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE jobs (
    job TEXT PRIMARY KEY, terms TEXT NOT NULL, data TEXT NOT NULL, secret BLOB NOT NULL, began REAL NOT NULL);
CREATE TABLE asks (
    id INTEGER PRIMARY KEY AUTOINCREMENT, job TEXT NOT NULL REFERENCES jobs, phase TEXT NOT NULL,
    round INTEGER NOT NULL, digest TEXT NOT NULL, at REAL NOT NULL, answer TEXT, reply BLOB, memory BLOB);
CREATE INDEX asks_by_digest ON asks (digest);
CREATE TABLE charges (
    id INTEGER PRIMARY KEY AUTOINCREMENT, ask INTEGER NOT NULL REFERENCES asks, label TEXT NOT NULL,
    clip REAL NOT NULL, ratio REAL NOT NULL, multiplier REAL NOT NULL, releases INTEGER NOT NULL,
    weight REAL NOT NULL, sample REAL NOT NULL, coordinates INTEGER NOT NULL);
CREATE TABLE chain (
    number INTEGER PRIMARY KEY, kind TEXT NOT NULL, ask INTEGER NOT NULL REFERENCES asks, link BLOB NOT NULL,
    seal BLOB NOT NULL);
"""
_TOLD = "CREATE TABLE IF NOT EXISTS told (ask INTEGER PRIMARY KEY REFERENCES asks, who TEXT NOT NULL)"  # since format 2
COLUMNS = [f.name for f in fields(Line)]
_HINT = "restore the newest copy; what left since an older one would be forgotten"
_checked: dict[Path, "_State"] = {}  # files as this process last found or left them: those are not read again


class _State(NamedTuple):
    """What a file looks like from outside, and how often SQLite has changed it.

    The times of a file can be put back by whoever edits it, all but `changed`, which the system sets. The counter is in
    the file's header: it tells of a write by another process between our commit and our look at the file.
    """

    inode: int
    modified: int
    changed: int
    size: int
    counter: int


# --- made once ----------------------------------------------------------------------------------------------


def create(path: Path, witness: Path | None) -> None:
    """An empty ledger with its witness, where there never was one."""
    before = witness if witness is not None and witness.exists() else witness_of_place(path)
    if path.exists():
        raise InputError(f"{path}: there is a file already; a ledger is made once and never overwritten")
    if before is not None:
        raise InputError(
            f"{path}: there was a ledger here, which {before} remembers, and it is gone; {_HINT}. If these are other "
            "records, give their ledger another name in the policy"
        )
    identity, key = uuid.uuid4().hex, os.urandom(32)
    new = path.with_name(f"{path.name}.{identity}.new")
    try:
        os.close(os.open(new, os.O_CREAT | os.O_EXCL, 0o600))  # it holds secrets of noise: for its owner's eyes only
        with contextlib.closing(_connected(new)) as db:
            db.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA.split(";\n"):
                db.execute(statement)
            db.execute("INSERT INTO meta VALUES ('format', ?), ('id', ?)", (str(LEDGER.writes), identity))
            db.execute("COMMIT")
        os.link(new, path)  # whole or not at all, and never in the place of another
    except (sqlite3.Error, OSError) as error:
        raise InputError(f"{path}: no ledger can be made here ({error})") from error
    finally:
        new.unlink(missing_ok=True)
    write_witness(
        witness or place_of(identity), Witness(ledger=identity, where=str(path), key=key, last=first_link(identity))
    )


def adopt(path: Path, witness: Path | None) -> Link:
    """A witness for a ledger that came from elsewhere, on its operator's word; entries are sealed anew."""
    with contextlib.closing(_connected(_present(path))) as db, _told(path):
        db.execute("BEGIN IMMEDIATE")
        identity = _identity(path, db)
        place = witness or place_of(identity)
        if place.exists():
            raise InputError(f"{path}: it has a witness already ({place}); nothing is to be done")
        links, key = _whole(path, db, identity, None), os.urandom(32)
        db.executemany("UPDATE chain SET seal=? WHERE number=?", [(seal_of(key, k), k.number) for k in links[1:]])
        db.execute("COMMIT")
    write_witness(place, Witness(ledger=identity, where=str(path), key=key, last=links[-1]))
    return links[-1]


# --- used ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def used(path: Path, witness: Path | None) -> Iterator[sqlite3.Connection]:
    """One transaction of the ledger's own node; what is raised inside undoes it. Its witness knows of it at the end."""
    with contextlib.closing(_connected(_present(path))) as db, _told(path):
        db.execute("BEGIN IMMEDIATE")
        identity = _identity(path, db)
        place = witness or place_of(identity)
        known = _known(path, place, identity)
        before = _state(path)
        if _checked.get(path) != before:
            _whole(path, db, identity, known.key)
        _check_history(path, db, identity, known.last, known.signed)
        written = db.total_changes
        yield db
        end, wrote = last_link(db), db.total_changes > written
        db.execute("COMMIT")
        # after the commit others may write: the counter is the one that our own commit must leave
        _checked[path] = _state(path)._replace(counter=before.counter + wrote)
    if end.number > known.last.number:
        advance(place, end)


@contextlib.contextmanager
def looked_at(path: Path, witness: Path | None) -> Iterator[sqlite3.Connection]:
    """A look at its own node's ledger, checked as for use; nothing is written. Nobody can write while it lasts."""
    with contextlib.closing(_connected(_present(path))) as db, _told(path):
        db.execute("BEGIN")
        identity = _identity(path, db)  # from here on no other transaction ends, so the witness knows no more
        known = _known(path, witness or place_of(identity), identity)
        if _checked.get(path) != _state(path):
            _whole(path, db, identity, known.key)
        _check_history(path, db, identity, known.last, known.signed)
        yield db
        db.execute("COMMIT")


@contextlib.contextmanager
def read(path: Path) -> Iterator[sqlite3.Connection]:
    """A look at anybody's ledger: whole and its own history, but perhaps not its newest copy."""
    with contextlib.closing(_connected(_present(path))) as db, _told(path):
        db.execute("BEGIN")
        _whole(path, db, _identity(path, db), None)
        yield db
        db.execute("COMMIT")


def tell(db: sqlite3.Connection, ask: int, who: str, witness: Path | None) -> str:
    """Whom the sum of an ask is over, as its node was first told, which is an entry of its own; `who` if it was not."""
    db.execute(_TOLD)  # ledgers that never met a sum with losses have no such table
    row = db.execute("SELECT who FROM told WHERE ask=?", (ask,)).fetchone()
    if row is None:
        db.execute("INSERT INTO told VALUES (?, ?)", (ask, who))
        append(db, "told", ask, witness)
    return row[0] if row else who


def append(db: sqlite3.Connection, kind: str, ask: int, witness: Path | None) -> None:
    """The next entry of the chain: what the tables say of an ask now."""
    identity = db.execute("SELECT value FROM meta WHERE key='id'").fetchone()[0]
    known = read_witness(witness or place_of(identity))
    if known is None:
        raise InputError("the ledger's witness is gone; nothing is released")
    link = next_link(last_link(db), _said(db, kind, ask))
    db.execute(
        "INSERT INTO chain VALUES (?, ?, ?, ?, ?)", (link.number, kind, ask, link.digest, seal_of(known.key, link))
    )


def last_link(db: sqlite3.Connection) -> Link:
    row = db.execute("SELECT number, link FROM chain ORDER BY number DESC LIMIT 1").fetchone()
    return Link(*row) if row else first_link(db.execute("SELECT value FROM meta WHERE key='id'").fetchone()[0])


# --- checks -------------------------------------------------------------------------------------------------


def _present(path: Path) -> Path:
    if not path.exists():
        raise InputError(
            f"{path}: there is no ledger. If this node never had one, make it once: fedsofim ledger create --policy "
            f"policy.toml. If it had one: {_HINT}; nothing is released"
        )
    if path.is_file() and path.stat().st_size == 0:
        raise InputError(f"{path}: the ledger is empty, so it is not whole; {_HINT}; nothing is released")
    return path


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:  # what SQLite says of a damaged file may be no text
        raise InputError(f"{path}: the ledger cannot be used ({error}); nothing is released") from error


def _connected(path: Path) -> sqlite3.Connection:
    with _told(path), contextlib.ExitStack() as unless_it_works:
        db = unless_it_works.enter_context(contextlib.closing(sqlite3.connect(path, timeout=60, isolation_level=None)))
        db.execute("PRAGMA journal_mode=DELETE")
        db.execute("PRAGMA synchronous=EXTRA")  # the journal's removal reaches the disk too
        db.execute("PRAGMA foreign_keys=ON")
        unless_it_works.pop_all()
        return db


def _identity(path: Path, db: sqlite3.Connection) -> str:
    found = dict(db.execute("SELECT key, value FROM meta").fetchall())
    stated = str(found.get("format"))
    check_format(LEDGER, {"format": int(stated) if stated.isdecimal() else stated}, path)
    if not found.get("id"):
        raise InputError(f"{path}: a ledger without its name, so a damaged one; {_HINT}; nothing is released")
    return found["id"]


def _known(path: Path, place: Path, identity: str) -> Witness:
    known = read_witness(place)
    if known is None:
        raise InputError(
            f"{path}: its witness, {place}, is missing, so nobody knows whether this is the newest copy. If it is: "
            "fedsofim ledger adopt --policy policy.toml; nothing is released"
        )
    if known.ledger != identity:
        raise InputError(
            f"{path}: its witness, {place}, is another ledger's; nothing is released. Give each its own place"
        )
    return known


def _whole(path: Path, db: sqlite3.Connection, identity: str, key: bytes | None) -> list[Link]:
    """All links of the chain, if the tables are what they say."""
    damage = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if damage != "ok":
        raise sqlite3.DatabaseError(" ".join(damage.split()))
    try:
        wrong, links = broken_at(identity, _entries(db), key)
    except (KeyError, TypeError, AttributeError, ValueError) as error:  # a table holds what no node writes
        raise sqlite3.DatabaseError(f"its tables make no sense: {error}") from error
    asks = db.execute("SELECT COUNT(*) FROM asks").fetchone()[0]
    charged = db.execute("SELECT COUNT(DISTINCT ask) FROM chain WHERE kind='charge'").fetchone()[0]
    if wrong or asks != charged:
        raise InputError(f"{path}: entry {wrong or len(links)} of the ledger was changed; {_HINT}; nothing is released")
    return links


def _check_history(path: Path, db: sqlite3.Connection, identity: str, *known: Link | None) -> None:
    """Does the ledger go on from all that its witness knows of it?"""
    end = last_link(db)
    for link in filter(None, known):
        if end.number < link.number:
            raise InputError(
                f"{path}: the ledger ends with entry {end.number}, and it had {link.number}: this is an older copy; "
                f"{_HINT}; nothing is released"
            )
        row = db.execute("SELECT link FROM chain WHERE number=?", (link.number,)).fetchone()
        if (row[0] if row else first_link(identity).digest) == link.digest:
            continue
        raise InputError(
            f"{path}: the ledger has another history than its node wrote or signed; what left under that one is not "
            f"in it; {_HINT}; nothing is released"
        )


def _state(path: Path) -> _State:
    """The file's state now; within a transaction nobody else writes it through SQLite."""
    with path.open("rb") as file:
        found, header = os.fstat(file.fileno()), file.read(28)
    counter = int.from_bytes(header[24:28], "big")
    return _State(found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size, counter)


# --- what entries say ---------------------------------------------------------------------------------------


def _said(db: sqlite3.Connection, kind: str, ask: int) -> list[Any]:
    """One entry, from the tables."""
    job, phase, round, digest, at, answer = db.execute(
        "SELECT job, phase, round, digest, at, answer FROM asks WHERE id=?", (ask,)
    ).fetchone()
    if kind == "answer":
        return [kind, ask, answer]
    if kind == "told":
        return [kind, ask, *db.execute("SELECT who FROM told WHERE ask=?", (ask,)).fetchone()]
    lines = db.execute(f"SELECT {', '.join(COLUMNS)} FROM charges WHERE ask=? ORDER BY id", (ask,)).fetchall()
    return [kind, ask, *_of_job(db, job), phase, round, digest, at, [list(line) for line in lines]]


def _of_job(db: sqlite3.Connection, job: str) -> list[str]:
    terms, data, secret = db.execute("SELECT terms, data, secret FROM jobs WHERE job=?", (job,)).fetchone()
    return [job, hashlib.sha256(terms.encode()).hexdigest(), data, hashlib.sha256(secret).hexdigest()]


def _entries(db: sqlite3.Connection) -> Iterator[Entry]:
    """All entries in their order: as `_said` says them, but of all asks in one go."""
    jobs = {job: _of_job(db, job) for (job,) in db.execute("SELECT job FROM jobs")}
    lines: dict[int, list[list[Any]]] = {}
    for ask, *line in db.execute(f"SELECT ask, {', '.join(COLUMNS)} FROM charges ORDER BY id"):
        lines.setdefault(ask, []).append(line)
    met = db.execute("SELECT 1 FROM sqlite_master WHERE name='told'").fetchone()
    told = dict(db.execute("SELECT ask, who FROM told")) if met else {}
    rows = db.execute(
        "SELECT chain.kind, asks.id, job, phase, round, digest, at, answer, link, seal FROM chain JOIN asks "
        "ON chain.ask = asks.id ORDER BY number"
    )
    for kind, ask, job, phase, round, digest, at, answer, link, seal in rows:
        said = [kind, ask, told[ask] if kind == "told" else answer]
        if kind == "charge":
            said = [kind, ask, *jobs[job], phase, round, digest, at, lines.get(ask, [])]
        yield Entry(said, link, seal)
