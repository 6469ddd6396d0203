"""The contract every engine keeps (webui/engine/base.py).

A subclass supplies `engine` and `reference` fixtures; see test_fake_contract.
"""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from webui.errors import BadInput, Cancelled, KaikouError
from webui.types import SpeechRequest


def ask(**kw) -> SpeechRequest:
    defaults = {
        "id": "r1",
        "text": "Hello, you. 你好。",
        "voice": "v",
        "seed": 7,
        "segments": ("Hello, you.", "你好。"),
    }
    return SpeechRequest(**{**defaults, **kw})


def whole(chunks) -> np.ndarray:
    return np.concatenate([c.samples for c in chunks])


def tone_reference() -> tuple[np.ndarray, int, str, str]:
    """Four seconds of one tone, for engines that take anything for a voice."""
    return np.sin(np.arange(24000 * 4) / 20).astype(np.float32), 24000, "hello", "en"


def hum_reference() -> tuple[np.ndarray, int, str, str]:
    """Four seconds that swell as speech does, with a little noise, for engines that listen."""
    t = np.arange(16000 * 4) / 16000
    hum = 0.2 * np.sin(2 * np.pi * 150 * t) * (1 + np.sin(2 * np.pi * 3 * t))
    noise = np.random.default_rng(0).normal(0, 0.003, len(t))
    return (hum + noise).astype(np.float32), 16000, "", "en"


class EngineContract:
    """`engine`: a started engine.

    `reference`: (samples float32 (n,), rate, transcript, language). `prompt`: made from it.
    """

    def stored_prompts(self, engine) -> object:
        """All that it keeps of prompts beyond its streams: any measure that is the same when there
        is the same.
        """
        raise NotImplementedError

    def test_chunks_are_numbered_in_order_and_joined_make_the_whole(self, engine, prompt):
        chunks = list(engine.stream(ask(), prompt))
        assert [c.number for c in chunks] == list(range(len(chunks)))
        assert [c.last for c in chunks] == [False] * (len(chunks) - 1) + [True]
        at = 0
        for c in chunks:
            assert c.samples.dtype == np.float32 and c.samples.ndim == 1 and len(c.samples) > 0
            assert c.start == at
            at += len(c.samples)
        sound = whole(chunks)
        assert (
            np.isfinite(sound).all() and np.abs(sound).max() <= 1.0 and np.abs(sound).max() > 0.01
        )
        assert [c.segment for c in chunks] == sorted(c.segment for c in chunks) and chunks[
            -1
        ].segment <= 1

    def test_same_request_gives_the_same_samples_after_and_beside_others(self, engine, prompt):
        alone = whole(engine.stream(ask(), prompt))
        for i in range(3):
            list(engine.stream(ask(id=f"x{i}", seed=i, text="Else.", segments=("Else.",)), prompt))
        streams = [
            engine.stream(
                ask(id=f"y{i}", seed=7 if i == 1 else i + 100), prompt, i % engine.describe().lanes
            )
            for i in range(4)
        ]
        parts: list[list] = [[] for _ in streams]
        live = list(range(len(streams)))
        while live:
            for i in list(live):
                chunk = next(streams[i], None)
                if chunk is None:
                    live.remove(i)
                else:
                    parts[i].append(chunk)
        assert np.array_equal(whole(parts[1]), alone)

    def test_two_lanes_in_two_threads_give_what_one_gives(self, engine, prompt):
        alone, results = whole(engine.stream(ask(), prompt)), {}

        def run(lane):
            results[lane] = whole(engine.stream(ask(id=f"t{lane}"), prompt, lane))

        threads = [
            threading.Thread(target=run, args=(lane,)) for lane in range(engine.describe().lanes)
        ]
        [t.start() for t in threads]
        [t.join(60) for t in threads]
        assert all(np.array_equal(results[lane], alone) for lane in range(len(threads)))

    def test_a_stream_that_begins_later_gives_the_rest_of_the_whole(self, engine, prompt):
        parts = {
            "text": "One, two. Three, four. Five.",
            "segments": ("One, two.", "三，四。", "Five."),
        }
        all_of_it = list(engine.stream(ask(**parts), prompt))
        for first in (1, 2):
            rest = list(engine.stream(ask(id=f"l{first}", **parts, first_segment=first), prompt))
            assert [c.number for c in rest] == list(range(len(rest))) and rest[0].start == 0
            assert {c.segment for c in rest} == set(range(first, 3)) and rest[-1].last
            expected = whole(c for c in all_of_it if c.segment >= first)
            assert np.array_equal(whole(rest), expected)

    def test_closing_early_ends_it_and_the_engine_goes_on(self, engine, prompt):
        stream = engine.stream(ask(id="c1"), prompt)
        next(stream)
        stream.close()
        stream.close()
        assert next(stream, None) is None
        assert len(whole(engine.stream(ask(id="c2"), prompt)))

    def test_cancel_takes_effect_at_the_next_step_and_is_idempotent(self, engine, prompt):
        stream = engine.stream(ask(id="c3"), prompt)
        next(stream)
        engine.cancel("c3")
        engine.cancel("c3")
        engine.cancel("never seen")
        with pytest.raises(Cancelled):
            next(stream)
            next(stream)

    def test_a_forgotten_voice_is_gone_and_whoever_speaks_with_it_is_heard_to_the_end(
        self, engine, prompt
    ):
        expected = whole(engine.stream(ask(id="f0"), prompt))
        engine.forget(prompt.fingerprint)
        before = self.settled(engine)
        running = engine.stream(ask(id="f1"), prompt)
        first = next(running)
        assert self.settled(engine) != before
        engine.forget(prompt.fingerprint)
        engine.forget(prompt.fingerprint)
        engine.forget("never seen")
        sound = whole([first, *running])
        del first  # its samples may lie in memory of the engine
        assert np.array_equal(sound, expected)
        assert np.array_equal(whole(engine.stream(ask(id="f2"), prompt)), expected), (
            "and it can come back"
        )
        assert self.settled(engine) != before
        engine.forget(prompt.fingerprint)
        assert (after := self.settled(engine, before)) == before, f"{before} before, {after} after"

    def settled(self, engine, expected=None) -> object:
        """What it keeps when nothing moves any more."""
        end, usage = time.monotonic() + 20, self.stored_prompts(engine)
        while (
            (expected is not None and usage != expected)
            or usage != (usage := self.stored_prompts(engine))
        ) and time.monotonic() < end:
            time.sleep(0.02)
        return usage

    def test_a_bad_reference_is_refused_by_name(self, engine, reference):
        samples, rate, _, language = reference
        for bad in (samples[: int(0.3 * rate)], np.full(rate * 3, np.nan, np.float32)):
            with pytest.raises(BadInput) as error:
                engine.encode(bad, rate, "", language)
            assert error.value.en and error.value.zh

    def test_health_and_abilities_are_filled(self, engine):
        about = engine.describe()
        assert (
            about.name
            and about.version
            and about.sample_rate > 0
            and about.lanes >= 1
            and about.modes
        )
        assert engine.health().state == "ready"

    def test_failures_are_named(self, engine, prompt):
        stream = engine.stream(ask(id="z", instruction="fail=1"), prompt)
        try:
            list(stream)
        except KaikouError:
            pass
