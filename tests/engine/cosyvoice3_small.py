"""Small random Fun-CosyVoice3 parts for tests, and its golden data of the repository.

Ids, voices and clips fit those of cosyvoice_small.
"""

from __future__ import annotations

from pathlib import Path

import torch

from tests.engine.cosyvoice_small import FLOW_DIMS, random_state
from webui.engine.cosyvoice.flow.dit_dims import DitDims
from webui.engine.cosyvoice.flow.dit_flow import DitFlow
from webui.engine.cosyvoice.vocoder import VocoderDims
from webui.engine.cosyvoice.vocoder.causal_hift import CausalVocoder

GOLDEN = Path(__file__).resolve().parent.parent / "data" / "golden3"
DIT_DIMS = DitDims(
    lookahead_channels=24,
    dit_dim=32,
    dit_depth=2,
    dit_heads=2,
    dit_head_dim=8,
    spk_embed_dim=FLOW_DIMS.spk_embed_dim,
    speech_token_size=FLOW_DIMS.speech_token_size,
)


def small_flow(
    dtype: torch.dtype = torch.float64, dims: DitDims = DIT_DIMS, seed: int = 1
) -> DitFlow:
    return DitFlow.of(dims, random_state(DitFlow, dims, seed), dtype)


def small_vocoder(seed: int = 2, dtype: torch.dtype = torch.float32) -> CausalVocoder:
    dims = VocoderDims(16, 8)
    state = random_state(CausalVocoder, dims, seed)
    state["f0_predictor.classifier.bias"] += 120.0
    state["conv_post.bias"] -= 3.0
    return CausalVocoder.of(dims, state, dtype)
