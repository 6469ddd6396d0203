"""The published tensors of the layers under the graphs' names, linears as int8.

Knows both namings; blind to files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from ..dims_v1 import LmDimsV1
from .relative_dims import LAYERS, POSITIONS, TEXT, BodyDims
from .relative_graph import passage, steps
from .runtime import GRAPHS
from .weights import Source, linear

Told = Callable[[float], None]  # share done


def of(
    dims: LmDimsV1, state: Mapping[str, Tensor], on_progress: Told = lambda share: None
) -> dict[str, np.ndarray]:
    """Everything that RelativeBody needs.

    Raises NotReady naming the first tensor that is missing or does not fit.
    """
    source, out, body = Source(state), {}, BodyDims.of(dims)
    for layer in range(body.layers):
        out |= _layer(source, layer, body)
        on_progress((layer + 1) / (body.layers + 1))
    out |= _norm(source, "norm", "llm.after_norm", body.hidden)
    out |= linear("head", source.one("llm_decoder.weight", (body.rows, body.hidden)))
    out["head.bias"] = source.one("llm_decoder.bias", (body.rows,))
    for name, graph in zip(GRAPHS, (steps, passage), strict=True):
        out[name] = np.frombuffer(bytearray(graph(body)), np.uint8)
    for key in (key for key in state if not key.startswith(LAYERS)):
        out[TEXT + key] = source.one(key, tuple(state[key].shape), torch.float16)
    on_progress(1.0)
    return out


def _layer(source: Source, layer: int, d: BodyDims) -> dict[str, np.ndarray]:
    at, to, square = f"{LAYERS}{layer}", f"layers.{layer}", (d.hidden, d.hidden)
    out = linear(
        f"{to}.qkv",
        source.stack([(f"{at}.self_attn.linear_{part}.weight", square) for part in "qkv"]),
    )
    near, far = (
        source.one(f"{at}.self_attn.pos_bias_{letter}", (d.heads, d.head_size)).reshape(-1)
        for letter in "uv"
    )
    bias = source.stack([(f"{at}.self_attn.linear_{part}.bias", (d.hidden,)) for part in "qkv"])
    bias[: d.hidden] += near
    out |= {
        f"{to}.qkv.bias": bias,
        f"{to}.beside": far - near,
        f"{POSITIONS}.{layer}": source.one(f"{at}.self_attn.linear_pos.weight", square),
    }
    for name, key, shape in (
        ("o", "self_attn.linear_out", square),
        ("up", "feed_forward.w_1", (d.inner, d.hidden)),
        ("down", "feed_forward.w_2", (d.hidden, d.inner)),
    ):
        out |= linear(f"{to}.{name}", source.one(f"{at}.{key}.weight", shape))
        out[f"{to}.{name}.bias"] = source.one(f"{at}.{key}.bias", shape[:1])
    return (
        out
        | _norm(source, f"{to}.in", f"{at}.norm1", d.hidden)
        | _norm(source, f"{to}.post", f"{at}.norm2", d.hidden)
    )


def _norm(source: Source, name: str, key: str, size: int) -> dict[str, np.ndarray]:
    return {f"{name}.{part}": source.one(f"{key}.{part}", (size,)) for part in ("weight", "bias")}
