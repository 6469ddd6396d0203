"""How far apart the four tones of Chinese are in a sound, whoever made it.

Where the syllables stand is known of one rendition of the sentence, made here by the natural
voice's network, which predicts how long each symbol lasts; the sound is aligned to it. A syllable
is then two numbers: how high it is, and how far its pitch moves. The figure is the share of
syllables whose tone is that of the nearest mean of the others, in the same voice; by chance it
would be 0.25 to 0.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

HZ = 16000
HOP = 160  # samples between frames of the alignment
F0_HZ = (60.0, 520.0)
F0_STEP_MS = 5.0
MIN_FRAMES = 10  # with pitch, of a syllable that is counted
VOICE = "zf_xiaobei"  # separates the tones best
TONES = {"→": 1, "↗": 2, "↓": 3, "↘": 4}
_DURATIONS = "/encoder/Clip_output_0"  # of the symbols and both end marks, in steps of 25 ms
_STEP_S = 0.025


@dataclass(frozen=True)
class Tone:
    """One syllable. level_st: its mean pitch over the sentence's median; move_st: the last third
    over the first, in semitones.
    """

    tone: int
    level_st: float
    move_st: float


def separation(tones: Sequence[Tone]) -> tuple[int, int]:
    """(syllables whose own tone is the nearest, syllables) of one voice: each is compared with the
    means of all others.
    """
    points = np.array([(t.level_st, t.move_st) for t in tones])
    labels = np.array([t.tone for t in tones])
    if len(labels) < 2:
        return 0, len(labels)
    points = points / np.maximum(points.std(axis=0), 1e-9)
    right = 0
    for i, label in enumerate(labels):
        is_other = np.arange(len(labels)) != i
        label_values = np.unique(labels[is_other])
        centres = np.array([points[is_other & (labels == k)].mean(axis=0) for k in label_values])
        right += label_values[np.linalg.norm(centres - points[i], axis=1).argmin()] == label
    return int(right), len(labels)


def tones_of(f0: np.ndarray, spans: Sequence[tuple[int, float, float]]) -> list[Tone]:
    """f0: Hz every F0_STEP_MS, 0 without voice; spans: (tone, start_s, end_s) -> those syllables
    that have enough voice.
    """
    is_voiced = f0 > 0
    if not is_voiced.any():
        return []
    st = 12 * np.log2(np.where(is_voiced, f0, 1.0))
    st -= np.median(st[is_voiced])
    out = []
    for tone, start_s, end_s in spans:
        part = slice(*(round(1000 * s / F0_STEP_MS) for s in (start_s, end_s)))
        pitch = st[part][is_voiced[part]]
        if len(pitch) >= MIN_FRAMES:
            third = len(pitch) // 3
            move = pitch[-third:].mean() - pitch[:third].mean()
            out.append(Tone(tone, float(pitch.mean()), float(move)))
    return out


class ToneMeter:
    """Raises NotReady where the natural voice's weights, or the packages of the meters, are not
    installed.
    """

    def __init__(self) -> None:
        import onnx
        import onnxruntime

        from webui.engine.espeak.library import EspeakLibrary
        from webui.engine.natural import styles, weights
        from webui.settings import Paths

        from .meters import library

        self._librosa = library("librosa")
        graph = onnx.load(weights.obtain([Paths().natural_dir]))
        graph.graph.output.append(onnx.ValueInfoProto(name=_DURATIONS))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(
            graph.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self._voice = next(voice for voice in styles.read() if voice.name == VOICE)
        self._speaker = EspeakLibrary()
        self._rendition = cache(self._render)

    def tones(self, text: str, samples: np.ndarray) -> list[Tone]:
        """samples: float32 (n,) at HZ, of somebody who says the Chinese sentence `text`."""
        import pyworld

        f0, _ = pyworld.harvest(samples.astype(np.float64), HZ, *F0_HZ, frame_period=F0_STEP_MS)
        return tones_of(f0, self.spans(text, samples))

    def spans(self, text: str, samples: np.ndarray) -> list[tuple[int, float, float]]:
        """(tone, start_s, end_s) of the part of each syllable that carries its tone, as it is said.

        Light tones are left out.
        """
        features, spans = self._rendition(text)
        times_s = self._aligned(features, self._features(samples))
        frames_s = np.arange(len(times_s)) * HOP / HZ
        return [(t, *np.interp(ends_s, frames_s, times_s)) for t, *ends_s in spans]

    def _features(self, samples: np.ndarray) -> np.ndarray:
        """(26, m): cepstra and how they change, each of the same weight."""
        cepstra = self._librosa.feature.mfcc(
            y=samples, sr=HZ, n_mfcc=13, n_fft=400, hop_length=HOP, n_mels=40
        )
        features = np.concatenate((cepstra, self._librosa.feature.delta(cepstra)))
        features -= features.mean(axis=1, keepdims=True)
        return features / (features.std(axis=1, keepdims=True) + 1e-6)

    def _aligned(self, features: np.ndarray, other_features: np.ndarray) -> np.ndarray:
        """(m,) of the first features' frames -> seconds in the other sound."""
        _, path = self._librosa.sequence.dtw(features, other_features)
        count = np.bincount(path[:, 0])
        return np.bincount(path[:, 0], path[:, 1]) / count * (HOP / HZ)

    def _render(self, text: str) -> tuple[np.ndarray, list[tuple[int, float, float]]]:
        from webui.engine.natural.network import RATE_HZ, tokens_of
        from webui.engine.natural.phonemes import clauses

        from .meters import at_meter_rate

        sounds: list[np.ndarray] = []
        spans = []
        for clause in clauses(text, "zh", self._speaker):
            before_s = sum(map(len, sounds)) / RATE_HZ
            tokens = tokens_of(clause.phonemes)
            sound, durations = self._session.run(
                ["audio", _DURATIONS],
                {
                    "tokens": np.array([[0, *tokens, 0]], np.int64),
                    "style": self._voice.style(len(tokens))[None],
                    "speed": np.ones(1, np.float32),
                },
            )
            ends_s = before_s + np.concatenate(([0.0], np.cumsum(durations.ravel()))) * _STEP_S
            for i, symbol in enumerate(clause.phonemes):
                if symbol in TONES:  # the vowel before the arrow, and the arrow
                    spans.append((TONES[symbol], float(ends_s[i]), float(ends_s[i + 2])))
            sounds.append(sound.reshape(-1))
        return self._features(at_meter_rate(np.concatenate(sounds), RATE_HZ)), spans
