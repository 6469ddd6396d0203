"""Meters for sound: how natural it is (DistillMOS), whose voice it is (Resemblyzer), which words are heard (PocketSphinx).

Their packages are in requirements-meters.txt; this file needs none of them to be imported.
"""

from __future__ import annotations

import contextlib
import io
import sys
import types
import warnings
from pathlib import Path

import numpy as np
import soundfile
import soxr

from webui.errors import NotReady

HZ = 16000


def missing(package: str | None) -> NotReady:
    return NotReady(
        f"The meters need packages of their own ({package} is missing): install them with pip install --no-deps -r requirements-meters.txt, and try again.",
        f"测量需要单独的依赖（缺少 {package}）：先运行 pip install --no-deps -r requirements-meters.txt，再试一次。",
        code="meters_missing",
    )


def read_wav(path: Path) -> np.ndarray:
    """float32 (n,) at HZ, channels mixed."""
    samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    return at_meter_rate(samples.mean(axis=1), rate)


def at_meter_rate(samples: np.ndarray, rate: int) -> np.ndarray:
    return np.asarray(soxr.resample(samples, rate, HZ), np.float32)


class Naturalness:
    """DistillMOS, 1 to 5. Raises NotReady where its packages are not installed."""

    def __init__(self) -> None:
        # distillmos imports torchaudio for reading files alone, which is not done here; no torchaudio that there is loads beside this torch.
        is_stub = "torchaudio" not in sys.modules
        if is_stub:
            sys.modules["torchaudio"] = types.ModuleType("torchaudio")
        try:
            import distillmos
            import torch
        except ImportError as e:
            raise missing(e.name) from e
        finally:
            if is_stub:
                del sys.modules["torchaudio"]
        self._torch = torch
        torch.set_num_threads(1)
        with contextlib.redirect_stdout(io.StringIO()):  # it names the file of its weights
            self._model = distillmos.ConvTransformerSQAModel().eval()

    def mos(self, samples: np.ndarray) -> float:
        """samples: float32 (n,) at HZ."""
        with self._torch.inference_mode():
            return float(self._model(self._torch.from_numpy(samples)[None]))


class Likeness:
    """Resemblyzer. Raises NotReady where its packages are not installed."""

    def __init__(self) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it imports scipy by an old name
                import resemblyzer

                self._preprocess = resemblyzer.preprocess_wav
                self._encoder = resemblyzer.VoiceEncoder("cpu", verbose=False)
        except ImportError as e:
            raise missing(e.name) from e

    def embedding(self, samples: np.ndarray) -> np.ndarray:
        """float32 (n,) at HZ -> float32 (256,) of length 1: the product of two is their similarity."""
        return self._encoder.embed_utterance(self._preprocess(samples))
