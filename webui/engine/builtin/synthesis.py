"""Puts sound together again, pulse by pulse: minimum phase, periodic part and noise part, overlap-added. All pulses of a block at once.

One Synthesizer per stream; its state (phase, overlap tail, random generator) is all that lives between two blocks.
"""

from __future__ import annotations

import numpy as np
from scipy import fft

from .grid import BINS, FFT, HOP_S, RATE_HZ, target_hz

HOP = round(HOP_S * RATE_HZ)
NOISE_HZ = 250.0  # noise pulses of unvoiced sound: one every 4 ms
LEAD = 32  # every response is delayed by this, else the fractional advance wraps around the buffer
_omega = (2 * np.pi * np.arange(BINS) / FFT).astype(np.float32)
# a random group delay of a few samples above 1.5 kHz, as phase: takes the buzz off a too regular pulse train
_spread = np.cumsum(np.clip((target_hz - 1500.0) / 6000.0, 0.0, 1.0)).astype(np.float32) * np.float32(2 * np.pi / FFT)
SPREAD_SAMPLES = 2.5
SHIMMER = 0.03


def minimum_phase(log_power: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(m, 257) log power -> log amplitude (m, 257) and minimum phase in radians (m, 257)."""
    cepstrum = fft.irfft(log_power * np.float32(0.5), FFT)
    cepstrum[:, 1 : FFT // 2] *= 2.0
    cepstrum[:, FFT // 2 + 1 :] = 0.0
    spectrum = fft.rfft(cepstrum, overwrite_x=True)
    return spectrum.real, spectrum.imag


class Synthesizer:
    """rng: the stream's own generator. breathiness (257,): amplitude share of noise in voiced sound, 0..1."""

    def __init__(self, breathiness: np.ndarray, rng: np.random.Generator, jitter: float = 0.006):
        self._rng, self._jitter = rng, np.float32(jitter)
        noisy = np.clip(breathiness, 0.0, 1.0).astype(np.float32)
        self._shares = np.stack((np.ones(BINS, np.float32), noisy))
        self._tones = np.stack((np.zeros(BINS, np.float32), np.sqrt(1.0 - noisy * noisy)))
        self.restart()

    def restart(self) -> None:
        """Begin a new utterance: nothing rings over from the last one."""
        self._phase = 0.999999
        self._tail = np.zeros(FFT + LEAD, np.float32)

    def render(self, log_power: np.ndarray, f0: np.ndarray, voiced: np.ndarray, first: int, start: int, n: int) -> np.ndarray:
        """Samples [start, start + n) of the utterance, LEAD samples late; float32 (n,).

        log_power (m, 257), f0 (m,) Hz filled in where unvoiced, voiced (m,) bool: frames first .. first + m - 1, covering the block.
        """
        at, period, voice, row = self._pulses(f0, voiced, first, start, n)
        out = np.zeros(n + FFT + LEAD, np.float32)
        out[: len(self._tail)] = self._tail
        if len(at):
            whole = np.floor(at).astype(np.int64)
            waves = self._responses(log_power, row, (at - whole).astype(np.float32), period, voice, whole, n)
            for k, wave in zip(whole.tolist(), waves):
                out[k : k + FFT] += wave
        self._tail = out[n:]
        return out[:n]

    def ringing(self) -> np.ndarray:
        """What is still to be heard after the last block, (FFT + LEAD,)."""
        return self._tail

    def _pulses(self, f0: np.ndarray, voiced: np.ndarray, first: int, start: int, n: int):
        """Positions (relative to start), periods in samples, voiced or not, and fractional frame row of every pulse in the block."""
        frame = (np.arange(n, dtype=np.float32) + np.float32(start - (first + 0.5) * HOP)) * np.float32(1.0 / HOP)
        frame = np.clip(frame, 0.0, len(f0) - 1.0)
        low = frame.astype(np.int64)
        high = np.minimum(low + 1, len(f0) - 1)
        fraction = frame - low
        hz = f0[low] + fraction * (f0[high] - f0[low])
        is_voiced = np.where(fraction < 0.5, voiced[low], voiced[high])
        advance = np.where(is_voiced, hz, np.float32(NOISE_HZ)) * np.float32(1.0 / RATE_HZ)
        phase = self._phase + np.cumsum(advance, dtype=np.float64)
        cycle = np.floor(phase)
        hits = np.flatnonzero(np.diff(cycle, prepend=np.floor(self._phase)) > 0)
        self._phase = float(phase[-1] - cycle[-1])
        period = (1.0 / advance[hits]).astype(np.float32)
        at = hits - (phase[hits] - cycle[hits]) * period
        voice = is_voiced[hits]
        wobble = self._rng.standard_normal(len(hits), dtype=np.float32) * self._jitter
        at = np.clip(at + wobble * period * voice, 0.0, n - 1.0)
        return at, period, voice.astype(np.int64), frame[hits]

    def _responses(self, log_power, row, fraction, period, voice, whole, n) -> np.ndarray:
        amplitude, phase = minimum_phase(log_power)
        low = row.astype(np.int64)
        high = np.minimum(low + 1, len(log_power) - 1)
        share = (row - low)[:, None]
        amplitude = amplitude[low] * (1 - share) + amplitude[high] * share
        angle = phase[low] * (1 - share) + phase[high] * share
        angle -= _omega * (fraction[:, None] + np.float32(LEAD))
        count = len(row)
        angle += _spread * (self._rng.standard_normal(count, dtype=np.float32) * np.float32(SPREAD_SAMPLES) * voice.astype(np.float32))[:, None]
        noise = self._noise(period, whole, n)
        loud = np.sqrt(period) * (1 + np.float32(SHIMMER) * self._rng.standard_normal(count, dtype=np.float32))
        noise *= self._shares[voice]
        noise += self._tones[voice] * loud[:, None]
        level = np.exp(amplitude)
        turn = np.empty((count, BINS), np.complex64)
        np.multiply(level, np.cos(angle), out=turn.real)
        np.multiply(level, np.sin(angle), out=turn.imag)
        noise *= turn
        return fft.irfft(noise, FFT, overwrite_x=True)

    def _noise(self, period: np.ndarray, whole: np.ndarray, n: int) -> np.ndarray:
        """Spectra (k, 257) of white noise of unit power, one period long each."""
        longest = min(int(period.max()) + 1, FFT)
        hiss = (self._rng.random(n + longest, dtype=np.float32) - np.float32(0.5)) * np.float32(np.sqrt(12.0))
        cut = np.zeros((len(whole), FFT), np.float32)
        cut[:, :longest] = np.lib.stride_tricks.sliding_window_view(hiss, longest)[whole]
        cut[:, :longest] *= np.arange(longest) < period[:, None]
        return fft.rfft(cut, overwrite_x=True)
