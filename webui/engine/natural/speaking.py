"""One stream of natural speech inside a worker: segments in, a piece of sound per clause out. All its state is in the Stream object."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import onnxruntime

from ..builtin import speaking as instant
from ..builtin.conversion import tilt_bands
from ..builtin.espeak import Speaker
from ..builtin.instructions import read
from ..builtin.speaking import Order, Steps, soft_limit
from .equaliser import equalise
from .network import RATE_HZ, Network, tokens_of
from .phonemes import Clause, can_say, clauses
from .voice import NaturalVoice

FRAME = 120  # samples: 5 ms
QUIET = 10**-4.2  # power over the loudest frame's, below which there is no speech
BEFORE_S, AFTER_S = 0.03, 0.05  # kept around it
EDGE = 96  # samples over which a cut fades
MIN_SPEED, MAX_SPEED = 0.5, 2.2  # of the network: beyond them it leaves sounds out
DRIFT_PITCH, DRIFT_TEMPO = 0.012, 0.02  # ln, from clause to clause: another seed is another take


class Stream(Steps):
    """Pieces of one request. run: stops the network when it is terminated. The network is the same for all streams and keeps nothing of them."""

    def __init__(
        self,
        speaker: Speaker,
        network: Network,
        voice: NaturalVoice,
        order: Order,
        run: onnxruntime.RunOptions,
    ):
        super().__init__(self._speak_all(), {})
        self._speaker, self._network, self._voice, self._order, self._run = (
            speaker,
            network,
            voice,
            order,
            run,
        )
        self._style = style = read(order.instruction)
        self._tilt = tilt_bands(style.tilt_db) if style.tilt_db else None
        seed = np.random.SeedSequence([order.seed & 0xFFFFFFFF, order.seed >> 32])
        self._chance = np.random.Generator(np.random.SFC64(seed))

    def _speak_all(self) -> Generator[tuple[np.ndarray, int, bool]]:
        """What comes after a part is known before its sound is made, so that the last sound can be marked."""
        parts = self._plan()
        part = next(parts, None)
        if part is None:
            yield np.zeros(RATE_HZ // 20, np.float32), max(len(self._order.segments) - 1, 0), True
        while part is not None:
            following = next(parts, None)
            index, what = part
            for sound, is_end in self._speak(what):
                yield sound, index, is_end and following is None
            part = following

    def _plan(self) -> Iterator[tuple[int, Clause | str]]:
        """(segment index, clause), or the segment itself where the instant voice has to say it."""
        for index, segment in enumerate(self._order.segments):
            with self._timed("phonemes"):
                said = (
                    clauses(segment, self._order.language, self._speaker, is_first=index == 0)
                    if can_say(segment, self._order.language)
                    else []
                )
            if said:
                yield from ((index, clause) for clause in said)
            elif any(c.isalnum() for c in segment):
                yield index, segment

    def _speak(self, what: Clause | str) -> Iterator[tuple[np.ndarray, bool]]:
        if isinstance(what, Clause):
            yield self._clause(what), True
            return
        stream = instant.Stream(
            self._speaker, self._voice.instant, replace(self._order, segments=(what,))
        )
        is_end = False
        try:
            while not is_end:
                sound, _, is_end, timings = stream.step()
                for stage, seconds in timings.items():
                    self._clock[stage] = self._clock.get(stage, 0.0) + seconds
                yield sound, is_end
        finally:
            stream.close()

    def _clause(self, clause: Clause) -> np.ndarray:
        """float32 (n,), the pause after it included."""
        style, order = self._style, self._order
        with self._timed("analysis"):
            bend = self._voice.bend(clause.language)
        pitch_drift, tempo_drift = np.clip(self._chance.standard_normal(2), -2.0, 2.0)
        scale, shift_hz = bend.pitch(style.pitch_st, style.widen)
        drift = float(np.exp(DRIFT_PITCH * pitch_drift))
        speed = bend.speed * order.speed * style.rate * float(np.exp(DRIFT_TEMPO * tempo_drift))
        tokens = tokens_of(clause.phonemes)
        with self._timed("network"):
            sound = self._network.say(
                tokens,
                bend.voice.style(len(tokens)),
                float(np.clip(speed, MIN_SPEED, MAX_SPEED)),
                scale * drift,
                shift_hz * drift,
                self._run,
            )
        with self._timed("conversion"):
            sound = equalise(trim(sound), bend.converter, self._tilt)
            sound *= np.float32(bend.gain * 10 ** (style.energy_db / 20))
            sound = soft_limit(sound if np.isfinite(sound.sum()) else np.nan_to_num(sound))
        pause = np.zeros(max(int(clause.pause_s / order.speed * RATE_HZ), 1), np.float32)
        return np.concatenate((sound, pause))

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self._clock[stage] = self._clock.get(stage, 0.0) + time.perf_counter() - began


def trim(sound: np.ndarray) -> np.ndarray:
    """Without the silence before and after; the ends fade over a few milliseconds."""
    n = len(sound) // FRAME
    power = np.mean(sound[: n * FRAME].reshape(n, FRAME) ** 2, axis=1)
    heard = np.flatnonzero(power > QUIET * power.max(initial=0.0)) if n else []
    if not len(heard):
        return sound[:0]
    first = max(0, int(heard[0]) * FRAME - int(BEFORE_S * RATE_HZ))
    out = sound[first : (int(heard[-1]) + 1) * FRAME + int(AFTER_S * RATE_HZ)].copy()
    ramp = np.linspace(0.0, 1.0, min(EDGE, len(out)), dtype=np.float32)
    out[: len(ramp)] *= ramp
    out[len(out) - len(ramp) :] *= ramp[::-1]
    return out


def active_rms(sound: np.ndarray) -> float:
    """Over frames of 20 ms within 30 dB of the loud ones, as the profile of a reference counts it."""
    power = np.mean(sound[: len(sound) // 480 * 480].reshape(-1, 480) ** 2, axis=1)
    return float(np.sqrt(power[power > np.percentile(power, 95) * 1e-3].mean()))


__all__ = ["Stream", "active_rms", "trim"]
