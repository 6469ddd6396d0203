"""A batch without a screen: claims, tries, rests, pauses, the cache, fairness, the pace; with the tone engine and with clocks that can be set."""

from __future__ import annotations

import io
import sqlite3
import threading
import time
import zipfile
from dataclasses import replace

import pytest

from tests.engine.fake import FakeEngine
from webui.errors import BadInput, Busy, EngineFault, KaikouError, NotFound, NotReady, StorageDamaged, StorageFull
from webui.settings import Limits, Paths, Settings
from webui.store import JobStore, Line, SoundStore
from webui.store.sounds import Disk
from webui.studio import Ask, Studio, Zip, batch_work
from webui.studio.batch import MAX_OPEN_JOBS
from webui.studio.pace import Pace

ME, OTHER = "local/me", "user-ann/x"
SHORT = {"voice": "starter-en-mid", "mode": "instruct", "instruction": "seconds=0.2"}


def asks(n: int, start: int = 1, **more) -> list[Ask]:
    return [Ask(f"Line {i}.", **{**SHORT, **more}) for i in range(start, start + n)]


class Engine(FakeEngine):
    """Counts what it speaks, and can be told to fail for some texts, or to wait."""

    def __init__(self, lanes: int = 2):
        super().__init__(lanes=lanes)
        self.spoken: list[str] = []
        self.faults: dict[str, list[Exception]] = {}
        self.together: list[set[str]] = []
        self.now: set[str] = set()
        self.gate = threading.Event()
        self.gate.set()

    def stream(self, request, prompt, lane=0):
        self.now.add(request.text)
        self.together.append(set(self.now))
        try:
            self.spoken.append(request.text)
            self.gate.wait(20)
            if self.faults.get(request.text):
                raise self.faults[request.text].pop(0)
            yield from super().stream(request, prompt, lane)
        finally:
            self.now.discard(request.text)


@pytest.fixture
def engine():
    return Engine()


@pytest.fixture
def studio(tmp_path, engine, monkeypatch):
    monkeypatch.setattr(batch_work, "REST_S", (0.01, 0.02))
    made = Studio(Settings(paths=replace(Paths(), data_dir=tmp_path), limits=replace(Limits(), stall_s=30)))
    made.start(lambda: engine).join(20)
    yield made
    engine.gate.set()
    made.close()


def until(studio, job, *states, owner: str = ME):
    news = threading.Event()
    unwatch = studio.batch.watch(job.id, news.set)
    end = time.monotonic() + 30
    try:
        while (now := studio.batch.get(owner, job.id)).state not in states and time.monotonic() < end:
            news.wait(0.5)
            news.clear()
        assert now.state in states, now
        return now
    finally:
        unwatch()


def lines(studio, job, owner: str = ME) -> list[Line]:
    return studio.batch.lines(owner, job.id, 1, 10_000)


# ---- tries ----------------------------------------------------------------------------------------------------
def test_a_poison_line_stops_after_three_tries_alone_and_the_rest_goes_on(studio, engine):
    engine.faults["Line 3."] = [EngineFault()] * 9
    engine.faults["Line 5."] = [EngineFault()]
    job = studio.batch.submit(ME, asks(8))
    told = until(studio, job, "done")
    assert told.lines == {"done": 7, "failed": 1} and engine.spoken.count("Line 3.") == 3 and engine.spoken.count("Line 5.") == 2
    bad = lines(studio, job)[2]
    assert (bad.state, bad.attempts, bad.code) == ("failed", 3, "fault") and bad.error_zh
    again = [together for text, together in zip(engine.spoken, engine.together) if text == "Line 3."][1:]
    assert again == [{"Line 3."}] * 2, "nothing else was in the air when it was tried again"
    engine.faults.clear()
    assert studio.batch.retry(ME, job.id).state == "running"
    assert until(studio, job, "done").lines == {"done": 8}


def test_what_no_further_try_can_mend_is_not_tried_again(studio, engine):
    voice, _ = studio.voices.add(ME, clip_of(5), "Lin", consent="me")
    engine.gate.clear()
    job = studio.batch.submit(ME, [*asks(3), *asks(1, start=9, voice=voice.id)])
    studio.voices.delete(ME, voice.id)
    engine.gate.set()
    assert until(studio, job, "done").lines == {"done": 3, "failed": 1}
    assert (lines(studio, job)[3].attempts, lines(studio, job)[3].code) == (1, "voice_gone")


def clip_of(seconds: float) -> bytes:
    from tests.api.test_http import clip

    return clip(seconds)


def test_an_engine_that_is_away_costs_no_line_a_try(studio, engine):
    engine.faults["Line 2."] = [NotReady("Away.", "不在。")] * 6
    job = studio.batch.submit(ME, asks(3))
    assert until(studio, job, "done").lines == {"done": 3}
    assert [x.attempts for x in lines(studio, job)] == [0, 0, 0] and engine.spoken.count("Line 2.") == 7


def test_jobs_wait_for_an_engine_that_still_starts(tmp_path):
    made = Studio(Settings(paths=replace(Paths(), data_dir=tmp_path)))
    job = made.batch.submit(ME, asks(2))
    made.batch.start()
    assert made.batch.get(ME, job.id).lines == {"waiting": 2}
    made.start(FakeEngine)
    try:
        assert until(made, job, "done").lines == {"done": 2}
    finally:
        made.close()


def test_a_stuck_engine_does_not_keep_the_studio_from_ending(tmp_path, monkeypatch):
    engine = Engine()
    made = Studio(Settings(paths=replace(Paths(), data_dir=tmp_path), limits=replace(Limits(), stall_s=3600)))
    made.start(lambda: engine).join(20)
    engine.gate.clear()
    job = made.batch.submit(ME, asks(4))
    while len(engine.spoken) < 2:
        time.sleep(0.01)
    ended = threading.Thread(target=made.batch.close)
    ended.start()
    ended.join(10)
    assert not ended.is_alive()
    engine.gate.set()
    made.close()
    store = JobStore(tmp_path)
    assert store.hold() and store.reclaim() in range(5) and store.get("local", job.id).lines == {"waiting": 4}
    store.close()


# ---- never twice ------------------------------------------------------------------------------------------------
def test_two_jobs_that_want_the_same_line_at_once_make_it_once(studio, engine):
    engine.gate.clear()
    first, second = (studio.batch.submit(ME, [Ask("The same.", **SHORT, seed=4)]) for _ in range(2))
    engine.gate.set()
    until(studio, first, "done"), until(studio, second, "done")
    assert engine.spoken == ["The same."] and studio.batch.work.maker.n_cached == 1
    assert studio.batch.sound(ME, first.id, 1) == studio.batch.sound(ME, second.id, 1)
    studio.batch.delete(ME, first.id)
    assert studio.batch.sound(ME, second.id, 1).is_file(), "another job still has it"
    studio.batch.delete(ME, second.id)
    assert not list(studio.settings.paths.data_dir.glob("sounds/*/*.wav"))


def test_what_a_sound_is_made_from_is_in_its_key(studio, engine):
    base = Ask("Same words.", **SHORT, seed=1)
    variants = [base, replace(base, seed=2), replace(base, speed=1.5), replace(base, speed=3.0), replace(base, voice="starter-zh-high"), replace(base, instruction="seconds=0.3"),
                replace(base, text="Other words."), replace(base, mode="zero_shot", instruction=""), replace(base, mode="cross_lingual", instruction="")]
    job = studio.batch.submit(ME, variants)
    until(studio, job, "done")
    assert len({x.key for x in lines(studio, job)}) == len(variants)
    again = studio.batch.submit(ME, variants)
    until(studio, again, "done")
    assert [x.key for x in lines(studio, again)] == [x.key for x in lines(studio, job)] and len(engine.spoken) == len(variants)
    other = studio.batch.submit(OTHER, [base])
    until(studio, other, "done", owner=OTHER)
    assert lines(studio, other, OTHER)[0].key != lines(studio, job)[0].key, "accounts share nothing"
    studio.pronunciations.put(ME, "Same", "samey")
    said = studio.batch.submit(ME, [base])
    until(studio, said, "done")
    assert lines(studio, said)[0].key != lines(studio, job)[0].key, "it is read differently now"


def test_seeds_come_from_the_job_and_the_line(studio):
    def seeds(texts, **kw):
        job = studio.batch.submit(ME, [Ask(t, **SHORT) for t in texts], **kw)
        return [x.seed for x in lines(studio, job)], job.seed

    one, _ = seeds(["a", "b", "b", "c"], seed=5)
    two, _ = seeds(["new", "b", "a", "b"], seed=5)
    assert len(set(one)) == 4 and two[1:] == [one[1], one[0], one[2]] and seeds(["a"], seed=6)[0] != one[:1]
    drawn, seed = seeds(["a", "b"])
    assert seeds(["a", "b"], seed=seed)[0] == drawn, "a job's own seed makes it again"
    job = studio.batch.submit(ME, [Ask("a", **SHORT, seed=2**63 - 1)])
    assert until(studio, job, "done") and lines(studio, job)[0].seed == 2**63 - 1


# ---- disk ---------------------------------------------------------------------------------------------------------
class FullDisk(Disk):
    is_full = False
    gate = threading.Event()
    gate.set()

    def sync(self, path):
        if self.is_full:
            self.gate.wait(10)
            raise OSError(28, "No space left on device")
        super().sync(path)


def test_a_disk_that_fills_pauses_the_job_with_its_name(studio, engine):
    disk = FullDisk()
    studio.batch._sounds._disk = disk
    job = studio.batch.submit(ME, asks(2))
    until(studio, job, "done")
    disk.is_full = True
    full = studio.batch.submit(ME, asks(4, start=10))
    told = until(studio, full, "paused")
    assert (told.code, told.lines.get("failed")) == ("storage", None) and not list(studio.settings.paths.data_dir.glob("sounds/*/.new*"))
    assert len(list(studio.settings.paths.data_dir.glob("sounds/*/*.wav"))) == 2
    disk.is_full = False
    studio.batch.resume(ME, full.id)
    told = until(studio, full, "done")
    assert told.lines == {"done": 4} and all(x.attempts == 0 for x in lines(studio, full))


def test_a_line_that_met_the_full_disk_before_it_was_cleared_does_not_stop_the_job_again(studio, engine):
    disk, engine.gate = FullDisk(), threading.Event()
    studio.batch._sounds._disk = disk
    job = studio.batch.submit(ME, asks(3))
    while len(engine.spoken) < 2:
        time.sleep(0.01)
    disk.is_full, disk.gate = True, threading.Event()
    engine.gate.set()
    studio.batch.resume(ME, job.id)  # somebody made room meanwhile
    disk.gate.set()
    disk.is_full = False
    assert until(studio, job, "done").lines == {"done": 3}


def test_a_job_let_go_on_at_the_moment_it_is_stopped_goes_on(studio, monkeypatch):
    disk, stop, waiting = FullDisk(), studio.batch.work._stop, []
    studio.batch._sounds._disk = disk
    disk.is_full = True

    def slow(job_id, error):
        if not waiting:  # it is found that the job must stop; it has not stopped yet
            disk.is_full = False
            waiting.append(threading.Thread(target=studio.batch.resume, args=(ME, job_id)))
            waiting[0].start()
            waiting[0].join(0.5)  # as long as it wants to wait; nothing hangs on how long that is
        stop(job_id, error)
    monkeypatch.setattr(studio.batch.work, "_stop", slow)
    job = studio.batch.submit(ME, asks(3))
    assert until(studio, job, "done").lines == {"done": 3} and waiting
    waiting[0].join()


def test_a_pause_that_cannot_be_written_down_is_known_all_the_same(studio, monkeypatch):
    job = studio.batch.submit(ME, asks(1))
    until(studio, job, "done")

    def full(*_, **__):
        raise StorageFull()
    store = studio.batch._jobs
    broken = studio.batch.submit(ME, asks(3, start=20, instruction="seconds=0.4 rtf=0.5"))
    for name in ("claim", "done", "pause", "release", "tried"):
        monkeypatch.setattr(store, name, full)
    assert until(studio, broken, "paused").code == "storage"
    monkeypatch.undo()
    studio.batch.resume(ME, broken.id)
    assert until(studio, broken, "done").lines == {"done": 3}


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
    seen = []
    db.set_trace_callback(lambda statement: statement.startswith("UPDATE lines") and seen.append(db.execute("PRAGMA synchronous").fetchone()[0]))
    store.done(line, "k", 1, 24000, "e")
    assert seen == [2] and db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    store.close()


# ---- claims -----------------------------------------------------------------------------------------------------
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
    one, two = store.claim(job.id), store.claim(job.id)
    store.cancel(job.id)
    store.release(one)
    assert store.done(two, "k", 1, 24000, "e"), "what was made although nobody waits for it is kept"
    assert store.get("a", job.id).lines == {"cancelled": 2, "done": 1} and store.claim(job.id) is None and store.settle(job.id)
    store.resume(job.id)
    assert store.get("a", job.id).lines == {"waiting": 2, "done": 1}
    store.delete(job.id)
    assert not store.done(one, "k", 1, 24000, "e")
    with pytest.raises(NotFound):
        store.get("a", job.id)
    store.close()


def test_accounts_and_jobs_share_alike(studio, engine):
    engine.gate.clear()
    long = studio.batch.submit(ME, asks(12))
    while len(engine.spoken) < 2:
        time.sleep(0.01)
    short = studio.batch.submit(OTHER, asks(2, start=100))
    engine.gate.set()
    until(studio, short, "done", owner=OTHER)
    assert studio.batch.get(ME, long.id).lines.get("waiting", 0) > 0, "two lines need not wait for twelve"
    until(studio, long, "done")


def test_a_batch_takes_nobodys_place_and_steps_aside_for_listeners(studio, engine):
    job = studio.batch.submit(ME, asks(12, instruction="seconds=3 chunk=0.1 rtf=0.2"))
    while len(engine.spoken) < 3:
        time.sleep(0.01)
    assert studio.speaker.n_open >= 2
    assert studio.speaker.admission.n_open == 0 and sum(x.n_hungry for x in studio.speaker._lanes.values()) == 0
    listener = studio.speaker.open(ME, text_in="Now.", voice_id="alloy", mode="instruct", instruction="seconds=1")
    assert listener.snapshot().state == "running", "no line, no waiting"
    studio.speaker.credit(listener, 1 << 40)
    end = time.monotonic() + 10
    while listener.snapshot().state not in ("saving", "done") and time.monotonic() < end:
        time.sleep(0.01)
    assert listener.snapshot().state in ("saving", "done") and studio.batch.get(ME, job.id).lines.get("done", 0) < 12
    studio.batch.cancel(ME, job.id)
    until(studio, job, "cancelled")


# ---- limits, pace, zip ----------------------------------------------------------------------------------------------
def test_too_many_open_jobs_are_refused_and_leave_no_trace(studio, engine):
    engine.gate.clear()
    made = [studio.batch.submit(ME, asks(1, start=n)) for n in range(MAX_OPEN_JOBS)]
    with pytest.raises(Busy) as told:
        studio.batch.submit(ME, asks(1, start=999))
    assert told.value.code == "too_many_jobs" and len(studio.batch.list(ME, 200)) == MAX_OPEN_JOBS
    studio.batch.submit(OTHER, asks(1))
    for job in made:
        studio.batch.delete(ME, job.id)
    engine.gate.set()
    assert studio.batch.list(ME) == []


def test_ten_thousand_lines_are_taken_and_one_more_is_not(studio, engine):
    engine.gate.clear()
    job = studio.batch.submit(ME, asks(10_000))
    assert studio.batch.get(ME, job.id).total == 10_000
    studio.batch.cancel(ME, job.id)
    for count in (0, 10_001):
        with pytest.raises(BadInput) as told:
            studio.batch.submit(ME, asks(1) * count)
        assert told.value.code == ("no_lines" if not count else "too_many_lines")
    studio.batch.delete(ME, job.id)


def test_the_pace_is_that_of_the_last_lines_and_of_no_wall_clock(monkeypatch):
    now = [100.0]
    pace = Pace(lambda: now[0])
    assert pace.eta_s(50) is None
    for _ in range(40):
        now[0] += 2
        pace.add(10)
    monkeypatch.setattr(time, "time", lambda: 1e12)
    assert pace.eta_s(50) == pytest.approx(10)
    for _ in range(40):
        now[0] += 1
        pace.add(10)
    assert pace.eta_s(50) == pytest.approx(5)


def test_a_wall_clock_that_jumps_changes_nothing(studio, monkeypatch):
    monkeypatch.setattr(studio.batch._jobs, "_clock", lambda: -5.0)
    job = studio.batch.submit(ME, asks(3))
    monkeypatch.setattr(studio.batch._jobs, "_clock", lambda: 4e9)
    later = studio.batch.submit(ME, asks(3, start=5))
    assert until(studio, job, "done").lines == until(studio, later, "done").lines == {"done": 3}
    assert [j.id for j in studio.batch.list(ME)] == [later.id, job.id]
    studio.batch.sweep(600)
    assert len(studio.batch.list(ME)) == 2, "jobs age by the time the studio has run"
    studio.batch.sweep(8 * 86400)
    assert studio.batch.list(ME) == [] and not list(studio.settings.paths.data_dir.glob("sounds/*/*.wav"))


def test_a_zip_that_leaves_in_pieces_can_be_read_from_its_front():
    made = Zip()
    pieces = [made.add(f"{n}.wav", bytes([n]) * 1000 * n) for n in range(1, 5)] + [made.end()]
    assert all(len(p) > 1000 for p in pieces[:4])
    with zipfile.ZipFile(io.BytesIO(b"".join(pieces))) as z:
        assert z.testzip() is None and [i.file_size for i in z.infolist()] == [1000, 2000, 3000, 4000]
        assert not any(i.flag_bits & 8 for i in z.infolist()), "sizes stand in front of each entry"
    again = Zip()
    assert [again.add(f"{n}.wav", bytes([n]) * 1000 * n) for n in range(1, 5)] + [again.end()] == pieces


def test_rows_that_are_not_ours_are_an_error_with_a_name(tmp_path):
    with sqlite3.connect(tmp_path / "jobs.sqlite") as db:
        db.execute("PRAGMA user_version=99")
    with pytest.raises(KaikouError) as told:
        JobStore(tmp_path).list("a", 1)
    assert told.value.code == "data_newer"


def test_a_sound_is_whole_or_not_there(tmp_path):
    class Breaks(Disk):
        def move(self, draft, final):
            raise OSError(5, "Input/output error")

    key, sounds = "a" * 64, SoundStore(tmp_path, Breaks())
    with pytest.raises(StorageFull):
        sounds.keep(key, b"x" * 10)
    assert not sounds.has(key) and not list(tmp_path.rglob(".new-*"))
    with pytest.raises(NotFound):
        sounds.path("../../etc/passwd")
