"""First generation's front end against golden data: prompt mel at both rates, text ids, text
rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import soundfile
import torch

from scripts.published import text_front
from scripts.published.v1 import SLIPPED_HZ
from webui.engine.cosyvoice.dims_v1 import RATE_HZ
from webui.engine.cosyvoice.frontend.audio_features import resample
from webui.engine.cosyvoice.frontend.whisper_tokenizer import WhisperTokenizer
from webui.engine.cosyvoice.v1 import HEARING

from .frontend import cases_of, error, features_of

MEL_TOLERANCE = 1e-3
Report = Callable[[str, str, float, float], None]


def check(folder: Path, report: Report) -> None:
    """folder: golden1/frontend or one of the same format. report(case, tensor, largest error,
    tolerance).
    """
    features = features_of(folder)
    for clip in sorted({key.split(".")[0] for key in features}):
        samples, rate = soundfile.read(folder / f"{clip}.wav", dtype="float32", always_2d=True)
        mono = torch.from_numpy(np.ascontiguousarray(samples.mean(1)))
        for hz in (RATE_HZ, SLIPPED_HZ):
            name = f"mel_from_{hz}"
            if f"{clip}.{name}" in features:
                report(
                    clip,
                    name,
                    error(HEARING.mel(resample(mono, rate, hz)), features[f"{clip}.{name}"]),
                    MEL_TOLERANCE,
                )
    if ids := cases_of(folder, "tokenizer_cases.json"):
        _check_ids(folder, ids, report)
    if texts := cases_of(folder, "text_cases.json"):
        _check_text(texts, report)


def _check_ids(folder: Path, cases: dict, report: Report) -> None:
    tokenizer = WhisperTokenizer(folder)
    report("tokenizer", "n_vocab", abs(tokenizer.size - cases["n_vocab"]), 0)
    report(
        "tokenizer", "cases", sum(tokenizer.encode(text) != ids for text, ids in cases["cases"]), 0
    )
    report(
        "tokenizer",
        "specials",
        sum(tokenizer.encode(name) != [at] for name, at in cases["specials"].items()),
        0,
    )


def _check_text(cases: dict, report: Report) -> None:
    token = re.compile(cases["tokenizer_regex"])
    for name, split in (("split", True), ("nosplit", False)):
        wrong = [
            case["text"]
            for case in cases["cases"]
            if text_front.normalise(case["text"], split, lambda text: len(token.findall(text)))
            != case[name]
        ]
        report("text", name, len(wrong), 0)
