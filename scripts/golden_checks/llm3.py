"""Third generation's language model against golden data: prefix scores, greedy and forced decoding,
the published length rule, text streaming with the published defects.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from scripts.published.v3 import PublishedStream, published
from webui.engine.cosyvoice.checkpoint import load_state
from webui.engine.cosyvoice.checkpoint_v3 import END, FILL, MARKS, PARTS
from webui.engine.cosyvoice.llm.decode import Sample
from webui.engine.cosyvoice.llm.dims import LmDims
from webui.engine.cosyvoice.llm.qwen2 import Qwen2LM, generate
from webui.engine.cosyvoice.llm.sampler import greedy

from .llm import Report, check_mode, check_stream

MODES = ("zero_shot", "cross_lingual", "instruct2")
STREAMS = ("with_prompt", "no_prompt_speech", "no_prompt_speech_but_text", "short_text")


def load(folder: Path, device: str = "cpu", dtype: torch.dtype | None = None) -> Qwen2LM:
    """As the studio loads it; the published rules are those of its `published` sizes."""
    dims = replace(LmDims.of(json.loads((folder / "llm_config.json").read_text())), **_marks())
    part = PARTS["llm"]
    state = {
        key: value
        for key, value in load_state(folder / "llm.safetensors").items()
        if key not in part.unused
    }
    return Qwen2LM.of(dims, part.reform(state), dtype, device)


def _marks() -> dict[str, int]:
    return {"marks": MARKS, "end_at": END, "fill_at": FILL}


def check(folder: Path, report: Report, device: str = "cpu") -> None:
    """folder: golden3/llm or one of the same format. report(case, tensor, largest error,
    tolerance).
    """
    lm, io = load(folder, device), load_file(folder / "llm_io.safetensors")
    meta, marker = (
        json.loads((folder / "llm_meta.json").read_text()),
        json.loads((folder / "llm_config.json").read_text())["end_of_prompt_id"],
    )
    dims, lm.dims = lm.dims, published(lm.dims)
    for mode in MODES:
        text, before, speech = (
            io[f"{mode}.{name}"][0].tolist()
            for name in ("text", "prompt_text", "prompt_speech_token")
        )
        check_mode(
            lm,
            io,
            mode,
            lm.prefix(before),
            text,
            speech,
            report,
            lambda scores, history: greedy(scores[: dims.speech_codes], history),
        )
    _check_lengths(lm, io, meta["length_when_stop_id_always_preferred"], report)
    lm.dims = dims
    for case in STREAMS:
        _check_case(lm, io, case, meta[f"bistream_{case}"], marker, report)
    _check_early_end(lm, io, meta["bistream_end_id_early"], marker, report)


def _check_lengths(
    lm: Qwen2LM, io: dict[str, Tensor], expected: dict[str, int], report: Report
) -> None:
    text, before, speech = (
        io[f"zero_shot.{name}"][0].tolist()
        for name in ("text", "prompt_text", "prompt_speech_token")
    )
    prefix, codes = lm.prefix(before), lm.dims.speech_codes
    for name, length in expected.items():
        last_id = codes + int(name.removeprefix("S+")) if name != "never" else -1

        def sample(scores: Tensor, history, last_id=last_id) -> int:
            return (
                last_id
                if last_id >= 0 and scores[last_id].isfinite()
                else greedy(scores[:codes], history)
            )

        ids = list(generate(lm, prefix.fork(), text, speech, sample))
        report("lengths", name, abs(len(ids) - length), 0)


def _open_stream(
    lm: Qwen2LM, io: dict[str, Tensor], case: str, marker: int, sample: Sample
) -> PublishedStream:
    before, speech = (
        io[f"bistream.{case}.{name}"][0].tolist() for name in ("prompt_text", "prompt_speech_token")
    )
    head = before.index(marker) + 1
    return PublishedStream(lm, lm.new_cache(), before[head:], speech, sample, before[:head])


def _check_case(
    lm: Qwen2LM, io: dict[str, Tensor], case: str, case_info: dict, marker: int, report: Report
) -> None:
    text = io["bistream.text"][0, : case_info["text_len"]].tolist()
    check_stream(
        lm.dims,
        io,
        case,
        text,
        case_info["final_tokens"],
        lambda sample: _open_stream(lm, io, case, marker, sample),
        report,
    )


def _check_early_end(
    lm: Qwen2LM, io: dict[str, Tensor], expected: str, marker: int, report: Report
) -> None:
    """The end id, drawn while text is still to come."""
    try:
        list(
            _open_stream(lm, io, "with_prompt", marker, lambda scores, history: lm.dims.end).speak(
                io["bistream.text"][0].tolist()
            )
        )
        name = "nothing"
    except ValueError:
        name = "ValueError"
    report("bistream_end_id_early", "error", float(name != expected), 0)
