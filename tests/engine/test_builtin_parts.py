"""The parts of the built-in voice, in this process: scripts, instructions, frames, profiles, and
eSpeak's memory of earlier utterances.
"""

from __future__ import annotations

import gc
import itertools
import weakref
from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine import builtin_setup as setup
from tests.engine.builtin_setup import clip
from webui.engine.espeak import EspeakEngine, cannot_read, understood
from webui.engine.espeak.instructions import STYLES, read
from webui.engine.espeak.mandarin import contours, recolour
from webui.engine.espeak.speech_analysis import _smooth as smooth
from webui.engine.espeak.speech_analysis import emphasised, envelope, smoothing
from webui.engine.espeak.text_plan import MAX_NARROW, clean, plan, speakable
from webui.engine.espeak.vocoder import minimum_phase
from webui.engine.espeak.voice_profile import listen, track_pitch
from webui.types import SpeechRequest


def voices(text, language="auto"):
    return [u.tag for u in plan(text, language)]


def test_scripts_go_to_their_voices():
    assert (
        voices("今天很好。") == ["zh"]
        and voices("今天很好。", "yue") == ["yue"]
        and voices("Good day.") == ["en"]
    )
    assert (
        voices("おはよう") == ["ja"]
        and voices("안녕") == ["ko"]
        and voices("Привет") == ["ru"]
        and voices("Bonjour", "fr") == ["fr"]
    )
    assert voices("我爱 Python 语言") == ["zh"]  # its voice reads English by itself
    assert (
        voices("안녕 hello") == ["ko", "en"]
        and voices("12345", "zh") == ["zh"]
        and voices("12345") == ["en"]
    )


def test_kanji_become_kana_where_a_converter_is_and_are_owned_up_to_where_not():
    assert [
        (u.tag, u.text)
        for u in plan("東京へいく", to_kana=lambda t: t.replace("東京", "とうきょう"))
    ] == [("ja", "とうきょうへいく")]
    assert voices("東京へいく") == ["zh", "ja"] and voices("東京", "ja") == ["zh"]
    assert (
        cannot_read("東京へいく")
        and cannot_read("東京", "ja")
        and not cannot_read("東京へいく", to_kana=True)
    )
    assert not cannot_read("今天很好") and not cannot_read("おはよう")


def test_a_mark_that_would_be_read_aloud_is_told_and_one_that_is_passed_over_is_not():
    engine = EspeakEngine(1)
    notes = engine.notes(SpeechRequest("r", "Hello [giggle] there [laughter], [giggle].", "v"))
    assert [en for en, _ in notes] == [
        "Unknown tag [giggle]: it would be read aloud."
    ] and "[giggle]" in notes[0][1]
    assert engine.notes(SpeechRequest("r", "Hello there [laughter].", "v")) == []
    engine.close()


def test_sentences_are_parted_and_numbers_are_not():
    assert [u.text for u in plan("It is 3.14, or so. Yes? No!")] == [
        "It is 3.14, or so.",
        "Yes?",
        "No!",
    ]
    assert [u.text for u in plan("好。真的？“当然。”他说。")] == [
        "好。",
        "真的？",
        "“当然。”",
        "他说。",
    ]
    assert plan("你好。")[0].pause_s > plan("안녕 hello")[0].pause_s


def test_escapes_and_names_of_symbols_are_kept_from_espeak():
    assert "[[" not in clean("[[[a]]") and clean("a\x00b\x1b😀c\u200d") == "ab c"
    assert plan("😀") == [] and plan("...") == [] and plan("") == []


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=400))
def test_any_text_gives_bounded_speakable_utterances_and_loses_no_letter(text):
    plans = plan(text)
    assert all(
        u.text
        and speakable(u.text)
        and len(u.text) <= MAX_NARROW
        and u.pause_s >= 0
        and "[[" not in u.text
        for u in plans
    )
    assert [c for c in clean(text) if c.isalnum()] == [
        c for u in plans for c in u.text if c.isalnum()
    ]


def test_instructions_in_both_languages_with_intensity_and_negation():
    assert understood("用四川话开心地说")[0] == ["sichuan", "happy"] and understood(
        "speak slowly and sadly"
    )[0] == ["sad", "slow"]
    assert (
        understood("")[0] == []
        and understood("不要太快")[0] == []
        and understood("don't whisper")[0] == []
    )
    plain, a_little, very = (read(x).pitch_st for x in ("开心地说", "有点开心地说", "非常开心地说"))
    assert 0 < a_little < plain < very
    assert (
        read("whisper").whisper
        and read("耳语").whisper
        and read("slowly").rate < 1 < read("快速").rate
    )
    assert {k for k in STYLES if k not in {"yue"}} >= {"sichuan", "happy", "whisper", "news"}


@pytest.mark.parametrize(
    "words", ["I hope you enjoy the crusade", "a breakfast flow", "unafraid and inquisitive"]
)
def test_a_word_inside_another_is_no_instruction(words):
    assert understood(words)[0] == [] and read(words) == read("")


def test_every_style_key_is_reachable_and_does_something():
    chips = {
        "sichuan": "四川话", "yue": "粤语", "dongbei": "东北话", "tianjin": "天津话",
        "henan": "河南话", "shaanxi": "陕西话", "shandong": "山东话",
        "happy": "开心", "sad": "悲伤", "angry": "生气", "calm": "平静", "surprise": "惊讶",
        "fear": "害怕", "gentle": "温柔", "whisper": "耳语",
        "fast": "快速", "slow": "慢速", "news": "新闻播报", "story": "讲故事",
    }  # fmt: skip
    assert set(chips) == set(STYLES)
    for key, words in chips.items():
        assert key in understood(words)[0] and read(words) != read("")


def test_it_says_what_it_cannot():
    for words in (
        "唱一首歌",
        "sing a song",
        "用上海话说",
        "模仿机器人",
        "laugh out loud",
        "qwertz",
    ):
        sentences = understood(words)[1]
        assert sentences and all(en.endswith(".") and zh.endswith("。") for en, zh in sentences)
    assert understood("开心")[1] == [] and understood("四川话")[1]


def test_the_envelope_shows_formants_and_not_the_pulses():
    rate, f0 = 24000, 200.0
    pulses = np.zeros(rate, np.float32)
    pulses[:: int(rate / f0)] = 1.0
    log_power = envelope(
        emphasised(pulses),
        np.arange(6000, 18000, 240),
        np.full(50, f0, np.float32),
        smoothing(rate, 512),
    )
    assert np.ptp(log_power[:, 10:240]) * 4.343 < 1.0  # a flat source has a flat envelope


def test_the_mean_over_two_thirds_of_the_pitch_is_that_of_the_area_under_the_lines():
    rng = np.random.default_rng(3)
    power, half = (
        rng.random((5, 257)).astype(np.float32),
        np.array([1.0, 1.3, 1.5, 2.75, 4.4], np.float32),
    )
    fine = np.repeat(
        np.pad(power.astype(np.float64), ((0, 0), (8, 8)), "reflect"), 1000, axis=1
    )  # bins as steps a thousand samples wide
    area = np.concatenate((np.zeros((5, 1)), np.cumsum(fine, axis=1)), axis=1)
    middles = (np.arange(257) + 8) * 1000 + 500
    reach = np.round(1000 * half).astype(int)[:, None]
    expected = (
        np.take_along_axis(area, middles + reach, 1) - np.take_along_axis(area, middles - reach, 1)
    ) / (2 * reach)
    assert np.allclose(smooth(power, half), expected, rtol=1e-4)
    assert np.array_equal(smooth(power, half)[:2], smooth(power[:2], half[:2])), (
        "a frame does not depend on those beside it"
    )


def test_the_minimum_phase_is_that_of_a_known_filter():
    z = np.exp(-2j * np.pi * np.arange(257) / 512)
    response = (1 - 0.6 * z) / (
        1 - 0.5 * z + 0.3 * z**2
    )  # zeros and poles within the circle: minimum phase by itself
    phase = minimum_phase(np.log(np.abs(response[None]) ** 2).astype(np.float32))
    assert np.abs(phase - np.angle(response)).max() < 1e-4


@pytest.mark.parametrize("hz", [75.0, 120.0, 240.0, 420.0])
def test_pitch_is_found_over_the_range_of_speakers(hz):
    t = np.arange(16000) / 8000
    x = sum(np.sin(2 * np.pi * hz * k * t) / k for k in range(1, int(3500 / hz))).astype(np.float32)
    f0, _ = track_pitch(x, np.arange(100, 300) * 0.005)
    assert np.median(np.abs(12 * np.log2(f0 / hz))) < 0.1


def test_profile_reads_what_the_starters_were_made_with():
    for name, hz in (("starter-en-low", 98), ("starter-zh-high", 236), ("starter-zh-breathy", 188)):
        assert abs(12 * np.log2(np.exp(listen(*clip(name)).log_f0) / hz)) < 0.5
    breathy, clear = (
        listen(*clip(n)).breathiness[40:200].mean()
        for n in ("starter-zh-breathy", "starter-en-low")
    )
    assert listen(*clip("starter-zh-high")).rms == pytest.approx(0.1, rel=0.2) and breathy > clear


@pytest.fixture
def speaker():
    return setup.speaker()


def test_common_letters_that_espeak_lacks_are_read(speaker):
    for letter in "熊兄胸穷琼凶雄窘炯囧兒":
        assert not any(
            name == "(en)" for name, _ in speaker.say("zh", 160, f"大{letter}，").phonemes
        )
    assert [n for n, _ in speaker.say("zh", 160, "[熊]").phonemes if "ong" in n]


def test_every_syllable_of_a_dialect_gets_its_tone(speaker):
    text = "雄伟的熊猫妈妈今天买了很多东西。"
    tones = contours(
        speaker.spelled("zh", 160, text), speaker.say("zh", 160, text).phonemes, "tianjin"
    )
    assert [
        "".join(str(int(x)) for x in levels) for _, _, levels in tones
    ] == "45 213 2 45 21 21 2 21 21 213 2 213 21 21 21".split()
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(tones))
    high = recolour(
        np.full(100, 200.0), np.arange(100.0), [(20, 60, np.array([5.0, 5.0]))], np.log(200.0), 0.1
    )
    assert high[40] == pytest.approx(200 * np.exp(0.16), rel=1e-3) and high[90] == pytest.approx(
        200.0, rel=1e-3
    )


def test_blocks_sound_like_the_whole(speaker):
    from webui.engine.espeak.base_voices import base_voice
    from webui.engine.espeak.speech_stream import SpeechOrder, Stream, Voice
    from webui.engine.espeak.voice_mapping import neutral

    profile, mapping = neutral(base_voice(speaker, "en")[0])
    outputs = []
    for sizes in ((0.24, 0.4, 0.8), (60.0,)):
        stream, pieces, last = (
            Stream(
                speaker,
                Voice(profile, {"en": mapping}),
                SpeechOrder(("The old clock struck nine before anyone spoke.",), "en", 1.0, 3, ""),
                sizes,
            ),
            [],
            False,
        )
        while not last:
            samples, _, last, _ = stream.step()
            pieces.append(samples)
        outputs.append(np.concatenate(pieces))
    assert (
        len(outputs[0]) == len(outputs[1])
        and np.abs(outputs[0] - outputs[1]).max() < 0.1 * np.abs(outputs[1]).max()
    )
    assert np.corrcoef(*outputs)[0, 1] > 0.995


def test_a_stream_that_is_over_or_let_go_is_free_at_once(speaker):
    """Without a collector's help: megabytes of frames in a few objects are nothing that one hurries
    for.
    """
    from webui.engine.espeak.base_voices import base_voice
    from webui.engine.espeak.speech_stream import Voice
    from webui.engine.espeak.voice_mapping import neutral
    from webui.engine.espeak.worker import Worker

    profile, mapping = neutral(base_voice(speaker, "en")[0])
    worker = object.__new__(Worker)  # eSpeak is loaded once in a process
    worker._speaker, worker._voices, worker._streams = (
        speaker,
        OrderedDict(v=Voice(profile, {"en": mapping})),
        {},
    )
    order = {
        "segments": ["Nine o'clock."],
        "language": "en",
        "speed": 1.0,
        "seed": 3,
        "instruction": "",
    }
    gc.collect()
    gc.disable()
    try:
        stream_refs = []
        for number in (1, 2):
            answer, _ = worker.answer(
                {"op": "step", "stream": number, "voice": "v", "open": order}, bytearray()
            )
            stream_refs.append(weakref.ref(worker._streams[number]))
            while number == 1 and not answer["last"]:
                answer, _ = worker.answer({"op": "step", "stream": number}, bytearray())
        worker.answer({"op": "drop", "drop": [2]}, bytearray())
        assert [ref() for ref in stream_refs] == [None, None] and not worker._streams
    finally:
        gc.enable()


def test_a_long_step_ends_in_time_on_a_slow_machine(speaker, monkeypatch):
    from webui.engine.espeak import worker as module
    from webui.engine.espeak.base_voices import base_voice
    from webui.engine.espeak.speech_stream import Voice
    from webui.engine.espeak.voice_mapping import neutral

    profile, mapping = neutral(base_voice(speaker, "en")[0])
    worker = object.__new__(module.Worker)
    worker._speaker, worker._voices, worker._streams, worker._bell = (
        speaker,
        OrderedDict(v=Voice(profile, {"en": mapping})),
        {},
        None,
    )
    order = {
        "segments": ["The old clock struck nine before anyone spoke."],
        "language": "en",
        "speed": 1.0,
        "seed": 3,
        "instruction": "",
        "at_once": True,
    }

    def steps(number: int) -> int:
        answer, n = (
            worker.answer(
                {"op": "step", "stream": number, "voice": "v", "open": order, "most": 1 << 20},
                bytearray(),
            )[0],
            1,
        )
        while not answer["last"]:
            answer, n = (
                worker.answer({"op": "step", "stream": number, "most": 1 << 20}, bytearray())[0],
                n + 1,
            )
        return n

    monkeypatch.setattr(module, "LONGEST_STEP_S", 3600.0)
    assert steps(1) == 1
    monkeypatch.setattr(module, "LONGEST_STEP_S", 0.0)
    assert steps(2) > 3


def test_what_was_said_before_leaves_no_trace_in_espeak(speaker):
    reference = {
        t: speaker.say(*t).samples
        for t in [
            ("en", 160, "Eight quick foxes; a lazy dog?"),
            ("zh", 150, "你去哪里，我也去。"),
            ("ja", 170, "そうですね。"),
            ("ru", 166, "Привет, мир! Как дела?"),
        ]
    }
    for order in (("zh", "en", "ja"), ("ru", "ja", "zh"), ("en", "en", "ru"), ("zh", "ru", "ru")):
        for tag in order:
            speaker.say(tag, 220, "12 3 4 五", limit_samples=3000)
            speaker.spelled(tag, 220, "12 3 4 五")
            t = next(k for k in reference if k[0] == tag)
            assert np.array_equal(speaker.say(*t).samples, reference[t])
            cut = speaker.say(*t, limit_samples=9000)
            assert not cut.whole and np.array_equal(cut.samples, reference[t][: len(cut.samples)])
