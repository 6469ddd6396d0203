"""Small random CosyVoice parts for tests, and the golden data of the repository."""

from __future__ import annotations

from pathlib import Path

import torch

from webui.engine.cosyvoice.flow import FlowDims, FlowModel
from webui.engine.cosyvoice.vocoder import Vocoder, VocoderDims

GOLDEN = Path(__file__).resolve().parent.parent / "data" / "golden"
FLOW_DIMS = FlowDims(
    input_size=24,
    encoder_dim=24,
    encoder_heads=2,
    encoder_ffn_dim=32,
    encoder_blocks=2,
    up_encoder_blocks=1,
    estimator_channels=16,
    estimator_heads=2,
    estimator_head_dim=8,
    estimator_n_blocks=1,
    estimator_mid_blocks=2,
    spk_embed_dim=12,
    speech_token_size=97,
)


def random_state(kind: type[torch.nn.Module], dims: object, seed: int) -> dict[str, torch.Tensor]:
    """Values under which signals keep their size: matrices by fan-in, norms about one, the rest
    small.
    """
    with torch.device("meta"):
        model = kind(dims)
    draw = torch.Generator().manual_seed(seed)
    state = {}
    for key, like in model.state_dict().items():
        value = torch.randn(like.shape, generator=draw)
        if like.dim() > 1 and "embedding" not in key and "pos_bias" not in key:
            value = value / like[0].numel() ** 0.5
        elif key.endswith("weight") and like.dim() == 1:
            value = 1 + 0.1 * value
        elif key.endswith("alpha"):
            value = value.abs() + 0.5
        elif like.dim() == 1:
            value = 0.1 * value
        state[key] = value
    return state


def flow_state(dims: FlowDims = FLOW_DIMS, seed: int = 1) -> dict[str, torch.Tensor]:
    return random_state(FlowModel, dims, seed)


def small_flow(
    dtype: torch.dtype = torch.float64, dims: FlowDims = FLOW_DIMS, seed: int = 1
) -> FlowModel:
    return FlowModel.of(dims, flow_state(dims, seed), dtype)


def small_vocoder(seed: int = 2) -> Vocoder:
    dims = VocoderDims(16, 8)
    state = random_state(Vocoder, dims, seed)
    state["f0_predictor.classifier.bias"] += 120.0
    state["conv_post.bias"] -= 3.0
    return Vocoder.of(dims, state)


def voice_of(
    prompt: int, mel_frames: int | None = None, seed: int = 5, dims: FlowDims = FLOW_DIMS
) -> tuple[torch.Tensor, ...]:
    """prompt ids, prompt mel (frames, 80), speaker vector"""
    draw = torch.Generator().manual_seed(seed)
    frames = 2 * prompt if mel_frames is None else mel_frames
    ids = torch.randint(0, dims.speech_token_size, (prompt,), generator=draw)
    return (
        ids,
        torch.randn(frames, 80, generator=draw),
        torch.randn(dims.spk_embed_dim, generator=draw),
    )


def ids_of(n: int, seed: int = 7, dims: FlowDims = FLOW_DIMS) -> torch.Tensor:
    return torch.randint(
        0, dims.speech_token_size, (n,), generator=torch.Generator().manual_seed(seed)
    )
