"""The pronunciation dictionaries of all accounts, in one SQLite file.

What is acknowledged survives a kill; a damaged file is set aside, never lost.

Knows rows and accounts; blind to what a term means. Speech, which reads, never waits for a disk's
sync.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from sqlite3 import Connection, Error, connect

from ..errors import BadInput
from ..messages import message
from .sqlite import Database

log = logging.getLogger(__name__)
Row = tuple[str, str, str, str]  # key, language, term, reading
MAX_ROWS = 1000  # per account
TABLE = """CREATE TABLE IF NOT EXISTS pronunciations (account TEXT NOT NULL, key TEXT NOT NULL,
 language TEXT NOT NULL, term TEXT NOT NULL, reading TEXT NOT NULL,
 PRIMARY KEY (account, key, language)) WITHOUT ROWID"""
COLUMNS = ["account", "key", "language", "term", "reading"]


class PronunciationStore:
    """Thread-safe.

    Raises StorageDamaged once when the file turns out broken (it is set aside and a new one begun),
    StorageFull, Busy.
    """

    def __init__(self, root: Path):
        self._db = Database(
            root / "pronunciations.sqlite",
            1,
            (TABLE,),
            name=message("dictionary"),
            code="dictionary",
            columns={"pronunciations": COLUMNS},
            rescue=_rescue,
        )

    @property
    def set_aside(self) -> str:
        """Name of the file that was set aside in this run, or ""."""
        return self._db.set_aside

    @property
    def saved(self) -> int:
        """Entries that could still be read from it."""
        return self._db.saved

    def mark(self) -> tuple[int, int]:
        """Changes whenever any process has changed any dictionary."""
        version = (
            self._db.read(lambda db: db.execute("PRAGMA data_version").fetchone()[0])
            if self._db.is_there
            else -1
        )
        return self._db.generation, version

    def rows(self, account: str) -> list[Row]:
        """By term. Asking makes no file."""
        if not self._db.is_there:
            return []
        ask = (
            "SELECT key, language, term, reading FROM pronunciations WHERE account = ? ORDER BY"
            " key, language"
        )
        return self._db.read(lambda db: [tuple(row) for row in db.execute(ask, (account,))])

    def put(self, account: str, row: Row, was: tuple[str, str] | None = None) -> None:
        """Add or change one entry; `was` (key, language) is the one that it takes the place of.

        Raises BadInput when there are too many.
        """

        def work(db: Connection) -> None:
            if was is not None:
                _drop(db, account, *was)
            _insert(db, account, [row])

        self._db.write(work)

    def merge(self, account: str, rows: Iterable[Row], replace: bool = False) -> tuple[int, int]:
        """All rows or none; `replace`: and nothing else stays. Returns (added, changed)."""
        rows = {(r[0], r[1]): r for r in rows}

        def work(db: Connection) -> tuple[int, int]:
            stored_readings = {
                (r[0], r[1]): tuple(r)
                for r in db.execute(
                    "SELECT key, language, term, reading FROM pronunciations WHERE account = ?",
                    (account,),
                )
            }
            if replace:
                db.execute("DELETE FROM pronunciations WHERE account = ?", (account,))
            _insert(db, account, rows.values())
            return sum(k not in stored_readings for k in rows), sum(
                k in stored_readings and stored_readings[k] != r for k, r in rows.items()
            )

        return self._db.write(work)

    def delete(self, account: str, key: str, language: str) -> bool:
        return self._db.is_there and self._db.write(lambda db: _drop(db, account, key, language))

    def clear(self, account: str) -> int:
        """Returns how many went."""
        if not self._db.is_there:
            return 0
        return self._db.write(
            lambda db: (
                db.execute("DELETE FROM pronunciations WHERE account = ?", (account,)).rowcount
            )
        )

    def close(self) -> None:
        self._db.close()


def _insert(db: Connection, account: str, rows: Iterable[Row]) -> None:
    db.executemany(
        "INSERT OR REPLACE INTO pronunciations VALUES (?, ?, ?, ?, ?)",
        [(account, *row) for row in rows],
    )
    if (
        db.execute("SELECT count(*) FROM pronunciations WHERE account = ?", (account,)).fetchone()[
            0
        ]
        > MAX_ROWS
    ):
        raise BadInput("too_many_terms.dictionary", max_rows=MAX_ROWS, param="term")


def _drop(db: Connection, account: str, key: str, language: str) -> bool:
    return (
        db.execute(
            "DELETE FROM pronunciations WHERE account = ? AND key = ? AND language = ?",
            (account, key, language),
        ).rowcount
        > 0
    )


def _rescue(damaged: Path, db: Connection) -> int:
    rows = _readable(damaged)
    db.executemany("INSERT OR IGNORE INTO pronunciations VALUES (?, ?, ?, ?, ?)", rows)
    return len(rows)


def _readable(path: Path) -> list[tuple[str, ...]]:
    """What can still be read of a damaged file, up to its first broken page.

    The file itself stays as it is.
    """
    rows: list[tuple[str, ...]] = []
    try:
        with closing(connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
            db.text_factory = bytes.decode
            for row in db.execute(
                "SELECT account, key, language, term, reading FROM pronunciations"
            ):
                rows += [row] * all(isinstance(part, str) for part in row)
    except (Error, UnicodeDecodeError) as error:
        log.info("%s: %s after %d rows", path.name, error, len(rows))
    return rows
