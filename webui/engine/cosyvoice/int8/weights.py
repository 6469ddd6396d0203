"""The published tensors of the language model under the graph's names, linears as int8.

Knows both namings; blind to files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from ....messages import message
from ..llm.dims import LmDims
from ..model_faults import model_fault
from .graph import passage, steps
from .quantise import quantise, quantise_rows
from .runtime import GRAPHS, TABLES

_BODY = "llm.model.model"
Told = Callable[[float], None]  # share done


def of(
    dims: LmDims, state: Mapping[str, Tensor], on_progress: Told = lambda share: None
) -> dict[str, np.ndarray]:
    """Everything that Int8Lm needs.

    Raises NotReady naming the first tensor that is missing or does not fit.

    Takes one published matrix into memory at a time; the result has about two bytes per value.
    """
    source, out = Source(state), {}
    d, kv = dims, dims.kv_heads * dims.head_size
    for layer in range(d.layers):
        at, to = f"{_BODY}.layers.{layer}", f"layers.{layer}"
        out |= linear(
            f"{to}.qkv",
            source.stack(
                [
                    (f"{at}.self_attn.{p}_proj.weight", (n, d.hidden))
                    for p, n in (("q", d.hidden), ("k", kv), ("v", kv))
                ]
            ),
        )
        out[f"{to}.qkv.bias"] = source.stack(
            [
                (f"{at}.self_attn.{p}_proj.bias", (n,))
                for p, n in (("q", d.hidden), ("k", kv), ("v", kv))
            ]
        )
        out |= linear(f"{to}.o", source.one(f"{at}.self_attn.o_proj.weight", (d.hidden, d.hidden)))
        out |= linear(
            f"{to}.gate_up",
            source.stack(
                [(f"{at}.mlp.{p}_proj.weight", (d.intermediate, d.hidden)) for p in ("gate", "up")]
            ),
        )
        out |= linear(
            f"{to}.down", source.one(f"{at}.mlp.down_proj.weight", (d.hidden, d.intermediate))
        )
        out[f"{to}.in.weight"] = source.one(f"{at}.input_layernorm.weight", (d.hidden,))
        out[f"{to}.post.weight"] = source.one(f"{at}.post_attention_layernorm.weight", (d.hidden,))
        on_progress((layer + 1) / (d.layers + 2))
    out["norm.weight"] = source.one(f"{_BODY}.norm.weight", (d.hidden,))
    out |= linear("head", source.one("llm_decoder.weight", (d.rows, d.hidden)))
    out["head.bias"] = source.one("llm_decoder.bias", (d.rows,))
    out[TABLES["speech"]] = source.one("speech_embedding.weight", (d.rows, d.hidden))
    out[TABLES["mark"]] = source.one("llm_embedding.weight", (2, d.hidden))
    out[TABLES["text"]] = source.one(
        f"{_BODY}.embed_tokens.weight", (d.text_rows, d.hidden), torch.float16
    )
    for name, graph in zip(GRAPHS, (steps, passage), strict=True):
        out[name] = np.frombuffer(bytearray(graph(dims)), np.uint8)
    on_progress(1.0)
    return out


def linear(name: str, weight: np.ndarray) -> dict[str, np.ndarray]:
    (codes, scales), (whole, gains) = quantise(weight), quantise_rows(weight)
    return {
        f"{name}.codes": codes,
        f"{name}.scales": scales,
        f"{name}.bytes": whole,
        f"{name}.gains": gains,
    }


class Source:
    def __init__(self, state: Mapping[str, Tensor]):
        self._state = state

    def one(
        self, key: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float32
    ) -> np.ndarray:
        found = self._state.get(key)
        if found is None:
            raise model_fault(
                "llm.pt",
                message("file.tensor", name=key, shape=str(list(shape))),
                message("file.none_of_name"),
            )
        if tuple(found.shape) != shape:
            raise model_fault(
                "llm.pt",
                message("file.with_shape", name=key, shape=str(list(shape))),
                str(list(found.shape)),
            )
        if not all(
            bound.isfinite() for bound in found.aminmax()
        ):  # no copy of the largest table, as isfinite() on it would make
            raise model_fault(
                "llm.pt", message("file.finite_values", name=key), message("file.not_finite")
            )
        return found.to(dtype).contiguous().numpy()

    def stack(self, parts: list[tuple[str, tuple[int, ...]]]) -> np.ndarray:
        return np.concatenate([self.one(key, shape) for key, shape in parts])
