"""A reference as the natural voice speaks it: which base voice, how its pitch, tempo and loudness
are moved, and its timbre. Of one profile.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..espeak.speech_stream import Voice
from ..espeak.voice_conversion import Converter
from ..espeak.voice_mapping import BASE_WPM, Mapping, Profile, map_voice
from .equaliser import gains
from .styles import BaseVoice, nearest

# of what is spoken: with a reference beyond them it would be inaudible, or a square wave
MIN_RMS, MAX_RMS = 0.01, 0.2
# of the pitch range: tones are heard less well in a narrower one, and the low ends of a wider one
# fall below any voice
MIN_WIDENING, MAX_WIDENING = 0.85, 1.6


@dataclass(frozen=True)
class Bend:
    """What is done to one base voice for one reference. speed, gain: factors."""

    voice: BaseVoice
    converter: Converter
    middle_hz: float  # of the reference
    f0_factor: float
    speed: float
    gain: float

    def pitch(self, shift_st: float = 0.0, widen: float = 1.0) -> tuple[float, float]:
        """(scale, shift in Hz) of the network's F0: around the base voice's middle, widened and
        moved to the reference's.
        """
        factor = min(max(self.f0_factor, MIN_WIDENING) * widen, MAX_WIDENING)
        middle_hz = self.middle_hz * 2 ** (shift_st / 12)
        own_hz = float(np.exp(self.voice.base.log_f0))
        return factor * middle_hz / own_hz, middle_hz * (1 - factor)


class NaturalVoice:
    """A prompt, unpacked.

    `instant`: the same for today's voice, which says what the natural one cannot.
    """

    def __init__(
        self, profile: Profile, mappings: dict[str, Mapping], base_voices: list[BaseVoice]
    ):
        self.instant = Voice(profile, mappings)
        self._profile, self._base_voices = profile, base_voices
        self._bends: dict[str, Bend] = {}

    def bend(self, language: str) -> Bend:
        if language not in self._bends:
            self._bends[language] = _bend(
                self._profile, nearest(self._profile, self._base_voices, language)
            )
        return self._bends[language]


def _bend(profile: Profile, voice: BaseVoice) -> Bend:
    mapping = map_voice(profile, voice.base)
    converter = Converter(mapping, profile.voiced)
    loudness = voice.rms * _change_of_loudness(converter, voice)
    return Bend(
        voice,
        converter,
        float(np.exp(profile.log_f0)),
        mapping.log_f0_factor,
        mapping.wpm / BASE_WPM,
        min(max(profile.rms, MIN_RMS), MAX_RMS) / max(loudness, 1e-4),
    )


def _change_of_loudness(converter: Converter, voice: BaseVoice) -> float:
    """Factor that the equaliser puts on the level of the base voice's stock text: over its voiced
    frames, which hold nearly all of its power.
    """
    log_power = voice.base.voiced
    change = gains(converter, log_power, np.ones(len(log_power), np.float32))
    before = np.exp(log_power[:, : change.shape[1]])
    return float(np.sqrt((before * np.exp(change)).sum() / before.sum()))
