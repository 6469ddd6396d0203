"""The vocoder's one work: a window of neighbouring frames for each of a batch of streams to its
samples, phases carried on the device.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..vocoder import STEADY, Vocoder
from ..vocoder.dims import (
    FFT,
    FFT_HOP,
    HARMONICS,
    LIMIT,
    MEL_BANDS,
    SINE_LEVEL,
    UNVOICED_NOISE,
    VOICED_HZ,
    VOICED_NOISE,
)
from ..vocoder.f0 import REACH_FRAMES, full_precision
from ..vocoder.hift import HiftLayers
from ..vocoder.source import noise_at

SLOT, START = range(2)  # columns of a job


class VocoderBuffers:
    """Rings of the last `ring` frames of each slot, by frame number modulo `ring`; slot 0 belongs
    to padding.
    """

    def __init__(self, vocoder: HiftLayers, slots: int, batch: int, longest: int, ring: int):
        weight = vocoder.conv_pre.weight
        device, samples = weight.device, batch * longest * vocoder.dims.frame_samples
        self.ring = ring
        self.mels = torch.zeros(slots + 1, ring, MEL_BANDS, dtype=weight.dtype, device=device)
        self.cycles = torch.zeros(
            slots + 1, ring, HARMONICS, dtype=torch.float64, device=device
        )  # moved before each frame, modulo 1
        self.jobs = torch.zeros(batch, 2, dtype=torch.long, device=device)
        self.noise = torch.zeros(samples * HARMONICS, device=device)
        self.waves = torch.zeros(samples, device=device)


class VocoderWork:
    """Here CosyVoice2's.

    Other generations have other values and other methods, of those whose names begin with a letter.
    before: frames in front of a window that its pitch depends on. reach: what must be around the
    frames that a window gives. lengths: of windows.
    """

    before, reach = REACH_FRAMES, STEADY
    lengths = (*range(1, 23), 24, 28, 36, 50, 70, 120, 220)

    def __init__(self, vocoder: Vocoder, buffers: VocoderBuffers):
        self.vocoder, self.buffers = vocoder, buffers
        self.each = vocoder.dims.frame_samples
        self.samples = torch.arange(self.each, dtype=torch.float64, device=buffers.waves.device)[
            :, None
        ]
        self.harmonics = torch.arange(
            1, HARMONICS + 1, dtype=buffers.waves.dtype, device=buffers.waves.device
        )

    @torch.inference_mode()
    def __call__(self, length: int, batch: int) -> None:
        """Windows of `length` frames of the first `batch` jobs -> the first batch * 480 * length of
        `waves`; phases into their ring.
        """
        buffers = self.buffers
        jobs = buffers.jobs[:batch]
        frames = (
            jobs[:, START, None]
            - self.before
            + torch.arange(length + self.before, device=jobs.device)
        )
        places = self._places(jobs, frames)
        mel = (
            buffers.mels.flatten(0, 1)
            .index_select(0, places.flatten())
            .view(batch, -1, MEL_BANDS)
            .mT
        )
        is_there = (frames >= 0)[:, None]
        with full_precision():
            f0 = self.pitch(mel * is_there, is_there)[:, self.before :].to(buffers.waves.dtype)
        source = self._source(
            f0,
            jobs,
            buffers.noise[: batch * length * self.each * HARMONICS].view(batch, -1, HARMONICS),
        )
        wave = overlapped(
            self.shaped(mel[..., self.before :].contiguous(), source.to(mel.dtype)),
            self.vocoder.window,
        )
        buffers.waves[: wave.numel()].copy_(wave.clamp(-LIMIT, LIMIT).flatten())

    def _places(self, jobs: Tensor, frames: Tensor) -> Tensor:
        """Frame numbers (batch, n) -> where they lie in the flattened rings"""
        return jobs[:, SLOT, None] * self.buffers.ring + frames % self.buffers.ring

    def start(self, seed: int | None) -> Tensor | None:
        """(9,) cycles moved before the first frame, None for zeros."""
        return self.vocoder.m_source.start(seed)

    def noise(self, seed: int | None, start: int, count: int) -> Tensor | None:
        """Of the samples start..start+count, (count, 9), None for none."""
        return None if seed is None else noise_at(seed, start, count)

    def pitch(self, mel: Tensor, is_there: Tensor) -> Tensor:
        """mel (batch, 80, n), is_there (batch, 1, n): not before the utterance -> f0 (batch, n) as
        of a net that has seen it from its start
        """
        predictor, x = self.vocoder.f0_predictor, mel
        for conv in predictor.condnet[::2]:
            x = (
                F.elu(self.convolved(conv, x)) * is_there
            )  # before the utterance each layer has zeros, not what it makes of zeros
        return predictor.classifier(x.mT)[..., 0].abs()

    def convolved(self, conv: nn.Conv1d, x: Tensor) -> Tensor:
        """As many frames as before."""
        return conv(x)

    def moves(self, f0: Tensor) -> Tensor:
        """(batch, n) -> (batch, n, 9) fp64, by how many cycles each frame moves."""
        return (f0[..., None] * self.harmonics / self.vocoder.dims.rate_hz % 1).double() * self.each

    def cycles(self, at: Tensor, moves: Tensor, is_start: Tensor) -> Tensor:
        """at (batch, n + 1, 9): before each frame and behind the last; is_start (batch, 1, 1) -> of
        each sample, (batch, n * each, 9)
        """
        ahead = torch.cat([moves, moves.new_zeros(len(moves), 1, HARMONICS)], 1)
        within, half, length = (
            (self.samples + 0.5) / self.each,
            self.each // 2,
            moves.shape[1] * self.each,
        )
        phase = (at[:, :, None] + within * ahead[:, :, None]).flatten(1, 2)[:, half : half + length]
        return torch.cat(
            [torch.where(is_start, at[:, 1:2], phase[:, :half]), phase[:, half:]], 1
        )  # half a frame there stands still

    def shaped(self, mel: Tensor, source: Tensor) -> Tensor:
        """mel (batch, 80, n), source (batch, 1, n * each) -> complex spectrum (batch, 9, n * each /
        4 + 1)
        """
        return self.vocoder.shaped(mel, source)

    def risen(self, samples: Tensor, start: int) -> Tensor:
        """The wave from sample `start` on, as it is heard."""
        return samples

    def _source(self, f0: Tensor, jobs: Tensor, noise: Tensor) -> Tensor:
        """f0 (batch, n), noise (batch, n * each, 9) -> the excitation (batch, 1, n * each), as
        Source makes it of one stream
        """
        count, moves = f0.shape[1], self.moves(f0)
        ring = self.buffers.cycles.flatten(0, 1)
        frames = jobs[:, START, None] + torch.arange(count + 1, device=jobs.device)
        places = self._places(jobs, frames)
        before = ring[places[:, :1]]
        at = torch.cat([before, before + moves.cumsum(1)], 1) % 1.0
        ring.index_copy_(0, places[:, 1:].flatten(), at[:, 1:].flatten(0, 1))
        phase = self.cycles(at, moves, (jobs[:, START] == 0)[:, None, None])
        waves = ((2 * math.pi * (phase % 1.0)).sin() * SINE_LEVEL).to(f0.dtype)
        voiced = (f0 > VOICED_HZ).to(f0.dtype).repeat_interleave(self.each, 1)[..., None]
        mixed = waves * voiced + noise.to(f0.dtype) * (
            UNVOICED_NOISE + (VOICED_NOISE - UNVOICED_NOISE) * voiced
        )
        linear = self.vocoder.m_source.l_linear
        return linear(mixed.to(linear.weight)).tanh().mT


def overlapped(spectrum: Tensor, window: Tensor) -> Tensor:
    """The inverse of a centred STFT: complex (batch, 9, frames) -> (batch, 4 * (frames - 1)).
    torch.istft looks at a value on the host.
    """
    frames = spectrum.shape[2]
    length = FFT + FFT_HOP * (frames - 1)
    pieces = torch.fft.irfft(spectrum, FFT, dim=1) * window[:, None]
    weights = window.square()[None, :, None].expand(1, FFT, frames)

    def added(x: Tensor) -> Tensor:
        return F.fold(x, (1, length), (1, FFT), stride=(1, FFT_HOP))[
            :, 0, 0, FFT // 2 : length - FFT // 2
        ]

    return added(pieces) / added(weights)
