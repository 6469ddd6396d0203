"""Mel to fundamental frequency, one value per frame.

A frame's value depends on the five frames on either side.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import nn

from .dims import MEL_BANDS

REACH_FRAMES = 5


@contextmanager
def full_precision() -> Iterator[None]:
    """No TF32: an f0 of 200 Hz must be right to 1e-6, or the phase runs away."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


class F0Predictor(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        layers: list[nn.Module] = []
        for i in range(REACH_FRAMES):
            layers += [
                nn.Conv1d(channels if i else MEL_BANDS, channels, 3, padding=1),
                nn.Identity(),
            ]
        self.condnet = nn.ModuleList(layers)
        self.classifier = nn.Linear(channels, 1)

    def forward(self, mel: torch.Tensor, is_there: torch.Tensor | float = 1.0) -> torch.Tensor:
        """mel (batch, 80, frames) -> (batch, frames) in Hz. is_there (batch, 1, frames): 0 before
        the utterance, where every layer has zeros and not what it makes of zeros.
        """
        for conv in self.condnet[::2]:
            mel = F.elu(conv(mel)) * is_there
        return self.classifier(mel.mT)[..., 0].abs()
