"""What a Triton server asks of the engine, without the server: tests/engine/test_export_checks.py
has a real one.
"""

from __future__ import annotations

import json
from queue import SimpleQueue

import numpy as np
import pytest

from scripts import export
from tests.engine.fake import RATE, FakeEngine
from webui.cluster.triton import TritonSpeech, code_of
from webui.engine.remote.protocol import words_of_prompt
from webui.errors import Cancelled, StorageFull

CLIP = np.sin(np.arange(RATE * 2) / 20).astype(np.float32)
REFERENCE = {"rate": RATE, "transcript": "hello", "language": "en"}
WAIT_S, ROOM = 30, 8


class Responses:
    """A sender that keeps what it is given, in order. leaves_after: chunks until nobody waits."""

    def __init__(self, leaves_after: int = 1 << 30):
        self.queue, self.chunks, self.leaves_after = SimpleQueue(), [], leaves_after
        self.key = ""

    def is_gone(self):
        return len(self.chunks) >= self.leaves_after

    def chunk(self, chunk, rate, key):
        assert rate == RATE
        self.key = key
        self.chunks.append(chunk)
        if chunk.last:
            self.queue.put(None)

    def fail(self, error):
        self.queue.put(error)

    def end(self):
        """The error it ended with, or None."""
        return self.queue.get(timeout=WAIT_S)


@pytest.fixture
def engine():
    engine = FakeEngine(lanes=3)
    engine.start()
    yield engine
    engine.stop.set()


@pytest.fixture
def speech(engine):
    speech = TritonSpeech(engine, 30.0, ROOM)
    yield speech
    speech.close()


def ask(speech, request, body=b"", leaves_after=1 << 30, **opening):
    responses = Responses(leaves_after)
    speech.speak(json.dumps({"request": request, **opening}).encode(), body, responses)
    return responses


def whole(responses):
    assert responses.end() is None
    assert [chunk.number for chunk in responses.chunks] == list(range(len(responses.chunks)))
    return np.concatenate([chunk.samples for chunk in responses.chunks])


def tone(seconds, **more):
    return {"text": "Hello.", "instruction": f"seconds={seconds}", **more}


def test_streams_beside_each_other_are_those_of_the_engine(speech, engine):
    prompt = engine.encode(CLIP, RATE, "hello", "en")
    first = ask(speech, tone(1), CLIP.tobytes(), reference=REFERENCE)
    expected = whole(first)
    beside = [ask(speech, tone(1), key=first.key) for _ in range(3)]
    beside.append(ask(speech, tone(1), prompt.data, prompt=words_of_prompt(prompt)))
    for responses in beside:
        assert np.array_equal(whole(responses), expected)


def test_a_text_is_cut_as_the_studio_cuts_it(speech):
    """Numbers are read; the tone is as long as what is spoken has letters."""
    text = "We have 12 apples. They are red."
    responses = ask(speech, {"text": text}, CLIP.tobytes(), reference=REFERENCE)
    segments = "We have twelve apples." + "They are red."
    assert len(whole(responses)) == int(len(segments) * 0.15 * RATE)
    assert max(chunk.segment for chunk in responses.chunks) == 1


def test_nobody_puts_another_voice_in_the_place_of_one(speech, engine):
    """A prompt is known by its bytes, whatever its sender calls it."""
    voice = engine.encode(CLIP, RATE, "hello", "en")
    other = engine.encode(CLIP / 4, RATE, "hello", "en")
    expected = whole(ask(speech, tone(1), voice.data, prompt=words_of_prompt(voice)))
    false = words_of_prompt(other) | {"fingerprint": voice.fingerprint}
    assert not np.array_equal(whole(ask(speech, tone(1), other.data, prompt=false)), expected)
    assert voice.fingerprint not in engine.prompts and len(engine.prompts) == 2
    again = whole(ask(speech, tone(1), voice.data, prompt=words_of_prompt(voice)))
    assert np.array_equal(again, expected)


def test_whoever_leaves_ends_the_work_and_harms_nobody(speech, engine):
    left = ask(speech, tone(600), CLIP.tobytes(), leaves_after=2, reference=REFERENCE)
    error = left.end()
    assert isinstance(error, Cancelled) and code_of(error) == "CANCELLED"
    assert len(left.chunks) == 2
    assert len(whole(ask(speech, tone(1), key=left.key))) == RATE


FAULTS = {
    "no JSON": (b"{", b"", "bad_body", "INVALID_ARG"),
    "no object": (b"[]", b"", "bad_body", "INVALID_ARG"),
    "no voice": ({"request": tone(1)}, b"", "bad_body", "INVALID_ARG"),
    "a foreign field": ({"request": tone(1, colour=1)}, b"", "bad_body", "INVALID_ARG"),
    "a place before others": ({"request": tone(1, priority=-1)}, b"", "bad_body", "INVALID_ARG"),
    "a body of half a sample": (
        {"request": tone(1), "reference": REFERENCE}, b"123", "bad_body", "INVALID_ARG"),
    "a clip that is too short": (
        {"request": tone(1), "reference": REFERENCE}, b"1234", "too_short", "INVALID_ARG"),
    "an unknown key": ({"request": tone(1), "key": "x"}, b"", "not_found", "NOT_FOUND"),
    "a voice of another engine": (
        {"request": tone(1), "prompt": {"engine": "a", "version": "1", "fingerprint": "f"}}, b"",
        "voice_other_engine", "INVALID_ARG"),
    "no words": (
        {"request": tone(1, text="..."), "reference": REFERENCE}, b"", "no_text", "INVALID_ARG"),
    "too fast": (
        {"request": tone(1, speed=3.0), "reference": REFERENCE}, b"", "bad_speed", "INVALID_ARG"),
    "a fault of the engine": (
        {"request": tone(1, instruction="fail=0"), "reference": REFERENCE}, CLIP.tobytes(),
        "fault", "UNAVAILABLE"),
}  # fmt: skip


@pytest.mark.parametrize(("words", "body", "code", "triton_code"), FAULTS.values(), ids=FAULTS)
def test_what_cannot_be_spoken_ends_with_an_error_and_its_code(
    speech, words, body, code, triton_code
):
    responses = Responses()
    speech.speak(words if isinstance(words, bytes) else json.dumps(words).encode(), body, responses)
    error = responses.end()
    assert (error.code, code_of(error)) == (code, triton_code)
    assert len(whole(ask(speech, tone(1), CLIP.tobytes(), reference=REFERENCE))) == RATE


def test_one_stream_more_than_there_is_room_for_is_refused(speech):
    voice = ask(speech, tone(1), CLIP.tobytes(), reference=REFERENCE)
    whole(voice)
    stalled = tone(1, instruction="stall=0")
    responses = [ask(speech, stalled, key=voice.key) for _ in range(ROOM + 1)]
    refused = [answer.end() for answer in responses if not answer.queue.empty()]
    assert refused and {(e.code, code_of(e)) for e in refused} == {("busy", "UNAVAILABLE")}
    assert all(error.retry_after_s for error in refused)


def test_faults_of_this_side_are_internal():
    assert code_of(StorageFull("storage_denied.converted_weights", name="a", why="b")) == "INTERNAL"


def test_a_repository_is_written_and_every_line_of_it_is_looked_at(tmp_path, capsys):
    out = str(tmp_path)
    assert export.main(["triton", out, "--engine", "builtin", "--streams", "3"]) == 0
    config = tmp_path / "kaikou" / "config.pbtxt"
    config_text = config.read_text()
    assert "decoupled: true" in config_text and 'string_value: "--engine builtin"' in config_text
    flags = ["--engine", "builtin", "--streams", "3", "--check"]
    for damaged, sentence in (
        (config_text.replace("TYPE_FP32", "TYPE_FP16"), 'should be \'output { name: "PCM"'),
        (config_text.replace("optional: true ", ""), "differs in line 7"),
        (config_text + 'platform: "onnx"\n', "goes on behind line"),
        (config_text.replace('"3"', '"4"'), "differs in line"),
    ):
        config.write_text(damaged)
        assert export.main(["triton", out, *flags]) == 1
        assert sentence in capsys.readouterr().err
    config.write_text(config_text)
    (tmp_path / "kaikou" / "1" / "model.py").unlink()
    assert export.main(["triton", out, *flags]) == 1
    assert "has no kaikou/1/model.py" in capsys.readouterr().err
    assert export.main(["triton", out, "--model-dir", "a\nb"]) == 1
    assert "cannot be an argument" in capsys.readouterr().err


def test_flags_of_the_studio_are_for_a_repository_only(capsys):
    with pytest.raises(SystemExit):
        export.main(["stages", "a", "b", "--engine", "builtin"])
    assert "unrecognized" in capsys.readouterr().err
