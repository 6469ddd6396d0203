"""The built-in voice through its engine: what is heard, what is kept, and what happens when a
worker dies or falls silent.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.engine.builtin_setup import ask, clip, engine, prompt, whole
from webui.engine.espeak import EspeakEngine
from webui.engine.espeak import worker_process as lane_module
from webui.engine.espeak.prompt_file import unpack
from webui.errors import BadInput, Cancelled, EngineFault, EngineStalled, NotReady

ROOT = Path(__file__).resolve().parents[2]
LONG = "一二三四五六七八九十" * 20


def open_streams() -> int:
    return sum(c["streams"] for c in engine().counts())


@pytest.mark.parametrize(
    ("text", "language"),
    [("今天天气很好。", "auto"), ("你好呀，食咗饭未？", "yue"), ("Good morning to you.", "auto"),
        ("こんにちは、きょうはいいてんきです。", "auto"),
     ("안녕하세요, 반갑습니다.", "auto"), ("Доброе утро, друзья.", "auto"),
     ("我用 iPhone 打电话给 Tom。", "auto"), ("Hello 你好 안녕 こんにちは", "auto"),
     ("[[h@l'oU]] is text", "en"), ("Price: 3.50 & <b>bold</b>", "en"), ("龘靐齉 rare", "zh"),
     ("東京に行きます", "ja")],
)  # fmt: skip
def test_every_script_is_spoken(text, language):
    sound = whole(engine().stream(ask(text, language=language), prompt()))
    assert (
        len(sound) > 24000 * 0.4 and 0.02 < np.abs(sound).max() <= 1.0 and np.isfinite(sound).all()
    )


@pytest.mark.parametrize("segments", [("😀🎉",), ("…", "😀"), ("\u200b\u0007",), ("", " ")])
def test_what_cannot_be_said_is_a_short_silence_with_an_end(segments):
    request = ask("x")
    object.__setattr__(request, "segments", segments)
    chunks = list(engine().stream(request, prompt()))
    assert chunks[-1].last and not whole(chunks).any() and len(whole(chunks)) < 24000


def test_a_silent_last_segment_still_ends_the_stream():
    request = ask("x")
    object.__setattr__(request, "segments", ("Hello.", "😀", "🎈"))
    chunks = list(engine().stream(request, prompt()))
    assert [c.last for c in chunks].count(True) == 1 and chunks[-1].last and whole(chunks).any()


def test_same_samples_alone_interleaved_on_one_worker_and_after_fifty_others():
    first = ask("The same words again, please.", seed=42)
    alone = whole(engine().stream(first, prompt(), 0))
    streams = [engine().stream(first, prompt(), 0)] + [
        engine().stream(
            ask(t, id=t, seed=i, speed=1 + i / 10, mode="instruct", instruction=w), prompt(), 0
        )
        for i, (t, w) in enumerate(
            [
                ("你好，世界。今天好吗？", "开心"),
                ("Quite another thing.", "whisper"),
                ("Привет!", ""),
                ("안녕하세요", "slow"),
            ]
        )
    ]
    parts: list[list] = [[] for _ in streams]
    live = list(range(len(streams)))
    while live:
        for i in list(reversed(live)):
            chunk = next(streams[i], None)
            live.remove(i) if chunk is None else parts[i].append(chunk)
    assert np.array_equal(whole(parts[0]), alone)
    for i in range(50):
        next(
            engine().stream(
                ask(f"第{i}句。" if i % 2 else f"Sentence {i}.", id=f"n{i}", seed=i), prompt(), 0
            )
        )
    assert np.array_equal(whole(engine().stream(first, prompt(), 0)), alone)
    assert np.array_equal(whole(engine().stream(first, prompt(), 1)), alone)


def test_what_nobody_listens_to_is_the_same_sound_in_long_steps_that_keep_to_their_sentence():
    request = replace(
        ask("x", seed=7),
        segments=(
            "The old clock struck nine before anyone spoke, and then it stopped for good.",
            "你好，世界。",
            "🎈",
            "Good night.",
        ),
    )
    live, quiet = (
        list(engine().stream(request, prompt())),
        list(engine().stream(replace(request, priority=10), prompt())),
    )
    assert np.array_equal(whole(quiet), whole(live))
    assert [c.segment for c in quiet] == [0, 1, 3] and len(live) > 2 * len(quiet)
    assert [c.start for c in quiet] == [
        next(c.start for c in live if c.segment == s) for s in (0, 1, 3)
    ] and [c.last for c in quiet] == [False, False, True]


def test_a_long_step_ends_with_its_block_when_somebody_waits_for_the_lane():
    request = replace(ask(LONG, seed=7), priority=10)
    engine().make_way(1)
    stream = engine().stream(request, prompt(), 1)
    first, second = next(stream), next(stream)
    assert len(first.samples) <= 0.4 * 24000 and len(second.samples) > 4 * 24000, (
        "rung for once, heard once"
    )
    assert np.array_equal(
        np.concatenate((first.samples, second.samples, *(c.samples for c in stream))),
        whole(engine().stream(replace(request, priority=0), prompt(), 1)),
    )


def test_a_cancelled_stream_does_not_finish_its_long_step(monkeypatch):
    rung = []
    monkeypatch.setattr(lane_module.WorkerConnection, "ring", lambda self: rung.append(self))
    streams = [
        engine().stream(
            replace(ask("Please wait.", id=f"q{priority}"), priority=priority), prompt(), 1
        )
        for priority in (0, 10)
    ]
    for stream in streams:
        stream.cancel()
    assert rung == [engine()._lanes[1]]


def test_what_nobody_waits_for_is_said_once():
    def n_spoken(priority: int) -> int:
        before = engine().counts()[0]["spoken_samples"]
        list(
            engine().stream(
                replace(ask("Nine o'clock, and all is well.", seed=1), priority=priority),
                prompt(),
                0,
            )
        )
        return engine().counts()[0]["spoken_samples"] - before

    assert n_spoken(10) + 0.4 * 22050 < n_spoken(0) < n_spoken(10) + 0.8 * 22050


def test_seed_voice_speed_and_instruction_change_the_sound():
    def speak(p=None, **kw):
        return whole(engine().stream(ask("Nothing else changes.", **kw), p or prompt()))

    plain = speak()
    assert not np.array_equal(plain, speak(seed=1)) and not np.array_equal(
        plain, speak(prompt("starter-en-low"))
    )
    assert len(speak(speed=1.5)) < 0.75 * len(plain) and len(speak(speed=0.75)) > 1.2 * len(plain)
    assert np.array_equal(
        plain, speak(instruction="开心")
    )  # only modes with an instruction follow it
    assert not np.array_equal(plain, speak(instruction="开心", mode="instruct"))


def test_the_first_block_comes_before_the_work_for_the_rest():
    before = engine().counts()[0]["spoken_samples"]
    stream = engine().stream(ask(LONG), prompt(), 0)
    first = next(stream)
    after_first = engine().counts()[0]["spoken_samples"] - before
    rest = list(stream)
    assert len(first.samples) <= 0.4 * 24000 and after_first < 22050
    assert (
        sum(len(c.samples) for c in rest) > 15 * 24000
        and max(len(c.samples) for c in rest) < 2 * 24000
    )


def test_blocks_join_without_clicks():
    chunks = list(
        engine().stream(
            ask("A long and quiet evening on the open sea, nobody was there."),
            prompt("starter-zh-breathy"),
        )
    )
    sound = whole(chunks)
    steps = np.abs(np.diff(sound))
    joins = [steps[c.start - 3 : c.start + 2].max() for c in chunks[1:]]
    assert max(joins) < 4 * np.percentile(steps, 99)


def test_speech_begins_at_once_and_sentences_are_parted_by_a_pause():
    sound = whole(engine().stream(ask("你好。再见。"), prompt()))
    loud = np.flatnonzero(np.abs(sound) > 0.01)
    assert loud[0] < 0.012 * 24000
    gaps = np.diff(loud)
    assert 0.15 * 24000 < gaps.max() < 0.5 * 24000


def test_cancel_close_and_loss_free_the_worker():
    streams = [
        engine().stream(ask("Please wait for me here.", id=f"k{i}"), prompt(), i % 2)
        for i in range(6)
    ]
    for s in streams:
        next(s)
    assert open_streams() == 6
    engine().cancel("k0")
    engine().cancel("k0")
    streams[1].close()
    with pytest.raises(Cancelled):
        next(streams[0])
    assert open_streams() == 4
    del streams[2:], s
    gc.collect()
    assert open_streams() == 0


def test_cancel_from_another_thread_in_the_middle():
    stream = engine().stream(ask(LONG, id="mid"), prompt(), 0)
    next(stream)
    thread = threading.Thread(target=engine().cancel, args=("mid",))
    thread.start()
    with pytest.raises(Cancelled):
        for _ in range(1000):
            next(stream)
    thread.join()
    assert open_streams() == 0


def test_cancelled_before_the_first_step_never_opens():
    stream = engine().stream(ask("Too late.", id="early"), prompt())
    engine().cancel("early")
    with pytest.raises(Cancelled):
        next(stream)
    assert next(stream, None) is None


def test_the_same_reference_is_read_once_and_a_bad_one_refused():
    assert engine().encode(*clip()) is engine().encode(*clip())
    rate = 16000
    for samples, code in [
        (np.zeros(rate * 3), "silent"),
        (clip()[0][: int(0.4 * rate)], "too_short"),
        (np.full(rate * 3, np.inf), "not_finite"),
        (np.zeros(0), "too_short"),
    ]:
        with pytest.raises(BadInput) as error:
            engine().encode(samples.astype(np.float32), rate)
        assert error.value.code == code and error.value.zh.endswith("。")


def test_a_known_transcript_gives_the_tempo_and_a_wrong_one_is_ignored():
    samples, rate = clip("starter-zh-low")  # made at 150 words a minute

    def wpm(*transcript):
        return {
            k: m.wpm for k, m in unpack(engine().encode(samples, rate, *transcript).data)[1].items()
        }

    wpm_by_voice = wpm("朋友们，晚上好。今天我们来聊一聊老城里的那条河，还有河边的人。", "zh")
    assert len(set(wpm_by_voice.values())) == 1 and wpm_by_voice["en"] == pytest.approx(
        150, rel=0.05
    )
    assert wpm("好。", "zh") == wpm("😀", "") == wpm()


def test_speed_is_kept_to():
    for text in ("今天天气很好我们一起去公园散步。", "The weather is lovely today."):
        plain, fast, slow = (
            len(whole(engine().stream(ask(text, speed=s), prompt()))) for s in (1.0, 1.6, 0.7)
        )
        assert plain / fast == pytest.approx(1.6, rel=0.08) and plain / slow == pytest.approx(
            0.7, rel=0.08
        )


def test_noise_is_a_stated_fallback_and_hum_and_clipping_work():
    noise = (0.1 * np.random.default_rng(0).standard_normal(48000)).astype(np.float32)
    prompt_of_noise = engine().encode(noise, 16000)
    assert prompt_of_noise.notes == ("few_voiced_frames",)
    assert np.abs(whole(engine().stream(ask("Hello."), prompt_of_noise))).max() > 0.02
    samples, rate = clip()
    hum = (
        samples
        + 0.05
        + 0.05 * np.sin(2 * np.pi * 50 * np.arange(len(samples)) / rate).astype(np.float32)
    )
    assert (
        engine().encode(hum, rate).notes == ()
        and engine().encode(np.clip(samples * 8, -0.6, 0.6), rate).notes == ()
    )


def test_the_parent_stays_light():
    code = (
        "import sys; from webui.engine.espeak import EspeakEngine, understood; print([m for m in"
        " ('scipy', 'pyworld', 'torch', 'safetensors') if m in sys.modules])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )


@pytest.fixture
def own():
    espeak = EspeakEngine(1, stall_s=3.0)
    espeak.start()
    yield espeak
    espeak.close()
    espeak.close()


def test_a_worker_that_dies_fails_its_streams_by_name_and_the_next_request_works(own):
    stream, beside = (
        own.stream(ask("This will be cut short, I fear.", id=i), prompt()) for i in "ab"
    )
    next(stream), next(beside)
    os.kill(own._lanes[0].pid, signal.SIGKILL)
    for lost in (stream, beside):
        with pytest.raises(EngineFault):
            list(lost)
        assert next(lost, None) is None
    assert len(whole(own.stream(ask("Still here."), prompt()))) > 10000


def test_a_worker_that_cannot_come_back_makes_the_engine_broken_until_it_can(own, monkeypatch):
    stream = own.stream(ask("Wait."), prompt())
    next(stream)
    with monkeypatch.context() as patched:
        patched.setattr(lane_module.sys, "executable", "/bin/false")
        os.kill(own._lanes[0].pid, signal.SIGKILL)
        with pytest.raises(EngineFault):
            list(stream)
        assert own.health().state == "broken" and own.health().reason_zh
        with pytest.raises(NotReady):
            list(own.stream(ask("No."), prompt()))
    assert len(whole(own.stream(ask("Yes."), prompt()))) > 5000 and own.health().state == "ready"


def test_a_silent_worker_is_replaced(own):
    own._lanes[0]._sock.settimeout(0.3)
    # More than the socket holds: a short sentence may be there in full before the worker is
    # stopped.
    stream = own.stream(ask("Wait. " * 60), prompt())
    next(stream)
    stalled = own._lanes[0].pid
    os.kill(stalled, signal.SIGSTOP)
    with pytest.raises(EngineStalled):
        for _ in stream:
            pass
    assert own._lanes[0].pid != stalled
    assert len(whole(own.stream(ask("Again."), prompt()))) > 5000


def test_starting_may_take_longer_than_any_later_answer():
    """On a busy machine the warm-up, two seconds of work, is no sign of a stuck worker."""
    espeak = EspeakEngine(1, stall_s=0.05)
    espeak.start()
    assert espeak.health().state == "ready" and espeak._lanes[0].life == 1
    espeak.close()


def test_closing_leaves_no_process_and_no_descriptor():
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    espeak = EspeakEngine(1)
    espeak.start()
    pids = [espeak._lanes[0].pid, espeak._listener.pid]
    espeak.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert not before or len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(NotReady):
        list(espeak.stream(ask("No."), prompt()))


def test_workers_end_when_the_studio_is_killed():
    code = (
        "import sys, os, signal\nfrom webui.engine.espeak import EspeakEngine\ne ="
        " EspeakEngine(1); e.start(); print(e._lanes[0].pid, e._listener.pid, flush=True);"
        " os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended, child_socket = socket.socketpair()
    with ended:
        with (
            child_socket
        ):  # every descendant inherits this end; it closes when the last of them is gone
            parent = subprocess.Popen(
                [sys.executable, "-c", code],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=child_socket,
                text=True,
            )
        pids = [int(p) for p in parent.stdout.readline().split()]
        parent.wait()
        parent.stdout.close()
        ended.settimeout(20)
        while ended.recv(4096):
            pass
    assert len(pids) == 2


def test_without_espeak_it_says_so():
    espeak = EspeakEngine(1, library="/nowhere/libespeak-ng.so")
    with pytest.raises(NotReady) as error:
        espeak.start()
    assert (
        "eSpeak" in error.value.en
        and espeak.health().state == "broken"
        and espeak.health().reason == error.value.en
    )
    espeak.close()


def test_a_worker_that_cannot_start_is_named(monkeypatch):
    monkeypatch.setattr(lane_module.sys, "executable", "/bin/false")
    espeak = EspeakEngine(1)
    with pytest.raises(NotReady):
        espeak.start()
    espeak.close()


def test_a_prompt_of_another_engine_is_refused():
    other = type(prompt())("other", "9", "f", b"")
    with pytest.raises(EngineFault):
        engine().stream(ask("Hello."), other)


@pytest.mark.parametrize("how", ["lost", "closed", "cancelled", "forgotten"])
def test_whoever_lets_go_of_a_stream_or_a_voice_never_waits_for_the_worker(own, monkeypatch, how):
    """A worker that hangs answers nothing for seconds: what it need not be asked at once is told it
    by another thread.
    """
    threads, exchange = [], lane_module.WorkerConnection._exchange

    def noted(self, question, body):
        if question["op"] == "drop":
            threads.append(threading.current_thread())
        return exchange(self, question, body)

    monkeypatch.setattr(lane_module.WorkerConnection, "_exchange", noted)
    stream = own.stream(ask("Please wait.", id="w"), prompt())
    next(stream)
    if how == "lost":
        del stream
        gc.collect()
    elif how == "closed":
        stream.close()
    elif how == "cancelled":
        own.cancel("w")
    else:
        own.forget(prompt().fingerprint)
    assert threading.current_thread() not in threads
    own.close()
    assert len(threads) <= 1, "it ends without a rest"


def test_what_was_let_go_of_leaves_an_idle_worker_without_any_question(own, monkeypatch):
    drop_event, exchange = threading.Event(), lane_module.WorkerConnection._exchange

    def noted(self, question, body):
        out = exchange(self, question, body)
        if question["op"] == "drop":
            drop_event.set()
        return out

    monkeypatch.setattr(lane_module.WorkerConnection, "_exchange", noted)
    stream = own.stream(ask("Please wait."), prompt())
    next(stream)
    del stream
    gc.collect()
    assert drop_event.wait(20) and own.counts()[0]["streams"] == 0


def test_closed_while_it_starts_it_never_says_that_it_is_ready(monkeypatch):
    espeak = EspeakEngine(1)

    def closed_meanwhile(self, question, **more):
        if self is espeak._listener:
            espeak.close()
        return {"rtf": 0.02}, b""

    monkeypatch.setattr(lane_module.WorkerConnection, "start", lambda self: None)
    monkeypatch.setattr(lane_module.WorkerConnection, "ask", closed_meanwhile)
    espeak.start()
    assert espeak.health().state == "draining"
