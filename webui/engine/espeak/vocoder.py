"""Puts sound together again, pulse by pulse: minimum phase, periodic part and noise part,
overlap-added. All pulses of a block at once.

One Synthesizer per stream; its state (phase, overlap tail, random generator) is all that lives
between two blocks.
"""

from __future__ import annotations

import numpy as np
from scipy import fft

from .mel_bands import BINS, FFT, HOP_S, RATE_HZ, target_hz
from .speech_analysis import windows

HOP = round(HOP_S * RATE_HZ)
NOISE_HZ = 250.0  # noise pulses of unvoiced sound: one every 4 ms
LEAD = 32  # every response is delayed by this, else the fractional advance wraps around the buffer
GRID = 16  # samples between points of the phase track
_omega = 2 * np.pi * np.arange(BINS) / FFT
# a random group delay of a few samples above 1.5 kHz, as phase: takes the buzz off a too regular
# pulse train
_spread = np.cumsum(np.clip((target_hz - 1500.0) / 6000.0, 0.0, 1.0)) * (2 * np.pi / FFT)
_PHASES = np.stack((_omega, _spread)).astype(np.float32)
SPREAD_SAMPLES = 2.5
SHIMMER = 0.03


def minimum_phase(log_power: np.ndarray) -> np.ndarray:
    """(m, 257) log power -> (m, 257) the phase that goes with it, radians.

    It is linear, so it may be interpolated in time.
    """
    phase = np.zeros_like(log_power)
    # even, so that a cosine transform leads to the cepstrum and a sine transform back to the phase
    lags = fft.dct(log_power, 1)
    phase[:, 1:-1] = fft.dst(lags[:, 1:-1], 1)
    phase *= np.float32(-0.5 / FFT)
    return phase


def _between(rows: np.ndarray, low: np.ndarray, high: np.ndarray, share: np.ndarray) -> np.ndarray:
    """rows (m, 257) read at low + share of the way to high, float32 (k, 257)."""
    out, above = rows[low], rows[high]
    above -= out
    above *= share
    out += above
    return out


class Synthesizer:
    """breathiness (257,): amplitude share of noise in voiced sound, 0..1.

    Each kind of chance has a generator of its own and is drawn in order, so the sound does not
    depend on how it is cut into blocks.
    """

    def __init__(
        self, breathiness: np.ndarray, seed: np.random.SeedSequence, jitter: float = 0.006
    ):
        self._hissing, self._wobbling, self._scattering = (
            np.random.Generator(np.random.SFC64(s)) for s in seed.spawn(3)
        )
        self._jitter = np.float32(jitter)
        noisy = np.clip(breathiness, 0.0, 1.0).astype(np.float32)
        self._noisy, self._tonal = noisy, np.sqrt(1.0 - noisy * noisy)
        self.restart()

    def restart(self) -> None:
        """Begin a new utterance: nothing rings over from the last one."""
        self._phase = 0.999999
        self._tail = np.zeros(FFT + LEAD, np.float32)
        self._hiss = self._draw_hiss(FFT)

    def _draw_hiss(self, n: int) -> np.ndarray:
        hiss = self._hissing.random(n, dtype=np.float32)
        hiss -= np.float32(0.5)
        hiss *= np.float32(np.sqrt(12.0))
        return hiss

    def render(
        self,
        log_power: np.ndarray,
        f0: np.ndarray,
        voiced: np.ndarray,
        first: int,
        start: int,
        n: int,
    ) -> np.ndarray:
        """Samples [start, start + n) of the utterance, LEAD samples late; float32 (n,).

        log_power (m, 257), f0 (m,) Hz filled in where unvoiced, voiced (m,) bool: frames first ..
        first + m - 1, covering the block.
        """
        at, period, voice, row = self._pulses(f0, voiced, first, start, n)
        out = np.zeros(n + FFT + LEAD, np.float32)
        out[: len(self._tail)] = self._tail
        self._hiss = np.concatenate((self._hiss, self._draw_hiss(n)))
        if len(at):
            whole = np.floor(at).astype(np.int64)
            waves = self._responses(
                log_power,
                row,
                (at - whole).astype(np.float32),
                period,
                voice,
                self._noise(period, whole),
            )
            for k, wave in zip(whole.tolist(), waves, strict=True):
                place = out[k : k + FFT]
                place += wave
        self._tail = out[n:]
        self._hiss = self._hiss[n:]
        return out[:n]

    def ringing(self) -> np.ndarray:
        """What is still to be heard after the last block, (FFT + LEAD,)."""
        return self._tail

    def _pulses(self, f0: np.ndarray, voiced: np.ndarray, first: int, start: int, n: int):
        """Positions (relative to start), periods in samples, voiced or not, and fractional frame
        row of every pulse in the block.
        """
        middles = np.arange(GRID // 2, n, GRID, dtype=np.float32)
        frame = np.clip(
            (middles + np.float32(start - (first + 0.5) * HOP)) * np.float32(1.0 / HOP),
            0.0,
            len(f0) - 1.0,
        )
        is_voiced = voiced[np.round(frame).astype(np.int64)]
        hz = np.where(is_voiced, np.interp(frame, np.arange(len(f0)), f0), NOISE_HZ)
        phase = np.concatenate(([self._phase], self._phase + np.cumsum(hz * (GRID / RATE_HZ))))
        at = np.interp(
            np.arange(1.0, np.floor(phase[-1]) + 1.0), phase, np.arange(len(phase)) * float(GRID)
        )
        self._phase = float(phase[-1] % 1.0)
        cell = np.minimum((at / GRID).astype(np.int64), len(hz) - 1)
        period = (RATE_HZ / hz[cell]).astype(np.float32)
        voice = is_voiced[cell]
        wobble = self._wobbling.standard_normal(len(at), dtype=np.float32) * self._jitter
        return np.clip(at + wobble * period * voice, 0.0, n - 1.0), period, voice, frame[cell]

    def _responses(self, log_power, row, fraction, period, voice, noise) -> np.ndarray:
        low = row.astype(np.int64)
        high = np.minimum(low + 1, len(log_power) - 1)
        share = (row - low).astype(np.float32)[:, None]
        scatter = self._scattering.standard_normal((len(row), 2), dtype=np.float32)
        delays = np.stack(
            (-(fraction + np.float32(LEAD)), scatter[:, 0] * voice * np.float32(SPREAD_SAMPLES)),
            axis=1,
        )
        angle = delays @ _PHASES
        angle += _between(minimum_phase(log_power), low, high, share)
        level = _between(log_power, low, high, share)
        level *= np.float32(0.5)
        np.exp(level, out=level)
        toned = np.flatnonzero(voice)
        if len(toned):
            loud = np.sqrt(period[toned]) * (1 + np.float32(SHIMMER) * scatter[toned, 1])
            mixed = noise[toned] * self._noisy
            mixed.real += loud[:, None] * self._tonal
            noise[toned] = mixed
        turn = np.empty_like(noise)
        np.multiply(level, np.cos(angle), out=turn.real)
        np.multiply(level, np.sin(angle, out=angle), out=turn.imag)
        noise *= turn
        return fft.irfft(noise, FFT, overwrite_x=True)

    def _noise(self, period: np.ndarray, whole: np.ndarray) -> np.ndarray:
        """Spectra (k, 257) of white noise of unit power, one period long each."""
        longest = min(int(period.max()) + 1, FFT)
        cut = np.zeros((len(whole), FFT), np.float32)
        cut[:, :longest] = windows(self._hiss, longest)[whole]
        cut[:, :longest] *= np.arange(longest) < period[:, None]
        return fft.rfft(cut, overwrite_x=True)
