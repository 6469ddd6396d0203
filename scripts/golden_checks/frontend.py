"""Front end against golden data: resampling, the three features, text rules, the speaker file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import soundfile
import torch
from safetensors.torch import load_file
from torch import Tensor

from scripts.published import text_front
from webui.engine.cosyvoice.frontend.audio_features import (
    OUTPUT_HZ,
    TOKENIZER_HZ,
    kaldi_fbank,
    prompt_mel,
    resample,
    whisper_log_mel,
)
from webui.engine.cosyvoice.frontend.preset_speakers import read_speakers

Report = Callable[[str, str, float, float], None]


def cases_of(folder: Path, name: str) -> dict:
    """What this file of a folder holds; {} where there is none: the rest is checked all the
    same.
    """
    path = folder / name
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def features_of(folder: Path) -> dict[str, Tensor]:
    path = folder / "audio_features.safetensors"
    return load_file(path) if path.exists() else {}


def check(folder: Path, report: Report) -> None:
    """folder: golden/frontend or one of the same format. report(case, tensor, largest error,
    tolerance).
    """
    features = features_of(folder)
    for clip in sorted({key.split(".")[0] for key in features}):
        if (folder / f"{clip}.wav").exists():
            _check_resampling(folder / f"{clip}.wav", features, clip, report)
        _check_features(features, clip, report)
    if texts := cases_of(folder, "text_cases.json"):
        _check_text(texts, report)
    if (folder / "spk2info.pt").exists():
        speakers = read_speakers(folder, "spk2info.pt")
        report("spk2info", "entries", float(len(speakers) < 1), 0)


def error(actual: Tensor, expected: Tensor) -> float:
    return (
        float((actual - expected).abs().max()) if actual.shape == expected.shape else float("inf")
    )


def _check_resampling(path: Path, features: dict[str, Tensor], clip: str, report: Report) -> None:
    samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    mono = torch.from_numpy(np.ascontiguousarray(samples.mean(1)))
    for name, hz in (("speech_16k", TOKENIZER_HZ), ("speech_24k", OUTPUT_HZ)):
        if f"{clip}.{name}" in features:
            report(
                clip, name, error(resample(mono, rate, hz)[None], features[f"{clip}.{name}"]), 1e-5
            )


def _check_features(features: dict[str, Tensor], clip: str, report: Report) -> None:
    for name, source, feature, tolerance in (
        ("campplus_fbank", "speech_16k", kaldi_fbank, 2e-3),
        ("prompt_mel", "speech_24k", prompt_mel, 1e-3),
        ("whisper_logmel", "speech_16k", whisper_log_mel, 1e-4),
    ):
        if f"{clip}.{name}" in features:  # the part kept in the repository holds fewer
            report(
                clip,
                name,
                error(feature(features[f"{clip}.{source}"][0]), features[f"{clip}.{name}"]),
                tolerance,
            )


def _check_text(cases: dict, report: Report) -> None:
    token = re.compile(cases["tokenizer_regex"])

    def count(text: str) -> int:
        return len(token.findall(text))

    wrong = {"split": 0, "nosplit": 0, "raw_split": 0}
    for case in cases["text_normalize"]:
        for name, actual in (
            ("split", text_front.normalise(case["text"], True, count)),
            ("nosplit", text_front.normalise(case["text"], False, count)),
            ("raw_split", text_front.normalise(case["text"], True, count, enabled=False)),
        ):
            wrong[name] += case[name] is not None and actual != case[name]
    for name, amount in wrong.items():
        report("text_normalize", name, amount, 0)
    paragraphs = 0
    for case in cases["split_paragraph"]:
        length = len if case["lang"] == "zh" else count
        limits = case["token_max_n"], case["token_min_n"], case["merge_len"], case["comma_split"]
        paragraphs += (
            case["out"] is not None
            and text_front.split_paragraph(case["text"], length, case["lang"], *limits)
            != case["out"]
        )
    report("split_paragraph", "out", paragraphs, 0)
    for name, pairs in cases["helpers"].items():
        rule = getattr(text_front, name)
        report(
            "helpers",
            name,
            sum(expected is not None and rule(source) != expected for source, expected in pairs),
            0,
        )
