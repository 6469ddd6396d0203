"""Noise reduction, and whether it did harm.

The work is done by a process that ends itself when idle; it never loads torch.
"""

from __future__ import annotations

import atexit
import os
import threading

import numpy as np

from ..errors import BadInput, KaikouError
from .clip import Clip
from .spectrum import HOP_S, analyse
from .worker_process import WorkerLost, WorkerProcess

MEMORY_BYTES, CPU_S, WALL_S, IDLE_S = 3 * 2**30, 40, 60.0, 90.0
MAX_NOISE_S = 5.0
BANDS = 24
MAX_COLOUR_DB, MAX_LOST = 3.0, 0.20


class _Cleaner:
    """One worker, kept while it is used: loading its libraries takes a second, and it only ever
    sees samples we made.
    """

    def __init__(self):
        self._lock, self._child = threading.Lock(), None

    def ask(self, kind, numbers, payload):
        with self._lock:
            for attempt in (0, 1):
                fresh = self._child is None or not self._child.alive
                if fresh:
                    self._drop()
                    self._child = WorkerProcess(
                        "clean", memory_bytes=MEMORY_BYTES, cpu_s=CPU_S, idle_s=IDLE_S
                    )
                try:
                    return self._child.ask(kind, numbers, payload, within_s=WALL_S)
                except WorkerLost:
                    self._drop()
                    # one that was idle may have ended just as it was asked: that is worth a second
                    # try
                    if fresh or attempt:
                        raise

    def _drop(self):
        child, self._child = self._child, None
        if child is not None:
            child.end()

    def close(self):
        with self._lock:
            self._drop()

    def count(self) -> int:
        child = self._child
        return int(child is not None and child.alive)

    def forget(self):
        if self._child is not None:
            self._child.forget()
        self.__init__()


_cleaner = _Cleaner()


def denoise(clip: Clip, amount: float, stationary: bool = True) -> Clip:
    """Noise turned down by `amount` (0 = as it was ..

    1). stationary: a steady noise, learned from the pauses; else one that comes and goes.

    Raises KaikouError("denoise") when the worker fails, BadInput for an amount outside 0..1.
    """
    if not 0 <= amount <= 1:
        raise BadInput("bad_amount", param="clean")
    if amount == 0:
        return clip
    noise = _pauses(clip) if stationary else np.zeros(0, np.float32)
    payload = noise.astype("<f4").tobytes() + clip.samples.astype("<f4").tobytes()
    try:
        state, *_, body = _cleaner.ask(
            "stationary" if stationary else "varying", (clip.rate, amount, len(noise)), payload
        )
    except WorkerLost:
        state, body = 1, b""
    if state or len(body) != 4 * len(clip.samples):
        raise KaikouError("denoise")
    return _as_loud(clip, clip.with_samples(np.frombuffer(body, "<f4")))


def _as_loud(before: Clip, after: Clip) -> Clip:
    """`after` with its speech as strong as it was: a gate for changing noise also lowers long
    vowels, by up to 10 dB.
    """
    spectrum = analyse(before)
    speech = spectrum.speech
    if not speech.any():
        return after
    was = float(spectrum.power[speech].sum(axis=1).mean() - spectrum.noise.sum())
    now = float(analyse(after).power[speech].sum(axis=1).mean())
    peak = float(np.abs(after.samples).max())
    gain = min(np.sqrt(max(was, 0.0) / max(now, 1e-12)), 4.0, 0.99 / max(peak, 1e-6))
    return after.with_samples(after.samples * np.float32(max(gain, 1.0)))


def close_cleaner() -> None:
    """End the worker; the next `denoise` starts one again."""
    _cleaner.close()


def cleaner_children() -> int:
    return _cleaner.count()


def _pauses(clip: Clip) -> np.ndarray:
    """The sound between the words, (n,) float32; empty when there is less than 0.15 s of it."""
    spectrum = analyse(clip)
    quiet = ~np.convolve(spectrum.speech, np.ones(5), "same").astype(bool)
    if quiet.sum() * HOP_S < 0.15:
        return np.zeros(0, np.float32)
    hop = round(HOP_S * clip.rate)
    pieces = [clip.samples[i * hop : (i + 1) * hop] for i in np.flatnonzero(quiet)]
    return np.concatenate(pieces)[: int(MAX_NOISE_S * clip.rate)]


def cleaning_hurts(before: Clip, after: Clip) -> bool:
    """True when the cleaned clip sounds less like the speaker: the colour of the voiced sounds
    moved, or parts of them are gone.
    """
    colour_db, lost_share = cleaning_damage(before, after)
    return colour_db > MAX_COLOUR_DB or lost_share > MAX_LOST


def cleaning_damage(before: Clip, after: Clip) -> tuple[float, float]:
    """(mean change of the voiced sounds' long-term spectrum in dB, share of clearly audible
    time-frequency cells that fell by 6 dB or more).

    Only cells that stood out of the noise count: taking noise away is what cleaning is for.
    """
    old, new = analyse(before), analyse(_alongside(before, after))
    n = min(len(old.power), len(new.power))
    bands = _bands(old.hz)
    was, noise, now = old.power[:n] @ bands, old.noise @ bands, new.power[:n] @ bands
    voiced = (old.voiced[:n] > 0.5) & (old.level_db[:n] > np.percentile(old.level_db, 97) - 25)
    if not voiced.any():
        return 0.0, 0.0
    was, now = was[voiced], now[voiced]
    clean = np.maximum(was - noise, 1e-12)
    now = now * (
        clean.sum() / max(float(now.sum()), 1e-12)
    )  # a change of level is not a change of voice
    audible = was > 10 * (noise + 1e-11)
    fell = 10 * np.log10(clean / np.maximum(now, 1e-12))
    lost_share = float((fell[audible] > 6).mean()) if audible.any() else 0.0
    trusted = clean.mean(axis=0) > 4 * noise
    if trusted.sum() < 4:
        return 0.0, lost_share
    change = 10 * np.log10(now.mean(axis=0)[trusted] / clean.mean(axis=0)[trusted] + 1e-9)
    return float(np.abs(change).mean()), lost_share


def _alongside(before: Clip, after: Clip) -> Clip:
    """`after` shifted to where it matches `before` best: silence may have been trimmed differently
    from the two.
    """
    a, b = before.samples, after.samples
    size = 1 << (len(a) + len(b)).bit_length()
    likeness = np.fft.irfft(np.fft.rfft(a, size) * np.conj(np.fft.rfft(b, size)), size)
    lag = int(np.argmax(likeness))
    lag -= size if lag > size // 2 else 0
    shifted = np.pad(b, (lag, 0)) if lag >= 0 else b[-lag:]
    return after.with_samples(np.pad(shifted[: len(a)], (0, max(len(a) - len(shifted), 0))))


def _bands(hz: np.ndarray) -> np.ndarray:
    """(bins, BANDS) of ones: bands equally wide on the mel scale, 100 Hz to 7.6 kHz or the clip's
    own limit.
    """
    mel = 2595 * np.log10(1 + hz / 700)
    low, high = 2595 * np.log10(1 + np.array([100, min(7600, hz[-1])]) / 700)
    index = np.floor((mel - low) / (high - low) * BANDS)
    return (index[:, None] == np.arange(BANDS)).astype(np.float32)


atexit.register(close_cleaner)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_cleaner.forget)
