"""One stream of speech inside a worker: segments in, blocks of samples out.

All its state is in the Stream object and nowhere else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace

import numpy as np

from ...types import part_seed
from .base_voices import BASE_OF, SEARCH, TABLES, as_float, halved
from .instructions import Style, read
from .kana import converter
from .library import EspeakLibrary
from .mandarin import contours, recolour
from .mel_bands import BINS, DB, HOP_S, RATE_HZ, SOURCE_HZ, target_hz
from .speech_analysis import emphasised, envelope, pitch
from .text_plan import Utterance, plan
from .vocoder import HOP, LEAD, Synthesizer
from .voice_conversion import CONTEXT, Converter, tilt_bands
from .voice_mapping import Mapping, Profile

BLOCKS_S = (0.24, 0.4, 0.8)  # the first is short: it is what the listener waits for
# eSpeak stops early for the first block, and says it again in full when more is needed: a
# millisecond per second of sound
SAY_S = (0.5,)
STEP = HOP_S * SOURCE_HZ
REACH = 340  # source samples after a frame's centre that its analysis reads
MIN_WPM, MAX_WPM = 80, 400
HASTE = {
    "zh": 0.87,
    "zh-sichuan": 0.87,
}  # above its normal tempo eSpeak hurries Mandarin more than it is asked to
LIMIT = 0.85


class Voice:
    """A prompt, unpacked: what every stream of this voice shares and none changes."""

    def __init__(self, profile: Profile, mappings: dict[str, Mapping]):
        self.profile, self._mappings = profile, mappings
        self._converters: dict[str, Converter] = {}

    def converter(self, tag: str) -> Converter:
        language = BASE_OF.get(tag, tag)
        if language not in self._converters:
            self._converters[language] = Converter(self._mappings[language], self.profile.voiced)
        return self._converters[language]


@dataclass(frozen=True)
class SpeechOrder:
    """What a stream is asked to say: already normalised segments and settings. at_once: nobody
    waits for the first block, so that nothing is said twice for its sake; the sound is the same.
    first: index of the segment that is spoken first; it sounds as in a stream of all.
    """

    segments: tuple[str, ...]
    language: str
    speed: float
    seed: int
    instruction: str
    at_once: bool = False
    first: int = 0

    def random_of(self, segment: int) -> np.random.SeedSequence:
        """Each segment has random numbers of its own, so that it does not depend on those before
        it.
        """
        seed = part_seed(self.seed, segment) if segment else self.seed
        return np.random.SeedSequence([seed & 0xFFFFFFFF, seed >> 32])


@dataclass(frozen=True)
class Tones:
    """A dialect and the pitch of the base voice it is laid over (ln Hz)."""

    dialect: str
    log_middle: float
    log_sd: float


class SegmentSynthesis:
    """One utterance of the base voice, said and analysed only as far as needed.

    Frames count from where speech begins.
    """

    def __init__(
        self,
        speaker: EspeakLibrary,
        utterance: Utterance,
        words_per_minute: int,
        clock: dict[str, float],
        tones: Tones | None = None,
        at_once: bool = False,
    ):
        self._speaker, self._segment, self._wpm, self._clock = (
            speaker,
            utterance,
            words_per_minute,
            clock,
        )
        self._n_said = (
            -1 if tones is None and not at_once else len(SAY_S)
        )  # tones need the whole utterance
        self._tones, self._syllables = tones, []
        self._whole = False
        self._half = self._bright = np.zeros(0, np.float32)
        self._begin = self._reachable = 0
        self.count: int | None = None  # frames in all, once known
        # analysed frames [_from, _from + len(_f0)); earlier ones are forgotten
        self._from = 0
        self._f0 = np.zeros(0, np.float32)
        self._log_power = np.zeros((0, BINS), np.float32)

    def _say_more(self) -> None:
        started = time.perf_counter()
        self._n_said += 1
        limit = int(SAY_S[self._n_said] * SOURCE_HZ) if self._n_said < len(SAY_S) else 1 << 30
        speech = self._speaker.say(self._segment.tag, self._wpm, self._segment.text, limit)
        pcm, self._whole = as_float(speech.samples), speech.whole
        self._half, self._bright = halved(pcm), emphasised(pcm)
        loud = np.flatnonzero(np.abs(pcm) > 0.003)
        self._begin = max(0, int(loud[0]) - 110) if len(loud) else len(pcm)
        self._reachable = int((len(pcm) - REACH - self._begin) / STEP)
        if self._tones is not None:
            spelled = self._speaker.spelled(self._segment.tag, self._wpm, self._segment.text)
            self._syllables = contours(spelled, speech.phonemes, self._tones.dialect)
        if self._whole:
            end = min(int(loud[-1]) + 660, len(pcm)) if len(loud) else self._begin
            self.count = self._reachable = int(np.ceil((end - self._begin) / STEP))
        self._clock["espeak"] = self._clock.get("espeak", 0.0) + time.perf_counter() - started

    def frames(self, first: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        """f0 and log power (source grid) of frames [first, end), fewer at the end of the utterance.

        `first` never goes back.
        """
        while not self._whole and self._reachable < end:
            self._say_more()
        self._f0, self._log_power = (
            self._f0[first - self._from :],
            self._log_power[first - self._from :],
        )
        self._from = first
        done = first + len(self._f0)
        end = min(end, self._reachable)
        if end > done:
            started = time.perf_counter()
            centres = np.round(self._begin + (np.arange(done, end) + 0.5) * STEP).astype(np.int64)
            f0 = pitch(self._half, centres // 2, SEARCH)
            self._log_power = np.concatenate(
                (self._log_power, envelope(self._bright, centres, f0, TABLES))
            )
            if self._tones is not None:
                f0 = recolour(
                    f0, centres, self._syllables, self._tones.log_middle, self._tones.log_sd
                )
            self._f0 = np.concatenate((self._f0, f0))
            self._clock["analysis"] = (
                self._clock.get("analysis", 0.0) + time.perf_counter() - started
            )
        return self._f0, self._log_power


class Steps:
    """Pieces of one request, given away one at a time or several joined.

    `step()` gives (samples float32 (n,), segment index, last, stage seconds). pieces: (samples,
    segment index, last), made as they are asked for; clock: where their making adds up its seconds
    by stage.
    """

    def __init__(self, pieces: Generator[tuple[np.ndarray, int, bool]], clock: dict[str, float]):
        self._pieces, self._clock = pieces, clock
        self._pending: tuple[np.ndarray, int, bool] | None = None  # made, and not yet given away

    def step(
        self, most: int = 0, is_called: Callable[[], bool] = bool
    ) -> tuple[np.ndarray, int, bool, dict[str, float]]:
        """One block, or all blocks up to about `most` samples of one segment as one, cut off after
        whichever it is when somebody calls.
        """
        self._clock.clear()
        block, segment, last = self._next()
        blocks, n = [block], len(block)
        while not last and n < most and not is_called():
            block, of, is_last = self._next()
            if of != segment:
                self._pending = block, of, is_last
                break
            blocks.append(block)
            n, last = n + len(block), is_last
        return (
            blocks[0] if len(blocks) == 1 else np.concatenate(blocks),
            segment,
            last,
            dict(self._clock),
        )

    def _next(self) -> tuple[np.ndarray, int, bool]:
        piece, self._pending = self._pending, None
        return piece or next(self._pieces)

    def close(self) -> None:
        """Nothing more is wanted.

        What is under way holds this object, and this object what is under way: the two would wait
        for a collector.
        """
        self._pieces.close()


class Stream(Steps):
    """Blocks of one request."""

    def __init__(
        self,
        speaker: EspeakLibrary,
        voice: Voice,
        order: SpeechOrder,
        blocks_s: tuple[float, ...] = BLOCKS_S,
    ):
        self._speaker, self._voice, self._order, self._blocks_s = speaker, voice, order, blocks_s
        style = read(order.instruction)
        self._style = style
        super().__init__(self._speak_all(), {})
        breath = voice.profile.breathiness + style.breath * np.sqrt(target_hz / 12000.0)
        self._breath = np.clip(breath, 0.0, 1.0)
        self._tilt = (
            tilt_bands(style.tilt_db, 9.0 if style.whisper else 0.0)
            if style.tilt_db or style.whisper
            else None
        )
        self._segment = -1

    def _begin(self, segment: int) -> None:
        """What a segment has of its own: its chance, and where it is cut, which moves the last
        bits.
        """
        if segment != self._segment:
            seed, self._segment, self._blocks = self._order.random_of(segment), segment, 0
            self._synthesizer = Synthesizer(self._breath, seed, self._style.jitter)
            self._drift = _drift(np.random.Generator(np.random.SFC64(seed.spawn(1)[0])))

    def _plan(self, segment: str) -> list[Utterance]:
        dialect, language = self._style.dialect, self._order.language
        if dialect == "yue" and language in ("auto", "zh"):
            language = "yue"
        utterances = plan(segment, language, converter())
        if dialect == "sichuan":
            return [replace(u, tag="zh-sichuan") if u.tag == "zh" else u for u in utterances]
        return utterances

    def _tones(self, utterance: Utterance, mapping: Mapping) -> Tones | None:
        if self._style.dialect in ("", "yue") or not utterance.tag.startswith("zh"):
            return None
        return Tones(self._style.dialect, mapping.log_f0_source, mapping.log_sd_source)

    def _speak_all(self) -> Generator[tuple[np.ndarray, int, bool]]:
        """Holds one block back only where the end is in doubt: what follows may turn out to be
        silent.
        """
        segments = self._order.segments
        plans = [
            (i, u) for i, s in enumerate(segments) if i >= self._order.first for u in self._plan(s)
        ]
        for k, (segment, utterance) in enumerate(plans):
            final = k + 1 == len(plans)
            self._begin(segment)
            for block, ended in self._speak(utterance):
                yield block, segment, final and ended
                if final and ended:
                    return
        # nothing could be said, or the last utterance had no sound
        yield np.zeros(RATE_HZ // 20, np.float32), max(len(segments) - 1, 0), True

    def _speak(self, utterance: Utterance) -> Iterator[tuple[np.ndarray, bool]]:
        """(block, is it the last of this utterance); nothing at all when eSpeak stays silent."""
        converter = self._voice.converter(utterance.tag)
        tempo = self._order.speed * self._style.rate
        tempo = tempo if tempo <= 1.0 else tempo ** HASTE.get(utterance.tag, 1.0)
        wpm = int(np.clip(round(converter.mapping.wpm * tempo), MIN_WPM, MAX_WPM))
        synthesis = SegmentSynthesis(
            self._speaker,
            utterance,
            wpm,
            self._clock,
            self._tones(utterance, converter.mapping),
            self._order.at_once,
        )
        self._synthesizer.restart()
        done = 0
        while True:
            n_frames = int(self._blocks_s[min(self._blocks, len(self._blocks_s) - 1)] / HOP_S)
            f0, log_power = synthesis.frames(max(0, done - CONTEXT), done + n_frames + CONTEXT)
            if synthesis.count is not None:
                if synthesis.count == 0:
                    return
                if synthesis.count - done <= n_frames + n_frames // 3:  # no crumbs at the end
                    n_frames = synthesis.count - done
                    f0, log_power = synthesis.frames(max(0, done - CONTEXT), synthesis.count)
            context = done - max(0, done - CONTEXT)
            used = context + n_frames + CONTEXT
            block = self._block(
                converter, f0[:used], log_power[:used], done - context, done, n_frames
            )
            self._blocks += 1
            done += n_frames
            ended = synthesis.count is not None and done >= synthesis.count
            if ended:
                block = np.concatenate((block, self._ending(utterance)))
            yield self._finish(block, converter), ended
            if ended:
                return

    def _block(
        self,
        converter: Converter,
        f0: np.ndarray,
        log_power: np.ndarray,
        first: int,
        done: int,
        n_frames: int,
    ) -> np.ndarray:
        started = time.perf_counter()
        style = self._style
        target = converter.frames(log_power, f0, self._tilt)
        hz = (
            converter.pitch(f0, style.pitch_st * np.log(2) / 12, style.widen)
            * self._drift[(first + np.arange(len(f0))) % len(self._drift)]
        )
        voiced = np.zeros(len(f0), bool) if style.whisper else f0 > 0
        middle = time.perf_counter()
        out = self._synthesizer.render(target, hz, voiced, first, done * HOP, n_frames * HOP)
        self._clock["conversion"] = self._clock.get("conversion", 0.0) + middle - started
        self._clock["synthesis"] = self._clock.get("synthesis", 0.0) + time.perf_counter() - middle
        return out

    def _ending(self, utterance: Utterance) -> np.ndarray:
        """What still rings, then the pause."""
        ringing = self._synthesizer.ringing()
        pause = np.zeros(
            max(int(utterance.pause_s / self._order.speed * RATE_HZ) - 700, len(ringing), LEAD),
            np.float32,
        )
        pause[: len(ringing)] = ringing
        return pause

    def _finish(self, block: np.ndarray, converter: Converter) -> np.ndarray:
        block = block * np.float32(converter.mapping.gain * 10 ** (self._style.energy_db / 20))
        return soft_limit(block if np.isfinite(block.sum()) else np.nan_to_num(block))


def soft_limit(x: np.ndarray) -> np.ndarray:
    """Leaves |x| <= 0.85 alone and bends the rest below 1."""
    over = np.flatnonzero(np.abs(x) > LIMIT)
    if not len(over):
        return x
    out, loud = x.copy(), x[over]
    out[over] = np.sign(loud) * (
        LIMIT + (1 - LIMIT) * np.tanh((np.abs(loud) - LIMIT) / (1 - LIMIT))
    )
    return out


def _drift(rng: np.random.Generator, depth: float = 0.012, frames: int = 1024) -> np.ndarray:
    """Slow wander of the pitch as a factor per frame: noise smoothed over about 60 ms, circular."""
    reach = np.arange(-24, 25) * HOP_S / 0.06
    kernel = np.exp(-0.5 * reach**2)
    noise = rng.standard_normal(frames)
    smooth = np.convolve(
        np.concatenate((noise[-24:], noise, noise[:24])),
        kernel / np.sqrt((kernel**2).sum()),
        "valid",
    )
    return np.exp(depth * smooth).astype(np.float32)


__all__ = [
    "DB",
    "SegmentSynthesis",
    "SpeechOrder",
    "Steps",
    "Stream",
    "Style",
    "Voice",
    "soft_limit",
]
