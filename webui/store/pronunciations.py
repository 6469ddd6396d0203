"""The pronunciation dictionaries of all accounts, in one SQLite file. What is acknowledged survives a kill; a damaged file is set aside, never lost.

Knows rows and accounts; blind to what a term means. One connection reads, one writes, so that speech never waits for a disk's sync.
"""

from __future__ import annotations

import logging
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import TypeVar

from ..errors import BadInput, Busy, KaikouError, StorageDamaged, StorageFull

log = logging.getLogger(__name__)
T = TypeVar("T")
Row = tuple[str, str, str, str]  # key, language, term, reading
VERSION = 1
MAX_ROWS = 1000  # per account
WAIT_S = 5.0  # for another process that writes
TABLE = """CREATE TABLE IF NOT EXISTS pronunciations (account TEXT NOT NULL, key TEXT NOT NULL, language TEXT NOT NULL, term TEXT NOT NULL, reading TEXT NOT NULL,
 PRIMARY KEY (account, key, language)) WITHOUT ROWID"""
COLUMNS = ["account", "key", "language", "term", "reading"]
_DAMAGED, _BUSY, _FULL = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}, {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}, {sqlite3.SQLITE_FULL}
_DENIED = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}


class Damage(Exception):
    """What is in the file is not what we wrote."""


class _Link:
    """A connection, opened when first used, and the lock that keeps its users apart."""

    def __init__(self, path: Path):
        self._path, self.lock = path, threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._is_ready = False

    def db(self) -> sqlite3.Connection:
        if self._db is not None and not self._path.exists():
            self.close()  # somebody took the file away: what is written now must not go where nobody finds it
        if self._db is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(self._path, timeout=WAIT_S, isolation_level=None, check_same_thread=False)
        if not self._is_ready:
            _ready(self._db)  # one that fails stays open: closing it would delete the log of a damaged file
            self._is_ready = True
        return self._db

    def close(self) -> None:
        db, self._db, self._is_ready = self._db, None, False
        if db is not None:
            with suppress(sqlite3.Error):
                db.close()


def _ready(db: sqlite3.Connection) -> None:
    """Checks the file and makes its table. Raises Damage, sqlite3.Error, KaikouError (made by a newer version)."""
    db.text_factory = lambda raw: raw.decode("utf-8")  # strict: a row that is no text is damage, not an empty string
    if db.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
        raise Damage("quick_check failed")
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise KaikouError("The pronunciation dictionary was made by a newer version of the studio.", "发音词典是更新版本的工作室建立的。", code="dictionary_newer")
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    if version < VERSION:
        _in_transaction(db, lambda db: (db.execute(TABLE), db.execute(f"PRAGMA user_version={VERSION}")))
    if [row[1] for row in db.execute("PRAGMA table_info(pronunciations)")] != COLUMNS:
        raise Damage("the table is not ours")


class PronunciationStore:
    """Thread-safe. Raises StorageDamaged once when the file turns out broken (it is set aside and a new one begun), StorageFull, Busy."""

    def __init__(self, root: Path):
        self._path = root / "pronunciations.sqlite"
        self._reader, self._writer = _Link(self._path), _Link(self._path)
        self._repair = threading.Lock()
        self._generation = 0  # of the file: each that was set aside ends one
        self.set_aside = ""  # name of the file that was set aside in this run
        self.saved = 0  # entries that could still be read from it

    # ---- entries --------------------------------------------------------------------------------------------
    def mark(self) -> tuple[int, int]:
        """Changes whenever any process has changed any dictionary."""
        if self._is_new():
            return self._generation, -1
        return self._run(self._reader, lambda db: (self._generation, db.execute("PRAGMA data_version").fetchone()[0]))

    def rows(self, account: str) -> list[Row]:
        """By term."""
        if self._is_new():
            return []
        ask = "SELECT key, language, term, reading FROM pronunciations WHERE account = ? ORDER BY key, language"
        return self._run(self._reader, lambda db: db.execute(ask, (account,)).fetchall())

    def put(self, account: str, row: Row, was: tuple[str, str] | None = None) -> None:
        """Add or change one entry; `was` (key, language) is the one that it takes the place of. Raises BadInput when there are too many."""
        def work(db: sqlite3.Connection) -> None:
            if was is not None:
                _drop(db, account, *was)
            _insert(db, account, [row])

        self._run(self._writer, work, is_write=True)

    def merge(self, account: str, rows: Iterable[Row], replace: bool = False) -> tuple[int, int]:
        """All rows or none; `replace`: and nothing else stays. Returns (added, changed)."""
        rows = {(r[0], r[1]): r for r in rows}

        def work(db: sqlite3.Connection) -> tuple[int, int]:
            held = {(r[0], r[1]): r for r in db.execute("SELECT key, language, term, reading FROM pronunciations WHERE account = ?", (account,))}
            if replace:
                db.execute("DELETE FROM pronunciations WHERE account = ?", (account,))
            _insert(db, account, rows.values())
            return sum(k not in held for k in rows), sum(k in held and held[k] != r for k, r in rows.items())

        return self._run(self._writer, work, is_write=True)

    def delete(self, account: str, key: str, language: str) -> bool:
        return not self._is_new() and self._run(self._writer, lambda db: _drop(db, account, key, language), is_write=True)

    def clear(self, account: str) -> int:
        """Returns how many went."""
        if self._is_new():
            return 0
        return self._run(self._writer, lambda db: db.execute("DELETE FROM pronunciations WHERE account = ?", (account,)).rowcount, is_write=True)

    def close(self) -> None:
        for link in (self._reader, self._writer):
            with link.lock:
                link.close()

    # ---- the file -------------------------------------------------------------------------------------------
    def _is_new(self) -> bool:
        """No dictionary yet: reading one makes no file."""
        return not self._path.exists()

    def _run(self, link: _Link, work: Callable[[sqlite3.Connection], T], is_write: bool = False) -> T:
        generation = self._generation
        try:
            with link.lock:
                return _in_transaction(link.db(), work) if is_write else work(link.db())
        except (sqlite3.Error, Damage, UnicodeDecodeError) as error:
            problem = error
        except OSError as error:
            raise _denied() from error
        code = getattr(problem, "sqlite_errorcode", 0) & 0xFF
        if code in _DAMAGED or not isinstance(problem, sqlite3.Error):
            raise self._put_aside(generation, problem) from problem
        if code in _BUSY:
            raise Busy("The dictionary is being changed elsewhere. Try again.", "词典正在别处修改，请稍后再试。", code="dictionary_busy", retry_after_s=2) from problem
        if code in _FULL | _DENIED:
            raise (StorageFull() if code in _FULL else _denied()) from problem
        raise KaikouError("The pronunciation dictionary could not be used.", "发音词典用不了。", code="dictionary_fault") from problem

    def _put_aside(self, generation: int, why: Exception) -> StorageDamaged:
        """Renames the file and what belongs to it, begins a new one and brings over what can still be read."""
        with self._repair, self._writer.lock, self._reader.lock:
            if generation == self._generation:
                name = f"pronunciations.damaged-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}.sqlite"
                try:
                    for tail in ("-wal", "-shm", ""):  # the log first: one that is left must never be read into the new file
                        with suppress(FileNotFoundError):
                            os.replace(f"{self._path}{tail}", self._path.with_name(name + tail))
                except OSError as error:
                    raise _denied() from error
                finally:
                    self._reader.close()
                    self._writer.close()
                self._generation += 1
                self.set_aside, self.saved = name, self._bring_over(self._path.with_name(name))
                log.error("the pronunciation dictionary is damaged (%s): set aside as %s, %d entries brought over", why, name, self.saved)
        return StorageDamaged(f"The pronunciation dictionary was damaged. It was set aside as {self.set_aside}; {self.saved} entries could be kept.",
                              f"发音词典已损坏，原文件已改名保存为 {self.set_aside}，救回 {self.saved} 条。", code="dictionary_damaged")

    def _bring_over(self, damaged: Path) -> int:
        rows = _readable(damaged)
        try:
            _in_transaction(self._writer.db(), lambda db: db.executemany("INSERT OR IGNORE INTO pronunciations VALUES (?, ?, ?, ?, ?)", rows))
        except (sqlite3.Error, OSError) as error:
            log.error("no new pronunciation dictionary could be begun: %s", error)
            return 0
        return len(rows)


def _in_transaction(db: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    db.execute("BEGIN IMMEDIATE")
    try:
        told = work(db)
        db.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise
    return told


def _insert(db: sqlite3.Connection, account: str, rows: Iterable[Row]) -> None:
    db.executemany("INSERT OR REPLACE INTO pronunciations VALUES (?, ?, ?, ?, ?)", [(account, *row) for row in rows])
    if db.execute("SELECT count(*) FROM pronunciations WHERE account = ?", (account,)).fetchone()[0] > MAX_ROWS:
        raise BadInput(f"A dictionary holds {MAX_ROWS} entries at most.", f"词典最多 {MAX_ROWS} 条。", code="too_many_terms", param="term")


def _drop(db: sqlite3.Connection, account: str, key: str, language: str) -> bool:
    return db.execute("DELETE FROM pronunciations WHERE account = ? AND key = ? AND language = ?", (account, key, language)).rowcount > 0


def _readable(path: Path) -> list[tuple[str, ...]]:
    """What can still be read of a damaged file, up to its first broken page. The file itself stays as it is."""
    rows: list[tuple[str, ...]] = []
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
            db.text_factory = lambda raw: raw.decode("utf-8")
            for row in db.execute("SELECT account, key, language, term, reading FROM pronunciations"):
                rows += [row] * all(isinstance(part, str) for part in row)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        log.info("%s: %s after %d rows", path.name, error, len(rows))
    return rows


def _denied() -> StorageFull:
    return StorageFull("The data folder cannot be written. Check its rights.", "数据目录写不进去，请检查权限。", code="storage_denied")
