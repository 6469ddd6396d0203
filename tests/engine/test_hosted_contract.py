"""An engine in a process of its own keeps the contract of every engine: the tone engine, and
CosyVoice2 with small random weights.
"""

import numpy as np
import pytest

from tests.engine.contract import EngineContract, ask, hum_reference, tone_reference
from tests.engine.fake import RATE
from tests.engine.hosted_child import KEPT
from webui.engine.remote import RemoteEngine
from webui.engine.remote.protocol import key_of


@pytest.fixture(scope="module")
def tone():
    engine = RemoteEngine("wild", {"lanes": 3}, program="tests.engine.hosted_child")
    engine.start()
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def cosyvoice(small_model):
    engine = RemoteEngine(
        "calm cosyvoice2",
        {"root": str(small_model), "device": "cpu"},
        program="tests.engine.hosted_child",
    )
    engine.start()
    yield engine
    engine.close()


class TestHostedFake(EngineContract):
    def stored_prompts(self, engine):
        return engine.notes(ask(instruction=KEPT))

    @pytest.fixture
    def engine(self, tone):
        return tone

    @pytest.fixture
    def reference(self):
        return tone_reference()

    @pytest.fixture
    def prompt(self, engine, reference):
        return engine.encode(*reference)


class TestHostedCosyVoice(EngineContract):
    def stored_prompts(self, engine):
        return engine.notes(ask(instruction=KEPT))

    @pytest.fixture
    def engine(self, cosyvoice):
        return cosyvoice

    @pytest.fixture
    def reference(self):
        return hum_reference()

    @pytest.fixture
    def prompt(self, engine, reference):
        return engine.encode(*reference)


def test_what_was_sent_for_a_forgotten_voice_is_gone_on_both_sides_and_sent_again_when_it_speaks(
    tone,
):
    samples = np.sin(np.arange(RATE * 4) / 20).astype(np.float32)
    prompt, other = tone.encode(samples, RATE, "", "en"), tone.encode(samples / 2, RATE, "", "en")
    for encoded in (prompt, other):
        list(tone.stream(ask(), encoded))
    tone.forget(prompt.fingerprint)
    assert set(tone._life._voices) == {key_of(other)}
    assert len(list(tone.stream(ask(), prompt))) and set(tone._life._voices) == {
        key_of(prompt),
        key_of(other),
    }
    for encoded in (prompt, other):
        tone.forget(encoded.fingerprint)


def test_text_that_is_still_arriving_reaches_the_model(cosyvoice):
    from tests.engine.contract import whole

    prompt = cosyvoice.preset(cosyvoice.describe().presets[0])
    words, words_read = ["One", " two", " three", " four"] * 8, []

    def pieces():
        for word in words:
            words_read.append(word)
            yield word

    stream = cosyvoice.stream_text(ask(mode="cross_lingual"), prompt, pieces())
    first = next(stream)
    assert len(words_read) < len(words), "the first sound came before the text had ended"
    sound = whole([first, *stream])
    assert len(words_read) == len(words) and np.array_equal(
        sound,
        whole(cosyvoice.stream_text(ask(id="again", mode="cross_lingual"), prompt, iter(words))),
    )
