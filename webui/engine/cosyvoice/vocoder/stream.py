"""A stream of mel to a stream of wave that is the wave of one shot, to rounding of the model's
reach: no fades, no seams.

It carries the harmonics' phase, keeps a few frames on either side, and holds back the last ones
until their surroundings are known.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .dims import MEL_BANDS
from .f0 import REACH_FRAMES
from .model import Vocoder
from .source import noise_at


@dataclass(frozen=True)
class ContextWindow:
    """Frames around what is emitted.

    `left` costs work, `right` costs delay; `first_right` is that of the first sound, where delay
    counts most and there is only one seam to pay for it.
    """

    left: int
    right: int
    first_right: int

    def __post_init__(self):
        if self.left < 0 or min(self.right, self.first_right) <= REACH_FRAMES:
            raise ValueError(
                f"right must be above {REACH_FRAMES}, or the phase is not final yet; got {self}"
            )


# rms of the difference from one shot, measured on the golden mels with hops of 20 to 50 frames:
# STEADY 0.06-0.11 % (nearly all of it at the first seam) for a tenth less work and 80 ms less delay
# than FULL, which is at the rounding floor, 0.001-0.025 %
STEADY = ContextWindow(left=10, right=10, first_right=8)
FULL = ContextWindow(left=16, right=14, first_right=14)


class VocoderState:
    """One stream. `seed` decides the noise (None: none)."""

    def __init__(self, vocoder: Vocoder, seed: int | None = 0, reach: ContextWindow = STEADY):
        self.vocoder, self.seed, self.reach = vocoder, seed, reach
        self.mel: torch.Tensor | None = None  # (1, 80, kept): from `first` on
        self.first = 0  # absolute frame of mel[..., 0]
        self.window = 0  # absolute frame where the decoder's window starts
        self.cycles = vocoder.m_source.start(seed)  # (9,) phase moved before `window`
        self.emitted = 0  # frames
        self.decoded_frames = 0
        self.closed = False

    @torch.inference_mode()
    def push(self, mel: torch.Tensor, final: bool = False) -> torch.Tensor:
        """mel (n, 80), the next frames (n may be 0) -> float32 samples (m,) on the CPU that are
        final now. `final` gives the rest.
        """
        if self.closed:
            raise ValueError("this stream has had its last call")
        self.closed = final
        new = mel.reshape(-1, MEL_BANDS).to(self.vocoder.conv_pre.weight).mT[None]
        self.mel = new if self.mel is None else torch.cat([self.mel, new], 2)
        end = self.first + self.mel.shape[2]
        ready = (
            end if final else end - (self.reach.right if self.emitted else self.reach.first_right)
        )
        if ready <= self.emitted:
            return torch.zeros(0)
        f0 = self.vocoder.f0(self.mel)[self.window - self.first :]
        frame_samples = self.vocoder.dims.frame_samples
        noise = (
            None
            if self.seed is None
            else noise_at(
                self.seed, self.window * frame_samples, (end - self.window) * frame_samples
            )
        )
        source = self.vocoder.m_source(f0, noise, self.cycles).to(self.mel)
        wave = self.vocoder.decode(self.mel[..., self.window - self.first :], source).float().cpu()
        self.decoded_frames += end - self.window
        wave = wave[
            (self.emitted - self.window) * frame_samples : (ready - self.window) * frame_samples
        ]
        self.emitted = ready
        self._move(f0)
        return wave

    def _move(self, f0: torch.Tensor) -> None:
        """Forget what the next call cannot hear, and carry the phase to its window."""
        window = max(0, self.emitted - self.reach.left)
        if window > self.window:
            self.cycles = self.vocoder.m_source.after(f0[: window - self.window], self.cycles)
            self.window = window
        first = max(0, window - REACH_FRAMES)
        self.mel, self.first = self.mel[..., first - self.first :].clone(), first
