"""Samples in, the features each network was trained on out: resampling, Whisper log-mel, Kaldi filter bank, prompt mel. Blind to files."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

TOKENIZER_HZ, OUTPUT_HZ = 16_000, 24_000
MEL_HOP_SAMPLES = 480  # 20 ms at 24 kHz: two frames per speech id
_EPSILON = torch.finfo(torch.float32).eps


def resample(x: Tensor, from_hz: int, to_hz: int) -> Tensor:
    """(n,) fp32 -> (ceil(n to/from),): windowed sinc, Hann, six zero crossings, roll-off 0.99. The training data went through this one."""
    if from_hz == to_hz:
        return x
    gcd = math.gcd(from_hz, to_hz)
    a, b = from_hz // gcd, to_hz // gcd
    kernel, width = _resampler(a, b)
    padded = F.pad(x, (width, width + a))
    phases = F.conv1d(padded[None, None], kernel[:, None], stride=a)[0]  # (b, frames)
    return phases.T.reshape(-1)[: -(-b * len(x) // a)]


@lru_cache(maxsize=16)
def _resampler(a: int, b: int) -> tuple[Tensor, int]:
    cutoff = 0.99 * min(a, b)
    width = math.ceil(6 * a / cutoff)
    taps = torch.arange(-width, width + a, dtype=torch.float64) / a
    u = (cutoff * (taps[None] - torch.arange(b, dtype=torch.float64)[:, None] / b)).clamp(-6, 6)
    kernel = torch.sinc(u) * torch.cos(u * math.pi / 12) ** 2 * cutoff / a
    return kernel.float(), width


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
    log = torch.log10((_slaney(TOKENIZER_HZ, 400, 128) @ power).clamp(min=1e-10))
    return ((torch.maximum(log, log.max() - 8) + 4) / 4)[None]


def kaldi_fbank(x: Tensor) -> Tensor:
    """(n,) at 16 kHz within -1..1 -> (1 + (n - 400) // 160, 80), each band's mean over time removed. Input of the speaker network."""
    frames = x.unfold(0, 400, 160)
    frames = frames - frames.mean(1, keepdim=True)
    frames = frames - 0.97 * torch.cat((frames[:, :1], frames[:, :-1]), 1)
    window = torch.hann_window(400, periodic=False) ** 0.85
    power = torch.fft.rfft(frames * window, 512).abs() ** 2
    bands = torch.log((power @ _kaldi_bands().T).clamp(min=_EPSILON))
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
    return torch.log((_slaney(rate_hz, window, 80, top_hz) @ magnitude).clamp(min=1e-5)).T


@lru_cache(maxsize=8)
def _slaney(rate_hz: int, n_fft: int, bands: int, top_hz: float = 8000.0) -> Tensor:
    """(bands, n_fft // 2 + 1): triangles between equally spaced Slaney mels, each of unit area."""

    def to_mel(hz: float) -> float:
        return hz * 3 / 200 if hz < 1000 else 15 + 27 * math.log(hz / 1000) / math.log(6.4)

    mels = torch.linspace(0, to_mel(top_hz), bands + 2, dtype=torch.float64)
    edges = torch.where(
        mels < 15, mels * 200 / 3, 1000 * torch.exp((mels - 15) * math.log(6.4) / 27)
    )
    hz = torch.arange(n_fft // 2 + 1, dtype=torch.float64) * rate_hz / n_fft
    return (_triangles(edges, hz) * (2 / (edges[2:] - edges[:-2]))[:, None]).float()


@lru_cache(maxsize=1)
def _kaldi_bands() -> Tensor:
    """(80, 257): triangles that are straight in mel, from 20 Hz to half the rate."""

    def to_mel(hz: Tensor) -> Tensor:
        return 1127 * torch.log1p(hz / 700)

    low, high = to_mel(torch.tensor([20.0, 8000.0], dtype=torch.float64)).tolist()
    edges = torch.linspace(low, high, 82, dtype=torch.float64)
    bins = to_mel(torch.arange(257, dtype=torch.float64) * TOKENIZER_HZ / 512)
    bands = _triangles(edges, bins).float()
    bands[:, -1] = 0
    return bands


def _triangles(edges: Tensor, points: Tensor) -> Tensor:
    rising = (points[None] - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - points[None]) / (edges[2:] - edges[1:-1])[:, None]
    return torch.minimum(rising, falling).clamp(min=0)
