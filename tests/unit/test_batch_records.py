"""The records of batches: made once by whoever comes first, synced before they are told, set aside
when damaged, claimed by one process.
"""

from __future__ import annotations

import sqlite3
import threading

import pytest

from webui.errors import EngineFault, KaikouError, NotFound, StorageDamaged
from webui.store import JobStore, Line


def test_a_damaged_file_is_set_aside_and_new_jobs_go_on(tmp_path):
    (tmp_path / "jobs.sqlite").write_bytes(b"SQLite format 3\0" + b"garbage" * 1000)
    store = JobStore(tmp_path)
    with pytest.raises(StorageDamaged):
        store.open_jobs()
    assert store.open_jobs() == [] and [p.name for p in tmp_path.glob("jobs.damaged-*.sqlite")]
    store.add("a", "", "auto", 1, [Line(1, "x", "v")])
    assert len(store.list("a", 10)) == 1
    store.close()


def test_many_come_to_a_new_file_at_once(tmp_path):
    for n in range(20):
        store, start, wrong = JobStore(tmp_path / str(n)), threading.Barrier(6), []

        def come(account: str, store=store, start=start, wrong=wrong) -> None:
            start.wait()
            try:
                while account != "a0" and not store.list("a0", 10):
                    pass  # looks while the file is made
                store.add(account, "", "auto", 1, [Line(1, "x", "v")])
                assert len(store.list(account, 10)) == 1 and store.open_jobs()
            except Exception as error:
                wrong.append(error)

        threads = [threading.Thread(target=come, args=(f"a{i}",)) for i in range(6)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        store.close()
        assert wrong == []


def test_every_mark_is_synced_before_it_is_told(tmp_path):
    store = JobStore(tmp_path)
    job = store.add("a", "", "auto", 1, [Line(1, "x", "v")])
    line, db = store.claim(job.id), store._db._links[True]
    sync_modes = []
    db.set_trace_callback(
        lambda statement: (
            statement.startswith("UPDATE lines")
            and sync_modes.append(db.execute("PRAGMA synchronous").fetchone()[0])
        )
    )
    store.mark_done(line, "k", 1, 24000, "e")
    assert sync_modes == [2] and db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    store.close()


def test_claims_of_a_dead_process_return_and_of_a_living_one_do_not(tmp_path):
    first, second = JobStore(tmp_path), JobStore(tmp_path)
    job = first.add("a", "", "auto", 1, [Line(n, "x", "v") for n in (1, 2, 3)])
    assert first.hold() and not second.hold()
    assert first.claim(job.id).n == 1 and second.claim(job.id).n == 2
    first.tried(Line(1, "x", "v", job=job.id), EngineFault(), is_last=False)
    assert second.get("a", job.id).lines == {"resting": 1, "running": 1, "waiting": 1}
    first.close()
    assert second.hold() and second.reclaim() == 2
    assert second.get("a", job.id).lines == {"waiting": 3} and second.claim(job.id).attempts == 1
    second.close()


def test_a_cancelled_job_takes_back_what_is_still_in_the_air(tmp_path):
    store = JobStore(tmp_path)
    job = store.add("a", "", "auto", 1, [Line(n, "x", "v") for n in (1, 2, 3)])
    first, second = store.claim(job.id), store.claim(job.id)
    store.cancel(job.id)
    store.release(first)
    assert store.mark_done(second, "k", 1, 24000, "e"), (
        "what was made although nobody waits for it is kept"
    )
    assert (
        store.get("a", job.id).lines == {"cancelled": 2, "done": 1}
        and store.claim(job.id) is None
        and store.settle(job.id)
    )
    store.resume(job.id)
    assert store.get("a", job.id).lines == {"waiting": 2, "done": 1}
    store.delete(job.id)
    assert not store.mark_done(first, "k", 1, 24000, "e")
    with pytest.raises(NotFound):
        store.get("a", job.id)
    store.close()


def test_rows_that_are_not_ours_are_an_error_with_a_name(tmp_path):
    with sqlite3.connect(tmp_path / "jobs.sqlite") as db:
        db.execute("PRAGMA user_version=99")
    with pytest.raises(KaikouError) as exc_info:
        JobStore(tmp_path).list("a", 1)
    assert exc_info.value.code == "data_newer"


@pytest.mark.parametrize("version", [1, 2])
def test_jobs_of_earlier_versions_go_on_and_lines_get_a_model_and_notes_of_their_own(
    tmp_path, version
):
    """A file as version 1 made it: its lines have no model, and speak with their job's.

    Notes came with version 3.
    """
    with sqlite3.connect(tmp_path / "jobs.sqlite") as db:
        db.execute(
            "CREATE TABLE jobs (id TEXT PRIMARY KEY, account TEXT NOT NULL, name TEXT NOT NULL,"
            " model TEXT NOT NULL, seed INTEGER NOT NULL, total INTEGER NOT NULL, state TEXT NOT"
            " NULL, code TEXT NOT NULL DEFAULT '', error TEXT NOT NULL DEFAULT '', error_zh TEXT"
            " NOT NULL DEFAULT '', created_at REAL NOT NULL, serial INTEGER NOT NULL, idle_s REAL"
            " NOT NULL DEFAULT 0) WITHOUT ROWID"
        )
        db.execute(
            "CREATE TABLE lines (job TEXT NOT NULL REFERENCES jobs (id), n INTEGER NOT NULL, text"
            " TEXT NOT NULL, voice TEXT NOT NULL, mode TEXT NOT NULL, instruction TEXT NOT NULL,"
            " language TEXT NOT NULL, speed REAL NOT NULL, seed INTEGER NOT NULL, chars INTEGER NOT"
            " NULL, state TEXT NOT NULL DEFAULT 'waiting', attempts INTEGER NOT NULL DEFAULT 0, key"
            " TEXT NOT NULL DEFAULT '', samples INTEGER NOT NULL DEFAULT 0, rate INTEGER NOT NULL"
            " DEFAULT 0, engine TEXT NOT NULL DEFAULT '', code TEXT NOT NULL DEFAULT '', error TEXT"
            " NOT NULL DEFAULT '', error_zh TEXT NOT NULL DEFAULT '', PRIMARY KEY (job, n)) WITHOUT"
            " ROWID"
        )
        db.execute("CREATE INDEX by_key ON lines (key) WHERE key != ''")
        db.execute(
            "INSERT INTO jobs (id, account, name, model, seed, total, state, created_at, serial)"
            " VALUES ('job-1', 'a', '', 'builtin', 1, 1, 'running', 0, 1)"
        )
        db.execute(
            "INSERT INTO lines (job, n, text, voice, mode, instruction, language, speed, seed,"
            " chars) VALUES ('job-1', 1, 'x', 'v', 'auto', '', 'auto', 1, 1, 1)"
        )
        if version > 1:
            db.execute("ALTER TABLE lines ADD COLUMN model TEXT NOT NULL DEFAULT ''")
        db.execute(f"PRAGMA user_version={version}")
    store = JobStore(tmp_path)
    line = store.claim("job-1")
    assert line.model == "builtin" and line.notes == ()
    store.mark_done(line, "k", 1, 24000, "e", [("One.", "一。")])
    assert store.lines("job-1")[0].notes == (("One.", "一。"),)
    job = store.add(
        "a", "", "auto", 1, [Line(1, "x", "v"), Line(2, "x", "v", model="builtin-instant")]
    )
    assert [line.model for line in store.lines(job.id)] == ["auto", "builtin-instant"]
    store.close()
