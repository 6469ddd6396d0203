"""Samples in, the features each network was trained on out: resampling, Whisper log-mel, Kaldi
filter bank, prompt mel. Blind to files.
"""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from .torchaudio_functions import Resample, fbank, melscale_fbanks

TOKENIZER_HZ, OUTPUT_HZ = 16_000, 24_000
MEL_HOP_SAMPLES = 480  # 20 ms at 24 kHz: two frames per speech id


def resample(x: Tensor, from_hz: int, to_hz: int) -> Tensor:
    """(n,) fp32 -> (ceil(n to/from),): windowed sinc, Hann, six zero crossings, roll-off 0.99.

    The training data went through this one.
    """
    return x if from_hz == to_hz else _resampler(from_hz, to_hz)(x)


# The class, not the function: its kernel is made in double precision, as in the public code, and
# once.
_resampler = lru_cache(maxsize=16)(Resample)


def whisper_log_mel(x: Tensor) -> Tensor:
    """(n,) at 16 kHz -> (1, 128, n // 160). Input of the speech tokenizer, not padded to 30 s."""
    power = (
        torch.stft(
            x,
            400,
            160,
            window=torch.hann_window(400),
            center=True,
            pad_mode="reflect",
            return_complex=True,
        )[:, :-1].abs()
        ** 2
    )
    log = torch.log10((mel_bands(TOKENIZER_HZ, 400, 128) @ power).clamp(min=1e-10))
    return ((torch.maximum(log, log.max() - 8) + 4) / 4)[None]


def kaldi_fbank(x: Tensor) -> Tensor:
    """(n,) at 16 kHz within -1..1 -> (1 + (n - 400) // 160, 80), each band's mean over time
    removed. Input of the speaker network.
    """
    bands = fbank(x[None], num_mel_bins=80, dither=0.0, sample_frequency=TOKENIZER_HZ)
    return bands - bands.mean(0, keepdim=True)


def prompt_mel(x: Tensor) -> Tensor:
    """(n,) at 24 kHz -> (n // 480, 80) natural-log mel, the flow's own unit."""
    return log_mel(x, OUTPUT_HZ, 1920, MEL_HOP_SAMPLES)


def log_mel(x: Tensor, rate_hz: int, window: int, hop: int, top_hz: float = 8000.0) -> Tensor:
    """(n,) at `rate_hz` -> (n // hop, 80) natural-log mel up to top_hz. window, hop: samples."""
    side = (window - hop) // 2
    padded = F.pad(x[None, None], (side, side), mode="reflect")[0, 0]
    spectrum = torch.stft(
        padded, window, hop, window=torch.hann_window(window), center=False, return_complex=True
    )
    magnitude = torch.sqrt(spectrum.real**2 + spectrum.imag**2 + 1e-9)
    return torch.log((mel_bands(rate_hz, window, 80, top_hz) @ magnitude).clamp(min=1e-5)).T


@lru_cache(maxsize=8)
def mel_bands(rate_hz: int, n_fft: int, bands: int, top_hz: float = 8000.0) -> Tensor:
    """(bands, n_fft // 2 + 1): triangles between equally spaced Slaney mels, each of unit area."""
    return melscale_fbanks(
        n_fft // 2 + 1, 0.0, top_hz, bands, rate_hz, norm="slaney", mel_scale="slaney"
    ).T.contiguous()
