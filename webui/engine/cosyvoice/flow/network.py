"""What the flows of all generations have: the tables of ids and speakers, a solver around their
estimator, and how weights come into them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import torch
import torch.nn.functional as F
from torch import nn

from ..checkpoint import assign
from ..mkldnn_linear import prepack_linears
from .cfm_solver import CFMSolver
from .dims import MEL_BANDS, EstimatorSizes


class FlowNetwork(nn.Module):
    solver: type[CFMSolver] = CFMSolver

    def __init__(self, dims: EstimatorSizes, width: int, estimator: nn.Module):
        """width: of an id's embedding."""
        super().__init__()
        self.dims = dims
        self.input_embedding = nn.Embedding(dims.speech_token_size, width)
        self.spk_embed_affine_layer = nn.Linear(dims.spk_embed_dim, MEL_BANDS)
        self.decoder = self.solver(estimator, dims.euler_steps)

    @classmethod
    def of(
        cls,
        dims: EstimatorSizes,
        state: Mapping[str, torch.Tensor],
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
    ) -> Self:
        """From a state dict with upstream's key names.

        Raises NotReady naming the first key or shape that does not fit.
        """
        with torch.device("meta"):
            model = cls(dims)
        return assign(model, dict(state), "flow.pt").to(device=device, dtype=dtype).pack()

    @torch.inference_mode()
    def pack(self) -> Self:
        """Once, after the weights are in place, with their final dtype and device: fused matrices
        and constant tables.
        """
        for module in list(self.modules()):
            if module is not self and hasattr(module, "pack"):
                module.pack()
        for layers in self.decoder.estimator.products:
            prepack_linears(layers)
        return self.eval().requires_grad_(False)

    @property
    def dtype(self) -> torch.dtype:
        return self.spk_embed_affine_layer.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.spk_embed_affine_layer.weight.device

    def speaker(self, embedding: torch.Tensor) -> torch.Tensor:
        """(192,) or (1, 192) -> (1, 80)"""
        return self.spk_embed_affine_layer(
            F.normalize(embedding.reshape(1, -1).to(self.spk_embed_affine_layer.weight), dim=1)
        )

    def embedded(self, ids: torch.Tensor) -> torch.Tensor:
        """(rows,) -> (1, rows, width)"""
        if int(ids.max()) >= self.dims.speech_token_size:
            raise ValueError(
                f"speech id {int(ids.max())} is outside 0..{self.dims.speech_token_size - 1}"
            )
        return self.input_embedding(ids.to(self.device).clamp(min=0))[None]
