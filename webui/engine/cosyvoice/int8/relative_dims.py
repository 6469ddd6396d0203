"""Sizes that the graphs and their slots ask for."""

from __future__ import annotations

from dataclasses import dataclass

from ..dims_v1 import LmDimsV1, StackDims

LAYERS = "llm.encoders."  # what ONNX Runtime computes, in the published file
POSITIONS = "table.positions"  # of every layer: from a distance's sines to what heads hear of it
TEXT = "table.text."  # the rest of the published tensors, for torch


@dataclass(frozen=True)
class BodyDims(StackDims):
    """The layers, and the rows of the head behind them."""

    rows: int

    @classmethod
    def of(cls, dims: LmDimsV1) -> BodyDims:
        body = dims.body
        return cls(body.hidden, body.heads, body.inner, body.layers, dims.rows)
