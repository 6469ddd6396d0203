"""Bends the timbre of a clause with filters that follow its frames: the mapping's change of the
envelope, applied to the sound itself.
"""

from __future__ import annotations

import numpy as np
from scipy import fft

from ..espeak.base_voices import halved
from ..espeak.mel_bands import BINS, SOURCE_HZ, warp, warp_columns
from ..espeak.speech_analysis import (
    cut_frames,
    emphasised,
    envelope,
    pitch,
    pitch_search,
    smoothing,
)
from ..espeak.voice_conversion import CONTEXT, Converter
from ..espeak.voice_profile import at_rate
from .network import RATE_HZ

WINDOW, HOP = 1200, 300
MOST_CUT, MOST_BOOST = 2.5, 3.2  # ln power: 11 and 14 dB
_SEARCH = pitch_search(SOURCE_HZ // 2, 60.0, 450.0)  # lower than eSpeak's voice ever is
_TABLES = smoothing(SOURCE_HZ, 1024)
_HANN = np.hanning(WINDOW + 1)[:-1].astype(np.float32)
_OVERLAP = np.float32(1.0 / (_HANN.reshape(-1, HOP) ** 2).sum(axis=0).mean())
_SAME = warp_columns(1.0)
REACH = 700  # samples after a frame's centre that its analysis reads, and before
_AROUND = CONTEXT + 1  # frames on both sides that a frame's gains read
_GRID = 2400  # samples after which frames fall on the same places of both rates
_AT = np.linspace(0, BINS - 1, WINDOW // 2 + 1)  # every line of a window, in target bins
_LOW = np.minimum(_AT.astype(np.int64), BINS - 2)
_SHARE = (_AT - _LOW).astype(np.float32)  # of the bin above
_AT_ONCE = 128  # frames: all of a clause would need a hundred megabytes


def analyse(
    sound: np.ndarray, hop: int = HOP, frames: range | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """float32 (n,) at 24 kHz -> f0 (m,) Hz and log power (m, 257) on the source grid, of the frames
    centred on every `hop` samples.
    """
    [source] = at_rate(sound.astype(np.float64), RATE_HZ, (SOURCE_HZ,))
    half, bright = halved(source), emphasised(source)
    places = np.arange(0, len(sound) + 1, hop) if frames is None else hop * np.array(frames)
    centres = np.round(places * (SOURCE_HZ / RATE_HZ)).astype(np.int64)
    f0, log_power = [], []
    for i in range(0, len(centres), _AT_ONCE):
        part = centres[i : i + _AT_ONCE]
        f0.append(pitch(half, part // 2, _SEARCH))
        log_power.append(envelope(bright, part, f0[-1], _TABLES)[:, ::2])
    return np.concatenate(f0), np.concatenate(log_power)


def gains(
    converter: Converter, log_power: np.ndarray, f0: np.ndarray, tilt: np.ndarray | None = None
) -> np.ndarray:
    """ln power per frame and target bin (m, 257), smoothed over three frames and held within what a
    filter may do. Cuts approach their limit
    softly: deep ones cost more naturalness than they gain likeness (references with a dark voice:
      DistillMOS 3.6 without, 3.9 with it).
    """
    change = converter.frames(log_power, f0, tilt) - warp(log_power, _SAME)
    cut = MOST_CUT * np.tanh(change / MOST_CUT)
    change = np.where(change < 0, cut, np.minimum(change, MOST_BOOST))
    padded = np.concatenate((change[:1], change, change[-1:]))
    return 0.25 * padded[:-2] + 0.5 * padded[1:-1] + 0.25 * padded[2:]


class Equaliser:
    """Brings one clause, whose sound arrives in pieces, into the reference's timbre.

    Every frame is analysed and filtered once.
    """

    def __init__(self, converter: Converter, tilt: np.ndarray | None = None):
        self._converter, self._tilt = converter, tilt
        self._sound, self._start = np.zeros(0, np.float32), 0  # what is still needed, from there on
        self._f0 = np.zeros(0, np.float32)  # of the frames [_first, _first + len(_f0))
        self._log_power = np.zeros((0, BINS), np.float32)
        self._first = self._n_made = 0
        self._late = np.zeros(WINDOW - HOP, np.float32)  # what later frames still add to
        self._skip = WINDOW // 2  # the first frame's centre is the first sample
        self._n_out = 0

    def push(self, sound: np.ndarray, is_end: bool) -> np.ndarray:
        """float32 (n,) at 24 kHz -> all that is sure by now; in all as much as came in."""
        self._sound = np.concatenate((self._sound, sound))
        n = self._start + len(self._sound)
        n_analysed = n // HOP + 1 if is_end else max((n - REACH) // HOP + 1, 0)
        n_sure = n_analysed if is_end else max(n_analysed - _AROUND, 0)
        self._analyse(n_analysed)
        if n_sure > self._n_made:
            out = self._filter(n_sure)
            if is_end:
                out = np.concatenate((out, self._late))
        else:
            out = self._late if is_end else self._sound[:0]
        skipped = min(self._skip, len(out))
        self._skip -= skipped
        out = out[skipped : skipped + n - self._n_out]
        self._n_out += len(out)
        return out

    def _analyse(self, end: int) -> None:
        """Frames up to `end`; what no later frame reads is forgotten."""
        begin = self._first + len(self._f0)
        if end <= begin:
            return
        moved = self._start // HOP
        f0, log_power = analyse(self._sound, HOP, range(begin - moved, end - moved))
        past = max(self._n_made - _AROUND - self._first, 0)
        self._first += past
        self._f0 = np.concatenate((self._f0[past:], f0))
        self._log_power = np.concatenate((self._log_power[past:], log_power))

    def _filter(self, end: int) -> np.ndarray:
        """The frames [_n_made, end) filtered and added up."""
        begin, first = self._n_made, self._first
        change = gains(self._converter, self._log_power, self._f0, self._tilt)
        change = change[begin - first : end - first]
        change = change[:, _LOW] * (1 - _SHARE) + change[:, _LOW + 1] * _SHARE
        centres = np.arange(begin, end) * HOP - self._start
        frames = fft.irfft(
            fft.rfft(cut_frames(self._sound, centres, WINDOW) * _HANN) * np.exp(0.5 * change),
            WINDOW,
        )
        frames *= _HANN * _OVERLAP
        out = np.zeros(len(frames) * HOP + len(self._late), np.float32)
        out[: len(self._late)] = self._late
        for k in range(0, WINDOW, HOP):  # every frame's k-th quarter falls on a place of its own
            out[k : k + len(frames) * HOP] += frames[:, k : k + HOP].reshape(-1)
        self._n_made = end
        past = (end * HOP - REACH - self._start) // _GRID * _GRID
        if past > 0:
            self._sound, self._start = self._sound[past:], self._start + past
        out, self._late = out[: len(frames) * HOP], out[len(frames) * HOP :]
        return out


__all__ = ["Equaliser", "analyse", "gains"]
