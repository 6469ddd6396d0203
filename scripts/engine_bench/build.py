"""The three networks of CosyVoice2, from random numbers at given sizes or from a model directory,
and a random voice. No ONNX.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import torch

from scripts.small_model import tensors
from scripts.small_model.sizes import Sizes
from webui.engine.cosyvoice.checkpoint import (
    COMPONENTS,
    DTYPES,
    assign,
    component_state,
    published_state,
)
from webui.engine.cosyvoice.config import ModelSizesV2, read_spec
from webui.engine.cosyvoice.device import INT8, DeviceConfig, cores
from webui.engine.cosyvoice.flow import FlowDims, FlowModel
from webui.engine.cosyvoice.flow.dims import EULER_STEPS
from webui.engine.cosyvoice.frontend.prompt_encoder import PromptFeatures
from webui.engine.cosyvoice.llm.dims import LmDims
from webui.engine.cosyvoice.llm.interface import LanguageModel
from webui.engine.cosyvoice.llm.qwen2 import Qwen2LM
from webui.engine.cosyvoice.llm.sampler import RasRule
from webui.engine.cosyvoice.v2 import CosyVoice2, with_steps
from webui.engine.cosyvoice.vocoder import Vocoder, VocoderDims

State = dict[str, torch.Tensor]
IDS_PER_S, FRAMES_PER_ID = 25, 2


def random_model(
    size: Sizes, place: DeviceConfig, seed: int = 0, steps: int = EULER_STEPS
) -> CosyVoice2:
    """Speaks noise at the right cost."""
    flow = {"input_size": size.flow, "encoder_dim": size.flow, "encoder_heads": size.flow_heads,
        "encoder_ffn_dim": size.flow_ffn, "encoder_blocks": size.flow_blocks,
            "estimator_channels": size.channels, "estimator_heads": size.estimator_heads,
            "estimator_head_dim": size.head_dim,
            "estimator_n_blocks": size.n_blocks, "estimator_mid_blocks": size.mid_blocks,
            "speech_token_size": size.codes}  # fmt: skip
    dims = LmDims(
        size.hidden,
        size.intermediate,
        size.layers,
        size.heads,
        size.kv_heads,
        size.text_rows,
        size.codes,
    )
    spec = ModelSizesV2(
        dims,
        RasRule(),
        flow,
        {"base_channels": size.vocoder, "f0_cond_channels": size.f0},
        24000,
        IDS_PER_S,
        24000 // IDS_PER_S,
    )
    makers = {"llm": tensors.llm_state, "flow": tensors.flow_state, "hift": tensors.hift_state}

    def state(name: str) -> State:
        random = torch.Generator().manual_seed(seed + list(makers).index(name))
        return {
            k: v for k, v in makers[name](size, random).items() if k not in COMPONENTS[name].unused
        }

    return _assembled(with_steps(spec, steps), place, state)


def load_model(
    root: Path, place: DeviceConfig, is_published: bool, steps: int = EULER_STEPS
) -> tuple[CosyVoice2, float]:
    """From a model directory, and the seconds it took with nothing of its files in the page cache.
    is_published: the .pt files as they are fetched, whatever else is there; else the converted ones
    where there are any.
    """
    for path in (p for p in root.iterdir() if p.suffix in (".pt", ".safetensors")):
        forget(path)
    began = time.perf_counter()

    def state(name: str) -> State:
        precision = "fp32" if COMPONENTS[name].exact else place.precision
        return (
            published_state(root, COMPONENTS[name], precision)
            if is_published
            else component_state(root, name, precision)
        )

    model = _assembled(with_steps(read_spec(root), steps), place, state)
    return model, time.perf_counter() - began


def _assembled(
    spec: ModelSizesV2, place: DeviceConfig, state: Callable[[str], State]
) -> CosyVoice2:
    lm = (
        _int8(spec.lm, state("llm"), place)
        if place.lm == INT8
        else _torch(spec.lm, state("llm"), place)
    )
    flow = FlowModel.of(FlowDims.of(spec.flow), state("flow"), place.dtype, place.device)
    vocoder = Vocoder.of(
        VocoderDims.of(spec.hift), state("hift"), torch.float32, place.device
    ).narrow(place.convolutions)
    return CosyVoice2(spec, place, None, lm, flow, vocoder, None, {}, "bench")


def _torch(dims: LmDims, state: State, place: DeviceConfig) -> Qwen2LM:
    with torch.device("meta"):
        lm = Qwen2LM(dims)
    return assign(lm, state, "llm.pt", DTYPES[place.precision]).to(place.device).pack()


def _int8(dims: LmDims, state: State, place: DeviceConfig) -> LanguageModel:
    from webui.engine.cosyvoice.int8 import runtime, weights  # ONNX Runtime is only needed here

    return runtime.Int8Lm(dims, weights.qwen2(dims, state), place.lm_threads, min(2, cores()))


def forget(path: Path) -> None:
    """Drop the file from the page cache, where the system can."""
    if hasattr(os, "posix_fadvise"):
        with path.open("rb") as f:
            os.fsync(f.fileno())
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def random_voice(seconds: float, codes: int, seed: int = 1) -> PromptFeatures:
    """A clip of so long: ids, mel at the level of speech, a vector, and a transcript of four text
    ids a second.
    """
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, codes, (round(seconds * IDS_PER_S),), generator=random).tolist()
    text = torch.randint(0, 256, (max(1, round(4 * seconds)),), generator=random).tolist()
    mel = torch.randn(1, FRAMES_PER_ID * len(ids), 80, generator=random) - 4
    return PromptFeatures(tuple(text), tuple(ids), mel, torch.randn(1, 192, generator=random))
