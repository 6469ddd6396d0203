"""Matrices of a bf16 network on a CPU, in the order in which its dot-product units read them. torch rearranges a plain matrix at every call,
which is a fifth of the time of a product with as few rows as a piece of sound has. The same bits come out."""

from __future__ import annotations

import torch
from torch import nn


def fits(weight: torch.Tensor) -> bool:
    """Whether this build of torch and this processor have it."""
    if weight.device.type != "cpu" or weight.dtype != torch.bfloat16 or not torch.backends.mkldnn.is_available():
        return False
    return all(hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise")) and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


class Arranged(nn.Module):
    """A linear layer: (..., c_in) -> (..., c_out)."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None):
        super().__init__()
        self._matrix, self._bias = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), None), bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.mkldnn._linear_pointwise(x.contiguous(), self._matrix, self._bias, "none", [], "")


def arrange(layers: nn.Module) -> None:
    """All linear layers below, where that fits. Their plain weights are gone afterwards."""
    for parent in list(layers.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear) and fits(child.weight):
                setattr(parent, name, Arranged(child.weight.detach(), None if child.bias is None else child.bias.detach()))
