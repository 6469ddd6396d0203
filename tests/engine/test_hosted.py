"""An engine in a process of its own: what crosses the wire, and that many streams, slow readers and
slow writers cross it side by side.
"""

from __future__ import annotations

import dataclasses
import threading

import numpy as np
import pytest

from tests.engine import wild
from tests.engine.contract import ask, whole
from tests.engine.fake import RATE, FakeEngine
from tests.engine.wild import CLIP, LONG, QUICK, until
from webui.errors import BadInput, Cancelled, EngineFault, TooLarge
from webui.messages import Message

engine, prompt = wild.engine, wild.prompt


def test_everything_is_as_in_the_same_process(engine, prompt):
    direct = FakeEngine()
    direct.start()
    direct_prompt = direct.encode(CLIP, RATE, "", "en")
    assert (
        prompt == direct_prompt
        and engine.describe() == direct.describe()
        and engine.health().state == "ready"
    )
    remote_chunks, direct_chunks = (
        list(engine.stream(ask(), prompt)),
        list(direct.stream(ask(), direct_prompt)),
    )
    for a, b in zip(remote_chunks, direct_chunks, strict=True):
        assert np.array_equal(a.samples, b.samples) and a.samples.dtype == np.float32
        assert all(
            getattr(a, f.name) == getattr(b, f.name)
            for f in dataclasses.fields(a)
            if f.name != "samples"
        )
    samples = whole(engine.convert(ask(), prompt, CLIP, RATE))
    assert np.array_equal(samples, whole(direct.convert(ask(), direct_prompt, CLIP, RATE))) and len(
        samples
    ) == len(CLIP)
    assert (
        engine.notes(ask(instruction="sing")) == direct.notes(ask(instruction="sing"))
        and engine.notes(ask()) == []
    )
    engine.prepare(prompt)


def test_errors_arrive_as_they_are(engine, prompt):
    with pytest.raises(BadInput) as error:
        engine.encode(CLIP[:100], RATE, "", "en")
    assert (error.value.code, error.value.en, error.value.zh, error.value.status) == (
        "too_short",
        "The clip is too short.",
        "音频太短。",
        422,
    )
    with pytest.raises(BadInput) as error:
        engine.check(ask(mode="zero_shot", transcript="no room"), prompt)
    assert (error.value.code, error.value.param) == ("too_long_sentence", "input")
    assert engine.check(ask(mode="zero_shot", transcript="hello"), prompt) == []
    odd = engine.check(ask(mode="zero_shot", transcript="a misfit"), prompt)
    assert odd == [("The transcript is another clip's.", "文字稿不是这段音频的。")]
    for do, code in (("bug", "fault"), ("memory", "out_of_memory")):
        with pytest.raises(EngineFault) as fault:
            list(engine.stream(ask(instruction=f"do={do}"), prompt))
        assert fault.value.code == code and fault.value.zh
    pid = engine.pid
    assert (
        whole(engine.stream(ask(), prompt)).size and engine.restarts == 0 and engine.pid == pid
    ), "a failed request is no reason to restart"
    with pytest.raises(TooLarge):
        engine.encode(np.zeros(17 << 20, np.float32), 48000, "", "en")


def test_one_question_per_step_and_nothing_runs_ahead(engine, prompt, tmp_path):
    """Rule 5: the child has made as many chunks as were asked for."""
    stream = engine.stream(ask(instruction=LONG), prompt)
    assert [next(stream).number for _ in range(3)] == [0, 1, 2]
    until(lambda: engine.notes(ask()) == [])
    assert next(stream).number == 3
    stream.close()


def test_eight_streams_at_once_and_a_slow_reader_slows_only_itself(engine, prompt):
    direct, results = whole(engine.stream(ask(), prompt)), {}
    slow = engine.stream(ask(id="slow", instruction=LONG), prompt, 0)
    next(slow)

    def read(n):
        results[n] = whole(engine.stream(ask(id=f"t{n}"), prompt, n % 2))

    threads = [threading.Thread(target=read, args=(n,)) for n in range(8)]
    [t.start() for t in threads]
    [t.join(60) for t in threads]
    assert len(results) == 8 and all(np.array_equal(x, direct) for x in results.values())
    assert next(slow).number == 1
    slow.close()


def test_cancel_within_one_step_while_others_go_on(engine, prompt):
    first, other = (
        engine.stream(ask(id=i, instruction=LONG), prompt, n) for n, i in enumerate("ab")
    )
    next(first), next(other)
    engine.cancel("a")
    with pytest.raises(Cancelled):
        next(first)
    assert next(other).number == 1 and next(first, None) is None
    other.close()


def test_text_that_is_still_arriving(engine, prompt):
    words_read = []

    def pieces():
        for word in ["One two.", "Three four.", "Five."]:
            words_read.append(word)
            yield word

    stream = engine.stream_text(ask(), prompt, pieces())
    first = next(stream)
    assert first.number == 0 and words_read == ["One two."], "only what was needed has been taken"
    assert list(stream)[-1].last and len(words_read) == 3


def test_text_whose_source_fails_or_is_given_up(engine, prompt):
    def broken(error):
        yield "One two."
        raise error

    with pytest.raises(BadInput, match="no letters"):
        list(
            engine.stream_text(
                ask(), prompt, broken(BadInput(Message("There are no letters.", "没有字。")))
            )
        )
    with pytest.raises(EngineFault):
        list(engine.stream_text(ask(), prompt, broken(ValueError("the typist left"))))
    for n in range(3):
        stream = engine.stream_text(ask(id=f"g{n}"), prompt, iter(["One two."] * 9))
        next(stream)
        stream.close()
    assert len(whole(engine.stream(ask(), prompt)))
    until(lambda: not [t for t in threading.enumerate() if t.name == "engine-text"])
    assert engine._life.text_callbacks == {}


def test_a_person_who_thinks_is_no_hung_engine(engine, prompt):
    go_on, chunks = threading.Event(), []

    def pieces():
        yield "One two."
        go_on.wait(20)
        yield "Three."

    thread = threading.Thread(
        target=lambda: chunks.extend(engine.stream_text(ask(), prompt, pieces()))
    )
    thread.start()
    beats = engine._life.beats
    until(lambda: engine._life.beats > beats + 2 * QUICK.beats(QUICK.still_s))
    go_on.set()
    thread.join(20)
    assert chunks[-1].last and engine.restarts == 0


def test_a_voice_is_sent_once_and_again_when_it_was_forgotten(engine):
    life = engine._life
    voices = [engine.encode(CLIP * level, RATE, "", "en") for level in (0.2, 0.5, 1.0)]
    sent, queue = [], life._outbox

    class Counting:
        get = queue.get

        def put(self, parts):
            sent.append(parts is not None and b'{"op": "voice"' in bytes(parts[0]))
            queue.put(parts)

    life._outbox = Counting()
    for _ in range(3):
        for voice in voices:
            next(engine.stream(ask(), voice))
    assert sent.count(True) == 3
    life._max_voices_bytes = 1  # room for one
    sounds = [whole(engine.stream(ask(), v)) for v in voices * 2]
    assert sent.count(True) > 6 and all(
        np.array_equal(a, b) for a, b in zip(sounds[:3], sounds[3:])
    )
