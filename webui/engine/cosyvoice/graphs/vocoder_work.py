"""The vocoder's one work: a window of neighbouring frames for each of a batch of streams to its samples, phases carried on the device."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ..vocoder import Vocoder
from ..vocoder.dims import (
    FFT,
    FFT_HOP,
    FRAME_SAMPLES,
    HARMONICS,
    LIMIT,
    MEL_BANDS,
    RATE_HZ,
    SINE_LEVEL,
    UNVOICED_NOISE,
    VOICED_HZ,
    VOICED_NOISE,
)
from ..vocoder.f0 import REACH_FRAMES, full_precision

SLOT, START = range(2)  # columns of a job


class VocoderBuffers:
    """Rings of the last `ring` frames of each slot, by frame number modulo `ring`; slot 0 belongs to padding."""

    def __init__(self, vocoder: Vocoder, slots: int, batch: int, longest: int, ring: int):
        weight = vocoder.conv_pre.weight
        device, samples = weight.device, batch * longest * FRAME_SAMPLES
        self.ring = ring
        self.mels = torch.zeros(slots + 1, ring, MEL_BANDS, dtype=weight.dtype, device=device)
        self.cycles = torch.zeros(slots + 1, ring, HARMONICS, dtype=torch.float64, device=device)  # moved before each frame, modulo 1
        self.jobs = torch.zeros(batch, 2, dtype=torch.long, device=device)
        self.noise = torch.zeros(samples * HARMONICS, device=device)
        self.waves = torch.zeros(samples, device=device)


class VocoderWork:
    def __init__(self, vocoder: Vocoder, buffers: VocoderBuffers):
        self.vocoder, self.buffers = vocoder, buffers
        frames = torch.arange(FRAME_SAMPLES, dtype=torch.float64, device=buffers.waves.device)
        self._within = (frames[:, None] + 0.5) / FRAME_SAMPLES
        self._harmonics = torch.arange(1, HARMONICS + 1, dtype=buffers.waves.dtype, device=buffers.waves.device)

    @torch.inference_mode()
    def __call__(self, length: int, batch: int) -> None:
        """Windows of `length` frames of the first `batch` jobs -> the first batch * 480 * length of `waves`; phases into their ring."""
        buffers = self.buffers
        jobs = buffers.jobs[:batch]
        frames = jobs[:, START, None] - REACH_FRAMES + torch.arange(length + REACH_FRAMES, device=jobs.device)
        places = self._places(jobs, frames)
        mel = buffers.mels.flatten(0, 1).index_select(0, places.flatten()).view(batch, -1, MEL_BANDS).mT
        f0 = self._f0(mel, frames)
        source = self._source(f0, jobs, buffers.noise[: batch * length * FRAME_SAMPLES * HARMONICS].view(batch, -1, HARMONICS))
        wave = overlapped(self.vocoder.shaped(mel[..., REACH_FRAMES:].contiguous(), source.to(mel.dtype)), self.vocoder.window)
        buffers.waves[: wave.numel()].copy_(wave.clamp(-LIMIT, LIMIT).flatten())

    def _places(self, jobs: Tensor, frames: Tensor) -> Tensor:
        """Frame numbers (batch, n) -> where they lie in the flattened rings"""
        return jobs[:, SLOT, None] * self.buffers.ring + frames % self.buffers.ring

    def _f0(self, mel: Tensor, frames: Tensor) -> Tensor:
        """mel (batch, 80, 5 + n), its frame numbers (batch, 5 + n) -> f0 (batch, n) as of a net that has seen the utterance from its start"""
        is_there = (frames >= 0)[:, None]
        predictor, x = self.vocoder.f0_predictor, mel * is_there
        with full_precision():
            for conv in predictor.condnet[::2]:
                x = F.elu(conv(x)) * is_there  # before the utterance each layer has zeros, not what it makes of zeros
            return predictor.classifier(x.mT)[:, REACH_FRAMES:, 0].abs().to(self.buffers.waves.dtype)

    def _source(self, f0: Tensor, jobs: Tensor, noise: Tensor) -> Tensor:
        """f0 (batch, n), noise (batch, 480n, 9) -> the excitation (batch, 1, 480n), as Source makes it of one stream"""
        batch, count = f0.shape
        moves = (f0[..., None] * self._harmonics / RATE_HZ % 1).double() * FRAME_SAMPLES
        ring = self.buffers.cycles.flatten(0, 1)
        frames = jobs[:, START, None] + torch.arange(count + 1, device=jobs.device)
        places = self._places(jobs, frames)
        before = ring[places[:, :1]]
        at = torch.cat([before, before + moves.cumsum(1)], 1) % 1.0
        ring.index_copy_(0, places[:, 1:].flatten(), at[:, 1:].flatten(0, 1))
        ahead = torch.cat([moves, moves.new_zeros(batch, 1, HARMONICS)], 1)
        half = FRAME_SAMPLES // 2
        phase = (at[:, :, None] + self._within * ahead[:, :, None]).flatten(1, 2)[:, half : half + count * FRAME_SAMPLES]
        is_start = (jobs[:, START] == 0)[:, None, None]  # half a frame there stands still
        phase = torch.cat([torch.where(is_start, at[:, 1:2], phase[:, :half]), phase[:, half:]], 1)
        waves = ((2 * math.pi * (phase % 1.0)).sin() * SINE_LEVEL).to(f0.dtype)
        voiced = (f0 > VOICED_HZ).to(f0.dtype).repeat_interleave(FRAME_SAMPLES, 1)[..., None]
        mixed = waves * voiced + noise.to(f0.dtype) * (UNVOICED_NOISE + (VOICED_NOISE - UNVOICED_NOISE) * voiced)
        linear = self.vocoder.m_source.l_linear
        return linear(mixed.to(linear.weight)).tanh().mT


def overlapped(spectrum: Tensor, window: Tensor) -> Tensor:
    """The inverse of a centred STFT: complex (batch, 9, frames) -> (batch, 4 * (frames - 1)). torch.istft looks at a value on the host."""
    frames = spectrum.shape[2]
    length = FFT + FFT_HOP * (frames - 1)
    pieces = torch.fft.irfft(spectrum, FFT, dim=1) * window[:, None]
    weights = window.square()[None, :, None].expand(1, FFT, frames)

    def added(x: Tensor) -> Tensor:
        return F.fold(x, (1, length), (1, FFT), stride=(1, FFT_HOP))[:, 0, 0, FFT // 2 : length - FFT // 2]

    return added(pieces) / added(weights)
