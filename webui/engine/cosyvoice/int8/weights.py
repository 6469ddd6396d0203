"""The published tensors of the language models under the graphs' names, linears as int8.

Knows all namings; blind to files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from ....messages import message
from ..dims_v1 import LmDimsV1
from ..llm.dims import LmDims
from ..model_faults import model_fault
from .graph import Graph, Qwen2Passage, Qwen2Steps, RelativePassage, RelativeSteps
from .quantise import quantise, quantise_rows
from .runtime import GRAPHS, LAYERS, POSITIONS, TABLES, TEXT, BodyDims

_BODY = "llm.model.model"
OnProgress = Callable[[float], None]  # share done
Values = dict[str, np.ndarray]


def qwen2(
    dims: LmDims, state: Mapping[str, Tensor], on_progress: OnProgress = lambda share: None
) -> Values:
    """Everything that Int8Lm needs.

    Raises NotReady naming the first tensor that is missing or does not fit.

    Takes one published matrix into memory at a time; the result has about two bytes per value.
    """
    source, out = Source(state), {}
    d, kv = dims, dims.kv_heads * dims.head_size
    for layer in range(d.layers):
        at, to = f"{_BODY}.layers.{layer}", f"layers.{layer}"
        qkv = {f"{at}.self_attn.{p}_proj": n for p, n in zip("qkv", (d.hidden, kv, kv))}
        gate_up = {f"{at}.mlp.{part}_proj": d.intermediate for part in ("gate", "up")}
        out |= {
            **linear(f"{to}.qkv", source.stack("weight", qkv, d.hidden)),
            f"{to}.qkv.bias": source.stack("bias", qkv),
            **linear(f"{to}.o", source.array(f"{at}.self_attn.o_proj.weight", d.hidden, d.hidden)),
            **linear(f"{to}.gate_up", source.stack("weight", gate_up, d.hidden)),
            **linear(
                f"{to}.down", source.array(f"{at}.mlp.down_proj.weight", d.hidden, d.intermediate)
            ),
            f"{to}.in.weight": source.array(f"{at}.input_layernorm.weight", d.hidden),
            f"{to}.post.weight": source.array(f"{at}.post_attention_layernorm.weight", d.hidden),
        }
        on_progress((layer + 1) / (d.layers + 2))
    text = source.array(f"{_BODY}.embed_tokens.weight", d.text_rows, d.hidden, dtype=torch.float16)
    out |= {
        "norm.weight": source.array(f"{_BODY}.norm.weight", d.hidden),
        **head(source, d.rows, d.hidden),
        TABLES["speech"]: source.array("speech_embedding.weight", d.rows, d.hidden),
        TABLES["mark"]: source.array("llm_embedding.weight", 2, d.hidden),
        TABLES["text"]: text,
        **graphs(Qwen2Steps(d), Qwen2Passage(d)),
    }
    on_progress(1.0)
    return out


def relative(
    dims: LmDimsV1, state: Mapping[str, Tensor], on_progress: OnProgress = lambda share: None
) -> Values:
    """Everything that Int8TextLm needs.

    Raises NotReady naming the first tensor that is missing or does not fit.
    """
    source, out, d = Source(state), {}, BodyDims.of(dims)
    for layer in range(d.layers):
        at, to = f"{LAYERS}{layer}", f"layers.{layer}"
        near, far = (
            source.array(f"{at}.self_attn.pos_bias_{letter}", d.heads, d.head_size).reshape(-1)
            for letter in "uv"
        )
        qkv = {f"{at}.self_attn.linear_{part}": d.hidden for part in "qkv"}
        bias = source.stack("bias", qkv)
        bias[: d.hidden] += near
        out |= {
            **linear(f"{to}.qkv", source.stack("weight", qkv, d.hidden)),
            f"{to}.qkv.bias": bias,
            f"{to}.beside": far - near,
            f"{POSITIONS}.{layer}": source.array(
                f"{at}.self_attn.linear_pos.weight", d.hidden, d.hidden
            ),
            **norm(source, f"{to}.in", f"{at}.norm1", d.hidden),
            **norm(source, f"{to}.post", f"{at}.norm2", d.hidden),
        }
        for name, key, rows, columns in (
            ("o", "self_attn.linear_out", d.hidden, d.hidden),
            ("up", "feed_forward.w_1", d.inner, d.hidden),
            ("down", "feed_forward.w_2", d.hidden, d.inner),
        ):
            out |= linear(f"{to}.{name}", source.array(f"{at}.{key}.weight", rows, columns))
            out[f"{to}.{name}.bias"] = source.array(f"{at}.{key}.bias", rows)
        on_progress((layer + 1) / (d.layers + 1))
    out |= {
        **norm(source, "norm", "llm.after_norm", d.hidden),
        **head(source, d.rows, d.hidden),
        **graphs(RelativeSteps(d), RelativePassage(d)),
    }
    for key in (key for key in state if not key.startswith(LAYERS)):
        out[TEXT + key] = source.array(key, *state[key].shape, dtype=torch.float16)
    on_progress(1.0)
    return out


def linear(name: str, weight: np.ndarray) -> Values:
    (codes, scales), (whole, gains) = quantise(weight), quantise_rows(weight)
    return {
        f"{name}.codes": codes,
        f"{name}.scales": scales,
        f"{name}.bytes": whole,
        f"{name}.gains": gains,
    }


def norm(source: Source, name: str, key: str, size: int) -> Values:
    return {f"{name}.{part}": source.array(f"{key}.{part}", size) for part in ("weight", "bias")}


def head(source: Source, rows: int, columns: int) -> Values:
    bias = source.array("llm_decoder.bias", rows)
    return linear("head", source.array("llm_decoder.weight", rows, columns)) | {"head.bias": bias}


def graphs(*of_each: Graph) -> Values:
    return {
        name: np.frombuffer(bytearray(graph.model()), np.uint8)
        for name, graph in zip(GRAPHS, of_each, strict=True)
    }


class Source:
    def __init__(self, state: Mapping[str, Tensor]):
        self._state = state

    def array(self, key: str, *shape: int, dtype: torch.dtype = torch.float32) -> np.ndarray:
        tensor = self._state.get(key)
        if tensor is None:
            raise model_fault(
                "llm.pt",
                message("file.tensor", name=key, shape=str(list(shape))),
                message("file.none_of_name"),
            )
        if tuple(tensor.shape) != shape:
            raise model_fault(
                "llm.pt",
                message("file.with_shape", name=key, shape=str(list(shape))),
                str(list(tensor.shape)),
            )
        if not all(
            bound.isfinite() for bound in tensor.aminmax()
        ):  # no copy of the largest table, as isfinite() on it would make
            raise model_fault(
                "llm.pt", message("file.finite_values", name=key), message("file.not_finite")
            )
        return tensor.to(dtype).contiguous().numpy()

    def stack(self, part: str, rows: Mapping[str, int], *columns: int) -> np.ndarray:
        """One below the other: the parts of that name of layers with so many rows each."""
        return np.concatenate(
            [self.array(f"{key}.{part}", count, *columns) for key, count in rows.items()]
        )
