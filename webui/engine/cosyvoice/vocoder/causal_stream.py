"""A stream of mel to a stream of wave, each frame computed once: every layer's past is kept, so the
pieces are the wave of one shot.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from .causal_hift import F0_AHEAD, MEL_AHEAD, CausalVocoder
from .conv_tails import Tails
from .dims import FFT, FFT_HOP, LIMIT, MEL_BANDS

# the excitation of the frame behind, which the STFT looks half a window into, is known by then too
HELD_FRAMES = MEL_AHEAD
HALF = FFT // 2  # samples
FADE_SAMPLES = 480  # 20 ms
OPEN_COLUMNS = FFT // FFT_HOP  # of the wave's spectrum, whose sum with later ones is still to come

NoiseAt = Callable[
    [int, int], torch.Tensor
]  # (start, count) in samples of the utterance -> (count, 9)


class WaveStream:
    """One stream. noise: None for none. fade: samples in which it rises from nothing.

    `decoded_frames` counts its work.
    """

    def __init__(self, vocoder: CausalVocoder, noise: NoiseAt | None, fade: int = 0):
        self.vocoder, self.noise, self.fade, self.tails = vocoder, noise, fade, Tails()
        self.mel = vocoder.conv_pre.weight.new_zeros(
            1, MEL_BANDS, 0
        )  # from frame `decoded_frames` on
        # (9,) phase moved before the next frame of excitation
        self.cycles: torch.Tensor | None = None
        self.source = vocoder.window.new_zeros(
            1, 0
        )  # excitation from where the next column of its spectrum begins
        self.sourced_frames = self.decoded_frames = self.given_samples = 0
        self.spectrum: torch.Tensor | None = None  # the wave's, its open columns
        self.closed = False

    @torch.inference_mode()
    def push(self, mel: torch.Tensor, final: bool = False) -> torch.Tensor:
        """mel (n, 80), the next frames (n may be 0) -> float32 samples (m,) on the CPU that are
        final now. `final` gives the rest.
        """
        if self.closed:
            raise ValueError("this stream has had its last call")
        self.closed = final
        self.mel = torch.cat(
            [self.mel, mel.reshape(-1, MEL_BANDS).to(self.vocoder.conv_pre.weight).mT[None]], 2
        )
        count = self.mel.shape[2] - (0 if final else HELD_FRAMES)
        if count < 1:
            return torch.zeros(0)
        self._excite(final)
        columns = self._columns(count, final).to(self.mel)
        shaped = self.vocoder.shaped(
            F.pad(self.mel, (0, MEL_AHEAD)) if final else self.mel, columns, self.tails
        )
        self.mel, self.decoded_frames = self.mel[..., count:].clone(), self.decoded_frames + count
        return self._sound(shaped, final)

    def _excite(self, final: bool) -> None:
        """Excitation of all frames whose pitch can be told: that needs the 3 behind, or zeros at
        the end.
        """
        mel = self.mel[..., self.sourced_frames - self.decoded_frames :]
        f0 = self.vocoder.f0(F.pad(mel, (0, F0_AHEAD)) if final else mel, self.tails)
        frame_samples = self.vocoder.dims.frame_samples
        noise = (
            None
            if self.noise is None
            else self.noise(self.sourced_frames * frame_samples, len(f0) * frame_samples)
        )
        excitation = self.vocoder.m_source(f0, noise, self.cycles)[:, 0]
        self.source = torch.cat([self.source, excitation.to(self.source)], 1)
        self.cycles, self.sourced_frames = (
            self.vocoder.m_source.after(f0, self.cycles),
            self.sourced_frames + len(f0),
        )

    def _columns(self, count: int, final: bool) -> torch.Tensor:
        """The spectrum of the next `count` frames of excitation, real parts then imaginary: (1, 18,
        120 * count), at the start one more. A column looks half a window either way, where the
        utterance begins and ends into its mirror image.
        """
        is_start, samples = not self.decoded_frames, count * self.vocoder.dims.frame_samples
        end = samples + HALF + (0 if is_start else HALF - FFT_HOP)
        source = F.pad(self.source, (HALF * is_start, HALF * final), "reflect")[
            :, : end + HALF * is_start
        ]
        self.source = self.source[:, samples - (HALF - FFT_HOP) * is_start :]
        spectrum = torch.stft(
            source, FFT, FFT_HOP, window=self.vocoder.window, center=False, return_complex=True
        )
        return torch.cat([spectrum.real, spectrum.imag], 1)

    def _sound(self, shaped: torch.Tensor, final: bool) -> torch.Tensor:
        """shaped (1, 9, n), the wave's next columns -> the samples (m,) that no later one
        changes
        """
        spectrum = shaped if self.spectrum is None else torch.cat([self.spectrum, shaped], 2)
        wave = torch.istft(spectrum, FFT, FFT_HOP, window=self.vocoder.window)[0]
        before = 0 if self.spectrum is None else FFT_HOP  # of its first column; already given
        self.spectrum = None if final else spectrum[..., -OPEN_COLUMNS:].clone()
        wave = wave[before : None if final else -HALF].clamp(-LIMIT, LIMIT).float().cpu()
        self.given_samples += len(wave)
        return risen(wave, self.given_samples - len(wave), self.fade)


def risen(wave: torch.Tensor, start: int, fade: int) -> torch.Tensor:
    """wave (m,) from sample `start` of the utterance on, changed in place: it rises from nothing
    for `fade` samples.
    """
    rising = wave[: max(0, fade - start)]
    rising *= (torch.arange(start, start + len(rising)) + 0.5) / max(fade, 1)
    return wave
