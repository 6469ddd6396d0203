"""The CosyVoice2 engine on a small random model directory: the contract, the modes, equality of
requests, what is computed and what is freed.
"""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from scripts.make_small_model import make
from tests.engine.contract import EngineContract, ask, hum_reference, whole
from tests.engine.tensors import tensors_kept, voices_kept
from webui.engine.cosyvoice.engine import CosyVoiceEngine
from webui.errors import Cancelled

RATE = 16000


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return make(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def shared_engine(root):
    torch.set_num_threads(1)
    engine = CosyVoiceEngine(root)
    engine.start()
    torch.set_num_threads(1)
    yield engine
    engine.close()


@pytest.fixture
def engine(shared_engine):
    return shared_engine


@pytest.fixture(scope="module")
def reference():
    return hum_reference()


@pytest.fixture(scope="module")
def prompt(shared_engine, reference):
    return shared_engine.encode(*reference)


class TestCosyVoice(EngineContract):
    def stored_prompts(self, engine):
        return voices_kept()


def test_the_tensors_of_a_forgotten_voice_are_gone(engine, prompt):
    engine.forget(prompt.fingerprint)
    before = tensors_kept()
    for id in ("one", "two", "three"):
        whole(engine.stream(ask(id=id), prompt))
        with_it = tensors_kept()
        engine.forget(prompt.fingerprint)
        after = tensors_kept()
        assert with_it[0] - after[0] > 100 and with_it[1] - after[1] > 2 << 20
        assert after[0] <= before[0] + 8 and after[1] <= before[1] + 65536, (
            "what a stage has in hand between its turns, whoever spoke last"
        )


def test_modes_differ_and_each_repeats_itself(engine, prompt):
    sound = {}
    for mode, more in {
        "zero_shot": {"transcript": "hello there"},
        "cross_lingual": {},
        "instruct": {"instruction": "speak happily"},
    }.items():
        sound[mode] = whole(engine.stream(ask(mode=mode, **more), prompt))
        assert np.array_equal(sound[mode], whole(engine.stream(ask(mode=mode, **more), prompt)))
    assert len({s.tobytes() for s in sound.values()}) == 3
    assert (
        whole(engine.stream(ask(mode="instruct", instruction="speak sadly"), prompt)).tobytes()
        != sound["instruct"].tobytes()
    )


def test_presets_and_conversion(engine, prompt, reference):
    names = engine.describe().presets
    assert names
    for name in names:
        assert len(whole(engine.stream(ask(mode="preset"), engine.preset(name))))
    samples = whole(engine.convert(ask(), prompt, *reference[:2]))
    assert abs(len(samples) / 24000 - len(reference[0]) / RATE) < 0.1


def test_request_50_is_request_1_and_a_voice_is_made_once(engine, prompt):
    first = whole(engine.stream(ask(), prompt))
    n_encoded = engine._voices.n_made
    for n in range(12):
        whole(engine.stream(ask(id=f"n{n}", seed=n, text="Hi.", segments=("Hi.",)), prompt))
    assert (
        np.array_equal(whole(engine.stream(ask(), prompt)), first)
        and engine._voices.n_made == n_encoded
    )


def test_cancel_from_another_thread_ends_a_long_step(engine, prompt):
    long = ask(id="long", segments=("word " * 300,))
    stream = engine.stream(long, prompt)
    next(stream)
    threading.Timer(0.05, engine.cancel, ("long",)).start()
    with pytest.raises(Cancelled):
        for _ in stream:
            pass
    assert "long" not in engine._running


def test_frames_computed_per_frame_emitted(engine, prompt):
    """Counted, not timed: the voice's state is kept and its prompt ends on a block, so every frame
    is computed once and none besides.
    """
    stream = engine.stream(
        ask(id="count", segments=("one two three four five six seven eight nine ten " * 3,)), prompt
    )
    next(stream)
    utterance = engine._running["count"]
    list(stream)
    assert utterance.emitted_frames > 4 * 2 * engine._require_model().flow.dims.chunk_size
    assert utterance.computed_frames == utterance.emitted_frames


def test_text_that_arrives_piece_by_piece_is_spoken_before_it_ends(engine, prompt):
    words_read = []

    def pieces():
        for word in ["One", " two", " three", " four"] * 8:
            words_read.append(word)
            yield word

    stream = engine.stream_text(ask(id="arriving", mode="cross_lingual"), prompt, pieces())
    next(stream)
    early = len(words_read)
    assert early < 32, "the first sound came before the text had ended"
    first = [c.samples for c in stream]
    assert len(words_read) == 32 and first
    second_chunks = list(
        engine.stream_text(
            ask(id="again", mode="cross_lingual"),
            prompt,
            iter(["One", " two", " three", " four"] * 8),
        )
    )
    assert np.array_equal(whole(second_chunks)[-len(first[-1]) :], first[-1])


@pytest.mark.parametrize("text", ["ᚠᚢᚦᚨᚱᚲ ᚷᚹ", "𓀀𓀁𓀂", "ꦲꦏ꧀ꦱꦫ", "a" * 600])
def test_scripts_the_tokenizer_has_never_seen_and_words_without_an_end_still_end(
    engine, prompt, text
):
    chunks = list(engine.stream(ask(id="odd", text=text, segments=(text[:60],)), prompt))
    assert chunks[-1].last and np.isfinite(whole(chunks)).all()


def test_a_transcript_that_hardly_fits_its_clip_is_warned_of_and_spoken(engine, prompt):
    much = ask(id="misfit", mode="zero_shot", transcript="far too many words for a clip " * 10)
    [(en, zh)] = engine.check(much, prompt)
    assert "says more" in en and "说的多" in zh
    assert list(engine.stream(much, prompt))[-1].last
    assert engine.check(ask(mode="zero_shot", transcript="hello there, this is it"), prompt) == []


@pytest.mark.parametrize(
    ("seconds", "level", "code"),
    [(31, 0.1, "too_long"), (0.3, 0.1, "too_short"), (4, 0.0, "silent")],
)
def test_references_it_cannot_use(engine, seconds, level, code):
    from webui.errors import BadInput

    samples = (level * np.sin(np.arange(int(seconds * RATE)) / 9)).astype(np.float32)
    with pytest.raises(BadInput) as error:
        engine.encode(samples, RATE, "", "en")
    assert error.value.code == code


def test_a_voice_of_another_generation_is_refused_by_name(engine, prompt):
    from webui.errors import EngineFault

    with pytest.raises(EngineFault) as error:
        next(engine.stream(ask(), replace(prompt, engine="cosyvoice3")))
    assert error.value.code == "voice_other_engine" and "cosyvoice3" in error.value.zh


def test_settings_that_change_the_sound_are_part_of_the_version(root, prompt, engine):
    other = CosyVoiceEngine(root, profile="ttfa", steps=5, first_hop=10, threads=1)
    other.start()
    try:
        torch.set_num_threads(1)
        usual, plus, place = engine.version.partition("+")
        assert other.version == f"{usual}-5-10-ttfa{plus}{place}" and other.describe().speed > 0
        assert other.prompt_version == engine.prompt_version == prompt.version
        stream = other.stream(ask(id="five"), prompt)
        assert len(next(stream).samples) == (2 * 10 - 8) * 480, (
            "ten ids, less what the vocoder holds back of them"
        )
        assert not np.array_equal(whole(stream)[:1000], whole(engine.stream(ask(), prompt))[:1000])
    finally:
        other.close()
    assert other.health().state == "broken"


@pytest.mark.parametrize(
    "wrong", [{"profile": "fastest"}, {"steps": 6}, {"first_hop": 12}, {"precision": "int3"}]
)
def test_settings_there_are_none_of_are_refused_by_name(root, wrong):
    from webui.errors import NotReady

    with pytest.raises(NotReady) as error:
        CosyVoiceEngine(root, **wrong).start()
    assert error.value.zh
