#!/usr/bin/env python3
"""Prints how like its references the built-in voice is, how quick and how small: the acceptance
table of the built-in engine.

Usage: python scripts/measure_likeness.py [--audio DIR] [--quick]
DIR holds WAV references (default: assets/voices). The measuring code shares nothing with the
converter: 16 kHz, 25 ms frames, 26 mel bands, pitch by WORLD's harvest (the engine has its own
tracker), words by PocketSphinx in English. Exit code 1 when a required figure is missed. --quick:
likeness, and words heard once instead of twice.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

# before numpy is loaded: the measuring must not take the cores of what is measured
os.environ.update(
    dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
)

import numpy as np
import pyworld
import soundfile
import soxr

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from scripts.likeness.words import Recogniser, word_error  # noqa: E402
from webui.engine.espeak import EspeakEngine  # noqa: E402
from webui.engine.espeak.library import EspeakLibrary  # noqa: E402
from webui.engine.espeak.prompt_file import unpack  # noqa: E402
from webui.engine.espeak.speech_stream import SpeechOrder, Stream, Voice  # noqa: E402
from webui.engine.espeak.voice_mapping import BASE_WPM  # noqa: E402
from webui.errors import KaikouError  # noqa: E402
from webui.types import SpeechRequest  # noqa: E402

HZ, FRAME, HOP, BANDS = 16000, 400, 160, 26
SENTENCES = {
    "en": ("The old clock on the wall struck nine before anyone spoke.",
        "Would you like a cup of tea, or shall we go for a walk first?",
           "Bright yellow leaves were falling on the quiet street all afternoon."),
    "zh": ("今天下午我们打算去图书馆看书，然后一起吃晚饭。",
        "这件衣服你觉得好看吗，我想买一件新的。", "远处的山上下着小雪，路上的行人慢慢走着。"),
}  # fmt: skip


def mel(hz):
    return 2595 * np.log10(1 + np.asarray(hz) / 700)


def filters() -> np.ndarray:
    """(26, 257) triangles from 80 to 7000 Hz."""
    edges = 700 * (10 ** (np.linspace(mel(80), mel(7000), BANDS + 2) / 2595) - 1)
    hz = np.arange(257) * HZ / 512
    up = (hz - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    down = (edges[2:, None] - hz) / (edges[2:] - edges[1:-1])[:, None]
    return np.clip(np.minimum(up, down), 0, None)


FILTERS = filters()
DCT = np.cos(np.pi * np.arange(1, 20)[:, None] * (np.arange(BANDS) + 0.5) / BANDS) * np.sqrt(
    2 / BANDS
)


class Heard:
    """What a listener's instrument reads from samples (n,) at `rate` Hz."""

    def __init__(self, samples: np.ndarray, rate: int):
        x = soxr.resample(np.asarray(samples, np.float64), rate, HZ)
        self.peak = float(np.abs(samples).max())
        frames = np.lib.stride_tricks.sliding_window_view(x, FRAME)[::HOP]
        power = np.mean(frames**2, axis=1)
        active = power > power.max() * 10**-3.5
        self.rms_db = 10 * np.log10(power[active].mean())
        x, frames = x / np.sqrt(power[active].mean()), frames / np.sqrt(power[active].mean())
        bands = (np.abs(np.fft.rfft(frames * np.hamming(FRAME), 512)) ** 2) @ FILTERS.T
        self.ltas = 10 * np.log10(bands[active].mean(axis=0) + 1e-9)
        self.ltas -= self.ltas.mean()
        f0, times = pyworld.harvest(np.ascontiguousarray(x), HZ, 60.0, 520.0)
        f0 = np.interp((np.arange(len(frames)) * HOP + FRAME / 2) / HZ, times, f0)
        voiced = active & (f0 > 60)
        self.bands, self.active = bands, active
        log = 12 * np.log2(f0[voiced]) if voiced.any() else np.zeros(1)
        self.f0 = float(np.median(log))
        self.range_st = float(np.subtract(*np.percentile(log, [75, 25])))
        cepstra = np.log(bands[voiced] + 1e-6) @ DCT.T if voiced.sum() > 3 else np.zeros((4, 19))
        self.mean, self.variance = cepstra.mean(axis=0), cepstra.var(axis=0) + 1e-4

    def kl(self, other: Heard) -> float:
        d = (self.mean - other.mean) ** 2
        return float(
            np.mean((self.variance + d) / other.variance + (other.variance + d) / self.variance - 2)
            / 2
        )

    def mfcc(self, other: Heard) -> float:
        return float(np.sqrt(2) * np.linalg.norm((self.mean - other.mean)[:12]))

    def spectrum_db(self, other: Heard) -> float:
        return float(np.sqrt(np.mean((self.ltas - other.ltas) ** 2)))


def clearness(whole: Heard, source: Heard) -> float:
    """How well the movement of the bands survives, 0..1: correlation of band envelopes over 0.38 s,
    as intelligibility indices do, between the unconverted base voice and the converted one saying
    the same at the same tempo.
    """
    a, b = (np.log(h.bands[:, :22] + 1e-4) for h in (source, whole))
    shift = max(range(-12, 13), key=lambda s: _match(a, b, s))
    a, b = _shifted(a, b, shift)
    scores = []
    for i in range(0, len(a) - 38, 19):
        p, q = (w[i : i + 38] - w[i : i + 38].mean(axis=0) for w in (a, b))
        scores.append(
            np.mean(
                (p * q).sum(axis=0) / (np.linalg.norm(p, axis=0) * np.linalg.norm(q, axis=0) + 1e-9)
            )
        )
    return float(np.mean(scores))


def _shifted(a, b, s):
    a, b = (a[s:], b) if s >= 0 else (a, b[-s:])
    n = min(len(a), len(b))
    return a[:n], b[:n]


def _match(a, b, s):
    a, b = _shifted(a.mean(axis=1), b.mean(axis=1), s)
    return float(np.corrcoef(a, b)[0, 1])


def collect(iterator) -> np.ndarray:
    return np.concatenate([c.samples for c in iterator])


class Table:
    def __init__(self):
        self.missed: list[str] = []

    def row(self, name: str, value: str, need: str, ok: bool | None) -> None:
        mark = "-" if ok is None else "ok" if ok else "MISSED"
        print(f"{name:<48} {value:<44} {need:<28} {mark}")
        if ok is False:
            self.missed.append(name)


def likeness(engine, references, prompts, speaker, table) -> None:
    rows = {
        k: []
        for k in (
            "f0",
            "range",
            "ltas",
            "mfcc",
            "kl",
            "plain_mfcc",
            "plain_kl",
            "rms",
            "peak",
            "clear",
        )
    }
    right = tests = 0
    print(
        f"{'reference':<22} lang    f0 st  range st  ltas dB   mfcc  (plain)     kl  (plain)  level"
        " dB  clear  nearest"
    )
    for language, sentences in SENTENCES.items():
        plain = Heard(
            np.concatenate([speaker.say(language, BASE_WPM, s).samples for s in sentences])
            / 32768.0,
            22050,
        )
        for name, reference in references.items():
            sounds = [
                collect(
                    engine.stream(
                        SpeechRequest(f"{name}-{i}", s, "v", language=language, seed=i),
                        prompts[name],
                    )
                )
                for i, s in enumerate(sentences)
            ]
            analysis = Heard(np.concatenate(sounds), 24000)
            wpm = round(unpack(prompts[name].data)[1][language].wpm)
            clear = np.mean(
                [
                    clearness(
                        Heard(y, 24000),
                        Heard(speaker.say(language, wpm, s).samples / 32768.0, 22050),
                    )
                    for y, s in zip(sounds, sentences, strict=True)
                ]
            )
            nearest = min(
                references,
                key=lambda k: (
                    analysis.kl(references[k]) + ((analysis.f0 - references[k].f0) / 6) ** 2
                ),
            )
            values = {
                "f0": abs(analysis.f0 - reference.f0),
                "range": abs(analysis.range_st - reference.range_st),
                "ltas": analysis.spectrum_db(reference), "mfcc": analysis.mfcc(reference),
                "kl": analysis.kl(reference), "plain_mfcc": plain.mfcc(reference),
                "plain_kl": plain.kl(reference), "rms": abs(analysis.rms_db - reference.rms_db),
                "peak": analysis.peak, "clear": float(clear),
            }  # fmt: skip
            for k, v in values.items():
                rows[k].append((v, reference.range_st) if k == "range" else v)
            tests, right = tests + 1, right + (nearest == name)
            v = values
            print(f"{name:<22} {language}    {v['f0']:6.2f} {v['range']:9.2f} {v['ltas']:8.2f}"
                  f" {v['mfcc']:6.2f} {v['plain_mfcc']:8.2f} {v['kl']:6.2f} {v['plain_kl']:8.2f}"
                  f" {v['rms']:9.2f} {v['clear']:6.2f} "
                  f" {'right' if nearest == name else nearest}")  # fmt: skip
    mean = {k: float(np.mean(v)) for k, v in rows.items() if k != "range"}
    ordinary = [v for v, r in rows["range"] if 2 <= r <= 6] or [0.0]
    print()
    row = table.row
    row(
        "f0, semitones",
        f"mean {mean['f0']:.2f}, worst {max(rows['f0']):.2f}",
        "<= 1.2 each",
        max(rows["f0"]) <= 1.2,
    )
    row(
        "F0 interquartile range, ordinary speakers",
        f"worst {max(ordinary):.2f} st off ({len(ordinary)} cases)",
        "<= 1.5 st",
        max(ordinary) <= 1.5,
    )
    row(
        "ltas, dB",
        f"mean {mean['ltas']:.2f}, worst {max(rows['ltas']):.2f}",
        "<= 5.0 each, mean <= 3.7",
        max(rows["ltas"]) <= 5 and mean["ltas"] <= 3.7,
    )
    ratio = mean["mfcc"] / mean["plain_mfcc"]
    row("mfcc",
        f"mean {mean['mfcc']:.2f}, worst {max(rows['mfcc']):.2f}, {ratio:.2f} x unconverted",
        "<= 6.5, mean <= 4.0, <= 0.6 x",
        max(rows["mfcc"]) <= 6.5 and mean["mfcc"] <= 4 and ratio <= 0.6)  # fmt: skip
    row(
        "kl",
        f"mean {mean['kl']:.2f} (unconverted {mean['plain_kl']:.2f})",
        "mean <= 0.30",
        mean["kl"] <= 0.30,
    )
    row("nearest of all references", f"{right} of {tests}", "all right", right == tests)
    row(
        "band movement kept (1 = unconverted)",
        f"mean {mean['clear']:.2f}, worst {min(rows['clear']):.2f}",
        "information",
        None,
    )
    row(
        "loudness, peak",
        f"worst {max(rows['rms']):.2f} dB off, peak {max(rows['peak']):.3f}",
        "<= 2 dB, <= 1.0",
        max(rows["rms"]) <= 2 and max(rows["peak"]) <= 1,
    )


def words(engine, references, prompts, speaker, table, hearings: int) -> None:
    """Word error in English of the base voice as it is, and of each converted voice; what differs
    is the conversion and its tempo.
    """
    name = "word error, converted less unconverted"
    try:
        recogniser = Recogniser()
    except ImportError:
        table.row(name, "not measured: pocketsphinx is not installed", "<= +0.15", None)
        return
    plain = word_error(
        recogniser,
        lambda h, i, text: (speaker.say("en", BASE_WPM, text).samples / 32768.0, 22050),
        hearings,
    )

    def say_with(prompt):
        return lambda h, i, text: (
            collect(
                engine.stream(
                    SpeechRequest(f"words-{h}-{i}", text, "v", language="en", seed=100 * h + i),
                    prompt,
                )
            ),
            24000,
        )

    print(f"{'reference':<22} word error  (plain)  difference  words a minute")
    more = {}
    for reference, prompt in prompts.items():
        cloned_error = word_error(recogniser, say_with(prompt), hearings)
        more[reference] = cloned_error - plain
        print(
            f"{reference:<22} {cloned_error:10.2f} {plain:8.2f} {cloned_error - plain:+11.2f}"
            f" {unpack(prompt.data)[1]['en'].wpm:15.0f}",
            flush=True,
        )
    print()
    ordinary = [v for k, v in more.items() if 2 <= references[k].range_st <= 6] or list(
        more.values()
    )
    table.row(
        name,
        f"mean {np.mean(ordinary):+.2f}, worst {max(ordinary):+.2f} ({len(ordinary)} ordinary)",
        "<= +0.15",
        max(ordinary) <= 0.15,
    )


def blocks(prompts, speaker, table) -> None:
    worst_f0 = worst_ltas = 0.0
    for prompt in prompts.values():
        voice = Voice(*unpack(prompt.data))
        for language, sentences in SENTENCES.items():
            analyses = []
            for sizes in ((0.24, 0.4, 0.8), (60.0,)):
                stream, pieces, last = (
                    Stream(speaker, voice, SpeechOrder(sentences[:1], language, 1.0, 3, ""), sizes),
                    [],
                    False,
                )
                while not last:
                    samples, _, last, _ = stream.step()
                    pieces.append(samples)
                analyses.append(Heard(np.concatenate(pieces), 24000))
            worst_f0 = max(worst_f0, abs(analyses[0].f0 - analyses[1].f0))
            worst_ltas = max(worst_ltas, analyses[0].spectrum_db(analyses[1]))
    table.row(
        "block-wise against whole sentence",
        f"f0 {worst_f0:.2f} st, ltas {worst_ltas:.2f} dB (worst)",
        "<= 0.3 st, <= 1 dB",
        worst_f0 <= 0.3 and worst_ltas <= 1,
    )


def speed(engine, prompt, eight_s, table) -> None:
    first, work, sound = [], 0.0, 0.0
    stages: dict[str, float] = {}
    for i in range(30):
        text = SENTENCES[("en", "zh")[i % 2]][i // 2 % 3]
        started = time.perf_counter()
        for chunk in engine.stream(SpeechRequest(f"speed-{i}", text, "v", seed=i), prompt):
            if chunk.number == 0:
                first.append((time.perf_counter() - started) * 1000)
            sound += len(chunk.samples) / 24000
            for stage, seconds in chunk.timings.items():
                stages[stage] = stages.get(stage, 0.0) + seconds
        work += time.perf_counter() - started
    table.row(
        "first chunk, profile cached, worker warm",
        f"median {np.median(first):.1f} ms, worst of 30 {max(first):.1f} ms",
        "<= 60 ms",
        float(np.median(first)) <= 60,
    )
    table.row(
        "real-time factor (wall, through the worker)",
        f"{work / sound:.4f}",
        "<= 0.1",
        work / sound <= 0.1,
    )
    table.row(
        "  by stage, ms per second of sound",
        ", ".join(f"{k} {1000 * v / sound:.1f}" for k, v in stages.items()),
        "information",
        None,
    )
    started = time.perf_counter()
    engine.encode(eight_s, 16000)
    table.row(
        "profile of 8 s",
        f"{time.perf_counter() - started:.2f} s",
        "<= 3 s",
        time.perf_counter() - started <= 3,
    )
    peaks = [c["peak_kib"] / 1024 for c in engine.counts()]
    table.row(
        "memory, peak of a speaking worker", f"{max(peaks):.0f} MiB", "<= 250 MB", max(peaks) <= 238
    )


def edges(engine, clip, prompt, table) -> None:
    first_run, twice = (
        collect(engine.stream(SpeechRequest("same", SENTENCES["en"][0], "v", seed=7), prompt, lane))
        for lane in (0, 1)
    )
    table.row(
        "same request twice, on two workers",
        "identical" if np.array_equal(first_run, twice) else "different",
        "identical",
        np.array_equal(first_run, twice),
    )
    rng = np.random.default_rng(1)
    noise = (0.1 * rng.standard_normal(5 * 16000)).astype(np.float32)
    hum = (clip + 0.02 + 0.02 * np.sin(2 * np.pi * 50 * np.arange(len(clip)) / 16000)).astype(
        np.float32
    )
    cases = {
        "silent": (np.zeros(64000, np.float32), "refused"), "0.4 s": (clip[:6400], "refused"),
        "NaN": (np.full(64000, np.nan, np.float32), "refused"),
        "pure noise": (noise, "few_voiced_frames"),
        "clipped": (np.clip(clip * 6, -0.5, 0.5), "works"), "DC + 50 Hz hum": (hum, "works"),
    }  # fmt: skip
    for name, (samples, need) in cases.items():
        try:
            voice_prompt = engine.encode(samples, 16000)
            result = voice_prompt.notes[0] if voice_prompt.notes else "works"
        except KaikouError as e:
            result = f"refused: {e.code}"
        table.row(f"reference: {name}", result, need, result.startswith(need))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--audio", type=Path, default=ROOT / "assets" / "voices")
    parser.add_argument("--quick", action="store_true", help="likeness, and words heard once")
    options = parser.parse_args()
    options.audio = options.audio.resolve()  # eSpeak's speaker goes to another folder
    clips = {}
    for path in sorted(options.audio.glob("*.wav")):
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
        clips[path.stem] = soxr.resample(samples.mean(axis=1), rate, HZ).astype(np.float32)
    if not clips:
        print(f"No WAV files in {options.audio}.")
        return 2
    engine, table = EspeakEngine(2), Table()
    try:
        engine.start()
        index = options.audio / "voices.json"
        transcripts = (
            {
                v["id"]: (v["transcript"], v["language"])
                for v in json.loads(index.read_text("utf-8"))
            }
            if index.is_file()
            else {}
        )
        prompts = {k: engine.encode(v, HZ, *transcripts.get(k, ("", ""))) for k, v in clips.items()}
        speaker = EspeakLibrary()
        references = {k: Heard(v, HZ) for k, v in clips.items()}
        likeness(engine, references, prompts, speaker, table)
        words(engine, references, prompts, speaker, table, 1 if options.quick else 2)
        if not options.quick:
            clip = next(iter(clips.values()))
            blocks(prompts, speaker, table)
            speed(engine, next(iter(prompts.values())), np.tile(clip, 3)[: 8 * HZ] * 0.9, table)
            edges(engine, clip, next(iter(prompts.values())), table)
    finally:
        engine.close()
    print(
        "\nAll required figures are met."
        if not table.missed
        else f"\nMissed: {', '.join(table.missed)}."
    )
    return 1 if table.missed else 0


if __name__ == "__main__":
    sys.exit(main())
