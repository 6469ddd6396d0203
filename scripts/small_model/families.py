"""What a model directory of each generation holds, written from random numbers.

One record per generation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch

from . import cosyvoice1, cosyvoice3, sizes, tensors, words

WHISPER_BASE, WHISPER_SPECIALS = 50257, 1609
QWEN = "CosyVoice-BlankEN"


@dataclass(frozen=True)
class Family:
    """texts: name -> content, for a size. states: llm, flow, hift -> tensors. ids: frames of the
    log-mel for each id, levels and digits of an id.
    """

    small: object
    full: object
    texts: Callable[[object], Mapping[str, str]]
    states: Mapping[str, Callable[[object, torch.Generator], tensors.State]]
    speakers: Callable[[int, torch.Generator], Mapping] | None
    tokenizer: str
    ids: tuple[int, int, int]


def _texts_1(size: cosyvoice1.Sizes) -> dict[str, str]:
    return {
        "cosyvoice.yaml": cosyvoice1.yaml_text(size),
        "multilingual.tiktoken": words.tiktoken(words.ranks(size.text_rows - WHISPER_SPECIALS)),
    }


def _qwen(size: sizes.Sizes | cosyvoice3.Sizes) -> dict[str, str]:
    vocab, merges = words.vocabulary()
    return {
        f"{QWEN}/config.json": sizes.config_json(size),
        f"{QWEN}/vocab.json": vocab,
        f"{QWEN}/merges.txt": merges,
    }


FAMILIES = {
    "cosyvoice1": Family(replace(cosyvoice1.SMALL, text_rows=len(words.ranks()) + WHISPER_SPECIALS),
        cosyvoice1.FULL, _texts_1,
                         {"llm": tensors.llm_state_1, "flow": tensors.flow_state_1,
                             "hift": tensors.hift_state_1}, tensors.speakers_1,
                         "speech_tokenizer_v1.onnx", (2, 2, 12)),
    "cosyvoice2": Family(sizes.SMALL, sizes.FULL,
        lambda size: {"cosyvoice2.yaml": sizes.yaml_text(size), **_qwen(size)},
                         {"llm": tensors.llm_state, "flow": tensors.flow_state,
                             "hift": tensors.hift_state}, tensors.speakers,
                         "speech_tokenizer_v2.onnx", (4, 3, 8)),
    "cosyvoice3": Family(cosyvoice3.SMALL, cosyvoice3.FULL,
        lambda size: {"cosyvoice3.yaml": cosyvoice3.yaml_text(size), **_qwen(size)},
                         {"llm": tensors.llm_state_3, "flow": tensors.flow_state_3,
                             "hift": tensors.hift_state_3}, None,
                         "speech_tokenizer_v3.onnx", (4, 3, 8)),
}  # fmt: skip
