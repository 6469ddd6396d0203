"""Random state dicts under the published key names, scaled so that the networks give bounded, audible, ending speech."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from webui.engine.cosyvoice.dims import LmDims
from webui.engine.cosyvoice.flow import FlowDims, FlowModel
from webui.engine.cosyvoice.lm import SpeechLm
from webui.engine.cosyvoice.weights import bare

from .sizes import Sizes

Shapes = Mapping[str, tuple[int, ...]]
_STAGES = ((16, 7), (11, 7), (7, 11))  # (upsampling kernel, kernel of the source's block)
_SOURCE_DOWN = (30, 6, 1)


def draw(shapes: Shapes, random: torch.Generator) -> dict[str, Tensor]:
    """Norms near one, biases near zero, everything else with unit gain."""
    out = {}
    for key, shape in shapes.items():
        noise = torch.randn(shape, generator=random)
        if key.endswith("bias"):
            out[key] = 0.05 * noise
        elif len(shape) == 1:
            out[key] = 1 + 0.05 * noise
        elif "embed" in key and "layer" not in key and "out" not in key:
            out[key] = noise
        else:
            out[key] = noise / math.sqrt(max(math.prod(shape[1:]), 1))
    return out


def llm_state(sizes: Sizes, random: torch.Generator) -> dict[str, Tensor]:
    """Ends by itself some ids after the minimum: the end id scores among the best."""
    dims = LmDims(sizes.hidden, sizes.intermediate, sizes.layers, sizes.heads, sizes.kv_heads, sizes.text_rows, sizes.codes)
    state = draw(_shapes_of(SpeechLm, dims), random)
    state["llm_decoder.bias"][dims.end] = 3.2
    state["llm_decoder.bias"][dims.reserved :] = -20.0
    state["llm.model.lm_head.weight"] = state["llm.model.model.embed_tokens.weight"]
    return state


def flow_state(sizes: Sizes, random: torch.Generator) -> dict[str, Tensor]:
    dims = FlowDims(
        sizes.flow, sizes.flow, sizes.flow_heads, sizes.flow_ffn, sizes.flow_blocks, 4, 25, sizes.channels, sizes.estimator_heads,
        sizes.head_dim, sizes.n_blocks, sizes.mid_blocks, 192, sizes.codes,
    )  # fmt: skip
    return draw(_shapes_of(FlowModel, dims), random)


def _shapes_of(kind: type, dims: object) -> Shapes:
    with bare():
        return {key: tuple(value.shape) for key, value in kind(dims).state_dict().items()}


def hift_state(sizes: Sizes, random: torch.Generator) -> dict[str, Tensor]:
    """Weight-normed layers as gain and direction pairs. A voice around 150 Hz, some tenths of full scale loud."""
    plain, normed = hift_shapes(sizes.vocoder, sizes.f0)
    state = draw(plain, random)
    for name, shape in normed.items():
        direction = torch.randn(shape, generator=random)
        outputs = shape[1] * shape[2] if name.startswith("ups.") else 1
        gain = math.sqrt(max(shape[2] // 3, 1) / 2 / outputs * shape[1]) if name.startswith("ups.") else 1.0
        state[f"{name}.parametrizations.weight.original0"] = torch.full((shape[0], 1, 1), gain)
        state[f"{name}.parametrizations.weight.original1"] = direction
        state[f"{name}.bias"] = 0.02 * torch.randn(shape[1] if name.startswith("ups.") else shape[0], generator=random)
    for key in state:
        if key.endswith("alpha"):
            state[key] = torch.ones_like(state[key])
    state["f0_predictor.classifier.bias"] = torch.tensor([150.0])
    state["f0_predictor.classifier.weight"] *= 40
    state["m_source.l_linear.weight"] = torch.full((1, 9), 0.6)
    state["conv_post.bias"][:9] -= 2.2
    return state


def hift_shapes(base: int, f0: int) -> tuple[Shapes, Shapes]:
    """(plain tensors, directions of the weight-normed layers without their suffix)."""
    plain: dict[str, tuple[int, ...]] = {"m_source.l_linear.weight": (1, 9), "m_source.l_linear.bias": (1,)}
    normed: dict[str, tuple[int, ...]] = {"conv_pre": (base, 80, 7), "conv_post": (18, base // 8, 7)}
    for i, (up, source) in enumerate(_STAGES):
        channels = base >> (i + 1)
        normed[f"ups.{i}"] = (2 * channels, channels, up)
        plain[f"source_downs.{i}.weight"], plain[f"source_downs.{i}.bias"] = (channels, 18, _SOURCE_DOWN[i]), (channels,)
        blocks = {f"source_resblocks.{i}": source} | {f"resblocks.{3 * i + j}": kernel for j, kernel in enumerate((3, 7, 11))}
        for block, kernel in blocks.items():
            for j in range(3):
                for half in (1, 2):
                    normed[f"{block}.convs{half}.{j}"] = (channels, channels, kernel)
                    plain[f"{block}.activations{half}.{j}.alpha"] = (channels,)
    for i in range(5):
        normed[f"f0_predictor.condnet.{2 * i}"] = (f0, f0 if i else 80, 3)
    plain["f0_predictor.classifier.weight"], plain["f0_predictor.classifier.bias"] = (1, f0), (1,)
    return plain, normed


def speakers(codes: int, random: torch.Generator) -> dict[str, dict[str, Tensor]]:
    """One preset and one saved clone, in the published layout."""
    vector = torch.randn(1, 192, generator=random)
    ids = torch.randint(0, codes, (1, 60), generator=random, dtype=torch.int32)
    text = torch.arange(60, 72, dtype=torch.int32)[None]
    clone = {
        "prompt_text": text, "prompt_text_len": torch.tensor([text.shape[1]], dtype=torch.int32),
        "llm_prompt_speech_token": ids, "llm_prompt_speech_token_len": torch.tensor([60], dtype=torch.int32),
        "flow_prompt_speech_token": ids, "flow_prompt_speech_token_len": torch.tensor([60], dtype=torch.int32),
        "prompt_speech_feat": torch.randn(1, 120, 80, generator=random) - 5, "prompt_speech_feat_len": torch.tensor([120], dtype=torch.int32),
        "llm_embedding": vector, "flow_embedding": vector,
    }  # fmt: skip
    return {"中文女": {"embedding": torch.randn(1, 192, generator=random)}, "my_clone": clone}
