"""Batch jobs and their lines in SQLite: who claimed what, how often it was tried, where it ended.

Knows rows and states, not sound.

A line: waiting -> running -> done | failed | resting (tried in vain, once more later); cancel turns
what is not over into cancelled.
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from sqlite3 import Connection, Row
from typing import IO

from ..errors import Busy, KaikouError, NotFound
from .folder_store import new_id
from .private_files import make_file, make_folder
from .sqlite import Database, denied

MAX_OPEN_JOBS, MAX_OPEN_LINES = 50, 50_000  # of an account, not over
OVER = ("done", "failed", "cancelled")
TABLES = (
    """CREATE TABLE IF NOT EXISTS jobs (id TEXT PRIMARY KEY, account TEXT NOT NULL,
 name TEXT NOT NULL, model TEXT NOT NULL, seed INTEGER NOT NULL, total INTEGER NOT NULL,
 state TEXT NOT NULL, code TEXT NOT NULL DEFAULT '', error TEXT NOT NULL DEFAULT '',
 error_zh TEXT NOT NULL DEFAULT '', created_at REAL NOT NULL,
 serial INTEGER NOT NULL, idle_s REAL NOT NULL DEFAULT 0) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS of_account ON jobs (account, serial)",
    """CREATE TABLE IF NOT EXISTS lines (job TEXT NOT NULL REFERENCES jobs (id),
 n INTEGER NOT NULL, text TEXT NOT NULL, voice TEXT NOT NULL, mode TEXT NOT NULL,
 instruction TEXT NOT NULL,
 language TEXT NOT NULL, speed REAL NOT NULL, seed INTEGER NOT NULL, chars INTEGER NOT NULL,
 state TEXT NOT NULL DEFAULT 'waiting', attempts INTEGER NOT NULL DEFAULT 0,
 key TEXT NOT NULL DEFAULT '', samples INTEGER NOT NULL DEFAULT 0, rate INTEGER NOT NULL DEFAULT 0,
 engine TEXT NOT NULL DEFAULT '', code TEXT NOT NULL DEFAULT '',
 error TEXT NOT NULL DEFAULT '', error_zh TEXT NOT NULL DEFAULT '', PRIMARY KEY (job,
 n)) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS by_state ON lines (job, state, n, chars)",
    "CREATE INDEX IF NOT EXISTS by_key ON lines (key) WHERE key != ''",
)
CHANGES = (
    (2, "ALTER TABLE lines ADD COLUMN model TEXT NOT NULL DEFAULT ''"),
    (3, "ALTER TABLE lines ADD COLUMN notes TEXT NOT NULL DEFAULT ''"),  # JSON, "" for none
    (4, "ALTER TABLE lines ADD COLUMN segments TEXT NOT NULL DEFAULT ''"),  # JSON, "" if unknown
)


@dataclass(frozen=True)
class Line:
    """One text of a job.

    `n` counts from 1; `seed` is its own; `key`: of its sound, "" until it is made.
    """

    n: int
    text: str
    voice: str
    mode: str = "auto"
    instruction: str = ""
    language: str = "auto"
    speed: float = 1.0
    seed: int = 0
    job: str = ""
    state: str = "waiting"
    attempts: int = 0
    key: str = ""
    samples: int = 0
    rate: int = 0
    engine: str = ""
    code: str = ""
    error: str = ""
    error_zh: str = ""
    model: str = ""  # its own, "" = its job's; read back as the one that counts
    notes: tuple[tuple[str, str], ...] = ()  # what was left out or changed (English, Chinese)
    segments: tuple[tuple[str, int], ...] = ()  # (as it is read, first sample) of those that sound


@dataclass(frozen=True)
class BatchJob:
    id: str
    account: str
    name: str
    model: str
    seed: int
    total: int
    state: str  # running, paused, cancelled, done
    code: str
    error: str
    error_zh: str
    created_at: float
    lines: dict[str, int] = field(default_factory=dict)  # how many in each state
    chars: dict[str, int] = field(default_factory=dict)  # characters in each state


JOB = "id, account, name, model, seed, total, state, code, error, error_zh, created_at"
COUNTS = "SELECT state, count(*) AS n, sum(chars) AS chars FROM lines WHERE job = ? GROUP BY state"
LINE = (
    "n, text, voice, mode, instruction, language, speed, seed, job, state, attempts, key, samples,"
    " rate, engine, code, error, error_zh, coalesce(nullif(model, ''), (SELECT model FROM jobs"
    " WHERE jobs.id = lines.job)), notes, segments"
)


class JobStore:
    """Thread-safe. `clock`: of the wall, shown to people and used for nothing else."""

    def __init__(self, root: Path, clock: Callable[[], float] = time.time):
        self._db = Database(root / "jobs.sqlite", 4, TABLES, changes=CHANGES)
        self._clock = clock
        self._lock_file = root / "jobs.lock"
        self._lock_handle: IO | None = None

    # ---- which process works ---------------------------------------------------------------------
    def hold(self) -> bool:
        """Only one process works on the jobs of a folder.

        The lock goes with the process, however it ends.
        """
        if self._lock_handle is not None:
            return True
        try:
            make_folder(self._lock_file.parent)
            make_file(self._lock_file)
            lock = self._lock_file.open("w")
        except OSError as error:
            raise denied() from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            return False
        self._lock_handle = lock
        return True

    def reclaim(self) -> int:
        """What a process that is gone had claimed waits again.

        Only while the lock is held. Returns how many lines.
        """
        if not self._db.is_there:
            return 0
        return self._db.write(
            lambda db: (
                db.execute(
                    f"UPDATE lines SET state = {_LEFT} WHERE state IN ('running', 'resting')"
                ).rowcount
            )
        )

    def close(self) -> None:
        self._db.close()
        if self._lock_handle is not None:
            self._lock_handle.close()
            self._lock_handle = None

    # ---- jobs ------------------------------------------------------------------------------------
    def add(
        self, account: str, name: str, model: str, seed: int, lines: Iterable[Line]
    ) -> BatchJob:
        """The job and all its lines, or nothing.

        Raises StorageFull, Busy (the account has too much that is not over).
        """
        rows = [
            (
                line.n,
                line.text,
                line.voice,
                line.mode,
                line.instruction,
                line.language,
                line.speed,
                line.seed,
                line.model,
                len(line.text),
            )
            for line in lines
        ]
        job = BatchJob(
            new_id("job"),
            account,
            name,
            model,
            seed,
            len(rows),
            "running",
            "",
            "",
            "",
            self._clock(),
            {"waiting": len(rows)},
            {"waiting": sum(r[-1] for r in rows)},
        )

        def work(db: Connection) -> None:
            _check_open(db, account, job.total)
            serial = db.execute("SELECT coalesce(max(serial), 0) + 1 FROM jobs").fetchone()[0]
            db.execute(
                "INSERT INTO jobs (id, account, name, model, seed, total, state, created_at,"
                " serial) VALUES (?, ?, ?, ?, ?, ?, 'running', ?, ?)",
                (job.id, account, name, model, seed, job.total, job.created_at, serial),
            )
            db.executemany(
                "INSERT INTO lines (job, n, text, voice, mode, instruction, language, speed, seed,"
                " model, chars) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                ((job.id, *row) for row in rows),
            )

        self._db.write(work)
        return job

    def list(self, account: str, limit: int) -> list[BatchJob]:
        """Newest first."""
        if not self._db.is_there:
            return []

        def work(db: Connection) -> list[BatchJob]:
            rows = db.execute(
                f"SELECT {JOB} FROM jobs WHERE account = ? ORDER BY serial DESC LIMIT ?",
                (account, limit),
            ).fetchall()
            return [_job(row, db.execute(COUNTS, (row["id"],))) for row in rows]

        return self._db.read(work)

    def get(self, account: str, job_id: str) -> BatchJob:
        """Raises NotFound, also for another account's."""

        def work(db: Connection) -> BatchJob | None:
            row = db.execute(
                f"SELECT {JOB} FROM jobs WHERE id = ? AND account = ?", (job_id, account)
            ).fetchone()
            return row and _job(row, db.execute(COUNTS, (job_id,)))

        job = self._db.read(work) if self._db.is_there else None
        if job is None:
            raise job_gone()
        return job

    def open_jobs(self) -> list[tuple[str, str]]:
        """(id, account) of the jobs that are to be worked on, oldest first."""
        if not self._db.is_there:
            return []
        return self._db.read(
            lambda db: [
                tuple(r)
                for r in db.execute(
                    "SELECT id, account FROM jobs WHERE state = 'running' ORDER BY serial"
                )
            ]
        )

    def unfinished_ids(self, account: str) -> list[str]:
        """Jobs of an account that are not over."""
        if not self._db.is_there:
            return []
        ask = "SELECT id FROM jobs WHERE account = ? AND state IN ('running', 'paused')"
        return self._db.read(lambda db: [r["id"] for r in db.execute(ask, (account,))])

    def pause(self, job_id: str, error: KaikouError) -> None:
        ask = (
            "UPDATE jobs SET state = 'paused', code = ?, error = ?, error_zh = ? WHERE id = ? AND"
            " state = 'running'"
        )
        self._db.write(lambda db: db.execute(ask, (error.code, error.en, error.zh, job_id)))

    def cancel(self, job_id: str) -> None:
        """Lines that run now say themselves how they end."""

        def work(db: Connection) -> None:
            if db.execute(
                "UPDATE jobs SET state = 'cancelled' WHERE id = ? AND state IN ('running',"
                " 'paused')",
                (job_id,),
            ).rowcount:
                db.execute(
                    "UPDATE lines SET state = 'cancelled' WHERE job = ? AND state IN ('waiting',"
                    " 'resting')",
                    (job_id,),
                )

        self._db.write(work)

    def resume(self, job_id: str, still: Iterable[int] = ()) -> None:
        """A paused or cancelled job goes on, and what waited for another try need not any more.

        `still`: lines that are being made at this moment. Raises Busy as `add` does.
        """
        running_numbers = set(still)

        def work(db: Connection) -> None:
            _check_open_again(db, job_id, "cancelled")
            if not db.execute(
                "UPDATE jobs SET state = 'running', code = '', error = '', error_zh = '', idle_s ="
                " 0 WHERE id = ? AND state != 'done'",
                (job_id,),
            ).rowcount:
                return
            rows = [
                r["n"]
                for r in db.execute(
                    "SELECT n FROM lines WHERE job = ? AND state IN ('cancelled', 'running',"
                    " 'resting')",
                    (job_id,),
                )
            ]
            db.executemany(
                "UPDATE lines SET state = 'waiting' WHERE job = ? AND n = ?",
                [(job_id, n) for n in rows if n not in running_numbers],
            )

        self._db.write(work)

    def retry(self, job_id: str, n: int | None = None) -> int:
        """Failed lines, or the one, are tried again from the start.

        Returns how many. Raises Busy as `add` does.
        """

        def work(db: Connection) -> int:
            ask = (
                "UPDATE lines SET state = 'waiting', attempts = 0, code = '', error = '', error_zh"
                " = '' WHERE job = ? AND state = 'failed'"
            )
            changed = db.execute(
                ask + (" AND n = ?" if n is not None else ""),
                (job_id, n) if n is not None else (job_id,),
            ).rowcount
            if changed:
                _check_open_again(db, job_id, "done")
                db.execute(
                    "UPDATE jobs SET state = 'running', idle_s = 0 WHERE id = ? AND state = 'done'",
                    (job_id,),
                )
            return changed

        return self._db.write(work)

    def settle(self, job_id: str) -> bool:
        """A job none of whose lines is to be made any more is done.

        True when it is over, or gone.
        """

        def work(db: Connection) -> bool:
            _settle(db, job_id)
            return (
                db.execute(
                    "SELECT 1 FROM lines WHERE job = ? AND state IN ('waiting', 'running',"
                    " 'resting') LIMIT 1",
                    (job_id,),
                ).fetchone()
                is None
            )

        return self._db.write(work)

    def own_keys(self, job_id: str) -> list[str]:
        """Of the sounds that lines of this job have and no line of another."""
        ask = """SELECT DISTINCT key FROM lines WHERE job = ? AND key != ''
 AND NOT EXISTS (SELECT 1 FROM lines AS other WHERE other.key = lines.key AND other.key != ''
 AND other.job != lines.job)"""
        return self._db.read(lambda db: [r["key"] for r in db.execute(ask, (job_id,))])

    def delete(self, job_id: str) -> None:
        def work(db: Connection) -> None:
            db.execute("DELETE FROM lines WHERE job = ?", (job_id,))
            db.execute("DELETE FROM jobs WHERE id = ?", (job_id,))

        self._db.write(work)

    def is_used(self, key: str) -> bool:
        return self._db.is_there and self._db.read(lambda db: _is_used(db, key))

    def aged(self, seconds: float, limit_s: float) -> list[str]:
        """Jobs that are over have been so for `seconds` more of the studio's own time.

        Returns those past `limit_s`; a clock that is set has no say.
        """
        if not self._db.is_there:
            return []

        def work(db: Connection) -> list[str]:
            db.execute(
                "UPDATE jobs SET idle_s = idle_s + ? WHERE state IN ('done', 'cancelled')",
                (seconds,),
            )
            return [
                r["id"]
                for r in db.execute(
                    "SELECT id FROM jobs WHERE idle_s > ? AND state IN ('done', 'cancelled')",
                    (limit_s,),
                )
            ]

        return self._db.write(work)

    # ---- lines -----------------------------------------------------------------------------------
    def lines(
        self, job_id: str, start: int = 1, count: int = 1 << 30, state: str = ""
    ) -> list[Line]:
        """From number `start` on, in order; `state`: only those in it."""
        ask = (
            f"SELECT {LINE} FROM lines WHERE job = ? AND n >= ?{' AND state = ?' if state else ''}"
            " ORDER BY n LIMIT ?"
        )
        values = (job_id, start, *([state] if state else []), count)
        return self._db.read(lambda db: [_line(r) for r in db.execute(ask, values)])

    def ended(self, account: str, job_id: str, start: int, count: int) -> tuple[str, list[Line]]:
        """The state of a job, and its lines from number `start` on that are over, up to the first
        that is not, `count` at most. Raises NotFound.
        """
        ask = f"SELECT {LINE} FROM lines WHERE job = ? AND n >= ? ORDER BY n LIMIT ?"

        def work(db: Connection) -> tuple[str, list[Line]] | None:
            row = db.execute(
                "SELECT state FROM jobs WHERE id = ? AND account = ?", (job_id, account)
            ).fetchone()
            return row and (
                row["state"],
                list(
                    takewhile(
                        lambda line: line.state in OVER,
                        map(_line, db.execute(ask, (job_id, start, count))),
                    )
                ),
            )

        state_and_lines = self._db.read(work) if self._db.is_there else None
        if state_and_lines is None:
            raise job_gone()
        return state_and_lines

    def claim(self, job_id: str) -> Line | None:
        """The next line of a job that runs, now this process' own.

        A claim need not outlive a power cut: it would be given back anyway.
        """

        def work(db: Connection) -> Line | None:
            ask = (
                f"SELECT {LINE} FROM lines WHERE job = ? AND state = 'waiting' AND (SELECT state"
                " FROM jobs WHERE id = ?) = 'running' ORDER BY n LIMIT 1"
            )
            row = db.execute(ask, (job_id, job_id)).fetchone()
            if row is None:
                return None
            db.execute(
                "UPDATE lines SET state = 'running' WHERE job = ? AND n = ?", (job_id, row["n"])
            )
            return _line(row)

        return self._db.write(work, is_lasting=False)

    def claim_again(self, job_id: str, n: int) -> Line | None:
        """A line that rested; None when it does not wait for that any more."""

        def work(db: Connection) -> Line | None:
            if not db.execute(
                "UPDATE lines SET state = 'running' WHERE job = ? AND n = ? AND state = 'resting'"
                " AND (SELECT state FROM jobs WHERE id = ?) = 'running'",
                (job_id, n, job_id),
            ).rowcount:
                return None
            return _line(
                db.execute(
                    f"SELECT {LINE} FROM lines WHERE job = ? AND n = ?", (job_id, n)
                ).fetchone()
            )

        return self._db.write(work, is_lasting=False)

    def mark_done(
        self,
        line: Line,
        key: str,
        samples: int,
        rate: int,
        engine: str,
        notes: Sequence[tuple[str, str]] = (),
        segments: Sequence[tuple[str, int]] | None = None,
    ) -> bool:
        """Its sound is on the disk. False when the line is gone.

        segments: as Line has them; None: those of another line with the same sound.
        """

        def work(db: Connection) -> bool:
            segments_json = _segments_of(db, key) if segments is None else _json(segments)
            values = (key, samples, rate, engine, _json(notes), segments_json, line.job, line.n)
            is_there = db.execute(ask, values).rowcount > 0
            _settle(db, line.job)
            return is_there

        ask = (
            "UPDATE lines SET state = 'done', key = ?, samples = ?, rate = ?, engine = ?, notes ="
            " ?, segments = ?, code = '', error = '', error_zh = '' WHERE job = ? AND n = ?"
        )
        return self._db.write(work)

    def tried(self, line: Line, error: KaikouError, is_last: bool) -> None:
        """In vain. It rests, or that was the last try."""

        def work(db: Connection) -> None:
            db.execute(ask, values)
            _settle(db, line.job)

        ask = (
            f"UPDATE lines SET attempts = attempts + 1, state = {'?' if is_last else _RESTS}, code"
            " = ?, error = ?, error_zh = ? WHERE job = ? AND n = ? AND state = 'running'"
        )
        values = (
            *(["failed"] if is_last else []),
            error.code,
            error.en,
            error.zh,
            line.job,
            line.n,
        )
        self._db.write(work)

    def release(self, line: Line, is_resting: bool = False) -> None:
        """The claim ends without a try: it was not the line's fault."""
        ask = (
            f"UPDATE lines SET state = {_RESTS if is_resting else _LEFT} WHERE job = ? AND n = ?"
            " AND state = 'running'"
        )
        self._db.write(lambda db: db.execute(ask, (line.job, line.n)), is_lasting=False)


# the state of a line that was let go: what its job has become has the last word
_LEFT = (
    "CASE (SELECT state FROM jobs WHERE id = lines.job) WHEN 'cancelled' THEN 'cancelled' ELSE"
    " 'waiting' END"
)
_RESTS = (
    "CASE (SELECT state FROM jobs WHERE id = lines.job) WHEN 'cancelled' THEN 'cancelled' ELSE"
    " 'resting' END"
)


def _settle(db: Connection, job_id: str) -> None:
    """With its last line a job is done, in one transaction."""
    ask = (
        "UPDATE jobs SET state = 'done', idle_s = 0 WHERE id = ? AND state = 'running' AND NOT"
        " EXISTS (SELECT 1 FROM lines WHERE job = ? AND state IN ('waiting', 'running', 'resting'))"
    )
    db.execute(ask, (job_id, job_id))


def _check_open(db: Connection, account: str, n_lines: int) -> None:
    """Within the transaction that opens one more job, so that of many at once no more get in than
    may. Raises Busy.
    """
    ask = (
        "SELECT count(*), coalesce(sum(total), 0) FROM jobs WHERE account = ? AND state IN"
        " ('running', 'paused')"
    )
    open_jobs, open_lines = db.execute(ask, (account,)).fetchone()
    if open_jobs >= MAX_OPEN_JOBS or open_lines + n_lines > MAX_OPEN_LINES:
        raise Busy("too_many_jobs", open_jobs=open_jobs, open_lines=open_lines, retry_after_s=60)


def _check_open_again(db: Connection, job_id: str, state: str) -> None:
    """The same for a job that is over, in `state`, and shall go on."""
    row = db.execute(
        "SELECT account, total FROM jobs WHERE id = ? AND state = ?", (job_id, state)
    ).fetchone()
    if row is not None:
        _check_open(db, *row)


def _is_used(db: Connection, key: str) -> bool:
    return (
        db.execute("SELECT 1 FROM lines WHERE key = ? AND key != '' LIMIT 1", (key,)).fetchone()
        is not None
    )


def _segments_of(db: Connection, key: str) -> str:
    row = db.execute(
        "SELECT segments FROM lines WHERE key = ? AND key != '' AND segments != '' LIMIT 1", (key,)
    ).fetchone()
    return row["segments"] if row else ""


def _json(pairs: Sequence[tuple]) -> str:
    return json.dumps(pairs, ensure_ascii=False) if pairs else ""


def _line(row: Row) -> Line:
    pairs = [tuple(map(tuple, json.loads(value or "[]"))) for value in row[-2:]]
    return Line(*row[:-2], *pairs)


def _job(row: Row, counts: Iterable[Row]) -> BatchJob:
    counts = list(counts)
    return BatchJob(
        *row, {c["state"]: c["n"] for c in counts}, {c["state"]: c["chars"] for c in counts}
    )


def job_gone() -> NotFound:
    return NotFound("job_gone")
