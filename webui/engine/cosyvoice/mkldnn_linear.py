"""Matrices on a CPU in the order in which its units read them. torch rearranges a plain one at
every call: with as few rows as a piece of sound has, a fifth of a product's time in bf16 (the same
bits come out), a third in fp32 (the same to rounding, and whatever rows share it).
"""

from __future__ import annotations

import torch
from torch import nn


def fits(weight: torch.Tensor) -> bool:
    """Whether this build of torch and this processor have it."""
    if (
        weight.device.type != "cpu"
        or weight.dtype not in (torch.float32, torch.bfloat16)
        or not torch.backends.mkldnn.is_available()
    ):
        return False
    if not all(
        hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise")
    ):
        return False
    return weight.dtype == torch.float32 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


class PrepackedLinear(nn.Module):
    """A linear layer: (..., c_in) -> (..., c_out)."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None):
        super().__init__()
        self._matrix, self._bias = (
            torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), None),
            bias,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.mkldnn._linear_pointwise(
            x.contiguous(), self._matrix, self._bias, "none", [], ""
        )


def prepack_linears(layers: nn.Module) -> None:
    """All linear layers below, where that fits. Their plain weights are gone afterwards."""
    for parent in list(layers.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear) and fits(child.weight):
                setattr(
                    parent,
                    name,
                    PrepackedLinear(
                        child.weight.detach(), None if child.bias is None else child.bias.detach()
                    ),
                )


def columns_first(layer: nn.Linear) -> None:
    """The same matrix, columns first in memory: what widens one single row in fp32 is read at 1.5
    times the speed so.
    """
    if layer.weight.device.type == "cpu" and layer.weight.dtype == torch.float32:
        layer.weight.data = layer.weight.data.t().contiguous().t()
