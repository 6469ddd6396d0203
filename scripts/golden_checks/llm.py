"""Language model against golden data: prefix scores, greedy and forced decoding, length rules, text
streaming.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from webui.engine.cosyvoice.checkpoint import COMPONENTS, load_state
from webui.engine.cosyvoice.llm.decode import MAX_IDS_PER_TEXT_ID, MIN_IDS_PER_TEXT_ID, Sample
from webui.engine.cosyvoice.llm.dims import LmDims
from webui.engine.cosyvoice.llm.interface import KVCache, LanguageModel
from webui.engine.cosyvoice.llm.qwen2 import Qwen2LM, generate
from webui.engine.cosyvoice.llm.sampler import greedy
from webui.engine.cosyvoice.llm.streaming_input import TextStream

TOLERANCE = 1e-4  # absolute and relative
Report = Callable[[str, str, float, float], None]


def check(folder: Path, report: Report, device: str = "cpu") -> None:
    """folder: golden/llm or one of the same format. report(case, tensor, largest error,
    tolerance).
    """
    lm, io = model(folder).to(device), load_file(folder / "llm_io.safetensors")
    meta = json.loads((folder / "llm_meta.json").read_text())
    text, prompt_text, prompt_speech = (
        io[k][0].tolist() for k in ("text", "prompt_text", "prompt_speech_token")
    )
    modes = {
        "zero_shot": (prompt_text, prompt_speech),
        "cross_lingual": ([], []),
        "instruct2": (prompt_text, []),
    }
    for mode, (before, speech) in modes.items():
        check_mode(lm, io, mode, lm.prefix(before), text, speech, report)
    for preferred, name in ((100.0, "plus"), (-100.0, "minus")):
        length = length_with_end(lm, lm.prefix(prompt_text), text, prompt_speech, preferred)
        report("lengths", f"eos_bias_{name}", abs(length - meta[f"eos_bias_{name}_100_len"]), 0)
    for case in ("with_prompt", "no_prompt"):
        _check_stream(lm, io, case, meta[f"bistream_{case}"]["final_tokens"], report)


def model(folder: Path) -> Qwen2LM:
    dims = LmDims.of(json.loads((folder / "llm_config.json").read_text()))
    state = load_state(folder / "llm.safetensors")
    return Qwen2LM.of(dims, {k: v for k, v in state.items() if k not in COMPONENTS["llm"].unused})


def scaled_error(actual: Tensor, expected: Tensor) -> float:
    """Largest |got - want| / (1 + |want|): within `TOLERANCE` when it is so absolutely plus
    relatively. -inf must meet -inf.
    """
    if actual.shape != expected.shape or not torch.equal(actual.isinf(), expected.isinf()):
        return float("inf")
    finite = expected.isfinite()
    return float(((actual - expected).abs() / (1 + expected.abs()))[finite].max())


def check_mode(
    lm: LanguageModel,
    io: dict,
    mode: str,
    prefix: KVCache,
    text: list,
    speech: list,
    report: Report,
    pick: Sample = greedy,
) -> None:
    """First step, greedy decoding (by `pick`) and forced decoding behind `prefix`."""
    seen_scores = []

    def watch(scores: Tensor, history) -> int:
        seen_scores.append(scores.to("cpu", copy=True))
        return pick(scores, history)

    expected_ids = io[f"{mode}.greedy_tokens"]
    ids = []
    for chosen in generate(lm, prefix.fork(), text, speech, watch):
        ids.append(chosen)
        if len(ids) == len(expected_ids):
            break
    report(
        mode,
        "first_step_logp",
        scaled_error(seen_scores[0], io[f"{mode}.first_step_logp"]),
        TOLERANCE,
    )
    report(mode, "greedy_tokens", float(ids != expected_ids.tolist()), 0)
    if f"{mode}.greedy_top5_ids" in io:  # a part of the vocabulary has no such scores
        top = torch.stack(seen_scores[: len(expected_ids)]).topk(5)
        report(
            mode, "greedy_top5_ids", float((top.indices != io[f"{mode}.greedy_top5_ids"]).sum()), 0
        )
        report(
            mode,
            "greedy_top5_logp",
            scaled_error(top.values, io[f"{mode}.greedy_top5_logp"]),
            TOLERANCE,
        )
    forced, rows = io["forced_tokens"].tolist(), io[f"{mode}.forced_logp"]
    replay, seen_scores = iter(forced), []
    for _ in zip(
        generate(
            lm,
            prefix.fork(),
            text,
            speech,
            lambda s, h: (seen_scores.append(s.to("cpu", copy=True)), next(replay))[1],
        ),
        rows[1:],
    ):
        pass
    report(
        mode,
        "forced_logp",
        scaled_error(torch.stack(seen_scores[: len(rows)]), rows[: len(seen_scores)]),
        TOLERANCE,
    )
    report(mode, "forced_rows", float(len(rows) - len(seen_scores)), 0)


def length_with_end(
    lm: LanguageModel, prefix: KVCache, text: list, speech: list, preferred: float
) -> int:
    """How many ids come when the end's score is raised by `preferred`; -1 when that is outside the
    rules of length.
    """
    end = lm.dims.end

    def biased(scores: Tensor, history) -> int:
        scores[end] += preferred
        scores[end + 1 :] = -torch.inf
        return greedy(scores, history)

    least, most = MIN_IDS_PER_TEXT_ID * len(text), MAX_IDS_PER_TEXT_ID * len(text)
    length = sum(1 for _ in generate(lm, prefix, text, speech, biased))
    return length if least <= length <= most else -1


def _check_stream(lm: Qwen2LM, io: dict, case: str, final: int, report: Report) -> None:
    with_prompt = case == "with_prompt"
    prompt_text = io["bistream.prompt_text"][0].tolist() if with_prompt else []
    prompt_speech = io["bistream.prompt_speech_token"][0].tolist() if with_prompt else []

    def open_stream(sample: Sample) -> TextStream:
        return TextStream(lm, lm.new_cache(), prompt_text, prompt_speech, sample)

    check_stream(lm.dims, io, case, io["bistream.text"][0].tolist(), final, open_stream, report)


def check_stream(
    dims: LmDims,
    io: dict,
    case: str,
    text: list[int],
    final: int,
    open_stream: Callable[[Sample], TextStream],
    report: Report,
) -> None:
    """The most probable ids of a text that arrives id by id, and `final` of them once it is all
    there.
    """
    name, seen_scores, after_end, over = f"bistream.{case}", [], [0], []

    def sample(scores: Tensor, history) -> int:
        seen_scores.append(scores.to("cpu", copy=True))
        if over:
            after_end[0] += 1
            if after_end[0] > final:
                return dims.end
        return int(scores[: dims.speech_codes].argmax())

    def arriving():
        yield from text
        over.append(True)

    stream = open_stream(sample)
    ids = list(stream.speak(arriving()))
    report(name, "tokens", float(ids != io[f"{name}.tokens"].tolist()), 0)
    report(
        name,
        "forward_lengths",
        float(stream.forward_lengths != io[f"{name}.forward_lengths"].tolist()),
        0,
    )
    top = torch.stack(seen_scores).topk(5)
    report(
        name,
        "top5_ids",
        float(
            top.indices.shape != io[f"{name}.top5_ids"].shape
            or not torch.equal(top.indices, io[f"{name}.top5_ids"])
        ),
        0,
    )
    report(name, "top5_logp", scaled_error(top.values, io[f"{name}.top5_logp"]), TOLERANCE)
