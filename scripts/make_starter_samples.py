#!/usr/bin/env python3
"""Makes what the page plays for a starter voice where the natural voice speaks: the starter's own
words, said by it in that voice, as MP3.

Usage: python scripts/make_starter_samples.py [--out assets/voices/natural]. Needs the packages of
  requirements-natural.txt. Make them anew when the natural
voice's version changes (webui/engine/natural/workers.py).
"""

from __future__ import annotations

import argparse
import json
import sys
import wave
from pathlib import Path

import numpy as np
import soundfile

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from webui.engine.espeak import EspeakEngine
from webui.engine.espeak.engine import RATE_HZ
from webui.settings import Paths
from webui.types import SpeechRequest

VOICES = Paths().assets / "voices"
SEED = 1
START_S = 300.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=VOICES / "natural")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    engine = EspeakEngine(1, natural=[Paths().natural_dir])
    try:
        engine.start()
        engine.natural.is_decided.wait(START_S)
        if engine.natural.health().state != "ready":
            raise SystemExit(engine.natural.health().reason)
        for voice in json.loads((VOICES / "voices.json").read_text("utf-8")):
            samples = speak(engine, voice)
            soundfile.write(out / f"{voice['id']}.mp3", samples, RATE_HZ, format="MP3")
            print(f"{voice['id']}: {len(samples) / RATE_HZ:.1f} s")
    finally:
        engine.close()
    return 0


def speak(engine: EspeakEngine, voice: dict) -> np.ndarray:
    with wave.open(str(VOICES / voice["file"])) as f:
        clip = np.frombuffer(f.readframes(f.getnframes()), "<i2").astype(np.float32) / 32768
        prompt = engine.encode(clip, f.getframerate(), voice["transcript"], voice["language"])
    text = voice["transcript"]
    request = SpeechRequest(
        "sample", text, voice["id"], seed=SEED, segments=(text,), voice_engine="natural"
    )
    return np.concatenate([chunk.samples for chunk in engine.stream(request, prompt)])


if __name__ == "__main__":
    raise SystemExit(main())
