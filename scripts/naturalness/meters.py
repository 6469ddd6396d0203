"""Meters for sound: how natural it is (DistillMOS), whose voice it is (Resemblyzer), which words
are heard (PocketSphinx), and the tones.

Their packages are in requirements-meters.txt; this file needs none of them to be imported.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
import types
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
import soundfile
import soxr

from scripts.likeness.words import Recogniser, edits, words_of
from webui.errors import NotReady

from .figures import Score
from .sentences import Utterance
from .tones import ToneMeter

HZ = 16000
NAMES = ("mos", "likeness", "words", "tones")
INSTALL = "pip install -r requirements-dev.txt && pip install --no-deps -r requirements-meters.txt"


def missing(package: str | None) -> NotReady:
    return NotReady("meters_missing", package=package, install=INSTALL)


def library(name: str) -> types.ModuleType:
    """Imports a package of requirements-meters.txt. Raises NotReady where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as e:
        raise missing(e.name) from e


def read_wav(path: Path) -> np.ndarray:
    """float32 (n,) at HZ, channels mixed."""
    samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    return at_meter_rate(samples.mean(axis=1), rate)


def at_meter_rate(samples: np.ndarray, rate: int) -> np.ndarray:
    return np.asarray(soxr.resample(samples, rate, HZ), np.float32)


class Naturalness:
    """DistillMOS, 1 to 5. Raises NotReady where its packages are not installed."""

    def __init__(self) -> None:
        # distillmos imports torchaudio for reading files alone, which is not done here; no
        # torchaudio that there is loads beside this torch.
        is_stub = "torchaudio" not in sys.modules
        if is_stub:
            sys.modules["torchaudio"] = types.ModuleType("torchaudio")
        try:
            distillmos = library("distillmos")
        finally:
            if is_stub:
                del sys.modules["torchaudio"]
        self._torch = library("torch")
        self._torch.set_num_threads(1)
        with contextlib.redirect_stdout(io.StringIO()):  # it names the file of its weights
            self._model = distillmos.ConvTransformerSQAModel().eval()

    def mos(self, samples: np.ndarray) -> float:
        """samples: float32 (n,) at HZ."""
        with self._torch.inference_mode():
            return float(self._model(self._torch.from_numpy(samples)[None]))


class Likeness:
    """Resemblyzer. Raises NotReady where its packages are not installed."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it imports scipy by an old name
            resemblyzer = library("resemblyzer")
        self._preprocess = resemblyzer.preprocess_wav
        self._encoder = resemblyzer.VoiceEncoder("cpu", verbose=False)

    def embedding(self, samples: np.ndarray) -> np.ndarray:
        """float32 (n,) at HZ -> float32 (256,) of length 1: the product of two is their
        similarity.
        """
        return self._encoder.embed_utterance(self._preprocess(samples))


class Meters:
    """Those of NAMES that are wanted, each loaded once, and the references' embeddings.

    Raises NotReady where packages or weights are missing.

    references: name -> float32 (n,) at HZ.
    """

    def __init__(self, names: Collection[str], references: Mapping[str, np.ndarray]):
        self._naturalness = Naturalness() if "mos" in names else None
        self._likeness = Likeness() if "likeness" in names else None
        self._tones = ToneMeter() if "tones" in names else None
        self._recogniser = None
        if "words" in names:
            library("pocketsphinx")
            self._recogniser = Recogniser()
        self._embeddings = (
            {name: self._likeness.embedding(clip) for name, clip in references.items()}
            if self._likeness
            else {}
        )

    def score(self, file: str, utterance: Utterance | None, samples: np.ndarray) -> Score:
        """samples: float32 (n,) at HZ; utterance: what is said there, where that is known."""
        score = Score(file)
        if self._naturalness:
            score.mos = self._naturalness.mos(samples)
        if utterance is None:
            return score
        score.reference, score.language = utterance.reference, utterance.language
        if self._likeness and utterance.reference in self._embeddings:
            embedding = self._likeness.embedding(samples)
            score.similarity = {k: float(v @ embedding) for k, v in self._embeddings.items()}
        if self._recogniser and utterance.language == "en":
            heard_words, text = self._recogniser.words(samples, HZ), words_of(utterance.text)
            score.transcript, score.n_wrong, score.n_words = (
                " ".join(heard_words),
                edits(text, heard_words),
                len(text),
            )
        if self._tones and utterance.language == "zh":
            score.tones = self._tones.tones(utterance.text, samples)
        return score
