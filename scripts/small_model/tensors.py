"""Random state dicts under the published key names, scaled so that the networks give bounded,
audible, ending speech.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from webui.engine.cosyvoice.checkpoint import bare
from webui.engine.cosyvoice.flow import FlowDims, FlowModel
from webui.engine.cosyvoice.llm.dims import LmDims
from webui.engine.cosyvoice.llm.qwen2 import Qwen2LM

from . import cosyvoice1, cosyvoice3
from .hift import shapes as hift_shapes
from .sizes import STAGES, Sizes

Shapes = Mapping[str, tuple[int, ...]]
State = dict[str, Tensor]
# channel of the third generation's language model that holds one value throughout: its head has no
# bias that could say "end"
_STILL = 0


def draw(shapes: Shapes, random: torch.Generator) -> State:
    """Norms near one, biases near zero, everything else with unit gain."""
    out = {}
    for key, shape in shapes.items():
        noise = torch.randn(shape, generator=random)
        if key.endswith("bias"):
            out[key] = 0.05 * noise
        elif len(shape) == 1:
            out[key] = 1 + 0.05 * noise
        elif key.endswith(("embedding.weight", "embed_tokens.weight")):
            out[key] = noise
        else:
            out[key] = noise / math.sqrt(max(math.prod(shape[1:]), 1))
    return out


def llm_state(sizes: Sizes, random: torch.Generator) -> State:
    """Ends by itself some ids after the minimum: the end id scores among the best."""
    dims = LmDims(
        sizes.hidden,
        sizes.intermediate,
        sizes.layers,
        sizes.heads,
        sizes.kv_heads,
        sizes.text_rows,
        sizes.codes,
    )
    state = draw(_shapes_of(Qwen2LM, dims), random)
    state["llm_decoder.bias"][dims.end] = 3.2
    state["llm_decoder.bias"][dims.end + 1 :] = -20.0
    state["llm.model.lm_head.weight"] = state["llm.model.model.embed_tokens.weight"]
    return state


def flow_state(sizes: Sizes, random: torch.Generator) -> State:
    dims = FlowDims(
        sizes.flow, sizes.flow, sizes.flow_heads, sizes.flow_ffn, sizes.flow_blocks, 4, 25,
        sizes.channels, sizes.estimator_heads,
        sizes.head_dim, sizes.n_blocks, sizes.mid_blocks, 192, sizes.codes,
    )  # fmt: skip
    return draw(_shapes_of(FlowModel, dims), random)


def _shapes_of(kind: type, dims: object) -> Shapes:
    with bare():
        return {key: tuple(value.shape) for key, value in kind(dims).state_dict().items()}


def hift_state(sizes: Sizes, random: torch.Generator) -> State:
    return _vocoder(*hift_shapes(sizes.vocoder, sizes.f0, STAGES), random)


def _vocoder(
    plain: Shapes, normed: Shapes, random: torch.Generator, is_causal: bool = False
) -> State:
    """Weight-normed layers as gain and direction pairs.

    A voice around 150 Hz, some tenths of full scale loud.
    """
    state = draw(plain, random)
    for name, shape in normed.items():
        direction = torch.randn(shape, generator=random)
        turned = (
            name.startswith("ups.") and not is_causal
        )  # its first dimension is of what comes in
        gain = math.sqrt(max(shape[2] // 3, 1) / 2 / shape[2]) if turned else 1.0
        state[f"{name}.parametrizations.weight.original0"] = torch.full((shape[0], 1, 1), gain)
        state[f"{name}.parametrizations.weight.original1"] = direction
        state[f"{name}.bias"] = 0.02 * torch.randn(
            shape[1] if turned else shape[0], generator=random
        )
    for key in state:
        if key.endswith("alpha"):
            state[key] = torch.ones_like(state[key])
    state["f0_predictor.classifier.bias"] = torch.tensor([150.0])
    state["f0_predictor.classifier.weight"] *= 40
    state["m_source.l_linear.weight"] = torch.full((1, 9), 0.6)
    state["conv_post.bias"][:9] -= 2.2
    return state


def llm_state_1(sizes: cosyvoice1.Sizes, random: torch.Generator) -> State:
    state = draw(cosyvoice1.llm_shapes(sizes), random)
    state["llm_decoder.bias"][sizes.codes] = 3.2
    return state


def flow_state_1(sizes: cosyvoice1.Sizes, random: torch.Generator) -> State:
    return draw(cosyvoice1.flow_shapes(sizes), random)


def hift_state_1(sizes: cosyvoice1.Sizes, random: torch.Generator) -> State:
    return _vocoder(*cosyvoice1.hift_shapes(sizes), random)


def llm_state_3(sizes: cosyvoice3.Sizes, random: torch.Generator) -> State:
    """As `llm_state`, with the end among the best and the unused ids out of reach, by way of the
    still channel.
    """
    state = draw(cosyvoice3.llm_shapes(sizes), random)
    for key, value in state.items():
        if key.endswith(("o_proj.weight", "down_proj.weight")):
            value[_STILL] = 0  # nothing is added to it
    for key in ("llm.model.model.embed_tokens.weight", "speech_embedding.weight"):
        state[key][:, _STILL] = 2.0
    head = state["llm_decoder.weight"]
    head[:, _STILL] = 0
    head[sizes.codes :, _STILL] = -10.0
    head[sizes.codes + 1] = 0
    head[sizes.codes + 1, _STILL] = 2.2
    state["llm.model.lm_head.weight"] = state["llm.model.model.embed_tokens.weight"]
    return state


def flow_state_3(sizes: cosyvoice3.Sizes, random: torch.Generator) -> State:
    state = draw(cosyvoice3.flow_shapes(sizes), random)
    state["decoder.estimator.rotary_embed.inv_freq"] = 10000.0 ** (
        -torch.arange(0, sizes.head_dim, 2) / sizes.head_dim
    )
    return state


def hift_state_3(sizes: cosyvoice3.Sizes, random: torch.Generator) -> State:
    return _vocoder(*cosyvoice3.hift_shapes(sizes), random, is_causal=True)


def speakers(codes: int, random: torch.Generator) -> dict[str, State]:
    """One preset and one saved clone, in the published layout."""
    vector = torch.randn(1, 192, generator=random)
    ids = torch.randint(0, codes, (1, 60), generator=random, dtype=torch.int32)
    text = torch.arange(60, 72, dtype=torch.int32)[None]
    clone = {
        "prompt_text": text, "prompt_text_len": torch.tensor([text.shape[1]], dtype=torch.int32),
        "llm_prompt_speech_token": ids, "llm_prompt_speech_token_len": torch.tensor([60],
            dtype=torch.int32),
        "flow_prompt_speech_token": ids, "flow_prompt_speech_token_len": torch.tensor([60],
            dtype=torch.int32),
        "prompt_speech_feat": torch.randn(1, 120, 80, generator=random) - 5,
        "prompt_speech_feat_len": torch.tensor([120], dtype=torch.int32),
        "llm_embedding": vector, "flow_embedding": vector,
    }  # fmt: skip
    return {"中文女": {"embedding": torch.randn(1, 192, generator=random)}, "my_clone": clone}


def speakers_1(codes: int, random: torch.Generator) -> dict[str, State]:
    """The seven published presets; two of them with what else the published file may hold."""
    table = {
        name: {"embedding": torch.randn(1, cosyvoice1.VECTOR, generator=random)}
        for name in cosyvoice1.PRESETS
    }
    for name in cosyvoice1.PRESETS[:2]:
        table[name]["speech_feat"] = torch.randn(1, 172, cosyvoice1.BANDS, generator=random) - 5
        table[name]["speech_token"] = torch.randint(
            0, codes, (1, 100), generator=random, dtype=torch.int32
        )
    return table
