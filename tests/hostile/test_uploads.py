"""Recordings by the dozen: they cost their sender their own clips, nobody else's, and no more
memory than there is for them.
"""

from __future__ import annotations

import base64
import gc
import threading
import weakref
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tests.api.test_http import clip, error
from tests.serve import running
from tests.unit.test_forget import Listening
from webui.errors import Busy, NotFound
from webui.settings import Limits, Paths, Settings
from webui.studio import Studio, drafts, intake
from webui.studio.conversion import source_of
from webui.studio.drafts import Drafts
from webui.studio.intake import Intake

ME, OTHER = "local/me", "local/other"
MB, MINUTE = 1 << 20, 58 * 48_000  # samples: 10.6 MB


@pytest.fixture
def decoded(monkeypatch):
    """Uploads are a number of samples, written as digits."""
    clips = weakref.WeakSet()

    def decode(data):
        clips.add(sound := drafts.Clip(np.zeros(int(data), np.float32), 48_000))
        return sound

    window = SimpleNamespace(start_s=0.0, end_s=1.0)
    monkeypatch.setattr(drafts.audio, "decode", decode)
    monkeypatch.setattr(drafts.audio, "inspect", lambda clip: SimpleNamespace(used=window))
    monkeypatch.setattr(drafts.audio, "cleaning_hurts", lambda *_: False)
    monkeypatch.setattr(
        drafts.audio, "denoise", lambda clip, amount, **_: clip.with_samples(clip.samples.copy())
    )
    return clips


def new_drafts(total_mb: int = 96, each_mb: int = 32) -> Drafts:
    return Drafts(
        None, lambda *_: None, total_mb * MB, max_each_bytes=each_mb * MB, intake=Intake(1e9)
    )


def upload(draft_store: Drafts, owner: str, n_samples: int = MINUTE):
    return draft_store.make(owner, str(n_samples).encode())


def held_bytes(draft_store: Drafts, owner: str = "") -> int:
    """Of all sound that is reachable from there, counted by itself."""
    own_clips = [d.clip for d in draft_store._drafts.values() if d.owner.startswith(owner)]
    ids = {id(c) for c in own_clips}
    cleaned = [c for of, c in draft_store._cleaned.values() if not owner or id(of) in ids]
    return sum({id(c): c.samples.nbytes for c in [*own_clips, *cleaned]}.values())


def is_there(draft_store: Drafts, draft) -> bool:
    return draft.id in draft_store._drafts


def test_many_uploads_of_one_visitor_cost_another_nothing(decoded):
    draft_store = new_drafts()
    untouched = upload(draft_store, OTHER)
    own_drafts = [upload(draft_store, ME) for _ in range(34)]
    assert is_there(draft_store, untouched)
    assert [is_there(draft_store, d) for d in own_drafts] == [False] * 31 + [True] * 3, (
        "the oldest of their own"
    )
    assert held_bytes(draft_store, ME) <= 32 * MB and held_bytes(draft_store) <= 96 * MB


def test_when_all_is_full_it_is_one_of_who_has_most(decoded):
    draft_store = new_drafts(total_mb=60, each_mb=32)
    first = [upload(draft_store, f"local/{n}") for n in range(2)]
    many = [upload(draft_store, ME, MINUTE // 4) for _ in range(10)]
    assert all(is_there(draft_store, d) for d in first + many)
    newcomers = [upload(draft_store, f"local/new{n}") for n in range(3)]
    assert all(is_there(draft_store, d) for d in first + newcomers), "nobody's only clip"
    assert [is_there(draft_store, d) for d in many].index(True) >= 5 and is_there(
        draft_store, many[-1]
    )
    assert held_bytes(draft_store) <= 60 * MB


def test_new_visits_without_end_stay_within_the_room_for_all(decoded):
    draft_store, refs = new_drafts(), []
    used = upload(draft_store, OTHER)
    for n in range(80):
        refs.append(upload(draft_store, f"local/{n}"))
        draft_store.get(OTHER, used.id)
    assert held_bytes(draft_store) <= 96 * MB and is_there(draft_store, used), (
        "what is in use goes last"
    )
    del refs
    gc.collect()
    assert sum(c.samples.nbytes for c in decoded) <= 96 * MB, "nothing else holds them"


def test_what_was_cleaned_counts_and_goes_first(decoded):
    draft_store = new_drafts()
    first, second = upload(draft_store, ME), upload(draft_store, ME)
    for n in range(1, 20):
        draft_store.audio(ME, second.id, n / 20)
        assert held_bytes(draft_store, ME) <= 32 * MB
    assert (
        is_there(draft_store, first)
        and is_there(draft_store, second)
        and len(draft_store._cleaned) == 1
    )
    other = upload(draft_store, OTHER)
    draft_store.change(OTHER, other.id, clean=0.5)
    assert (
        held_bytes(draft_store) <= 96 * MB
        and is_there(draft_store, first)
        and is_there(draft_store, second)
    )


def test_windows_of_one_clip_take_no_room_but_are_bounded(decoded, monkeypatch):
    draft_store = new_drafts()
    first = upload(draft_store, ME)
    last = [draft_store.change(ME, first.id, window=(0.0, 1.0 + n / 100)) for n in range(63)]
    assert is_there(draft_store, first) and held_bytes(draft_store) <= 11 * MB
    last.append(draft_store.change(ME, last[-1].id, window=(0.0, 5.0)))
    assert len(draft_store._drafts) == 64 and is_there(draft_store, last[-1])


def test_references_of_one_program_do_not_push_anothers_out(decoded, monkeypatch):
    monkeypatch.setattr(drafts, "ONCE_BYTES", 4 * MB)
    monkeypatch.setattr(drafts, "ONCE_SHARE_BYTES", 2 * MB)
    monkeypatch.setattr(drafts.audio, "cut", lambda clip, start_s, end_s: clip)
    draft_store = new_drafts()
    other = draft_store.once(OTHER, str(MB // 8).encode())
    for n in range(40):
        draft_store.once(ME, str(MB // 8 + n).encode())
    assert is_there(draft_store, other) and held_bytes(draft_store, ME) <= 2 * MB


def test_the_room_is_never_more_than_all_threads_together_may_take(decoded):
    draft_store, start, most = new_drafts(total_mb=40, each_mb=24), threading.Barrier(8), []

    def come(n):
        start.wait()
        for _ in range(12):
            first = upload(draft_store, f"local/{n % 3}", MINUTE // 2)
            with suppress(NotFound):
                draft_store.audio(first.owner, first.id, 0.5)
            with draft_store._lock:
                most.append(held_bytes(draft_store))

    threads = [threading.Thread(target=come, args=(n,)) for n in range(8)]
    [t.start() for t in threads], [t.join(60) for t in threads]
    assert len(most) == 96 and max(most) <= 40 * MB


# ---- how many at a time --------------------------------------------------------------------------
def test_few_are_read_at_once_and_what_waits_is_bounded(monkeypatch):
    monkeypatch.setattr(intake, "MAX_WAITING_BYTES", 30)
    gate, may, lock = Intake(1e9), threading.Event(), threading.Lock()
    inside, most, errors = 0, 0, []
    entered, refused = threading.Semaphore(0), threading.Semaphore(0)

    def come(n):
        nonlocal inside, most
        try:
            with gate.admit(f"local/{n}", 10):
                with lock:
                    inside += 1
                    most = max(most, inside)
                entered.release()
                assert may.wait(20)
                with lock:
                    inside -= 1
        except Busy as busy:
            errors.append(busy)
            refused.release()

    threads = [threading.Thread(target=come, args=(n,)) for n in range(12)]
    for t in threads:
        t.start()
    for _ in range(2):
        assert entered.acquire(timeout=20)
    for _ in range(12 - 2 - 3):
        assert refused.acquire(timeout=20)
    may.set()
    [t.join(20) for t in threads]
    assert most == intake.MAX_AT_ONCE == 2 and len(errors) == 7
    assert (
        {b.code for b in errors} == {"too_many_uploads"}
        and errors[0].retry_after_s
        and errors[0].zh
    )
    with gate.admit(ME, 10**9):
        pass  # one alone is always let in


def test_clips_that_wait_for_the_engine_are_not_held_when_they_are_pushed_out(tmp_path, decoded):
    """An engine encodes one at a time, and slowly: what stood in its line kept every clip in
    memory.
    """
    engine = Listening()
    engine.may.clear()
    studio = Studio(
        Settings(
            paths=replace(Paths(), data_dir=tmp_path, assets=tmp_path),
            limits=replace(Limits(), uploads_per_minute=10**9),
        )
    )
    studio.start(lambda: engine).join(20)
    try:
        for _ in range(20):
            upload(studio.drafts, ME)
        assert engine.began.wait(20)
        gc.collect()
        # two may be under way, one for each thread that encodes
        assert sum(c.samples.nbytes for c in decoded) <= (32 + 2 * 11) * MB
    finally:
        engine.may.set()
        studio.close()
    assert studio.prompts.n_encoded <= 5 < 20


# ---- how often -----------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """One recording, and the next after twenty seconds."""
    data = tmp_path_factory.mktemp("data")
    studio = Studio(
        Settings(
            paths=replace(Paths(), data_dir=data, assets=data),
            limits=replace(Limits(), uploads_per_minute=3),
        )
    )
    yield studio
    studio.close()


WAYS = {
    "make": lambda s, owner, data: s.drafts.make(owner, data),
    "once": lambda s, owner, data: s.drafts.once(owner, data),
    "inspect": lambda s, owner, data: s.drafts.inspect(owner, data),
    "voice": lambda s, owner, data: s.voices.add(owner, data, "Lin", consent="me"),
    "consent": lambda s, owner, data: s.consents.add(owner, data, "Lin", "en"),
    "source": lambda s, owner, data: source_of(s.drafts, owner, "", data, True),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_in_for_a_recording_has_the_same_rate(slow, way):
    owner = f"local/{way}"
    WAYS[way](slow, owner, clip(2))
    for other in WAYS.values():
        with pytest.raises(Busy) as busy:
            other(slow, owner, clip(2, seed=1))
        assert busy.value.code == "rate_limited" and 1 <= busy.value.retry_after_s <= 20
    if way == "once":
        WAYS[way](slow, owner, clip(2))  # nothing is decoded again


def test_a_recording_that_cannot_be_read_counts_too(slow):
    with pytest.raises(Exception, match="cannot be read"):
        slow.drafts.make("local/bad", b"no sound")
    with pytest.raises(Busy):
        slow.drafts.make("local/bad", clip(2))


def test_the_rate_over_http():
    """Each way in, after the visitor's share of a burst was used up; another visitor is served."""
    sound = clip(2)
    with (
        running(env={"KAIKOU_UPLOADS_PER_MINUTE": "3"}) as studio,
        studio.client() as http,
        studio.client() as other,
    ):
        for client in (http, other):
            client.post("/tts/session")
        file = {"audio_sample": ("a.wav", sound)}
        consent = {"consent": "me", "name": "Lin"}
        params = {"input": "Hi.", "voice": "alloy", "consent": True, "stream": False}
        assert http.post("/v1/audio/voices/inspect", files=file).status_code == 200
        answers = [
            http.post("/v1/audio/voices/inspect", files=file),
            http.post("/v1/audio/voices", files=file, data=consent),
            http.post(
                "/v1/audio/voice_consents",
                files={"recording": ("a.wav", sound)},
                data={"name": "Lin", "language": "en"},
            ),
            http.post(
                "/v1/audio/speech",
                json={**params, "ref_audio": base64.b64encode(sound).decode()},
            ),
            http.post(
                "/inference_cross_lingual",
                data={"tts_text": "Hi."},
                files={"prompt_wav": ("a.wav", sound)},
            ),
        ]
        assert [a.status_code for a in answers] == [429] * 5, [a.text for a in answers]
        assert all(int(a.headers["retry-after"]) >= 1 for a in answers)
        assert error(answers[0])["code"] == "rate_limited"
        assert other.post("/v1/audio/voices/inspect", files=file).status_code == 200
