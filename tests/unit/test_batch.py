"""A batch without a screen: tries, rests, the cache, seeds, fairness; with the tone engine."""

from __future__ import annotations

import io
import json
import threading
import time
import zipfile
from dataclasses import replace

from tests.engine.fake import FakeEngine
from tests.unit import batch_desk
from tests.unit.batch_desk import ME, OTHER, SHORT, Engine, asks, lines, until
from webui.errors import EngineFault, NotReady
from webui.messages import Message
from webui.settings import Limits, Paths, Settings
from webui.store import JobStore
from webui.studio import LineRequest, Studio

engine, studio = batch_desk.engine, batch_desk.studio


def test_a_poison_line_stops_after_three_tries_alone_and_the_rest_goes_on(studio, engine):
    engine.faults["Line 3."] = [EngineFault()] * 9
    engine.faults["Line 5."] = [EngineFault()]
    job = studio.batch.submit(ME, asks(8))
    job_row = until(studio, job, "done")
    assert (
        job_row.lines == {"done": 7, "failed": 1}
        and engine.texts.count("Line 3.") == 3
        and engine.texts.count("Line 5.") == 2
    )
    bad = lines(studio, job)[2]
    assert (bad.state, bad.attempts, bad.code) == ("failed", 3, "fault") and bad.error_zh
    retries = [
        together for text, together in zip(engine.texts, engine.together) if text == "Line 3."
    ][1:]
    assert retries == [{"Line 3."}] * 2, "nothing else was in the air when it was tried again"
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
    engine.faults["Line 2."] = [NotReady(Message("Away.", "不在。"))] * 6
    job = studio.batch.submit(ME, asks(3))
    assert until(studio, job, "done").lines == {"done": 3}
    assert [x.attempts for x in lines(studio, job)] == [0, 0, 0] and engine.texts.count(
        "Line 2."
    ) == 7


def test_jobs_wait_for_an_engine_that_still_starts(tmp_path):
    own_studio = Studio(Settings(paths=replace(Paths(), data_dir=tmp_path)))
    job = own_studio.batch.submit(ME, asks(2))
    own_studio.batch.start()
    assert own_studio.batch.get(ME, job.id).lines == {"waiting": 2}
    own_studio.start(FakeEngine)
    try:
        assert until(own_studio, job, "done").lines == {"done": 2}
    finally:
        own_studio.close()


def test_a_stuck_engine_does_not_keep_the_studio_from_ending(tmp_path, monkeypatch):
    engine = Engine()
    own_studio = Studio(
        Settings(paths=replace(Paths(), data_dir=tmp_path), limits=replace(Limits(), stall_s=3600))
    )
    own_studio.start(lambda: engine).join(20)
    engine.gate.clear()
    job = own_studio.batch.submit(ME, asks(4))
    while len(engine.texts) < 2:
        time.sleep(0.01)
    ended = threading.Thread(target=own_studio.batch.close)
    ended.start()
    ended.join(10)
    assert not ended.is_alive()
    engine.gate.set()
    own_studio.close()
    store = JobStore(tmp_path)
    assert (
        store.hold()
        and store.reclaim() in range(5)
        and store.get("local", job.id).lines == {"waiting": 4}
    )
    store.close()


def test_two_jobs_that_want_the_same_line_at_once_make_it_once(studio, engine):
    engine.gate.clear()
    first, second = (
        studio.batch.submit(ME, [LineRequest("The same.", **SHORT, seed=4)]) for _ in range(2)
    )
    engine.gate.set()
    until(studio, first, "done"), until(studio, second, "done")
    assert engine.texts == ["The same."] and studio.batch.worker.synthesiser.n_cached == 1
    assert studio.batch.sound(ME, first.id, 1) == studio.batch.sound(ME, second.id, 1)
    studio.batch.delete(ME, first.id)
    assert studio.batch.sound(ME, second.id, 1).is_file(), "another job still has it"
    studio.batch.delete(ME, second.id)
    assert not list(studio.settings.paths.data_dir.glob("sounds/*/*.wav"))


def test_what_a_sound_is_made_from_is_in_its_key(studio, engine):
    base = LineRequest("Same words.", **SHORT, seed=1)
    variants = [
        base,
        replace(base, seed=2),
        replace(base, speed=1.5),
        replace(base, speed=3.0),
        replace(base, voice="starter-zh-high"),
        replace(base, instruction="seconds=0.3"),
        replace(base, text="Other words."),
        replace(base, mode="zero_shot", instruction=""),
        replace(base, mode="cross_lingual", instruction=""),
    ]
    job = studio.batch.submit(ME, variants)
    until(studio, job, "done")
    assert len({x.key for x in lines(studio, job)}) == len(variants)
    second_job = studio.batch.submit(ME, variants)
    until(studio, second_job, "done")
    assert [x.key for x in lines(studio, second_job)] == [
        x.key for x in lines(studio, job)
    ] and len(engine.texts) == len(variants)
    other = studio.batch.submit(OTHER, [base])
    until(studio, other, "done", owner=OTHER)
    assert lines(studio, other, OTHER)[0].key != lines(studio, job)[0].key, "accounts share nothing"
    studio.pronunciations.put(ME, "Same", "samey")
    last_job = studio.batch.submit(ME, [base])
    until(studio, last_job, "done")
    assert lines(studio, last_job)[0].key != lines(studio, job)[0].key, "it is read differently now"


def test_seeds_come_from_the_job_and_the_line(studio):
    def seeds(texts, **kw):
        job = studio.batch.submit(ME, [LineRequest(t, **SHORT) for t in texts], **kw)
        return [x.seed for x in lines(studio, job)], job.seed

    first, _ = seeds(["a", "b", "b", "c"], seed=5)
    second, _ = seeds(["new", "b", "a", "b"], seed=5)
    assert (
        len(set(first)) == 4
        and second[1:] == [first[1], first[0], first[2]]
        and seeds(["a"], seed=6)[0] != first[:1]
    )
    drawn_ids, seed = seeds(["a", "b"])
    assert seeds(["a", "b"], seed=seed)[0] == drawn_ids, "a job's own seed makes it again"
    job = studio.batch.submit(ME, [LineRequest("a", **SHORT, seed=2**63 - 1)])
    assert until(studio, job, "done") and lines(studio, job)[0].seed == 2**63 - 1


def test_accounts_and_jobs_share_alike(studio, engine):
    engine.gate.clear()
    long = studio.batch.submit(ME, asks(12))
    while len(engine.texts) < 2:
        time.sleep(0.01)
    short = studio.batch.submit(OTHER, asks(2, start=100))
    engine.gate.set()
    until(studio, short, "done", owner=OTHER)
    assert studio.batch.get(ME, long.id).lines.get("waiting", 0) > 0, (
        "two lines need not wait for twelve"
    )
    until(studio, long, "done")


def test_a_batch_takes_nobodys_place_and_steps_aside_for_listeners(studio, engine):
    job = studio.batch.submit(ME, asks(12, instruction="seconds=3 chunk=0.1 rtf=0.2"))
    while len(engine.texts) < 3:
        time.sleep(0.01)
    assert studio.scheduler_pool.n_open >= 2
    assert studio.job_runner.admission.n_open == 0 and studio.scheduler_pool.n_wanting_audio() == 0
    listener = studio.synthesis.open(
        ME, text_in="Now.", voice_id="alloy", mode="instruct", instruction="seconds=1"
    )
    assert listener.snapshot().state == "running", "no line, no waiting"
    studio.job_runner.credit(listener, 1 << 40)
    end = time.monotonic() + 10
    while listener.snapshot().state not in ("saving", "done") and time.monotonic() < end:
        time.sleep(0.01)
    assert (
        listener.snapshot().state in ("saving", "done")
        and studio.batch.get(ME, job.id).lines.get("done", 0) < 12
    )
    studio.batch.cancel(ME, job.id)
    until(studio, job, "cancelled")


def test_a_zip_looks_once_for_what_has_ended_and_sends_it_in_order(studio, engine, monkeypatch):
    import asyncio
    import io
    import json
    import zipfile

    from webui.api import batches

    looks, ended = [], studio.batch._jobs.ended
    monkeypatch.setattr(studio.batch._jobs, "ended", lambda *a: looks.append(a) or ended(*a))
    monkeypatch.setattr(batches, "PAGE", 3)
    monkeypatch.setattr(batches, "PIECE_BYTES", 15_000)
    new_job = studio.batch.submit(ME, asks(8))
    until(studio, new_job, "done")

    async def read_zip(job) -> bytes:
        return b"".join([piece async for piece in batches._as_made(studio, ME, job)])

    def names(data: bytes) -> list[str]:
        with zipfile.ZipFile(io.BytesIO(data)) as z:
            assert z.testzip() is None and [
                r["line"] for r in json.loads(z.read("manifest.json"))["lines"]
            ] == list(range(1, 9))
            return z.namelist()

    assert names(asyncio.run(read_zip(new_job))) == [
        *(f"{n:04d}_Line-{n}.wav" for n in range(1, 9)),
        "manifest.json",
    ]
    assert [start for _, _, start, _ in looks] == [1, 3, 5, 7], (
        "two lines of 9,600 bytes are more than 15,000"
    )
    looks.clear()
    engine.gate.clear()
    live = studio.batch.submit(ME, asks(8, start=1, seed=5))
    threading.Timer(0.2, engine.gate.set).start()
    assert (
        names(asyncio.run(read_zip(live)))[:8] == [f"{n:04d}_Line-{n}.wav" for n in range(1, 9)]
        and 2 <= len(looks) <= 8 + 3
    ), "one for every line that ends, at most"


def test_what_was_left_out_or_changed_of_a_line_stands_at_it(studio, engine, monkeypatch):
    note = ("The instruction was left out.", "已忽略风格指令。")
    monkeypatch.setattr(
        engine, "notes", lambda request: [note] if request.text == "Line 1." else []
    )
    job = studio.batch.submit(ME, asks(2))
    until(studio, job, "done")
    assert [line.notes for line in lines(studio, job)] == [(note,), ()]
    second_job = studio.batch.submit(ME, asks(1), seed=job.seed)  # its sound is there already
    until(studio, second_job, "done")
    assert (
        lines(studio, second_job)[0].notes == (note,)
        and studio.batch.worker.synthesiser.n_cached == 1
    )
    with zipfile.ZipFile(io.BytesIO(b"".join(studio.batch.zip(ME, job.id, "flac")))) as z:
        rows = json.loads(z.read("manifest.json"))["lines"]
        assert [row["notes"] for row in rows] == [[note[0]], []]
        assert [row["file"] for row in rows] == ["0001_Line-1.flac", "0002_Line-2.flac"]
        assert z.read("0001_Line-1.flac")[:4] == b"fLaC"
