"""The int8 language model at work: text is encoded by torch, which is done once for a request; the
layers behind it run in ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..device import DeviceConfig, cores
from ..dims_v1 import LmDimsV1
from ..llm.kv_cache import TorchKVCache
from ..llm.relative_cache import TextKVCache
from ..llm.text_lm import READY, TextLM
from ..relative_attention import sinusoid
from . import converted
from .relative_dims import POSITIONS, TEXT, BodyDims
from .runtime import Int8Body


class RelativeBody(Int8Body):
    """Rows of its tables are made as far as requests reach, and once for as many as most need."""

    def __init__(
        self,
        dims: BodyDims,
        values: Mapping[str, np.ndarray],
        threads: int = 1,
        passage_threads: int = 1,
    ):
        self._made = [torch.zeros(dims.heads, 0, dims.head_size) for _ in range(dims.layers)]
        self._weights = [
            torch.from_numpy(values[f"{POSITIONS}.{layer}"]) for layer in range(dims.layers)
        ]
        super().__init__(dims, values, threads, passage_threads)
        self._slots.make_room(READY - 1)

    def position_inputs(self, count: int) -> Mapping[str, np.ndarray]:
        """distances.L (heads, count, head_size): what the heads hear of a distance, scaled as their
        scores are.
        """
        d, out = self.dims, {}
        for layer, (made, weight) in enumerate(zip(self._made, self._weights, strict=True)):
            waves = sinusoid(
                torch.arange(made.shape[1], count, dtype=torch.float64), d.hidden
            ).float()
            rows = (waves @ weight.T * d.head_size**-0.5).view(-1, d.heads, d.head_size)
            self._made[layer] = torch.cat([made, rows.transpose(0, 1)], 1)
            out[f"distances.{layer}"] = self._made[layer].numpy()
        return out


class Int8TextLm(TextLM):
    """The LanguageModel of llm/interface.py.

    What it holds of the published weights is what makes the layers' input.
    """

    def __init__(self, dims: LmDimsV1):
        super().__init__(dims, layers=0)
        self.body: RelativeBody | None = None

    @classmethod
    def load(
        cls,
        root: Path,
        dims: LmDimsV1,
        device_config: DeviceConfig,
        on_progress: converted.Told = lambda share: None,
    ) -> Int8TextLm:
        """Converts once, and keeps that beside the published file. Raises NotReady."""
        return cls.made(
            dims,
            converted.load(root, dims, on_progress, form=FORM),
            device_config.dtype,
            device_config.lm_threads,
            min(2, cores()),
        )

    @classmethod
    def made(
        cls,
        dims: LmDimsV1,
        values: Mapping[str, np.ndarray],
        dtype: torch.dtype = torch.float32,
        threads: int = 1,
        passage_threads: int = 1,
    ) -> Int8TextLm:
        """values: of relative_weights.py. dtype: of what torch computes."""
        lm = cls.of(
            dims,
            {
                name.removeprefix(TEXT): torch.from_numpy(array).to(dtype)
                for name, array in values.items()
                if name.startswith(TEXT)
            },
        )
        lm.body = RelativeBody(BodyDims.of(dims), values, threads, passage_threads)
        return lm

    def new_cache(self, capacity: int = 0) -> TextKVCache:
        return TextKVCache(
            self.body.new_cache(capacity),
            TorchKVCache(self.dims.encoder, 1, 1, self._like.dtype, self._like.device),
        )

    def _behind(self, x: Tensor, past: TextKVCache) -> TextKVCache:
        self.body.run(x.float().numpy(), [past.body])
        return TextKVCache(past.body.rest(), past.text)

    @torch.no_grad()
    def step(self, x: Tensor, past: TextKVCache) -> Tensor:
        """Row numbers (1, n, 1) behind `past`; log-probabilities after the last position, (1, rows)
        fp32.
        """
        hidden = self.embedded(x, past)
        return self.body.run(hidden.float().numpy(), [past.body])

    @torch.no_grad()
    def step_many(self, ids: Sequence[int], pasts: Sequence[TextKVCache]) -> Tensor:
        """The pasts must be different ones."""
        return self.body.run(
            self.table[torch.as_tensor(ids)][:, None].float().numpy(), [past.body for past in pasts]
        )


def _values(
    dims: LmDimsV1, state: Mapping[str, Tensor], on_progress: converted.Told
) -> dict[str, np.ndarray]:
    from .relative_weights import of  # brings in the onnx package, which no later start needs

    return of(dims, state, on_progress)


FORM = converted.ExportFormat("kaikou-int8-first-5", _values)


def fits(dims: LmDimsV1) -> bool:
    return converted.fits(dims.body)


def memory(dims: LmDimsV1, size: int) -> int:
    """Bytes: layers and head packed twice, their tables of positions, and the text encoder in
    torch, `size` bytes per value.
    """
    d, e = dims.body, dims.encoder
    linears = d.layers * (4 * d.hidden**2 + 2 * d.hidden * d.inner) + dims.rows * d.hidden
    tables = 4 * d.layers * d.hidden * (d.hidden + READY)
    encoder = (
        e.layers * (5 * e.hidden**2 + 2 * e.hidden * e.inner)
        + dims.text_rows * dims.text_width
        + 2 * dims.rows * d.hidden
    )
    return int(linears * (2 + 4 / 64)) + tables + encoder * size
