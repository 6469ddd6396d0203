"""The flow model: speech ids to mu by an embedding and a look ahead, mu to mel by the transformer.

Weights only.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from . import Blocks, CausalFlow
from .conformer import PreLookahead
from .conv import ConvCache
from .dims import FRAMES_PER_ID, LOOKAHEAD_IDS, MEL_BANDS
from .dit import Dit
from .dit_dims import DitDims


class DitFlow(CausalFlow):
    def __init__(self, dims: DitDims):
        super().__init__(dims, MEL_BANDS, Dit(dims))
        self.pre_lookahead_layer = PreLookahead(MEL_BANDS, dims.lookahead_channels)

    def new_past(self) -> ConvCache:
        return ConvCache()

    def encode(
        self, ids: torch.Tensor, final: bool, past: ConvCache, blocks: Blocks | None
    ) -> torch.Tensor:
        """An id's mu depends on the 2 before it and the 3 behind it: there are no blocks in it."""
        x = self.embedded(ids)
        if final:
            x = F.pad(x, (0, 0, 0, LOOKAHEAD_IDS))
        return self.pre_lookahead_layer(x, past).repeat_interleave(FRAMES_PER_ID, 1)
