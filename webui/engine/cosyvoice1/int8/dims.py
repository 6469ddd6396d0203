"""Sizes that the graphs and their slots ask for."""

from __future__ import annotations

from dataclasses import dataclass

from ..dims import LmDims, StackDims


@dataclass(frozen=True)
class BodyDims(StackDims):
    """The layers, and the rows of the head behind them."""

    rows: int

    @classmethod
    def of(cls, dims: LmDims) -> BodyDims:
        body = dims.body
        return cls(body.hidden, body.heads, body.inner, body.layers, dims.rows)
