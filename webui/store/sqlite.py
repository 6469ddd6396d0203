"""One SQLite file in WAL with full sync: what was written when `write` returned survives a kill and
a power cut; a damaged file is set aside.

Knows transactions and what goes wrong on a disk; blind to what the tables mean. One connection
reads, one writes.
"""

from __future__ import annotations

import logging
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from ..errors import Busy, KaikouError, StorageDamaged, StorageFull
from ..messages import Message
from .private_files import make_file, make_folder

log = logging.getLogger(__name__)
T = TypeVar("T")
WAIT_S = 5.0  # for another process that writes
_DAMAGED, _BUSY, _FULL = (
    {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB},
    {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED},
    {sqlite3.SQLITE_FULL},
)
_DENIED = {
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_AUTH,
}


class Database:
    """Thread-safe.

    `tables`: the statements that make version `version` of it. Every call raises StorageFull, Busy,
    StorageDamaged (once, when the file turns out broken: it is set aside and a new one begun),
    KaikouError (made by a newer studio).

    `name`: what errors call it, and `code` what their codes begin with.
      `columns` of tables: a file that has others is broken.
    `changes`: (version, statement), after `tables`, for a file of an earlier version than that.
      `rescue` (path of a broken file, new file): takes over what can still be read, in one
      transaction, and returns how much that is.
    """

    def __init__(
        self,
        path: Path,
        version: int,
        tables: Sequence[str],
        *,
        name: Message | None = None,
        code: str = "",
        columns: Mapping[str, list[str]] | None = None,
        changes: Sequence[tuple[int, str]] = (),
        rescue: Callable[[Path, sqlite3.Connection], int] | None = None,
    ):
        self.path, self._version, self._tables, self._columns, self._rescue = (
            path,
            version,
            tables,
            columns or {},
            rescue,
        )
        self._changes = changes
        self._name, self._code = name or Message(path.name, f"{path.name} "), code
        self._locks = {False: threading.Lock(), True: threading.Lock()}
        self._opening = (
            threading.Lock()
        )  # a new file changes to WAL, and gets its tables, under nobody's eyes
        self._links: dict[bool, sqlite3.Connection] = {}  # is it the writing one -> connection
        self._ready: set[bool] = set()  # those whose file was looked at
        self.generation = 0  # of the file: each that was set aside ends one
        self.set_aside = ""  # name of the file that was set aside in this run
        self.saved = 0  # what could still be read from it

    @property
    def is_there(self) -> bool:
        """Asking makes no file."""
        return self.path.exists()

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """One look at the file as it is at one moment."""
        return self._run(False, "BEGIN", work)

    def write(self, work: Callable[[sqlite3.Connection], T], is_lasting: bool = True) -> T:
        """All that `work` does, or nothing of it.

        Not lasting: a power cut may undo it, in its order, until something lasting is written.
        """
        return self._run(True, "BEGIN IMMEDIATE", work, is_lasting)

    def close(self) -> None:
        for is_writer, lock in self._locks.items():
            with lock:
                self._drop(is_writer)

    def _run(
        self,
        is_writer: bool,
        begin: str,
        work: Callable[[sqlite3.Connection], T],
        is_lasting: bool = True,
    ) -> T:
        generation = self.generation
        with self._locks[is_writer]:
            try:
                db = self._open(is_writer)
                db.execute(f"PRAGMA synchronous={'FULL' if is_lasting else 'NORMAL'}")
                return _in_one(db, begin, work)
            except sqlite3.Error as error:
                problem = error
            except UnicodeDecodeError as error:  # text that is none
                problem = _broken(str(error))
            except OSError as error:
                raise denied() from error
        raise self._named(problem, generation) from problem

    def _open(self, is_writer: bool) -> sqlite3.Connection:
        if is_writer in self._links and not self.path.exists():
            self._drop(
                is_writer
            )  # somebody took the file away: what is written now must not go where nobody finds it
        if is_writer not in self._links:
            make_folder(self.path.parent)
            make_file(self.path)  # its log and index get the same mode from SQLite
            self._links[is_writer] = sqlite3.connect(
                self.path, timeout=WAIT_S, isolation_level=None, check_same_thread=False
            )
        if is_writer not in self._ready:
            with self._opening:
                self._make_ready(
                    self._links[is_writer]
                )  # one that fails stays open: closing it would delete the log of a damaged file
            self._ready.add(is_writer)
        return self._links[is_writer]

    def _make_ready(self, db: sqlite3.Connection) -> None:
        db.row_factory, db.text_factory = (
            sqlite3.Row,
            bytes.decode,
        )  # strict: a row that is no text is damage
        if db.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise _broken("quick_check failed")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > self._version:
            raise KaikouError(
                "data_newer",
                name=self._name,
                code=f"{self._code or 'data'}_newer",
            )
        db.execute("PRAGMA journal_mode=WAL")
        if version < self._version:
            _in_one(db, "BEGIN IMMEDIATE", lambda db: self._make_tables(db, version))
        for table, columns in self._columns.items():
            if [row["name"] for row in db.execute(f"PRAGMA table_info({table})")] != columns:
                raise _broken(f"the table {table} is not ours")

    def _make_tables(self, db: sqlite3.Connection, version: int) -> None:
        if (
            db.execute("PRAGMA user_version").fetchone()[0] == version
        ):  # else another connection was quicker
            changes = [statement for made_in, statement in self._changes if version < made_in]
            for statement in (*self._tables, *changes):
                db.execute(statement)
            db.execute(f"PRAGMA user_version={self._version}")

    def _drop(self, is_writer: bool) -> None:
        self._ready.discard(is_writer)
        db = self._links.pop(is_writer, None)
        if db is not None:
            with suppress(sqlite3.Error):
                db.close()

    def _named(self, problem: sqlite3.Error, generation: int) -> KaikouError:
        code = (getattr(problem, "sqlite_errorcode", None) or 0) & 0xFF
        if code in _DAMAGED:
            return self._put_aside(problem, generation)
        if code in _BUSY:
            return Busy("records_busy", code=f"{self._code or 'records'}_busy", retry_after_s=2)
        if (
            code in _FULL or code == sqlite3.SQLITE_IOERR
        ):  # a write that the disk cut short tells itself as an I/O error
            return StorageFull()
        if code in _DENIED:
            return denied()
        log.error("%s: %s", self.path.name, problem)
        return KaikouError("data_fault", name=self._name, code=f"{self._code or 'data'}_fault")

    def _put_aside(self, why: Exception, generation: int) -> KaikouError:
        name = (
            f"{self.path.stem}.damaged-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
            f"-{secrets.token_hex(2)}{self.path.suffix}"
        )
        with self._locks[False], self._locks[True]:
            if generation == self.generation:
                try:
                    for tail in (
                        "-wal",
                        "-shm",
                        "",
                    ):  # the log first: one that is left must never be read into the new file
                        with suppress(FileNotFoundError):
                            os.replace(f"{self.path}{tail}", self.path.with_name(name + tail))
                except OSError:
                    return denied()
                finally:
                    self._drop(False)
                    self._drop(True)
                self.generation, self.set_aside = generation + 1, name
                log.error("%s is damaged (%s): set aside as %s", self.path.name, why, name)
                self.saved = self._bring_over(self.path.with_name(name))
        code = f"{self._code}_damaged" if self._code else None
        values = {"name": self._name, "file": self.set_aside}
        if self._rescue is None:
            return StorageDamaged("damaged.set_aside", code=code, **values)
        return StorageDamaged("damaged.saved", code=code, saved=self.saved, **values)

    def _bring_over(self, damaged: Path) -> int:
        if self._rescue is None:
            return 0
        try:
            return _in_one(
                self._open(True), "BEGIN IMMEDIATE", lambda db: self._rescue(damaged, db)
            )
        except (sqlite3.Error, OSError) as error:
            log.error("%s: no new one could be begun: %s", self.path.name, error)
            return 0


def _in_one(db: sqlite3.Connection, begin: str, work: Callable[[sqlite3.Connection], T]) -> T:
    db.execute(begin)
    try:
        result = work(db)
        db.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise
    return result


def _broken(why: str) -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError(why)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def denied() -> StorageFull:
    return StorageFull("storage_denied.data_folder")
