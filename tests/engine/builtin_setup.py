"""One started built-in engine and one voice for all tests of this process, and a way to say things
with it.
"""

from __future__ import annotations

import os
import wave
from functools import cache
from pathlib import Path

import numpy as np

from webui.engine.espeak import EspeakEngine
from webui.types import SpeechRequest

VOICES = Path(__file__).resolve().parents[2] / "assets" / "voices"


@cache
def clip(name: str = "starter-zh-high") -> tuple[np.ndarray, int]:
    with wave.open(str(VOICES / f"{name}.wav")) as f:
        return np.frombuffer(f.readframes(f.getnframes()), "<i2").astype(
            np.float32
        ) / 32768, f.getframerate()


def ask(text: str, id: str = "r", **settings) -> SpeechRequest:
    return SpeechRequest(
        id=id,
        text=text if any(c.isalnum() for c in text) else "x",
        voice="v",
        segments=(text,),
        **settings,
    )


def whole(chunks) -> np.ndarray:
    return np.concatenate([c.samples for c in chunks])


@cache
def engine() -> EspeakEngine:
    engine = EspeakEngine(2)
    engine.start()
    return engine


@cache
def prompt(name: str = "starter-zh-high"):
    return engine().encode(*clip(name))


@cache
def speaker():
    """eSpeak in this process: once, since its threads do not survive being started again."""
    from webui.engine.espeak.library import EspeakLibrary

    cwd = os.getcwd()
    try:
        return EspeakLibrary()
    finally:
        os.chdir(cwd)
