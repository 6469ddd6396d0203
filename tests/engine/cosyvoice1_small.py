"""Small random parts of the first generation for tests, and its golden data of the repository."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.engine.cosyvoice_small import random_state
from webui.engine.cosyvoice.dims_v1 import LmDimsV1, StackDims
from webui.engine.cosyvoice.flow.hop_dims import HopDims
from webui.engine.cosyvoice.flow.hop_flow import HopFlow
from webui.engine.cosyvoice.flow.hop_stream import HopVoice
from webui.engine.cosyvoice.llm.text_lm import RelativeLM
from webui.engine.cosyvoice.vocoder.hift_v1 import VocoderV1, dims_of

GOLDEN1 = Path(__file__).resolve().parent.parent / "data" / "golden1"
LM_DIMS = LmDimsV1(
    StackDims(24, 2, 32, 2),
    StackDims(32, 4, 48, 3),
    text_width=16,
    text_rows=60,
    speech_codes=40,
    vector=12,
)
FLOW_DIMS = HopDims(
    input_size=24, encoder_dim=24, encoder_heads=2, encoder_ffn_dim=32, encoder_blocks=2,
    estimator_channels=16, estimator_heads=2,
    estimator_head_dim=8, estimator_n_blocks=1, estimator_mid_blocks=2, spk_embed_dim=12,
    speech_token_size=97,
)  # fmt: skip


def small_lm(
    dtype: torch.dtype = torch.float64, dims: LmDimsV1 = LM_DIMS, seed: int = 3
) -> RelativeLM:
    return RelativeLM.of(dims, random_state(RelativeLM, dims, seed), dtype)


def small_flow(
    dtype: torch.dtype = torch.float64, dims: HopDims = FLOW_DIMS, seed: int = 1
) -> HopFlow:
    return HopFlow.of(dims, random_state(HopFlow, dims, seed), dtype)


def small_vocoder(seed: int = 2) -> VocoderV1:
    dims = dims_of({"base_channels": 16, "f0_cond_channels": 8})
    state = random_state(VocoderV1, dims, seed)
    state["f0_predictor.classifier.bias"] += 120.0
    state["conv_post.bias"] -= 3.0
    return VocoderV1.of(dims, state)


def hop_voice(flow: HopFlow, prompt: int, frames: int | None = None, seed: int = 5) -> HopVoice:
    """A voice with `prompt` ids and as many frames as they have, or so many."""
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, flow.dims.speech_token_size, (prompt,), generator=draw)
    mel = torch.randn(int(prompt * 1.72) if frames is None else frames, 80, generator=draw)
    return HopVoice.of(flow, ids, mel, torch.randn(flow.dims.spk_embed_dim, generator=draw))
