"""The voices that the network can begin from: their styles, and what each sounds like before it is
bent. Read once per process.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import safe_open

from ...files import ASSETS
from ..espeak.mel_bands import DB, DCT
from ..espeak.voice_mapping import Base, Profile
from .generator import EPSILON, SHAPES

FILE = ASSETS / "natural" / "voices.safetensors"
LANGUAGES = ("zh", "en")
LANGUAGE_OF = {"z": "zh", "a": "en", "b": "en"}  # by the first letter of a voice's name


@dataclass(frozen=True)
class Statistics:
    """What the generator's norms see while one voice speaks: a straight line over the share of
    voiced rows and their mean ln F0.

    rates: (3, 2, n): constant, per unit of voiced, per unit of ln F0; of the mean and of
      ln(variance + EPSILON) of every channel of every norm.
    voiced, log_f0: the lowest, middle and highest that the line was drawn through.
    """

    rates: np.ndarray
    voiced: tuple[float, float, float]
    log_f0: tuple[float, float, float]

    def of(self, voiced: float, log_f0: float) -> dict[str, np.ndarray]:
        """(6, 2, channels) for each of the generator's blocks: mean and variance."""
        inputs = [1.0]
        for value, (low, middle, high) in ((voiced, self.voiced), (log_f0, self.log_f0)):
            inputs.append(min(max(value, low), high) - middle)
        mean, log_variance = np.tensordot(np.array(inputs, np.float32), self.rates, 1)
        statistics = np.stack((mean, np.exp(log_variance) - EPSILON))
        out, at = {}, 0
        for name, (n_norms, n_channels) in SHAPES.items():
            n = n_norms * n_channels
            out[name] = (
                statistics[:, at : at + n].reshape(2, n_norms, n_channels).transpose(1, 0, 2)
            )
            at += n
        return out


@dataclass(frozen=True)
class BaseVoice:
    """One voice of the model. base: as for eSpeak's voices, from stock text; rms: of that text over
    active frames.
    """

    name: str
    styles: np.ndarray  # float32 (n, 256), row i for i + 1 tokens
    base: Base
    mean_voiced: np.ndarray  # (48,) as in Profile
    rms: float
    statistics: Statistics

    @property
    def language(self) -> str:
        return LANGUAGE_OF[self.name[0]]

    def style(self, n_tokens: int) -> np.ndarray:
        return self.styles[min(max(n_tokens, 1), len(self.styles)) - 1]


def read(path: Path = FILE) -> list[BaseVoice]:
    with safe_open(path, "np") as file:
        plain = json.loads(file.metadata()["voices"])

        def array(name: str, field: str) -> np.ndarray:
            return file.get_tensor(f"{name}.{field}").astype(np.float32)

        return [
            BaseVoice(
                name,
                array(name, "styles"),
                Base(
                    voiced=array(name, "voiced"),
                    unvoiced=array(name, "unvoiced"),
                    **numbers["base"],
                ),
                array(name, "mean_voiced"),
                numbers["rms"],
                Statistics(
                    array(name, "statistics"),
                    tuple(numbers["voiced"]),
                    tuple(numbers["log_f0"]),
                ),
            )
            for name, numbers in plain.items()
        ]


def distance(profile: Profile, voice: BaseVoice) -> float:
    """Timbre in dB (cepstra 1 to 15 of the mean voiced spectrum, a quarter of it counts) and the
    square of the semitones that the voice has to be raised, or of half of those that it has to be
    lowered: the equaliser reaches a far timbre, but a voice that is moved further than that no
    longer sounds like one, and a raised one sooner (a reference at 186 Hz: a woman's voice lowered
    by 3.9 semitones was taken for the reference's 8 times of 8, a man's raised by 2.6 only 5
    times).
    """
    gap = profile.mean_voiced - voice.mean_voiced
    timbre_db = DB * float(np.sqrt((((gap - gap.mean()) @ DCT)[1:16] ** 2).sum()))
    raised_st = 12 / np.log(2) * (profile.log_f0 - voice.base.log_f0)
    return timbre_db / 4 + float(max(raised_st, -raised_st / 2)) ** 2


def nearest(profile: Profile, voices: list[BaseVoice], language: str) -> BaseVoice:
    """Of the voices of that language: one of another is not understood."""
    return min(
        (voice for voice in voices if voice.language == language),
        key=lambda voice: distance(profile, voice),
    )
