"""Which of the built-in engine's two voices speaks: a property of the request, decided once.

No network, no worker.
"""

from __future__ import annotations

import errno

import pytest

from tests.engine import builtin_setup
from webui.engine.espeak import EspeakEngine
from webui.engine.natural import workers as module
from webui.engine.natural.workers import NaturalLanes
from webui.errors import BadInput, EngineFault, NotReady
from webui.messages import Message
from webui.types import Health, SpeechRequest


@pytest.fixture
def natural(tmp_path):
    lanes = NaturalLanes([tmp_path], 2)
    lanes._health, lanes.rtf = Health("ready"), 0.5
    return lanes


def request(text="你好，世界。", **settings):
    return SpeechRequest("r", text, "v", segments=(text,), **settings)


def test_it_is_the_default_when_it_is_there_and_fast_enough(natural):
    assert list(natural.voice_engines(0.02)) == ["natural", "instant"]
    assert natural.choose(request()) == ("natural", []) and natural.note() is None
    natural.rtf = 0.95
    assert list(natural.voice_engines(0.02).items()) == [("instant", 0.02), ("natural", 0.95)]
    assert natural.choose(request()) == ("instant", []) and natural.note()
    assert natural.choose(request(voice_engine="natural")) == ("natural", [])


@pytest.mark.parametrize(
    "params",
    [
        {"language": "ja", "text": "こんにちは"},
        {"language": "yue"},
        {"text": "Привет, мир."},
        {"text": "안녕하세요"},
        {"text": "สวัสดี"},
        {"mode": "instruct", "instruction": "用四川话说"},
        {"mode": "instruct", "instruction": "whisper, please"},
    ],
)
def test_what_it_cannot_say_is_left_to_the_instant_voice_with_a_note(natural, params):
    for voice_engine in ("", "natural"):
        chosen, notes = natural.choose(request(**params, voice_engine=voice_engine))
        assert chosen == "instant" and len(notes) == 1 and all(notes[0])
    assert natural.choose(request(**params, voice_engine="instant")) == ("instant", [])


@pytest.mark.parametrize("instruction", ["开心一点", "speak faster and louder", ""])
def test_simple_moods_are_no_reason_against_it(natural, instruction):
    assert natural.choose(request(mode="instruct", instruction=instruction)) == ("natural", [])


def test_while_it_loads_and_where_it_is_not_the_instant_voice_speaks(natural):
    natural._health = Health("starting", *module.STARTING)
    assert natural.choose(request()) == ("instant", [module.STARTING])
    with pytest.raises(NotReady) as wait:  # nobody listens: there is time to wait for it
        natural.choose(request(priority=10))
    assert wait.value.code == "natural_loading" and wait.value.zh
    for fields in ({"voice_engine": "instant"}, {"text": "こんにちは"}):
        assert natural.choose(request(priority=10, **fields))[0] == "instant"
    natural._health = Health("broken", "Gone.", "没了。")
    assert natural.choose(request()) == ("instant", []), "the panel says it, not every take"
    assert natural.choose(request(voice_engine="natural")) == ("instant", [("Gone.", "没了。")])
    assert list(natural.voice_engines()) == ["instant"] and natural.note() == ("Gone.", "没了。")


def test_its_state_and_its_note_say_what_the_page_shows(natural):
    assert (natural.state(), natural.note()) == ("ready", None)
    natural.rtf = 1.25
    assert natural.state() == "slow" and all("1.2 " in sentence for sentence in natural.note())
    natural._health = Health("broken", "Gone.", "没了。")
    assert natural.state() == "broken"
    absent_lanes = NaturalLanes([], 2)
    assert (absent_lanes.state(), absent_lanes.note()) == ("", None), (
        "left out by a setting: nothing to say"
    )


def test_samples_of_either_voice_have_a_version_of_their_own(tmp_path):
    engine = EspeakEngine(1, natural=[tmp_path])
    about = engine.describe()
    assert about.version_of("natural") == module.VERSION != about.version
    assert about.version_of("instant") == about.version_of("") == about.version
    assert module.VERSION.endswith("+fp32.cpu"), "what computes it is part of its version"
    engine.close()


def test_an_unknown_voice_engine_is_refused():
    with pytest.raises(BadInput):
        request(voice_engine="best")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (NotReady(Message("Sum.", "和。")), "Sum."),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "Cannot allocate memory"),
        (MemoryError(), "for want of memory"),
        (ImportError("libgomp.so.1"), "could not be started"),
        (EngineFault(), "could not be started"),
    ],
)
def test_a_failure_while_loading_is_a_sentence_and_the_engine_speaks_on(
    tmp_path, monkeypatch, error, words
):
    def fail(*_):
        raise error

    monkeypatch.setattr(module.weights, "obtain", fail)
    engine = EspeakEngine(1, natural=[tmp_path])
    try:
        engine.start()
        assert engine.natural.is_decided.wait(30)
        assert engine.health().state == "ready" and words in engine.describe().voice_note[0]
        settled, notes = engine.settle(request(voice_engine="natural"))
        assert settled.voice_engine == "instant" and words in notes[0][0] and notes[0][1]
        assert "instant voice" in notes[0][0] or words == "Sum."
        sound = builtin_setup.whole(engine.stream(settled, builtin_setup.prompt()))
        assert len(sound) > 5000
    finally:
        engine.close()


def test_a_worker_without_memory_for_the_network_says_so(tmp_path, monkeypatch):
    """As the loader tells it: an allocation that fails, and a file that is no graph."""
    from webui.engine.natural import network

    file = tmp_path / "graph.onnx"
    file.write_bytes(b"no graph at all")
    with pytest.raises(NotReady) as refused:
        network.Network(file)
    assert refused.value.code == "natural_unloadable"

    def fail(*_, **__):
        raise MemoryError

    monkeypatch.setattr(network, "_parts", lambda file, stack: tmp_path)
    monkeypatch.setattr(network.onnxruntime, "InferenceSession", fail)
    with pytest.raises(NotReady) as refused:
        network.Network(file)
    assert refused.value.code == "natural_unloadable" and refused.value.zh


def test_closing_while_it_loads_leaves_no_process(tmp_path, monkeypatch):
    natural = NaturalLanes([tmp_path], 1)
    started = []

    class Late:
        def __init__(self, **_):
            started.append(self)
            self.is_closed = False

        def start(self):
            natural.close()

        def ask(self, *_, **__):
            return {"rtf": 0.4}, b""

        def close(self):
            self.is_closed = True

    monkeypatch.setattr(module.weights, "obtain", lambda folders: tmp_path)
    monkeypatch.setattr(module, "WorkerConnection", Late)
    natural.start()
    assert [lane.is_closed for lane in started] == [True] and not natural.lanes
