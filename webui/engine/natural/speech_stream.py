"""One stream of natural speech inside a worker: segments in, windows of sound out.

All its state is in the Stream object.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import onnxruntime

from ..espeak import speech_stream as instant
from ..espeak.instructions import read
from ..espeak.library import EspeakLibrary
from ..espeak.speech_stream import SpeechOrder, Steps, soft_limit
from ..espeak.voice_conversion import tilt_bands
from .convolution import Scratch
from .equaliser import Equaliser
from .generator import ROW_SAMPLES
from .network import RATE_HZ, Network, Trunk, tokens_of
from .phonemes import Clause, can_say, clauses
from .voice import Bend, NaturalVoice

FRAME = 120  # samples: 5 ms
QUIET = 10**-3.4  # power over that of the voice's usual level, below which there is no speech
BEFORE, AFTER = 6 * FRAME, 10 * FRAME  # kept around it
EDGE = 96  # samples over which a cut fades
# two syllables: what its norms see is too far from the usual to be told beforehand
SHORT_TOKENS = 12
MIN_SPEED, MAX_SPEED = 0.5, 2.2  # of the network: beyond them it leaves sounds out
DRIFT_PITCH, DRIFT_TEMPO = 0.012, 0.02  # ln, from clause to clause: another seed is another take


@dataclass(frozen=True)
class _Draft:
    """A clause whose trunk is being computed. row: of the voice's styles."""

    clause: Clause
    bend: Bend
    n_tokens: int
    row: np.ndarray
    trunk: Future[Trunk]


class Stream(Steps):
    """Pieces of one request. run: its own, stops the network when it is terminated.

    The network is the same for all streams and keeps nothing of them; scratch is for whichever
    stream of this thread is at work. ahead: computes the trunk of a clause while the one before it
    becomes sound.
    """

    def __init__(
        self,
        speaker: EspeakLibrary,
        network: Network,
        voice: NaturalVoice,
        order: SpeechOrder,
        run: onnxruntime.RunOptions,
        ahead: Executor,
        scratch: Scratch,
    ):
        super().__init__(self._speak_all(), {})
        self._speaker, self._network, self._voice, self._order = speaker, network, voice, order
        self.run, self._ahead, self._scratch = run, ahead, scratch
        self._style = style = read(order.instruction)
        self._tilt = tilt_bands(style.tilt_db) if style.tilt_db else None

    def close(self) -> None:
        self.run.terminate = True
        super().close()

    def _speak_all(self) -> Generator[tuple[np.ndarray, int, bool]]:
        """What comes after a part is known before its sound is made, so that the last sound can be
        marked.
        """
        parts = self._plan()
        part = next(parts, None)
        if part is None:
            yield np.zeros(RATE_HZ // 20, np.float32), max(len(self._order.segments) - 1, 0), True
        while part is not None:
            following = next(parts, None)
            index, draft = part
            for sound, is_end in self._speak(draft):
                yield sound, index, is_end and following is None
            part = following

    def _plan(self) -> Iterator[tuple[int, _Draft | str]]:
        """(segment index, clause), or the segment itself where the instant voice has to say it."""
        for index, segment in enumerate(self._order.segments):
            if index < self._order.first:
                continue
            self._chance = np.random.Generator(np.random.SFC64(self._order.random_of(index)))
            with self._timed("phonemes"):
                spoken_clauses = (
                    clauses(segment, self._order.language, self._speaker, is_first=index == 0)
                    if can_say(segment, self._order.language)
                    else []
                )
            if spoken_clauses:
                yield from ((index, self._draft(clause)) for clause in spoken_clauses)
            elif any(c.isalnum() for c in segment):
                yield index, segment

    def _draft(self, clause: Clause) -> _Draft:
        style, order = self._style, self._order
        with self._timed("analysis"):
            bend = self._voice.bend(clause.language)
        pitch_drift, tempo_drift = np.clip(self._chance.standard_normal(2), -2.0, 2.0)
        scale, shift_hz = bend.pitch(style.pitch_st, style.widen)
        drift = float(np.exp(DRIFT_PITCH * pitch_drift))
        speed = bend.speed * order.speed * style.rate * float(np.exp(DRIFT_TEMPO * tempo_drift))
        tokens = tokens_of(clause.phonemes)
        row = bend.voice.style(len(tokens))
        trunk = self._ahead.submit(
            self._network.trunk,
            tokens,
            row,
            float(np.clip(speed, MIN_SPEED, MAX_SPEED)),
            scale * drift,
            shift_hz * drift,
            self.run,
        )
        return _Draft(clause, bend, len(tokens), row, trunk)

    def _speak(self, draft: _Draft | str) -> Iterator[tuple[np.ndarray, bool]]:
        if isinstance(draft, _Draft):
            yield from self._clause(draft)
            return
        stream = instant.Stream(
            self._speaker, self._voice.instant, replace(self._order, segments=(draft,), first=0)
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

    def _clause(self, draft: _Draft) -> Iterator[tuple[np.ndarray, bool]]:
        """(float32 (n,), is it the last of this clause): the pause after it is in the last."""
        clause, bend, order = draft.clause, draft.bend, self._order
        with self._timed("trunk"):
            trunk = draft.trunk.result()
        statistics = bend.voice.statistics if draft.n_tokens > SHORT_TOKENS else None
        pieces = self._network.sound(trunk, draft.row, statistics, self._scratch, self.run)
        trim, equaliser = Trim(bend.voice.rms), Equaliser(bend.converter, self._tilt)
        gain = np.float32(bend.gain * 10 ** (self._style.energy_db / 20))
        n_left, is_end, is_heard = (trunk.end - trunk.first) * ROW_SAMPLES, False, False
        while not is_end:
            with self._timed("generator"):
                piece = next(pieces)
            n_left -= len(piece)
            is_end = n_left == 0
            with self._timed("conversion"):
                piece = trim.push(piece, is_end)
                is_heard = is_heard or len(piece) > 0
                sound = equaliser.push(piece, is_end) * gain
                sound = soft_limit(sound if np.isfinite(sound.sum()) else np.nan_to_num(sound))
            if is_end and not is_heard:  # never silence
                yield from self._speak(clause.text)
                return
            if is_end:
                n_pause = max(int(clause.pause_s / order.speed * RATE_HZ), 1)
                sound = np.concatenate((sound, np.zeros(n_pause, np.float32)))
            if len(sound):
                yield sound, is_end

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self._clock[stage] = self._clock.get(stage, 0.0) + time.perf_counter() - began


class Trim:
    """Takes the silence before and after a clause away from its pieces; the ends fade over a few
    milliseconds.
    """

    def __init__(self, usual_rms: float):
        """usual_rms: of the voice's speech, which silence is measured by."""
        self._quiet = QUIET * usual_rms**2
        self._pending = np.zeros(0, np.float32)  # silence, as long as nothing is heard after it
        self._is_before = True

    def push(self, sound: np.ndarray, is_end: bool) -> np.ndarray:
        """float32 (n,): as far as it is known to be no silence at the end."""
        buffer = np.concatenate((self._pending, sound))
        n = len(buffer) // FRAME
        power = np.mean(buffer[: n * FRAME].reshape(n, FRAME) ** 2, axis=1)
        loud_frames = np.flatnonzero(power > self._quiet)
        if not len(loud_frames):
            if is_end:
                return np.zeros(0, np.float32) if self._is_before else _faded_out(buffer[:AFTER])
            self._pending = buffer[max(n * FRAME - BEFORE, 0) :] if self._is_before else buffer
            return buffer[:0]
        first = 0
        if self._is_before:
            first, self._is_before = max(int(loud_frames[0]) * FRAME - BEFORE, 0), False
            buffer[first : first + EDGE] *= np.linspace(0.0, 1.0, EDGE, dtype=np.float32)
        last = (int(loud_frames[-1]) + 1) * FRAME
        if is_end:
            return _faded_out(buffer[first : last + AFTER])
        self._pending = buffer[last:]
        return buffer[first:last]


def _faded_out(sound: np.ndarray) -> np.ndarray:
    n = min(EDGE, len(sound))
    sound[len(sound) - n :] *= np.linspace(1.0, 0.0, n, dtype=np.float32)
    return sound


def active_rms(sound: np.ndarray) -> float:
    """Over frames of 20 ms within 30 dB of the loud ones, as the profile of a reference counts
    it.
    """
    power = np.mean(sound[: len(sound) // 480 * 480].reshape(-1, 480) ** 2, axis=1)
    return float(np.sqrt(power[power > np.percentile(power, 95) * 1e-3].mean()))


__all__ = ["Stream", "Trim", "active_rms"]
