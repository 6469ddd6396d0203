"""The natural voice as it is heard: same seed same samples, near the reference, cancelled at once,
and never silent.
"""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace

import numpy as np
import pytest

from tests.engine import builtin_setup
from tests.engine import natural_setup as setup
from tests.engine.builtin_setup import ask, whole
from webui.engine.espeak.voice_profile import listen
from webui.engine.natural import styles
from webui.engine.natural.convolution import Scratch
from webui.engine.natural.network import Network, tokens_of
from webui.engine.natural.speech_stream import active_rms
from webui.errors import BadInput, Cancelled, EngineFault

pytestmark = setup.needs_weights
SHORT = "你好，我来了。"


def speak(text=SHORT, id="r", lane=0, **settings):
    request = ask(text, id, **{"voice_engine": "natural", "seed": 7, **settings})
    return whole(setup.engine().stream(request, setup.prompt(), lane))


def test_the_same_seed_gives_the_same_samples_beside_others_and_another_seed_another_take():
    first = speak()
    beside: dict[int, np.ndarray] = {}
    threads = [
        threading.Thread(
            target=lambda lane=lane: beside.update({lane: speak(id=f"t{lane}", lane=lane)})
        )
        for lane in (0, 1)
    ]
    speak("Else.", seed=3)
    [t.start() for t in threads]
    [t.join(240) for t in threads]
    assert np.array_equal(beside[0], first) and np.array_equal(beside[1], first)
    assert not np.array_equal(speak(seed=8), first)
    background = whole(
        setup.engine().stream(
            replace(ask(SHORT, "b", voice_engine="natural", seed=7), priority=10), setup.prompt()
        )
    )
    assert np.array_equal(background, first), "nobody listening changes nothing"


def test_it_is_as_high_and_as_loud_as_the_reference_and_has_no_silence_at_its_ends():
    for name in ("starter-zh-high", "starter-zh-low"):
        reference = listen(*builtin_setup.clip(name))
        sound = whole(
            setup.engine().stream(
                ask("今天天气很好，我们走吧。", voice_engine="natural"), setup.prompt(name)
            )
        )
        analysis = listen(sound, 24000)
        assert abs(analysis.log_f0 - reference.log_f0) < 2 * np.log(2) / 12, name
        assert abs(20 * np.log10(active_rms(sound) / reference.rms)) < 3.0, name
        loud = np.flatnonzero(np.abs(sound) > 0.02 * np.abs(sound).max())
        assert loud[0] < 0.1 * 24000 and np.abs(sound).max() <= 1.0


def test_speed_shortens_it_and_moods_raise_it():
    plain = speak("我们走吧。")
    assert len(speak("我们走吧。", speed=1.5)) < 0.8 * len(plain)
    higher = speak("我们走吧。", mode="instruct", instruction="用非常惊讶的语气说")
    assert listen(np.tile(higher, 2), 24000).log_f0 > listen(np.tile(plain, 2), 24000).log_f0 + 0.1


def test_a_cancelled_step_ends_at_once_and_the_lane_is_free(monkeypatch):
    """The network's run is stopped inside: the sound of the long clause is never made."""
    engine = setup.engine()
    lane, request_event = engine.natural.lanes[0], threading.Event()
    exchange = lane._exchange

    def record_call(question, body):
        if question.get("stream") and question["op"] == "step":
            request_event.set()
        return exchange(question, body)

    monkeypatch.setattr(lane, "_exchange", record_call)
    text = "这是一个很长很长的句子里面没有任何标点符号所以要说上好几秒钟才能说完"
    stream = engine.stream(ask(text, "gone", voice_engine="natural"), setup.prompt())
    failures = []

    def read():
        try:
            list(stream)
        except Cancelled as error:
            failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    assert request_event.wait(60)
    engine.cancel("gone")
    reader.join(60)
    assert len(failures) == 1
    assert lane.ask({"op": "count"})[0]["streams"] == 0
    assert len(speak()) > 5000


def test_what_it_cannot_say_in_the_middle_is_said_by_the_instant_voice():
    """Of a text that is still being written nobody knows beforehand."""
    request = replace(
        ask("走吧。", voice_engine="natural"), segments=("走吧。", "Привет, мир.", "……")
    )
    chunks = list(setup.engine().stream(request, setup.prompt()))
    assert {c.segment for c in chunks} == {0, 1} and chunks[-1].last
    assert np.abs(np.concatenate([c.samples for c in chunks if c.segment == 1])).max() > 0.01


@pytest.mark.parametrize("text", ["嗯", "A", "12", "你好😀", "iPhone手机", "。。。", "走" * 40])
def test_odd_texts_are_spoken_or_refused_by_name_never_a_crash(text):
    try:
        chunks = list(setup.engine().stream(ask(text), setup.prompt()))
    except BadInput:
        return
    assert chunks[-1].last and all(len(c.samples) for c in chunks)
    if any(c.isalnum() for c in text):
        assert np.abs(whole(chunks)).max() > 0.01


@pytest.mark.parametrize("kind", ["noise", "hum"])
def test_a_reference_without_a_voice_is_heard_all_the_same(kind):
    n = 3 * 24000
    sound = (
        np.random.default_rng(1).standard_normal(n) * 0.1
        if kind == "noise"
        else 0.3 * np.sin(2 * np.pi * 60 / 24000 * np.arange(n))
    )
    prompt = setup.engine().encode(sound.astype(np.float32), 24000)
    output = whole(setup.engine().stream(ask("走吧。", voice_engine="natural"), prompt))
    assert np.isfinite(output).all() and 0.01 < np.abs(output).max() <= 1.0


def test_a_process_that_dies_fails_its_streams_by_name_and_both_lanes_come_back():
    engine = setup.engine()
    first = speak()
    life = engine.natural.lanes[0].life
    streams = [
        engine.stream(
            ask("你好，再见。然后呢？", f"d{i}", voice_engine="natural"), setup.prompt(), i
        )
        for i in (0, 1)
    ]
    [next(s) for s in streams]
    os.kill(engine.natural.lanes[0].pid, signal.SIGKILL)
    for stream in streams:
        with pytest.raises(EngineFault):
            list(stream)
    assert np.array_equal(speak(lane=1), first) and np.array_equal(speak(lane=0), first)
    assert [lane.life for lane in engine.natural.lanes] == [life + 1, life + 1]
    assert engine.health().state == "ready"


def test_the_pitch_moves_inside_the_graph_and_nothing_else_does():
    network, voice = Network(setup.file()), styles.read()[0]
    tokens, style = tokens_of("ni↓xau↓."), voice.style(8)

    def synthesise(scale):
        trunk = network.trunk(tokens, style, f0_scale=scale)
        return np.concatenate(list(network.sound(trunk, style, voice.statistics, Scratch())))

    plain, same, higher = synthesise(1.0), synthesise(1.0), synthesise(1.25)
    assert np.array_equal(plain, same) and len(higher) == len(plain)
    ratio = listen(np.tile(higher, 3), 24000).log_f0 - listen(np.tile(plain, 3), 24000).log_f0
    assert abs(ratio - np.log(1.25)) < 0.05
