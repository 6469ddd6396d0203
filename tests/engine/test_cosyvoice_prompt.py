"""A clip becomes a voice: aligned, repeatable, packed; unfit clips, transcripts and ONNX files get
their sentence.
"""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from webui.engine.cosyvoice.frontend.preset_speakers import read_speakers
from webui.engine.cosyvoice.frontend.prompt_encoder import (
    MAX_S,
    TAIL_S,
    PromptEncoder,
    PromptEncoderConfig,
    PromptFeatures,
    fit_notes,
)
from webui.engine.cosyvoice.frontend.tokenizer import TextTokenizer
from webui.errors import BadInput, EngineFault, NotReady

RATE = 24000
WORDS = "Hello there, this is it."


def clip(seconds: float, rate: int = RATE, seed: int = 0) -> np.ndarray:
    t = np.arange(int(seconds * rate)) / rate
    noise = np.random.default_rng(seed).normal(0, 0.02, len(t))
    return (
        0.3 * np.sin(2 * np.pi * (150 + 40 * np.sin(3 * t)) * t) * (np.sin(4 * t) > -0.5) + noise
    ).astype(np.float32)


@pytest.fixture(scope="module")
def maker(small_model):
    return PromptEncoder(small_model, TextTokenizer(small_model))


@pytest.mark.parametrize(
    "seconds,rate", [(1.0, 16000), (3.03, 24000), (2.517, 44100), (30.0, 16000), (2.0, 8000)]
)
def test_ids_and_mel_are_aligned(maker, seconds, rate):
    prompt = maker.make(clip(seconds, rate), rate, version="1")
    voice = PromptFeatures.unpack(prompt.data)
    n, heard_s = len(voice.speech_ids), min(seconds + TAIL_S, MAX_S)
    assert (
        heard_s * 25 - 2 <= n <= heard_s * 25
        and voice.mel.shape == (1, 2 * n, 80)
        and voice.vector.shape == (1, 192)
    )
    assert all(0 <= i < 6561 for i in voice.speech_ids) and len(set(voice.speech_ids)) > 3
    assert (prompt.engine, prompt.version) == ("cosyvoice2", "1") and voice.text_ids == ()
    assert prompt.notes == (("narrow_band",) if rate < 16000 else ())


def test_same_clip_same_voice_other_clip_other_voice(maker):
    a, b, c = (maker.make(clip(2, seed=s), RATE, WORDS) for s in (1, 1, 2))
    assert a == b and a.fingerprint != c.fingerprint


def test_the_transcript_is_kept_as_ids(maker, small_model):
    voice = maker.voice(clip(3), RATE, f" {WORDS} ")
    assert list(voice.text_ids) == TextTokenizer(small_model).encode(WORDS)


def test_a_source_clip_gives_its_ids(maker, small_model):
    exact = PromptEncoder(small_model, TextTokenizer(small_model), PromptEncoderConfig(tail_s=0))
    assert maker.speech_ids(clip(2), RATE) == list(exact.voice(clip(2), RATE).speech_ids)


@pytest.mark.parametrize(
    "sound,code",
    [
        (clip(31), "too_long"),
        (clip(0.3), "too_short"),
        (np.zeros(2 * RATE, np.float32), "silent"),
        (np.full(2 * RATE, np.nan, np.float32), "not_finite"),
    ],
)
def test_unfit_clips(maker, sound, code):
    for call in (maker.make, maker.speech_ids):
        with pytest.raises(BadInput) as caught:
            call(sound, RATE)
        assert caught.value.code == code and caught.value.param == "reference" and caught.value.zh


def test_a_rate_below_telephone_quality(maker):
    with pytest.raises(BadInput) as caught:
        maker.make(clip(2, 4000), 4000)
    assert caught.value.code == "low_rate"


def test_silence_is_put_behind_the_clip_before_tokens_mel_and_embedding(maker, small_model):
    """All three are of the same samples: those of a clip that ends in that silence itself, made
    without it (the golden mode).
    """
    exact = PromptEncoder(small_model, TextTokenizer(small_model), PromptEncoderConfig(tail_s=0))
    sound = clip(3)
    padded = np.concatenate([sound, np.zeros(round(TAIL_S * RATE), np.float32)])
    own, other, bare = (
        maker.voice(sound, RATE),
        exact.voice(padded, RATE),
        exact.voice(sound, RATE),
    )
    assert own.speech_ids == other.speech_ids and len(own.speech_ids) == len(bare.speech_ids) + 5
    assert own.mel.equal(other.mel) and own.vector.equal(other.vector)
    assert not own.vector.equal(bare.vector)


@pytest.mark.parametrize(
    "n_text,n_speech,ids_per_s,cause",
    [
        (25, 75, 25, ""),
        (26, 75, 25, "says more"),
        (25, 150, 50, ""),
        (26, 150, 50, "says more"),
        (10, 120, 25, ""),
        (10, 121, 25, "leaves out"),
        (10, 240, 50, ""),
        (10, 241, 50, "leaves out"),
        (0, 75, 25, ""),
    ],
)
def test_a_transcript_that_hardly_fits_is_warned_of_with_its_likely_cause(
    n_text, n_speech, ids_per_s, cause
):
    notes = fit_notes(n_text, n_speech, ids_per_s)
    assert len(notes) == bool(cause) and all(cause in en and zh for en, zh in notes)


def test_ready_speakers_are_voices_too(small_model):
    speakers = {
        name: PromptFeatures.of_speaker(entry) for name, entry in read_speakers(small_model).items()
    }
    preset, clone = speakers["中文女"], speakers["my_clone"]
    assert (preset.speech_ids, preset.text_ids, preset.mel.shape) == ((), (), (1, 0, 80))
    assert (len(clone.speech_ids), len(clone.text_ids), clone.mel.shape) == (60, 12, (1, 120, 80))
    for voice in speakers.values():
        unpacked_voice = PromptFeatures.unpack(voice.pack())
        assert (
            unpacked_voice.speech_ids == voice.speech_ids
            and unpacked_voice.vector.equal(voice.vector)
            and unpacked_voice.mel.equal(voice.mel)
        )


def test_damaged_voices_are_refused():
    good = PromptFeatures((1,), (5, 6), *_tensors(2)).pack()
    assert PromptFeatures.unpack(good).speech_ids == (5, 6)
    for bad in (good[:40], b"", b"\x80\x04.", PromptFeatures((1,), (5, 6), *_tensors(3)).pack()):
        with pytest.raises(EngineFault):
            PromptFeatures.unpack(bad)


def _tensors(ids: int):
    import torch

    return torch.zeros(1, 2 * ids, 80), torch.zeros(1, 192)


@pytest.mark.parametrize("name", ["campplus.onnx", "speech_tokenizer_v2.onnx"])
@pytest.mark.parametrize("damage", ["missing", "empty", "text", "cut", "lfs", "other", "directory"])
def test_onnx_files_that_cannot_be_used_are_named(small_model, tmp_path, name, damage):
    replacements = {
        "campplus.onnx": "speech_tokenizer_v2.onnx",
        "speech_tokenizer_v2.onnx": "campplus.onnx",
    }
    for item in replacements:
        shutil.copy(small_model / item, tmp_path / item)
    path = tmp_path / name
    data = path.read_bytes()
    if damage == "other":
        shutil.copy(small_model / replacements[name], path)
    elif damage in ("missing", "directory"):
        path.unlink()
        if damage == "directory":
            path.mkdir()
    else:
        path.write_bytes(
            {
                "empty": b"",
                "text": b"<html>no such page</html>",
                "cut": data[: len(data) // 2],
                "lfs": b"version https://git-lfs.x",
            }[damage]
        )
    with pytest.raises(NotReady) as caught:
        PromptEncoder(tmp_path, TextTokenizer(small_model))
    assert name in caught.value.en and name in caught.value.zh and caught.value.param == name
