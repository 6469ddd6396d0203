"""Third generation's front end against golden data: prompt mel to 12 kHz, texts with the mark and
with readings, tokens, what each mode feeds.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import soundfile
import torch

from scripts.published import text_front
from webui.engine.cosyvoice.frontend.audio_features import OUTPUT_HZ, resample
from webui.engine.cosyvoice.frontend.tokenizer_v3 import TOKENS, instruction_prompt
from webui.engine.cosyvoice.v3 import hear

from .flow import Report
from .frontend import cases_of, error, features_of

BASE_IDS = 151643  # of the published vocabulary
MEL_TOLERANCE = 1e-3
STUB_INSTRUCTION = "I."


def check(folder: Path, report: Report) -> None:
    """folder: golden3/frontend or one of the same format. report(case, tensor, largest error,
    tolerance).
    """
    features = features_of(folder)
    for clip in sorted({key.split(".")[0] for key in features}):
        samples, rate = soundfile.read(folder / f"{clip}.wav", dtype="float32", always_2d=True)
        mono = torch.from_numpy(np.ascontiguousarray(samples.mean(1)))
        report(
            clip,
            "prompt_mel",
            error(hear(resample(mono, rate, OUTPUT_HZ)), features[f"{clip}.prompt_mel"]),
            MEL_TOLERANCE,
        )
    if tokens := cases_of(folder, "special_tokens.json"):
        report("special_tokens", "names", float(list(TOKENS) != tokens["tokens"]), 0)
        report("special_tokens", "first_id", abs(tokens["first_id"] - BASE_IDS), 0)
    if texts := cases_of(folder, "text_cases.json"):
        _check_texts(texts, report)
    if inputs := cases_of(folder, "mode_inputs.json"):
        _check_prompts(inputs["modes"], report)


def _check_texts(meta: dict, report: Report) -> None:
    token = re.compile(meta["tokenizer_regex"])

    def count(text: str) -> int:
        return len(token.findall(text))

    for name, is_split in (("split", True), ("nosplit", False)):
        wrong = sum(
            text_front.normalise(case["text"], is_split, count) != case[name]
            for case in meta["cases"]
        )
        report("text_cases", name, wrong, 0)


def _check_prompts(modes: dict, report: Report) -> None:
    """The stub's transcript is P, its instruction I., its text T."""
    report(
        "mode_inputs",
        "zero_shot",
        float(instruction_prompt("") + "P" != modes["zero_shot"]["prompt_text"]),
        0,
    )
    report(
        "mode_inputs",
        "instruct2",
        float(instruction_prompt(STUB_INSTRUCTION) != modes["instruct2"]["prompt_text"]),
        0,
    )
    report(
        "mode_inputs",
        "cross_lingual",
        float(instruction_prompt("") + "T" != modes["cross_lingual"]["text"]),
        0,
    )
