"""The client and the real studio: one sound whichever way it is asked for, real refusals, a studio
that dies in the middle of a batch.
"""

from __future__ import annotations

import asyncio
import io
import queue
import threading
import wave

import pytest

from tests.api.test_http import clip
from tests.serve import free_port, running
from webui.client import TTS, AsyncBatchClient, AsyncTTS, Retry
from webui.errors import BadInput, NotAllowed, NotFound

VOICE = "starter-zh-high"


@pytest.fixture
def tts(studio):
    with TTS(studio.url) as client:
        yield client


def whole(studio, **ask) -> bytes:
    with studio.client() as http:
        data = http.post("/v1/audio/speech", json={"voice": VOICE, "stream": False, **ask}).content
    with wave.open(io.BytesIO(data)) as w:
        return w.readframes(w.getnframes())


def test_one_sound_whichever_way(studio, tts, tmp_path):
    expected = whole(studio, input="Good morning.", seed=5, speed=1.25)
    first = queue.SimpleQueue()
    sound = tts.synthesize("Good morning.", VOICE, seed=5, speed=1.25)
    paced = tts.synthesize("Good morning.", VOICE, seed=5, speed=1.25, on_first_audio=first.put)
    with tts.stream("Good morning.", VOICE, seed=5, speed=1.25) as stream:
        pieces = list(stream)
    assert (
        sound.pcm == paced.pcm == b"".join(pieces) == expected
        and len(pieces) > 1
        and expected.startswith(first.get(timeout=5))
    )
    assert (sound.seed, sound.rate, sound.voice, sound.engine) == (
        5,
        24000,
        VOICE,
        "fake",
    ) and sound.job.startswith("take-")
    with wave.open(str(sound.save(tmp_path / "a.wav"))) as w:
        assert w.readframes(1 << 20) == expected
    assert paced.wav() == sound.wav()

    async def run():
        async with AsyncTTS(studio.url) as other:
            return await other.synthesize("Good morning.", VOICE, seed=5, speed=1.25)

    assert asyncio.run(run()).pcm == expected
    drawn_ids = tts.synthesize("Good morning.", VOICE)
    assert drawn_ids.pcm == whole(studio, input="Good morning.", seed=drawn_ids.seed)


def test_the_first_audio_is_told_at_once_on_a_thread_of_its_own(studio, tts):
    """Whoever takes long over it holds the stream back by nothing."""
    calls, may_end = queue.SimpleQueue(), threading.Event()

    def first(pcm: bytes) -> None:
        calls.put((pcm, threading.current_thread()))
        may_end.wait(20)

    params = {"instructions": "seconds=2 rtf=0.3", "on_first_audio": first}
    with tts.stream("Hello.", VOICE, **params) as stream:
        begin = next(stream)
        pcm, thread = calls.get(timeout=5)
        assert pcm == begin and thread is not threading.current_thread() and thread.is_alive()
        assert len(begin) + sum(map(len, stream)) == 2 * 2 * 24000
    assert thread.is_alive() and calls.empty()
    may_end.set()
    thread.join(5)


def test_a_voice_is_cloned_and_spoken(studio, tts, tmp_path):
    path = tmp_path / "林晚.wav"
    path.write_bytes(clip())
    voice = tts.clone(path, "Lin Wan", transcript="hello there", consent="me, my own voice")
    assert voice["report"]["windows"] and voice["id"] in [v["id"] for v in tts.voices()]
    assert tts.synthesize("Hello.", voice["id"], seed=1).voice == voice["id"]
    with pytest.raises(NotAllowed) as refused:
        tts.clone(path, "x")
    assert refused.value.code == "consent"
    part = tts.clone(path, "Part", consent="me", start_s=0.0, end_s=3.5)
    assert part["used"] == {"start_s": 0.0, "end_s": 3.5}
    with pytest.raises(BadInput, match="start_s and end_s"):
        tts.clone(path, "x", consent="me", end_s=3.5)
    path.write_bytes(b"no sound")
    with pytest.raises(BadInput):
        tts.clone(path, "x", consent="me")
    for fault, ask in (
        (NotFound, ("hi", "v-none")),
        (BadInput, ("", VOICE)),
        (BadInput, ("x" * 5000, VOICE)),
        (NotFound, ("hi", VOICE, "gpt-9")),
    ):
        with pytest.raises(fault):
            tts.synthesize(*ask[:2], **({"model": ask[2]} if len(ask) > 2 else {}))
    with TTS(studio.url, language="zh") as other, pytest.raises(NotFound) as exc_info:
        other.synthesize("hi", "v-none")
    assert any("\u4e00" <= c <= "\u9fff" for c in exc_info.value.zh)


def test_lines_and_batches_make_the_same(studio):
    lines = [
        *(f"Line number {i}." for i in range(12)),
        "",
        {"text": "Other voice.", "voice": "starter-en-low"},
        {"text": "x" * 5000},
        {"text": "No such voice.", "voice": "v-none"},
        "Line number 3.",
    ]

    async def run(size: int):
        async with AsyncBatchClient(studio.url, in_flight=3, batch=size, seed=9) as client:
            return [r async for r in client.results(lines, voice=VOICE)]

    before = studio.client().get("/v2/jobs").json()["data"]
    first, four = asyncio.run(run(1)), asyncio.run(run(4))
    assert studio.client().get("/v2/jobs").json()["data"] == before, (
        "what was delivered stays in nobody's list"
    )
    assert [r.sound and r.sound.pcm for r in first] == [r.sound and r.sound.pcm for r in four] and [
        r.seed for r in first
    ] == [r.seed for r in four]
    assert [(r.line.n, type(r.error)) for r in four if r.error] == [
        (13, BadInput),
        (15, BadInput),
        (16, NotFound),
    ]
    assert all(
        r.sound.pcm == whole(studio, input=r.line.ask.text, voice=r.line.ask.voice, seed=r.seed)
        for r in four[:3]
    )


def test_more_than_the_studio_lets_in_is_waited_for_and_nothing_is_lost():
    """Real 429s: of the rate, and of streams at once."""
    with running(
        env={"KAIKOU_STARTS_PER_MINUTE": "300", "KAIKOU_MAX_STREAMS_PER_VISITOR": "3"}
    ) as studio:

        async def run():
            async with AsyncBatchClient(
                studio.url,
                in_flight=12,
                retry=Retry(tries=2, patience_s=60, first_s=0.05, longest_s=0.5),
                batch=1,
            ) as client:
                return [
                    r
                    async for r in client.results([f"Number {i}." for i in range(104)], voice=VOICE)
                ]

        ends = asyncio.run(run())
        refused = studio.client().get("/metrics").text
    assert (
        all(r.sound for r in ends)
        and max(r.attempts for r in ends) > 1
        and "rate_limited" in refused
        and "too_many_streams" in refused
    )


def test_a_studio_that_is_killed_and_started_again_loses_no_line(tmp_path):
    """Two clients, line by line and in batches, while it dies and is away."""
    port, n, half = free_port(), 40, threading.Barrier(3)
    lines, ends = (
        [{"text": f"Number {i}.", "instructions": "seconds=0.5 rtf=0.05"} for i in range(n)],
        {1: [], 4: []},
    )

    async def run(size: int):
        async with AsyncBatchClient(
            f"http://127.0.0.1:{port}",
            in_flight=4,
            batch=size,
            seed=size,
            retry=Retry(tries=4, patience_s=90, first_s=0.1, longest_s=1.0),
        ) as client:
            async for result in client.results(lines, voice=VOICE):
                ends[size].append(result)
                if len(ends[size]) == n // 3:
                    half.wait(60)

    env, threads = (
        {"KAIKOU_STARTS_PER_MINUTE": "100000"},
        [threading.Thread(target=lambda size=size: asyncio.run(run(size))) for size in ends],
    )
    with running(port=port, env=env, data_dir=tmp_path / "data") as studio:
        for thread in threads:
            thread.start()
        half.wait(60)
        studio.process.kill()
        studio.process.wait()
    with running(port=port, env=env, data_dir=tmp_path / "data"):
        for thread in threads:
            thread.join(90)
    for actual in ends.values():
        assert [r.line.n for r in actual] == list(range(1, n + 1)) and all(
            r.sound for r in actual
        ), [r.error for r in actual if r.error]
        assert max(r.attempts for r in actual) > 1
