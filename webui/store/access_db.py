"""Who may come in, on disk: API keys (only their hash), demo links, what each has used, and logins
that were ended. One SQLite file, read by whoever asks and changed by scripts too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from sqlite3 import Connection, Row

from .sqlite import Database

TABLES = (
    """CREATE TABLE IF NOT EXISTS keys (id TEXT PRIMARY KEY, mark TEXT NOT NULL UNIQUE,
 name TEXT NOT NULL, account TEXT NOT NULL, scopes TEXT NOT NULL, per_minute INTEGER NOT NULL,
 created_at REAL NOT NULL, revoked_at REAL) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS demos (id TEXT PRIMARY KEY, account TEXT NOT NULL,
 voice TEXT NOT NULL, title TEXT NOT NULL, fixed TEXT NOT NULL, expires_at REAL NOT NULL,
 max_text INTEGER NOT NULL, max_chars INTEGER NOT NULL, max_uses INTEGER NOT NULL,
 per_minute INTEGER NOT NULL, created_at REAL NOT NULL, ended TEXT NOT NULL DEFAULT '',
 uses INTEGER NOT NULL DEFAULT 0, chars INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID""",
    (
        "CREATE TABLE IF NOT EXISTS usage (id TEXT PRIMARY KEY, requests INTEGER NOT NULL, chars"
        " INTEGER NOT NULL, sound_s REAL NOT NULL, last_used_at REAL) WITHOUT ROWID"
    ),
    (
        "CREATE TABLE IF NOT EXISTS ended_logins (id TEXT PRIMARY KEY, until REAL NOT NULL) WITHOUT"
        " ROWID"
    ),
)
ADMIN = "admin"


@dataclass(frozen=True)
class Key:
    """`mark`: SHA-256 of the key in hex.

    `account`: who made it; a key that may do everything acts as its maker, any other has a shelf of
    its own.
    """

    id: str
    mark: str
    name: str
    account: str
    scopes: tuple[str, ...]
    per_minute: int = 0  # requests; 0 = no rate of its own
    created_at: float = 0.0
    revoked_at: float | None = None

    @property
    def account_id(self) -> str:
        """The account whose voices and jobs it sees."""
        return self.account if ADMIN in self.scopes else self.id


@dataclass(frozen=True)
class ShareLink:
    """A link to one voice of `account`. fixed: the fields of a request that its guests cannot
    choose. max_text: characters at a time; max_chars, max_uses: in all.
    """

    id: str
    account: str
    voice: str
    title: str
    fixed: dict
    expires_at: float
    max_text: int
    max_chars: int
    max_uses: int
    per_minute: int
    created_at: float = 0.0
    ended: str = ""  # "", revoked, expired
    uses: int = 0
    chars: int = 0


@dataclass(frozen=True)
class Used:
    requests: int = 0
    chars: int = 0
    sound_s: float = 0.0
    last_used_at: float | None = None


@dataclass
class AccessStore:
    """Thread-safe.

    Every call raises StorageFull, Busy, StorageDamaged as Database does. Reading makes no file.
    """

    root: Path
    _db: Database = field(init=False)

    def __post_init__(self):
        self._db = Database(self.root / "access.sqlite", 2, TABLES)

    def state(self) -> tuple[int, str]:
        """Changes whenever any process has changed anything, and when the file is gone or was set
        aside.
        """
        if not self._db.is_there:
            return 0, self._db.set_aside
        return (
            self._db.read(lambda db: db.execute("PRAGMA data_version").fetchone()[0]),
            self._db.set_aside,
        )

    def was_damaged(self) -> bool:
        """A file of keys was set aside, now or in an earlier run, and still lies there."""
        return any(self.root.glob("access.damaged-*"))

    # ---- keys ------------------------------------------------------------------------------------
    def keys(self) -> list[Key]:
        """All, newest first, revoked ones too."""
        return self._fetch_all(
            "SELECT * FROM keys ORDER BY created_at DESC, id",
            lambda row: Key(**{**dict(row), "scopes": tuple(row["scopes"].split())}),
        )

    def add_key(self, key: Key, max_live: int) -> bool:
        """False when its account has `max_live` keys that are not revoked; asked and added in one
        step, also between processes.
        """
        row = (
            key.id,
            key.mark,
            key.name,
            key.account,
            " ".join(key.scopes),
            key.per_minute,
            key.created_at,
        )
        ask = """INSERT INTO keys (id, mark, name, account, scopes, per_minute, created_at)
 SELECT ?, ?, ?, ?, ?, ?, ?
 WHERE (SELECT count(*) FROM keys WHERE account = ? AND revoked_at IS NULL) < ?"""
        return self._db.write(
            lambda db: db.execute(ask, (*row, key.account, max_live)).rowcount > 0
        )

    def revoke_key(self, key_id: str, now: float) -> None:
        self._db.write(
            lambda db: db.execute(
                "UPDATE keys SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", (now, key_id)
            )
        )

    # ---- demo links ------------------------------------------------------------------------------
    def demos(self) -> list[ShareLink]:
        """All, newest first, ended ones too."""
        return self._fetch_all("SELECT * FROM demos ORDER BY created_at DESC, id", _demo)

    def demo(self, demo_id: str) -> ShareLink | None:
        rows = self._fetch_all("SELECT * FROM demos WHERE id = ?", _demo, (demo_id,))
        return rows[0] if rows else None

    def add_demo(self, demo: ShareLink, max_live: int) -> bool:
        """False when its account has `max_live` links that have not ended; asked and added in one
        step.
        """
        names = [f.name for f in fields(ShareLink)]
        row = [
            json.dumps(v, ensure_ascii=False) if n == "fixed" else v
            for n, v in ((n, getattr(demo, n)) for n in names)
        ]
        ask = f"""INSERT INTO demos ({", ".join(names)}) SELECT {", ".join("?" * len(names))}
 WHERE (SELECT count(*) FROM demos WHERE account = ? AND ended = '') < ?"""
        return self._db.write(
            lambda db: db.execute(ask, (*row, demo.account, max_live)).rowcount > 0
        )

    def end_demo(self, demo_id: str, why: str) -> None:
        """For good: a clock that is set back does not bring it to life again."""
        self._db.write(
            lambda db: db.execute(
                "UPDATE demos SET ended = ? WHERE id = ? AND ended = ''", (why, demo_id)
            )
        )

    def use_demo(self, demo_id: str, n_chars: int) -> bool:
        """Counts one use where all of its caps still allow it, in one step: of many at once none
        gets through twice.
        """
        ask = (
            "UPDATE demos SET uses = uses + 1, chars = chars + ? WHERE id = ? AND ended = '' AND"
            " uses < max_uses AND chars + ? <= max_chars"
        )
        return self._db.write(
            lambda db: db.execute(ask, (n_chars, demo_id, n_chars)).rowcount > 0, is_lasting=False
        )

    def give_back_demo(self, demo_id: str, n_chars: int) -> None:
        """A use that came to nothing."""
        self._db.write(
            lambda db: db.execute(
                "UPDATE demos SET uses = uses - 1, chars = chars - ? WHERE id = ?",
                (n_chars, demo_id),
            ),
            is_lasting=False,
        )

    # ---- usage -----------------------------------------------------------------------------------
    def usage(self) -> dict[str, Used]:
        return dict(
            self._fetch_all(
                "SELECT * FROM usage",
                lambda row: (
                    row["id"],
                    Used(row["requests"], row["chars"], row["sound_s"], row["last_used_at"]),
                ),
            )
        )

    def add_usage(self, used: Iterable[tuple[str, Used]]) -> None:
        """On top of what was there."""
        rows = [(i, u.requests, u.chars, u.sound_s, u.last_used_at) for i, u in used]
        ask = """INSERT INTO usage VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE
 SET requests = requests + excluded.requests, chars = chars + excluded.chars,
 sound_s = sound_s + excluded.sound_s,
 last_used_at = max(coalesce(last_used_at, 0), coalesce(excluded.last_used_at, 0))"""
        self._db.write(lambda db: db.executemany(ask, rows), is_lasting=False)

    # ---- logins ----------------------------------------------------------------------------------
    def end_login(self, login_id: str, now: float, until: float) -> None:
        """It is remembered until its cookie would have expired anyway."""

        def work(db: Connection) -> None:
            db.execute("DELETE FROM ended_logins WHERE until < ?", (now,))
            db.execute("INSERT OR IGNORE INTO ended_logins VALUES (?, ?)", (login_id, until))

        self._db.write(work)

    def is_login_ended(self, login_id: str) -> bool:
        return bool(
            self._fetch_all("SELECT 1 FROM ended_logins WHERE id = ?", lambda row: row, (login_id,))
        )

    def close(self) -> None:
        self._db.close()

    def _fetch_all(self, ask: str, from_row, parameters: tuple = ()) -> list:
        if not self._db.is_there:
            return []

        def look(db: Connection) -> list[Row]:
            return db.execute(ask, parameters).fetchall()

        return [from_row(row) for row in self._db.read(look)]


def _demo(row: Row) -> ShareLink:
    return ShareLink(**{**dict(row), "fixed": json.loads(row["fixed"])})
