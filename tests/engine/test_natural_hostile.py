"""Bad input to the natural voice: texts, references, memory and processes.

It speaks, or the instant voice does with a note, or a sentence says why not; what is heard is never
silence.
"""

from __future__ import annotations

import os
import resource
import signal
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.engine import builtin_setup
from tests.engine import natural_setup as setup
from tests.engine.builtin_setup import ask, whole
from webui.engine.espeak import worker_process as lane_module
from webui.engine.espeak.engine import NAME, Speech
from webui.engine.natural import workers as lanes_module
from webui.engine.natural.speech_stream import active_rms
from webui.engine.natural.voice import MAX_RMS, MIN_RMS
from webui.engine.natural.workers import NaturalLanes
from webui.errors import Cancelled, EngineFault, EngineStalled, KaikouError, NotReady
from webui.text import prepare
from webui.types import Prompt

pytestmark = setup.needs_weights
SHORT = "走吧。"
SAVED = Path(__file__).resolve().parents[1] / "data" / "voice-7.safetensors"


def check_sound(sound, lowest=0.02, highest=0.4):
    """At the level of speech, for all of `sound`; neither clipped nor broken."""
    assert sound.dtype == np.float32 and np.isfinite(sound).all() and len(sound) > 24000 * 0.2
    assert lowest < active_rms(sound) < highest, active_rms(sound)
    assert np.abs(sound).max() <= 1.0 and np.mean(np.abs(sound) > 0.995) < 0.005
    return sound


def speak(text=SHORT, prompt=None, lane=0, **settings):
    """(which voice spoke, the notes, the sound), as the studio has it done."""
    engine = setup.engine()
    request, notes = engine.settle(replace(ask(text, **settings), seed=7))
    sound = whole(engine.stream(request, prompt or setup.prompt(), lane))
    return request.voice_engine, notes, sound


@pytest.fixture
def steps(monkeypatch):
    """The questions that make sound, in order, on lane 0."""
    lane, stream_ids = setup.engine().natural.lanes[0], []
    exchange = lane._exchange

    def counted(question, body):
        if question["op"] == "step":
            stream_ids.append(question["stream"])
        return exchange(question, body)

    monkeypatch.setattr(lane, "_exchange", counted)
    return stream_ids


@pytest.mark.parametrize("text", ["12", "A", "你好😀", "K歌", "naïve咖啡", "〇", "𪚥", "Việt"])
def test_odd_texts_that_it_reads(text):
    [segment] = prepare(text, "auto")
    spoke, notes, sound = speak(segment)
    assert (spoke, notes) == ("natural", [])
    check_sound(sound)


@pytest.mark.parametrize(
    "text",
    ["はい", "コーヒー", "네", "ดี", "аpple", "𠮷野", "﨑", "你好мир", "々", "ー", "〡〢", "ƀ", "α"],
)
def test_odd_texts_that_are_left_to_the_instant_voice_with_a_note(text):
    [segment] = prepare(text, "auto")
    spoke, [note], sound = speak(segment)
    assert spoke == "instant" and "Chinese and English" in note[0] and "中文" in note[1]
    check_sound(sound)


@pytest.mark.parametrize("text", ["，。！？…", "——", "😀🎉", "\u200b", "[[", "⼈"])
def test_a_text_without_letters_is_refused_before_anybody_speaks_and_costs_the_network_nothing(
    text, steps
):
    assert prepare(text, "auto") == [], "which the studio answers with a sentence"
    chunks = list(setup.engine().stream(ask(text, voice_engine="natural"), setup.prompt()))
    assert chunks[-1].last and len(steps) == len(chunks) == 1


@pytest.mark.parametrize("instruction", ["用四川话说", "whisper, please"])
def test_a_style_that_it_cannot_do_is_left_to_the_instant_voice_with_a_note(instruction):
    spoke, [note], sound = speak("我们走吧。", mode="instruct", instruction=instruction)
    assert spoke == "instant" and "whisper" in note[0] and "低语" in note[1]
    check_sound(sound, lowest=0.005)  # a whisper is not loud


@pytest.mark.parametrize("unit", ["我们今天去公园看见很多花", "the quick brown fox "])
def test_of_a_text_of_4000_characters_without_a_stop_the_beginning_is_heard_at_once(unit, steps):
    segments = tuple(prepare((unit * 400)[:4000], "auto"))
    request = replace(ask(unit, "long", voice_engine="natural"), segments=segments)
    stream = setup.engine().stream(request, setup.prompt())
    first = next(stream)
    assert first.segment == 0 and len(first.samples) < 15 * 24000 and len(steps) == 1
    stream.close()
    assert setup.engine().natural.lanes[0].ask({"op": "count"})[0]["streams"] == 0


def test_after_a_cancel_nothing_more_is_made(steps):
    """Counted in the questions that make sound; how soon it is quiet is measured by
    scripts/bench_text_in.py.
    """
    engine = setup.engine()
    stream = engine.stream(
        ask("我们走吧。然后我们再回来看看。最后大家一起吃饭。", "gone", voice_engine="natural"),
        setup.prompt(),
    )
    next(stream)
    engine.cancel("gone")
    n_steps = len(steps)
    with pytest.raises(Cancelled):
        list(stream)
    assert engine.natural.lanes[0].ask({"op": "count"})[0]["streams"] == 0
    assert len(steps) == n_steps and len(set(steps)) == 1


RATE_HZ = builtin_setup.clip()[1]
N_SAMPLES = 3 * RATE_HZ
TIMES_S = np.arange(N_SAMPLES) / RATE_HZ
NOISE = np.random.default_rng(1).standard_normal(N_SAMPLES)


@pytest.mark.parametrize(
    ("kind", "reference"),
    [
        ("noise", 0.1 * NOISE),
        ("noise at full scale", np.clip(3 * NOISE, -1, 1)),
        ("hum of 60 Hz", 0.3 * np.sin(2 * np.pi * 60 * TIMES_S)),
        ("square wave", np.sign(np.sin(2 * np.pi * 50 * TIMES_S))),
        ("offset", np.full(N_SAMPLES, 0.5)),
        ("speech 50 dB too low", 0.003),
        ("clipped speech", 1e9),
    ],
)
def test_a_reference_that_is_no_speech_or_far_too_low_or_loud_is_spoken_with_all_the_same(
    kind, reference
):
    samples, rate_hz = builtin_setup.clip()
    if np.isscalar(reference):  # a factor
        reference = np.clip(samples * reference, -1, 1)
    prompt = setup.engine().encode(np.asarray(reference, np.float32), rate_hz)
    spoke, _, sound = speak(prompt=prompt)
    assert spoke == "natural"
    check_sound(sound, lowest=0.3 * MIN_RMS, highest=2 * MAX_RMS)


def test_a_reference_that_is_all_but_silent_is_refused_by_name():
    with pytest.raises(KaikouError) as refused:
        setup.engine().encode((1e-4 * NOISE).astype(np.float32), 24000)
    assert refused.value.code == "silent" and refused.value.zh


def test_a_voice_saved_before_there_was_a_natural_voice_speaks_as_if_it_were_made_today():
    """The file is what the version before wrote of this clip: a profile and how it bends eSpeak's
    voices. It was measured on another processor: the networks turn its last digits into a
    difference that is 30 dB below the voice at least, where another voice is as loud as this one.
    """
    saved = Prompt(NAME, "7", "saved", SAVED.read_bytes())
    spoke, notes, sound = speak(prompt=saved)
    assert (spoke, notes) == ("natural", [])
    today = speak()[2]
    assert len(check_sound(sound)) == len(today)
    assert np.square(sound - today).mean() < 1e-3 * np.square(today).mean()


@pytest.mark.parametrize("limit_mb", [100, 400])
def test_a_process_with_too_little_memory_to_load_is_a_sentence(limit_mb, monkeypatch, tmp_path):
    """With little, a library ends the process; with more, the network cannot be read.

    Neither is a crash here.
    """
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/bash\nulimit -v {limit_mb * 1024}\nexec {lane_module.sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    monkeypatch.setattr(lane_module.sys, "executable", str(python))
    natural = NaturalLanes([setup.FOLDER], 1)
    try:
        natural.start()
        assert natural.is_decided.is_set() and natural.health().state == "broken"
        chosen, [note] = natural.choose(replace(ask(SHORT), voice_engine="natural"))
        assert chosen == "instant" and "memory" in note[0] and "内存" in note[1]
        assert "built-in" not in note[0], "the instant voice is well"
        assert list(natural.voice_engines(0.02)) == ["instant"] and natural.note() == note
    finally:
        natural.close()


def test_too_little_memory_in_the_middle_fails_no_more_than_the_one_stream():
    """From now on the process gets no more memory: a long clause fails, is spoken with what there
    is, or the process dies and is asked again.
    """
    natural = NaturalLanes([setup.FOLDER], 1)
    try:
        natural.start()
        [lane] = natural.lanes
        usual = resource.prlimit(lane.pid, resource.RLIMIT_AS)
        resource.prlimit(lane.pid, resource.RLIMIT_AS, (1 << 20, usual[1]))
        with suppress(EngineFault):
            check_sound(
                whole(Speech(lane, 1, ask("我们大家一起去公园看花" * 3), setup.prompt(), True))
            )
        if lane.life == 1:
            resource.prlimit(lane.pid, resource.RLIMIT_AS, usual)
        assert natural.health().state == "ready"
        check_sound(whole(Speech(lane, 2, ask(SHORT), setup.prompt(), True)))
    finally:
        natural.close()


def test_a_process_that_died_between_two_requests_is_not_noticed():
    engine = setup.engine()
    expected, life = speak()[2], engine.natural.lanes[0].life
    os.kill(engine.natural.lanes[0].pid, signal.SIGKILL)
    for lane in (1, 0):
        assert np.array_equal(speak(lane=lane)[2], expected)
        assert engine.natural.lanes[lane].life == life + 1
    assert engine.natural.health().state == "ready"


def test_a_lane_that_restarts_the_process_closes_no_socket_of_another():
    """Who waits on it in another thread would read from whichever socket gets its number next."""
    engine = setup.engine()
    speak(lane=1)
    lane, other_lane = engine.natural.lanes
    sockets = (other_lane._sock, other_lane._bell)
    os.kill(lane.pid, signal.SIGKILL)
    speak(lane=0)
    assert lane.life == other_lane.life + 1 and all(end.fileno() >= 0 for end in sockets)
    speak(lane=1)
    assert lane.life == other_lane.life and all(end.fileno() == -1 for end in sockets)


def test_a_process_that_hangs_is_replaced_and_the_instant_voice_speaks_meanwhile():
    engine = setup.engine()
    expected = speak()[2]
    lane = engine.natural.lanes[0]
    lane._sock.settimeout(0.3)
    hung, failures = lane.pid, []
    os.kill(hung, signal.SIGSTOP)

    def read():
        try:
            list(engine.stream(ask(SHORT, voice_engine="natural"), setup.prompt()))
        except EngineStalled as error:
            failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    check_sound(speak(voice_engine="instant")[2])
    reader.join(60)
    assert len(failures) == 1 and lane.pid != hung
    assert np.array_equal(speak()[2], expected)


def test_a_process_that_cannot_come_back_leaves_the_instant_voice_until_it_can(monkeypatch):
    engine = setup.engine()
    expected = speak()[2]
    stream = engine.stream(
        ask("走吧。我们走吧，大家一起走吧。", voice_engine="natural"), setup.prompt()
    )
    next(stream)
    with monkeypatch.context() as patched:
        patched.setattr(lane_module.sys, "executable", "/bin/false")
        os.kill(engine.natural.lanes[0].pid, signal.SIGKILL)
        with pytest.raises(EngineFault):
            list(stream)
        assert engine.health().state == "ready" and engine.natural.health().state == "broken"
        spoke, [note], sound = speak(voice_engine="natural")
        assert spoke == "instant" and "natural voice" in note[0] and "built-in" not in note[0]
        check_sound(sound)
        spoke, _, sound = speak()
        assert spoke == "instant" and len(sound)
        engine.natural._preparing.submit(int).result(60)
        assert engine.natural.health().state == "broken", "it was tried again, and in vain"
        speak(), engine.natural._preparing.submit(int).result(60)
    assert engine.natural.health().state == "broken", "not at every request"
    monkeypatch.setattr(engine.natural, "_next_try_s", 0.0)
    speak()
    engine.natural._preparing.submit(int).result(60)
    assert engine.natural.health().state == "ready"
    assert np.array_equal(speak()[2], expected)


def damage(folder, name, change):
    part = folder / name / "part.bin"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"a part")
    if change == "missing":
        part.unlink()


@pytest.mark.parametrize(
    ("change", "code"), [("missing", "natural_missing"), ("damaged", "natural_damaged")]
)
def test_a_weight_part_that_is_missing_or_damaged_leaves_the_instant_voice(
    change, code, tmp_path, monkeypatch
):
    names = ("some_part_1", "some_part_2")
    damage(tmp_path, names[0], "")
    damage(tmp_path, names[1], change)
    monkeypatch.syspath_prepend(str(tmp_path))
    obtain = lanes_module.weights.obtain
    monkeypatch.setattr(lanes_module.weights, "obtain", lambda folders: obtain(folders, names))
    with pytest.raises(NotReady) as refused:
        lanes_module.weights.obtain([tmp_path / "made"])
    assert refused.value.code == code
    natural = NaturalLanes([tmp_path / "made"], 1)
    try:
        natural.start()
        assert natural.health().state == "broken" and not natural.lanes
        assert natural.note() == (refused.value.en, refused.value.zh)
        chosen, notes = natural.choose(replace(ask(SHORT), voice_engine="natural"))
        assert chosen == "instant" and notes == [natural.note()]
    finally:
        natural.close()
