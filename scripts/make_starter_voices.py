#!/usr/bin/env python3
"""Makes the synthetic starter voices in assets/voices that are not recordings of anyone: eSpeak NG
taken apart by WORLD, bent, put together.

Usage: python scripts/make_starter_voices.py [OUT_DIR]. Same output every time. Needs the packages
  of the built-in voice and soundfile.
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
from dataclasses import dataclass
from pathlib import Path

import espeakng_loader
import numpy as np
import pyworld
import soundfile

RATE_HZ, OUT_HZ, FFT = 24000, 16000, 1024


@dataclass(frozen=True)
class Recipe:
    """f0 in Hz; widen = factor on the pitch range; stretch of the envelope; tilt in dB per octave;
    bumps = (Hz, dB); breath 0..1.
    """

    id: str
    espeak: str
    wpm: int
    text: str
    f0: float
    widen: float
    stretch: float
    tilt: float
    bumps: tuple[tuple[float, float], ...]
    breath: float
    seed: int


RECIPES = (
    Recipe("starter-en-bright", "en-us+f4", 172,
        "Good morning! I could hardly wait to tell you about the little garden behind our new "
        "house.",
           212.0, 1.2, 1.07, 0.6, ((2600.0, 3.0), (900.0, -2.0)), 0.08, 11),
    Recipe("starter-zh-low", "cmn+m7", 150,
        "朋友们，晚上好。今天我们来聊一聊老城里的那条河，还有河边的人。",
           116.0, 1.3, 0.95, 0.5, ((450.0, 2.5), (5500.0, 3.0)), 0.04, 12),
    Recipe("starter-en-mid", "en-us+m7", 160,
        "If you follow this road past the old station, you will see the lake on your left.",
           146.0, 1.1, 1.0, 0.2, ((1500.0, 3.5), (4200.0, 2.0)), 0.06, 13),
)  # fmt: skip


def speak(voice: str, wpm: int, text: str) -> np.ndarray:
    """float64 (n,) at 22050 Hz."""
    lib = ctypes.CDLL(espeakng_loader.get_library_path())
    pcm_blocks: list[bytes] = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    def collect(wave, n, _events):
        if wave and n > 0:
            pcm_blocks.append(ctypes.string_at(wave, 2 * n))
        return 0

    # its breath noise comes from the C library's generator, which it seeds with the clock
    lib.espeak_Initialize(2, 100, espeakng_loader.get_data_path().encode(), 1 << 15)
    lib.espeak_SetSynthCallback(collect)
    ctypes.CDLL(None).srand(1)
    if lib.espeak_SetVoiceByName(voice.encode()) != 0:
        raise SystemExit(f"eSpeak has no voice {voice}.")
    lib.espeak_SetParameter(1, wpm, 0)
    raw = text.encode() + b"\0"
    lib.espeak_Synth(raw, ctypes.c_size_t(len(raw)), 0, 0, 0, 1, None, None)
    lib.espeak_Terminate()
    return np.frombuffer(b"".join(pcm_blocks), "<i2") / 32768.0


def resample(x: np.ndarray, from_hz: int, to_hz: int) -> np.ndarray:
    unit = from_hz // np.gcd(from_hz, to_hz)
    n = -(-len(x) // unit) * unit
    spectrum = np.fft.rfft(x, n)
    size = n * to_hz // from_hz
    resized_spectrum = np.zeros(size // 2 + 1, complex)
    top = min(len(resized_spectrum), len(spectrum))
    resized_spectrum[:top] = spectrum[:top]
    return np.fft.irfft(resized_spectrum, size) * (size / n)


def bend(x: np.ndarray, r: Recipe) -> np.ndarray:
    """float64 at RATE_HZ in and out."""
    rng = np.random.default_rng(r.seed)
    x = np.ascontiguousarray(x + 1e-5 * rng.standard_normal(len(x)))
    f0, times = pyworld.harvest(x, RATE_HZ, 60.0, 520.0)
    f0 = pyworld.stonemask(x, f0, times, RATE_HZ)
    envelope = pyworld.cheaptrick(x, f0, times, RATE_HZ, fft_size=FFT)
    noise = pyworld.d4c(x, f0, times, RATE_HZ, fft_size=FFT)
    drift = (
        np.convolve(
            rng.standard_normal(len(f0) + 80), np.hanning(81) / np.hanning(81).sum() * 4, "valid"
        )
        * 0.02
    )
    log = np.log(np.maximum(f0, 1.0))
    new_f0 = np.where(
        f0 > 0,
        np.exp((log - np.median(log[f0 > 0])) * r.widen + np.log(r.f0) + drift[: len(f0)]),
        0.0,
    )
    hz = np.linspace(0, RATE_HZ / 2, FFT // 2 + 1)
    shape_db = r.tilt * np.log2(np.maximum(hz, 60.0) / 1000.0) + sum(
        db * np.exp(-0.5 * (np.log2(np.maximum(hz, 1.0) / at) / 0.45) ** 2) for at, db in r.bumps
    )
    log_envelope = np.log(envelope + 1e-16)
    stretched = np.stack([np.interp(hz / r.stretch, hz, row) for row in log_envelope])
    new_envelope = np.exp(stretched + shape_db * np.log(10) / 10)
    new_noise = np.clip(noise + r.breath * np.sqrt(hz / 12000.0), 1e-4, 1.0)
    return pyworld.synthesize(
        new_f0, np.ascontiguousarray(new_envelope), np.ascontiguousarray(new_noise), RATE_HZ
    )


def make(r: Recipe) -> np.ndarray:
    """float64 at OUT_HZ, within -1..1."""
    y = bend(resample(speak(r.espeak, r.wpm, r.text), 22050, RATE_HZ), r)
    y = resample(y, RATE_HZ, OUT_HZ)
    loud = np.flatnonzero(np.abs(y) > 0.01 * np.abs(y).max())
    y = y[max(0, loud[0] - 2400) : loud[-1] + 2400]
    y = y * 0.1 / np.sqrt(np.mean(y**2)) + 3e-4 * np.random.default_rng(r.seed).standard_normal(
        len(y)
    )
    return np.clip(y, -0.999, 0.999)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "out",
        nargs="?",
        type=Path,
        default=Path(__file__).resolve().parents[1] / "assets" / "voices",
        metavar="OUT_DIR",
    )
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    with multiprocessing.get_context("spawn").Pool(
        1, maxtasksperchild=1
    ) as fresh:  # eSpeak carries something from one voice to the next
        for r, y in zip(RECIPES, fresh.imap(make, RECIPES), strict=True):
            soundfile.write(out / f"{r.id}.wav", y, OUT_HZ, subtype="PCM_16")
            print(f"{r.id}.wav  {len(y) / OUT_HZ:.1f} s")


if __name__ == "__main__":
    main()
