"""Cuts and one-click fixes of a reference clip.

Every function returns a new clip; nothing here decides whether a fix is wanted.
"""

from __future__ import annotations

import numpy as np

from ..errors import BadInput, ClipTooLarge
from .clip import Clip
from .clip_report import ClipReport
from .decoder import MAX_S as READ_S
from .loudness import loudness_lufs
from .resample import resample
from .spectrum import HOP_S, Spectrum, analyse, runs

KEEP_S, FADE_S, JOIN_S = 0.050, 0.005, 0.020
WANTED_LUFS, CEILING, MAX_GAIN_DB = -20.0, 0.89, 45.0
PAUSE_FRAMES = 8
LEAST_S = 1.0  # a clip that trimming would leave shorter than this is left alone


def cut(clip: Clip, start_s: float, end_s: float) -> Clip:
    """The part from `start_s` to `end_s`, without the silence at its ends except 50 ms, faded over
    5 ms. Raises BadInput("bad_window").
    """
    start, end = max(start_s, 0.0), min(end_s, clip.duration_s)
    if not end - start >= 0.1:  # also true of NaN
        raise BadInput("bad_window", param="window")
    part = clip.with_samples(clip.samples[round(start * clip.rate) : round(end * clip.rate)])
    speech_frames = np.flatnonzero(analyse(part).speech)
    if len(speech_frames):
        left = max(round((speech_frames[0] * HOP_S - KEEP_S) * clip.rate), 0)
        right = round(((speech_frames[-1] + 1) * HOP_S + KEEP_S) * clip.rate)
        part = clip.with_samples(part.samples[left:right])
    return _fade(part)


def _fade(clip: Clip) -> Clip:
    out = clip.samples.copy()
    n = min(round(FADE_S * clip.rate), len(out) // 2)
    ramp = np.linspace(0, 1, n, endpoint=False, dtype=np.float32)
    out[:n] *= ramp
    out[len(out) - n :] *= ramp[::-1]
    return clip.with_samples(out)


def joined(first: Clip, second: Clip) -> Clip:
    """`second` after `first`, at the higher of their rates.

    Cross-faded: no click, and no silence between them that would pass for a quiet room. Raises
    ClipTooLarge when both together are longer than a clip may be.
    """
    if first.duration_s + second.duration_s > READ_S:
        raise ClipTooLarge
    rate = max(first.rate, second.rate)
    a, b = (resample(c.samples, c.rate, rate) for c in (first, second))
    n = min(round(JOIN_S * rate), len(a), len(b))
    ramp = np.linspace(0, 1, n, endpoint=False, dtype=np.float32)
    samples = np.concatenate([a[: len(a) - n], a[len(a) - n :] * (1 - ramp) + b[:n] * ramp, b[n:]])
    return Clip(samples, rate, first.channels, first.source_hz or first.rate)


def trim_to_words(clip: Clip, report: ClipReport) -> Clip:
    """The clip without the broken word at the start or end that `report` warns of: cut at the next
    pause, or else at the next dip.
    """
    codes = {w.code for w in report.warnings}
    spectrum = analyse(clip)
    left = _after_first_word(spectrum) if "cut_start" in codes else 0.0
    right = (
        clip.duration_s - _after_first_word(_reverse(spectrum))
        if "cut_end" in codes
        else clip.duration_s
    )
    if (left == 0.0 and right == clip.duration_s) or right - left < LEAST_S:
        return clip
    return _fade(
        clip.with_samples(clip.samples[round(left * clip.rate) : round(right * clip.rate)])
    )


def _reverse(s: Spectrum) -> Spectrum:
    return Spectrum(s.power[::-1], s.hz, s.level_db[::-1], s.voiced[::-1], s.noise, s.speech[::-1])


def _after_first_word(spectrum: Spectrum) -> float:
    """Seconds from the beginning to where the first pause is about to end."""
    for start, end, is_on in runs(spectrum.speech):
        if not is_on and start > 0 and end - start >= PAUSE_FRAMES and start * HOP_S < 3.0:
            return max(start + (end - start) // 2, end - round(KEEP_S / HOP_S)) * HOP_S
    reach = spectrum.level_db[5 : round(1.2 / HOP_S)]
    return (5 + int(np.argmin(reach))) * HOP_S if len(reach) else 0.0


def raise_level(clip: Clip) -> Clip:
    """Brought to about -20 LUFS (by at most 45 dB), peaks held below -1 dB by a gain that moves
    within 5 ms instead of flat tops.
    """
    gain = 10 ** (min(WANTED_LUFS - loudness_lufs(clip), MAX_GAIN_DB) / 20)
    return clip.with_samples(_limit(clip.samples * np.float32(gain), clip.rate))


def _limit(x: np.ndarray, rate: int) -> np.ndarray:
    step = max(rate // 1000, 1)
    blocks = np.abs(np.pad(x, (0, -len(x) % step))).reshape(-1, step).max(axis=1)
    needed = np.minimum(1.0, CEILING / np.maximum(blocks, 1e-9))
    # lowest of 5 ms around each block, then the mean of 3 ms within that: never above what any
    # sample needs
    min_gain = np.lib.stride_tricks.sliding_window_view(np.pad(needed, 5, mode="edge"), 11).min(
        axis=1
    )
    eased = np.lib.stride_tricks.sliding_window_view(np.pad(min_gain, 2, mode="edge"), 5).mean(
        axis=1
    )
    at = (np.arange(len(blocks)) + 0.5) * step
    return (x * np.interp(np.arange(len(x)), at, eased)).astype(np.float32)
