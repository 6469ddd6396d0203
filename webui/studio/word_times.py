"""When each word of an English segment sounds: PocketSphinx aligns the words, which are known, with
the sound. It is optional: without it there are no word times, and the answer says so.
"""

from __future__ import annotations

import importlib.util
import re
import threading
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .. import audio
from ..errors import Busy
from ..messages import Message, message
from .alignment import AlignedSegment, Alignment

RATE_HZ, FRAME_HZ = 16_000, 100  # of the recogniser's sound and of its times
PAUSE_S = 0.25  # of faint noise on both sides: the recogniser wants to hear a beginning and an end
NOISE = 1e-3
LEVEL = 0.08  # RMS that it is given
WAIT_S = 5.0
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)*")
_VARIANT = re.compile(r"\(\d+\)$")


@dataclass(frozen=True)
class Word:
    text: str
    start: int  # samples of the whole sound
    end: int


class WordAligner:
    """One segment at a time: whoever comes meanwhile waits a moment and is then refused."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    @property
    def is_installed(self) -> bool:
        return importlib.util.find_spec("pocketsphinx") is not None

    def words(
        self, alignment: Alignment, segment: AlignedSegment
    ) -> tuple[list[Word] | None, Message | None]:
        """The words of one of its segments as they are read, or why there are none. Raises Busy."""
        if not self.is_installed:
            return None, message("note.words_not_installed")
        if segment.language != "en":
            return None, message("note.words_english_only")
        if not segment.is_whole:
            return None, message("note.words_broken_off")
        words = _WORD.findall(segment.spoken_text.lower().replace("’", "'"))
        if not self._lock.acquire(timeout=WAIT_S):
            raise Busy("words_busy", retry_after_s=WAIT_S)
        try:
            unknown = [w for w in dict.fromkeys(words) if self._decoder.lookup_word(w) is None]
            if unknown or not words:
                return None, message("note.words_unknown", words=unknown[:10])
            samples = audio.from_s16(alignment.pcm(segment.start, segment.end))
            times = self._align(words, samples, alignment.rate)
        finally:
            self._lock.release()
        if [word.text for word in times] != words:
            return None, message("note.words_not_found")
        at = segment.start
        return [Word(w.text, at + w.start, min(at + w.end, segment.end)) for w in times], None

    @cached_property
    def _decoder(self) -> Any:
        import pocketsphinx

        return pocketsphinx.Decoder(samprate=RATE_HZ, loglevel="FATAL", cmn="batch", lm=None)

    def _align(self, words: list[str], samples: np.ndarray, rate: int) -> list[Word]:
        sound = audio.resample(samples, rate, RATE_HZ)
        sound = sound * (LEVEL / max(float(np.sqrt(np.mean(sound**2))), 1e-6))
        pause = np.zeros(int(PAUSE_S * RATE_HZ), np.float32)
        sound = np.concatenate((pause, sound, pause))
        sound += np.random.default_rng(0).normal(0.0, NOISE, len(sound)).astype(np.float32)
        self._decoder.reinit_feat()  # what it has learnt of other sounds is forgotten
        try:
            self._decoder.set_align_text(" ".join(words))
            self._decoder.start_utt()
            self._decoder.process_raw(audio.to_s16(sound), full_utt=True)
            self._decoder.end_utt()
        except RuntimeError:  # the words do not fit the sound
            return []
        at = lambda frame: max(round((frame / FRAME_HZ - PAUSE_S) * rate), 0)  # noqa: E731
        return [
            Word(_VARIANT.sub("", s.word), at(s.start_frame), at(s.end_frame + 1))
            for s in self._decoder.seg() or ()
            if not s.word.startswith(("<", "["))
        ]
