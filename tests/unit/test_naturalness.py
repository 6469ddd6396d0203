"""What measure_naturalness.py makes of its meters' readings: shares, tones, the table, and what it
refuses. No meter is loaded here.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile

from scripts import measure_naturalness as script
from scripts.naturalness import meters, readings
from scripts.naturalness.figures import ROWS, Figure, Score, figures, missed, share, table
from scripts.naturalness.sentences import SENTENCES, Utterance, utterance_of
from scripts.naturalness.tones import F0_STEP_MS, Tone, separation, tones_of
from tests.conftest import ROOT
from webui.errors import EngineStalled, NotReady
from webui.types import Chunk

SHAPES = {1: (3.0, 0.0), 2: (-2.0, 4.0), 3: (-6.0, -1.0), 4: (1.0, -5.0)}


def shaped(tone, shift=0.0, scale=1.0):
    level, move = SHAPES[tone]
    return Tone(tone, scale * (level + shift), scale * (move + shift))


# ---- tones ----
def test_tones_that_are_apart_are_all_told_apart_however_wide_the_pitch():
    for scale in (0.1, 1.0, 10.0):
        tones = [shaped(t, shift, scale) for t in SHAPES for shift in (-0.2, 0.0, 0.2)]
        assert separation(tones) == (12, 12)


def test_a_syllable_that_sounds_like_another_tone_is_not_found():
    tones = [shaped(t, shift) for t in SHAPES for shift in (-0.2, 0.0, 0.2)]
    tones.append(Tone(1, *SHAPES[4]))
    assert separation(tones) == (12, 13)


def test_a_syllable_does_not_speak_for_itself():
    """The only one of its tone has nothing of its own to be near to."""
    tones = [shaped(t, shift) for t in (1, 2) for shift in (0.0, 0.1)] + [shaped(3)]
    assert separation(tones) == (4, 5)
    assert separation([shaped(1)]) == (0, 1)
    assert separation([]) == (0, 0)


def test_tones_that_are_all_alike_are_found_by_chance():
    rng = np.random.default_rng(3)
    tones = [Tone(t, *rng.normal(size=2)) for t in SHAPES for _ in range(100)]
    right, n = separation(tones)
    assert right / n < 0.35


def test_a_tone_is_how_high_and_which_way():
    frames = round(0.3 * 1000 / F0_STEP_MS)
    flat, rising = np.full(frames, 200.0), 200.0 * 2 ** np.linspace(0, 1, frames)
    f0 = np.concatenate((flat, np.zeros(frames), rising, flat, [200.0]))
    spans = [(1, 0.0, 0.3), (2, 0.6, 0.9), (3, 0.3, 0.6)]
    level, up = tones_of(f0, spans)
    assert (level.tone, up.tone) == (1, 2), "the silent one is left out"
    assert level.level_st == level.move_st == 0.0
    assert up.level_st == pytest.approx(6.0) and up.move_st == pytest.approx(8.0, abs=0.4)


def test_a_sound_without_a_voice_has_no_tones():
    assert tones_of(np.zeros(100), [(1, 0.0, 0.4)]) == []


# ---- shares, means, the speaker ----
def score_of(language, mos, own=0.8, other=0.5, **more):
    return Score("f", "a", language, mos, {"b": other, "a": own}, **more)


def test_the_right_speaker_is_the_nearest_reference():
    assert score_of("zh", 4.0).is_right
    assert not score_of("zh", 4.0, own=0.4).is_right


def test_figures_of_a_voice():
    voice_figures = figures(
        [
            score_of("zh", 4.0),
            score_of("zh", 3.0, own=0.4),
            score_of("en", 2.0, n_wrong=1, n_words=2),
            score_of("en", 2.5, n_wrong=1, n_words=8),
        ]
    )
    assert voice_figures["mos zh"].value == 3.5 and voice_figures["lowest mos zh"].value == 3.0
    assert voice_figures["mos en"].value == 2.25 and voice_figures["lowest mos en"].value == 2.0
    assert voice_figures["right zh"] == Figure(0.5, 2) and voice_figures["right en"] == Figure(
        1.0, 2
    )
    assert voice_figures["similarity zh"].value == pytest.approx(0.6)
    assert voice_figures["others zh"].value == pytest.approx(0.5)
    assert voice_figures["word error en"] == Figure(0.2, 10), (
        "of all words, not the sentences' mean"
    )
    assert "word error zh" not in voice_figures and "tones zh" not in voice_figures


def test_tones_are_compared_within_a_voice():
    """Two voices in which the same place means different tones: apart they are clear, together they
    would not be.
    """
    mirrored = {1: 4, 4: 1, 2: 3, 3: 2}
    shifts = (-0.1, 0.0, 0.1)
    first = [shaped(t, s) for t in SHAPES for s in shifts]
    second = [Tone(mirrored[t.tone], t.level_st, t.move_st) for t in first]
    voices = [Score("f", name, "zh", tones=tones) for name, tones in (("a", first), ("b", second))]
    assert figures(voices)["tones zh"] == Figure(1.0, 24)
    assert figures([Score("f", "a", "zh", tones=first + second)])["tones zh"].value < 0.6


def test_nothing_measured_gives_no_figure():
    assert figures([]) == {} and figures([Score("f", "a", "zh")]) == {}
    assert share(0, 0) == Figure(None) and Figure(None).words() == "-"


# ---- the table ----
def test_the_table_says_what_is_missed_and_only_of_the_natural_voice():
    natural = {"mos zh": Figure(4.1), "mos en": Figure(4.0), "word error en": share(7, 100)}
    lines = table({"instant": {"mos zh": Figure(2.0)}, "natural": natural})
    assert [line for line in lines if "MISSED" in line] == [lines[1], lines[3]]
    assert "2.000" in lines[1] and "4.100" in lines[1] and ">= 4.2" in lines[1]
    assert lines[2].endswith("ok") and " - " in lines[2]
    assert "0.070 (7/100)" in lines[3]
    assert len(lines) == 4, "no row for what was not measured"
    assert missed(natural) == ["mos zh", "word error en"]
    assert not any(">=" in line for line in table({"instant": {"mos zh": Figure(2.0)}}))


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("mos zh", 4.2, 4.199),
        ("mos en", 4.0, 3.99),
        ("lowest mos zh", 3.4, 3.39),
        ("lowest mos en", 3.4, 3.39),
        ("right zh", 38 / 48, 37 / 48),
        ("right en", 19 / 24, 18 / 24),
        ("word error en", 0.06, 0.061),
        ("tones zh", 0.62, 0.619),
        ("pinyin", 0.97, 0.969),
    ],
)
def test_what_is_required(key, good, bad):
    assert missed({key: Figure(good)}) == [] and missed({key: Figure(bad)}) == [key]


def test_a_figure_that_was_not_measured_is_not_missed():
    assert missed({row.key: Figure(None) for row in ROWS}) == []


# ---- what is said ----
def test_sentences_are_ordinary_in_length_and_their_files_have_names():
    for language, texts in SENTENCES.items():
        assert len(texts) == 8
        for number, text in enumerate(texts):
            utterance = Utterance("starter-zh-low", language, number)
            assert utterance_of(utterance.file) == utterance and utterance.text == text
    assert all(10 <= sum(map(len, readings.HAN_RUN.findall(t))) <= 25 for t in SENTENCES["zh"])
    for name in ("a.wav", "a__zh__8.wav", "a__de__1.wav", "a__zh__1.mp3"):
        assert utterance_of(name) is None


def test_the_references_are_six_and_in_turn():
    references = script.references()
    assert [r.language for r in references] == ["zh", "en"] * 3
    assert all(r.transcript and r.samples.dtype == np.float32 for r in references)


class FakeEngine:
    def __init__(self, n_stalls=0):
        self.requests, self.n_stalls = [], n_stalls

    def describe(self):
        return SimpleNamespace(sample_rate=24000)

    def encode(self, samples, rate, transcript, language):
        return transcript, language, rate

    def stream(self, request, prompt):
        self.requests.append(request)
        for i in range(2):
            if i and len(self.requests) <= self.n_stalls:
                raise EngineStalled()
            yield Chunk(i, np.full(24000, 0.1 * (i + 1), np.float32), 24000 * i, 0, i == 1)

    def close(self):
        pass


def test_each_reference_says_each_sentence_as_the_page_would_ask_for_it():
    engine, speakers = FakeEngine(), script.references()[:2]
    utterances = list(script.speak_utterances(engine, "natural", speakers, 2))
    assert [u.file for u, _ in utterances][:4] == [
        f"starter-zh-high__{language}__{i}.wav" for language in ("zh", "en") for i in range(2)
    ]
    assert len(utterances) == 8 and len(utterances[0][1]) == 48000 and utterances[0][1][-1] > 0.15
    assert {r.voice_engine for r in engine.requests} == {"natural"}
    assert [r.mode for r in engine.requests[:3]] == ["zero_shot", "zero_shot", "cross_lingual"]
    assert all("".join(r.segments) for r in engine.requests)
    assert {r.language for r in engine.requests} == {"auto"}


def test_a_stalled_engine_is_asked_again_and_its_half_sound_is_thrown_away():
    speakers = script.references()[:1]
    (_, sound), _ = script.speak_utterances(engine := FakeEngine(script.TRIES - 1), "", speakers, 1)
    assert len(sound) == 48000 and len(engine.requests) == script.TRIES + 1
    with pytest.raises(EngineStalled):
        list(script.speak_utterances(FakeEngine(script.TRIES), "", speakers, 1))


# ---- the whole script, with meters that make up their readings ----
class FakeMeters:
    def __init__(self, names, references):
        self.names = list(references)

    def score(self, file, utterance, samples):
        mos = float(np.abs(samples).max() * 10)
        if utterance is None or utterance.reference not in self.names:
            return Score(file, language=utterance.language if utterance else "", mos=mos)
        similarity = {name: 0.5 + 0.1 * (name == utterance.reference) for name in self.names}
        return Score(file, utterance.reference, utterance.language, mos, similarity)


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr(script, "Meters", FakeMeters)
    engine = FakeEngine()
    monkeypatch.setattr(script, "builtin", lambda with_natural: engine)
    return engine


def test_the_whole_table_and_its_files(fake, tmp_path, capsys):
    options = ["--sentences", "1", "--references", "2", "--out", str(tmp_path / "out")]
    assert script.main([*options, "--json", str(tmp_path / "all.json")]) == 1, "2.0 is missed"
    out = capsys.readouterr().out
    assert "MISSED" in out and "pinyin" in out
    assert len(list((tmp_path / "out" / "natural").glob("*.wav"))) == 4
    report = json.loads((tmp_path / "all.json").read_text("utf-8"))
    assert set(report["figures"]) == {"natural", "instant"}
    assert report["figures"]["natural"]["right zh"] == {"value": 1.0, "n": 2}
    assert len(report["scores"]["instant"]) == 4
    sound, rate = soundfile.read(tmp_path / "out/natural/starter-zh-high__zh__0.wav")
    assert rate == 24000 and len(sound) == 48000


def test_only_the_instant_voice_misses_nothing(fake, capsys):
    assert script.main(["--engines", "instant", "--sentences", "1", "--references", "1"]) == 0
    assert {r.voice_engine for r in fake.requests} == {"instant"}
    assert "MISSED" not in capsys.readouterr().out


def write(folder, **levels):
    folder.mkdir()
    for name, level in levels.items():
        soundfile.write(folder / f"{name}.wav", np.full(16000, level), 16000, subtype="FLOAT")
    return str(folder)


def test_two_folders_are_compared_file_by_file(fake, tmp_path, capsys):
    before = write(tmp_path / "before", a__zh__0=0.4, a__en__0=0.3, other=0.2, lost=0.1)
    after = write(tmp_path / "after", a__zh__0=0.41, a__en__0=0.33, other=0.18)
    assert script.main(["--wavs", before, after]) == 0
    out = capsys.readouterr().out
    assert "mean +0.067" in out and "lowest -0.200 (other.wav)" in out and "1 of 3 lower" in out
    assert "+0.100" in out and "lost" not in out


@pytest.mark.parametrize("value", [(), ("same",)])
def test_folders_without_a_common_sound_are_refused(fake, tmp_path, capsys, value):
    folders = [write(tmp_path / "a", **dict.fromkeys(value, 0.1)), write(tmp_path / "b", b=0.1)]
    assert script.main(["--wavs", *folders]) == 2
    error = capsys.readouterr().err
    assert "wav" in error or "in common" in error
    assert "文件" in error


@pytest.mark.parametrize(
    "value",
    [
        ["--engines", "kokoro"], ["--engines", ","], ["--engines", ""], ["--meters", "ears"],
        ["--sentences", "0"], ["--sentences", "9"],
        ["--sentences", "two"], ["--sentences", "-1"], ["--references", "7"], ["--references", "²"],
        ["--model", "no/such/folder"],
        ["--json", "no/such/folder/a.json"], ["--wavs", "no/such/folder"],
        ["--wavs", "webui", "webui", "webui"],
        ["--wavs", "webui", "--engines", "instant"], ["--wavs"], ["extra"],
    ],
)  # fmt: skip
def test_bad_arguments_are_refused_before_anything_is_loaded(value, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit) as end:
        script.main(value)
    assert end.value.code == 2
    assert capsys.readouterr().err


# ---- packages that are not there ----
@pytest.mark.parametrize("package", ["distillmos", "resemblyzer", "pocketsphinx", "librosa"])
def test_a_missing_package_is_a_sentence_that_says_what_to_install(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    with pytest.raises(NotReady) as refused:
        meters.library(package)
    for sentence in (refused.value.en, refused.value.zh):
        assert package in sentence and "--no-deps -r requirements-meters.txt" in sentence
    assert (ROOT / "requirements-meters.txt").is_file()


def test_the_script_ends_with_the_sentence(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "distillmos", None)
    monkeypatch.setattr(script, "builtin", None)  # no voice is started for nothing
    had = sys.modules.get("torchaudio")
    assert script.main(["--engines", "instant"]) == 2
    error = capsys.readouterr().err
    assert "requirements-meters.txt" in error and "测量需要单独的依赖" in error
    assert sys.modules.get("torchaudio") is had, "the stand-in for it is gone again"
