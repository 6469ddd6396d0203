"""First generation's language model against golden data: text encoder, prefix scores, greedy and
forced decoding, length rules.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file

from webui.engine.cosyvoice.dims_v1 import LmDimsV1
from webui.engine.cosyvoice.llm.text_lm import RelativeLM

from .flow import largest
from .llm import Report, check_mode, length_with_end

ENCODED_TOLERANCE = 2e-5


def load(folder: Path, device: str = "cpu", dtype: torch.dtype = torch.float32) -> RelativeLM:
    dims = LmDimsV1.of(json.loads((folder / "llm_config.json").read_text()))
    return RelativeLM.of(dims, load_file(folder / "llm.safetensors"), dtype, device)


def check(folder: Path, report: Report, device: str = "cpu") -> None:
    """folder: golden1/llm or one of the same format. report(case, tensor, largest error,
    tolerance).
    """
    lm, io = load(folder, device), load_file(folder / "llm_io.safetensors")
    meta = json.loads((folder / "llm_meta.json").read_text())
    text, prompt_text, prompt_speech = (
        io[k][0].tolist() for k in ("text", "prompt_text", "prompt_speech_token")
    )
    modes = {
        "zero_shot": (prompt_text, prompt_speech, io["embedding"]),
        "sft": ([], [], io["embedding"]),
        "instruct": (prompt_text, [], None),
    }
    for mode, (before, speech, speaker) in modes.items():
        _check_encoder(lm, mode, before, text, io[f"{mode}.text_encoded"], report)
        check_mode(lm, io, mode, lm.prefix(before, speaker), text, speech, report)
    for preferred, name in ((100.0, "end_id_always_preferred_len"), (-100.0, "end_id_never_len")):
        length = length_with_end(
            lm, lm.prefix(prompt_text, io["embedding"]), text, prompt_speech, preferred
        )
        report("lengths", name, abs(length - meta[name]), 0)


@torch.inference_mode()
def _check_encoder(
    lm: RelativeLM,
    mode: str,
    before: list[int],
    text: list[int],
    expected: torch.Tensor,
    report: Report,
) -> None:
    past = lm.new_cache().text
    parts = [lm.encoded(torch.tensor(ids), past) for ids in (before, text) if ids]
    report(mode, "text_encoded", largest(torch.cat(parts, 1), expected), ENCODED_TOLERANCE)
