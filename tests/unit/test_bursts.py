"""Limits hold for many who come in the same moment: what is asked and what is done are one step."""

from __future__ import annotations

import asyncio
import io
import json
import threading
import tracemalloc
import zipfile
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.api.test_http import clip
from tests.engine.fake import FakeEngine
from tests.unit import batch_desk
from tests.unit.batch_desk import ME, asks, until
from tests.unit.test_lanes import job
from tests.unit.test_store import take
from webui import api
from webui.errors import BadInput, Busy, Conflict, KaikouError
from webui.settings import Limits, Paths, Settings
from webui.store import AccessStore
from webui.studio import Keys, ModelLibrary, Studio, admission
from webui.studio.admission import Admission
from webui.studio.share_links import ShareLinks

engine, studio = batch_desk.engine, batch_desk.studio


def at_once(n: int, act) -> list:
    """What `act(i)` returned or raised in `n` threads that began together."""
    start, results = threading.Barrier(n), [None] * n

    def run(i):
        start.wait()
        try:
            results[i] = act(i)
        except KaikouError as error:
            results[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(n)]
    [t.start() for t in threads], [t.join(60) for t in threads]
    return results


def hold_together(monkeypatch, place, name: str, n: int) -> None:
    """Whoever looks by `name` goes on when all have looked: no luck is needed to meet the gap
    between looking and doing.
    """
    look, barrier = getattr(place, name, None), threading.Barrier(n)

    def slow(*args):
        result = look(*args)
        with suppress(threading.BrokenBarrierError):
            barrier.wait(2)
        return result

    if look is not None:
        monkeypatch.setattr(place, name, slow)


@pytest.mark.parametrize("kind", ["keys", "demos"])
def test_keys_and_links_of_an_account_are_bounded_for_a_burst_too(tmp_path, monkeypatch, kind):
    store = AccessStore(tmp_path)
    keys, demos = Keys(store), ShareLinks(store)
    create = {
        "keys": lambda i: keys.create(ME, f"robot {i}"),
        "demos": lambda i: demos.create(ME, "voice-1", "Lin", {}),
    }[kind]
    module = {"keys": "keys", "demos": "share_links"}[kind]
    monkeypatch.setattr(f"webui.studio.{module}.MAX_LIVE", 3)
    with monkeypatch.context() as gap:
        hold_together(gap, store, kind, 8)
        refused = [e for e in at_once(8, create) if isinstance(e, BadInput)]
    assert len(refused) == 5 and {e.code for e in refused} == {f"too_many_{kind}"}
    assert len(getattr(store, kind)()) == 3


def test_open_batches_are_bounded_for_a_burst_and_for_those_that_go_on(studio, engine, monkeypatch):
    engine.gate.clear()
    for place in ("webui.store.jobs", "webui.studio.batch.service"):
        monkeypatch.setattr(f"{place}.MAX_OPEN_JOBS", 3, raising=False)
    with monkeypatch.context() as gap:
        hold_together(gap, studio.batch._jobs, "unfinished", 6)
        results = at_once(6, lambda i: studio.batch.submit(ME, asks(1, start=i)))
    jobs = [t for t in results if not isinstance(t, KaikouError)]
    refused = [t for t in results if isinstance(t, KaikouError)]
    assert len(jobs) == 3 and {e.code for e in refused} == {"too_many_jobs"}
    studio.batch.cancel(ME, jobs[0].id)
    more = studio.batch.submit(ME, asks(1, start=50))
    with pytest.raises(Busy):
        studio.batch.resume(ME, jobs[0].id)  # it was over, and would be one too many
    assert studio.batch.get(ME, jobs[0].id).state == "cancelled"
    studio.batch.cancel(ME, more.id)
    assert studio.batch.resume(ME, jobs[0].id).state == "running"
    engine.gate.set()


def test_a_burst_of_listeners_does_not_get_in_together(tmp_path):
    """Nobody is hungry before the reader has asked for sound, which it does when the answer is on
    its way.
    """
    studio = Studio(
        Settings(
            paths=replace(Paths(), data_dir=tmp_path),
            limits=replace(Limits(), max_streams=2),
        )
    )
    studio.start(FakeEngine).join(20)
    say = {"voice_id": "alloy", "mode": "instruct", "instruction": "seconds=0.2"}
    try:
        jobs = at_once(10, lambda i: studio.synthesis.open(f"local/{i}", text_in="Hello.", **say))
        states = [j.snapshot().state for j in jobs]
        assert sorted(states) == ["running"] * 2 + ["waiting"] * 8
        for speech_job in jobs:
            studio.job_runner.credit(speech_job, 1 << 40)
        for speech_job in jobs:
            ended = threading.Event()
            speech_job.listen(ended.set)
            while speech_job.snapshot().state not in ("saving", "done"):
                assert ended.wait(20)
                ended.clear()
    finally:
        studio.close()


def test_who_never_asks_for_sound_keeps_nobody_waiting_for_long(monkeypatch):
    monkeypatch.setattr(admission, "CLAIM_S", 0.02)
    gate, started = Admission(lambda: 1, lambda: 0, 9, 9), threading.Semaphore(0)
    jobs = [job(n, credit=0) for n in "abc"]
    for speech_job in jobs:
        gate.enter(speech_job, lambda _: started.release())
    for _ in jobs:
        assert started.acquire(timeout=20)
    assert gate.n_waiting == 0


def test_a_place_that_was_claimed_is_free_again_when_its_job_ends(monkeypatch):
    monkeypatch.setattr(admission, "CLAIM_S", 1e6)
    gate, started = Admission(lambda: 1, lambda: 0, 9, 9), []
    jobs = [job(n, credit=0) for n in "abc"]
    for speech_job in jobs:
        gate.enter(speech_job, lambda j: started.append(j.id))
    assert started == ["a"] and gate.n_waiting == 2
    gate.finish(jobs[0])
    assert started == ["a", "b"]
    jobs[1].credit = 1  # it is its lane's now, which says that it is not hungry
    gate.next()
    assert started == ["a", "b", "c"] and gate._timer is None


def test_a_consent_is_not_deleted_while_a_voice_is_saved_under_it(studio, monkeypatch):
    consent = studio.consents.add(ME, clip(4), "Lin", "en")
    store, errors = studio.drafts.store, []

    def delete():
        try:
            studio.consents.delete(ME, consent.id)
        except KaikouError as error:
            errors.append(error)

    deleting = threading.Thread(target=delete)

    def slow(*args):
        deleting.start()
        deleting.join(0.5)  # as long as it wants to wait; nothing hangs on how long that is
        return store(*args)

    monkeypatch.setattr(studio.drafts, "store", slow)
    voice, _ = studio.voices.add(ME, clip(5), "Lin", consent=consent.id)
    deleting.join(20)
    assert studio.consents.of(voice).way == "recording" and isinstance(errors[0], Conflict)
    assert studio.consents.get(ME, consent.id) == consent


def test_of_two_models_fetched_in_the_same_moment_one_goes_on():
    shelf, barrier = ModelLibrary(None, list, None, {}, ""), threading.Barrier(2)
    states = {"a": "none", "b": "none"}

    def fetch(name):
        states[name] = "downloading"
        with suppress(threading.BrokenBarrierError):
            barrier.wait(0.5)

    shelf._downloads = {
        n: SimpleNamespace(
            fetch=lambda source, n=n: fetch(n),
            pause=lambda n=n: states.update({n: "paused"}),
            status=dict,
        )
        for n in states
    }
    shelf._download = shelf._downloads.get
    at_once(2, lambda i: shelf.fetch(name="ab"[i]))
    assert sorted(states.values()) == ["downloading", "paused"]
    assert states[shelf._current] == "downloading"


# ---- all takes as one file -----------------------------------------------------------------------
WAV = bytes(1 << 20)


def with_takes(studio, n: int, owner: str = ME) -> None:
    for i in range(n):
        studio.takes._store.add(take(i, owner=owner, at=float(i)), WAV[: (1 << 20) - i])


def test_all_takes_leave_in_pieces_and_not_through_memory(studio):
    with_takes(studio, 30)
    until(studio, studio.batch.submit(ME, asks(1)), "done")  # whatever is loaded once is loaded
    out = io.BytesIO()
    tracemalloc.start()
    try:
        sizes = []
        for piece in studio.takes.zip(ME):
            sizes.append(len(piece))
            out.write(piece[:0])
            del piece
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(sizes) > 30 << 20 and peak < 6 << 20


def test_the_file_of_all_takes_is_as_it_was(studio):
    with_takes(studio, 3)
    studio.takes.delete(ME, "take-1")
    (studio.takes._store.folder.path("take-2", "take.wav")).write_bytes(b"")
    data = b"".join(studio.takes.zip(ME))
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        assert z.testzip() is None
        names = z.namelist()
        assert [n[:12] for n in names] == ["001_V_hello_", "002_V_hello_", "manifest.jso"]
        assert [i.file_size for i in z.infolist()[:2]] == [1 << 20, 0]
        assert not any(i.flag_bits & 8 for i in z.infolist()), "sizes stand in front"
        manifest = json.loads(z.read("manifest.json"))
        assert z.infolist()[0].date_time[0] > 2000
    assert [t["file"] for t in manifest] == names[:2] and manifest[0] == {
        "file": names[0],
        "text": "hello",
        "voice": "V",
        "seed": 3,
        "speed": 1.0,
        "mode": "zero_shot",
        "instruction": "",
        "engine": "fake 1",
    }


def test_a_take_that_is_deleted_while_all_are_fetched_is_left_out(studio):
    with_takes(studio, 3)
    pieces = studio.takes.zip(ME)
    data = [next(pieces)]
    studio.takes._store.delete("take-2")
    with zipfile.ZipFile(io.BytesIO(b"".join([*data, *pieces]))) as z:
        assert z.testzip() is None and len(z.namelist()) == 3
        assert [t["file"][:3] for t in json.loads(z.read("manifest.json"))] == ["001", "002"]


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_who_goes_away_ends_the_work(studio):
    with_takes(studio, 20, "local/api")
    app, _ = api.build_app(studio, studio.settings)
    read, path = [], studio.takes._store.wav_path
    studio.takes._store.wav_path = lambda take: (read.append(take.id), path(take))[1]
    messages = []

    async def ask():
        disconnect_event, calls = asyncio.Event(), []

        async def receive():
            if not calls:
                calls.append(1)
                return {"type": "http.request", "body": b"", "more_body": False}
            await disconnect_event.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            messages.append(message)
            if message["type"] == "http.response.body" and message.get("body"):
                disconnect_event.set()
                await asyncio.Event().wait()  # nobody takes it

        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": "/tts/takes.zip",
            "raw_path": b"/tts/takes.zip",
            "query_string": b"",
            "root_path": "",
            "headers": [(b"host", b"127.0.0.1")],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        await asyncio.wait_for(app(scope, receive, send), 30)

    with_takes_of_api = [
        replace(t, id=f"take-9{n}", owner="local/api") for n, t in enumerate(studio.takes.list(ME))
    ]
    for api_take in with_takes_of_api:
        studio.takes._store.add(api_take, WAV)
    asyncio.run(ask())
    headers = dict(messages[0]["headers"])
    assert headers[b"content-disposition"] == b'attachment; filename="kaikou-takes.zip"'
    assert messages[0]["status"] == 200 and len(read) == 1
