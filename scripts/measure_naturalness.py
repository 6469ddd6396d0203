#!/usr/bin/env python3
"""Prints how natural the voices sound, beside what is required of the natural one.
测量各音色听起来有多自然，打印成表。

    python scripts/measure_naturalness.py
        the built-in engine's instant and natural voice 内置的即时音色与自然音色
    python scripts/measure_naturalness.py --model DIR
        and a CosyVoice model's 另加一个 CosyVoice 模型
    python scripts/measure_naturalness.py --out DIR
        keeps the wav files, a folder for each voice 保留音频，每个音色一个文件夹
    python scripts/measure_naturalness.py --wavs DIR1 DIR2
        scores folders of wav files instead, file by file: two builds, say
        只给已有的音频打分，逐个文件对比两个文件夹

Six references (assets/voices) say eight sentences in Chinese and eight in English. Meters:
DistillMOS; Resemblyzer's similarity to the reference, and whether it is the nearest of all six;
words that PocketSphinx hears in English; how far apart the tones of Chinese are; and the pinyin of
the labelled sentences. Exit code 1 when the natural voice misses a required figure, 2 when nothing
can be measured.

The meters are packages of their own 测量用的依赖要单独安装:
    pip install -r requirements-dev.txt && pip install --no-deps -r requirements-meters.txt
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# before numpy is loaded: the measuring must not take the cores of what is measured
os.environ.update(
    dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
)

import numpy as np
import soundfile

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from scripts.naturalness import readings  # noqa: E402
from scripts.naturalness.figures import (  # noqa: E402
    VOICE,
    Figure,
    Score,
    figures,
    missed,
    share,
    table,
)
from scripts.naturalness.meters import HZ, NAMES, Meters, at_meter_rate, read_wav  # noqa: E402
from scripts.naturalness.sentences import SENTENCES, Utterance, utterance_of  # noqa: E402
from webui.engine.base import Engine  # noqa: E402
from webui.errors import BadInput, EngineStalled, KaikouError, NotReady  # noqa: E402
from webui.messages import Message  # noqa: E402
from webui.settings import Paths  # noqa: E402
from webui.text import prepare  # noqa: E402
from webui.types import VOICE_ENGINES, Prompt, SpeechRequest  # noqa: E402

MODEL = "cosyvoice"
START_S = 300
TRIES = 4
LOW_MOS = 3.4  # sounds below it are listed


@dataclass(frozen=True)
class Reference:
    """samples: float32 (n,) at HZ."""

    name: str
    language: str
    transcript: str
    samples: np.ndarray


def references() -> list[Reference]:
    """The starter voices, Chinese and English in turn: the first few are of both."""
    folder = ROOT / "assets" / "voices"
    rows = json.loads((folder / "voices.json").read_text("utf-8"))
    by_language = [[r for r in rows if r["language"] == language] for language in SENTENCES]
    return [
        Reference(r["id"], r["language"], r["transcript"], read_wav(folder / r["file"]))
        for pair in zip(*by_language, strict=True)
        for r in pair
    ]


def request_of(utterance: Utterance, reference: Reference, voice_engine: str) -> SpeechRequest:
    """As the page asks for it; CosyVoice takes the reference's transcript where the languages are
    the same.
    """
    is_same = reference.language == utterance.language
    return SpeechRequest(
        id=utterance.file,
        text=utterance.text,
        voice=reference.name,
        mode="zero_shot" if is_same else "cross_lingual",
        segments=tuple(prepare(utterance.text)),
        transcript=reference.transcript,
        seed=utterance.number,
        voice_engine=voice_engine,
    )


def speak_utterances(
    engine: Engine, voice_engine: str, speakers: list[Reference], n_sentences: int
) -> Iterator[tuple[Utterance, np.ndarray]]:
    """Each utterance with its whole sound at the engine's rate."""
    for reference in speakers:
        prompt = engine.encode(reference.samples, HZ, reference.transcript, reference.language)
        for language, texts in SENTENCES.items():
            for number in range(min(n_sentences, len(texts))):
                utterance = Utterance(reference.name, language, number)
                yield (
                    utterance,
                    speak_with_retries(
                        engine, request_of(utterance, reference, voice_engine), prompt
                    ),
                )


def speak_with_retries(
    engine: Engine, request: SpeechRequest, prompt: Prompt, n_tries: int = TRIES
) -> np.ndarray:
    """The whole sound.

    On a busy machine a worker may be taken for one that stands still; the same seed gives the same
    sound once it is back.
    """
    try:
        return np.concatenate([c.samples for c in engine.stream(request, prompt)])
    except EngineStalled:
        if n_tries == 1:
            raise
        return speak_with_retries(engine, request, prompt, n_tries - 1)


def builtin(with_natural: bool) -> Engine:
    """Started. Raises NotReady where the natural voice is asked for and cannot speak."""
    from webui.engine.espeak import EspeakEngine

    engine = EspeakEngine(1, natural=[Paths().natural_dir] if with_natural else ())
    engine.start()
    if with_natural:
        engine.natural.is_decided.wait(START_S)
        health = engine.natural.health()
        if health.state != "ready":
            engine.close()
            raise NotReady(Message(health.reason, health.reason_zh), code="no_natural")
    return engine


def cosyvoice(folder: Path) -> Engine:
    """Started. Raises a named error where the folder holds no model that loads."""
    from webui.engine.cosyvoice.engine import CosyVoiceEngine

    engine = CosyVoiceEngine(folder)
    engine.start()
    return engine


def measure(args: argparse.Namespace) -> dict[str, list[Score]]:
    """Voice -> the scores of all that it said. Prints a line for each."""
    clips = references()
    meters = Meters(args.meters, {r.name: r.samples for r in clips})
    scores: dict[str, list[Score]] = {name: [] for name in args.engines}
    engines: list[tuple[Engine, list[tuple[str, str]]]] = []
    try:
        own = [name for name in args.engines if name in VOICE_ENGINES]
        if own:
            engines.append((builtin("natural" in own), [(name, name) for name in own]))
        if MODEL in args.engines:
            engines.append((cosyvoice(args.model), [(MODEL, "")]))
        for engine, names in engines:
            rate = engine.describe().sample_rate
            for name, voice_engine in names:
                for utterance, sound in speak_utterances(
                    engine, voice_engine, clips[: args.references], args.sentences
                ):
                    if args.out:
                        write(args.out / name / utterance.file, sound, rate)
                    score = meters.score(utterance.file, utterance, at_meter_rate(sound, rate))
                    scores[name].append(score)
                    print(f"{name:<10} {words_of_score(score)}", flush=True)
    finally:
        for engine, _ in engines:
            engine.close()
    return scores


def write(path: Path, sound: np.ndarray, rate: int) -> None:
    """As floats: two builds are the same only if every sample is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, sound, rate, subtype="FLOAT")


def words_of_score(score: Score) -> str:
    parts = [f"{score.file:<36}"]
    if score.mos is not None:
        parts.append(f"MOS {score.mos:.2f}")
    if score.similarity:
        nearest = max(score.similarity, key=score.similarity.__getitem__)
        parts.append(f"similarity {score.similarity[score.reference]:.3f}")
        parts.append("right" if score.is_right else f"nearer to {nearest}")
    if score.n_wrong:
        parts.append(f"words wrong {score.n_wrong}/{score.n_words}: {score.transcript}")
    return "  ".join(parts)


def wav_files(folder: Path) -> dict[str, Path]:
    """Name below the folder -> file. Raises BadInput where there is none."""
    files = {str(p.relative_to(folder)): p for p in sorted(folder.rglob("*.wav"))}
    if not files:
        raise BadInput("no_wav.folder", folder=folder)
    return files


def compare(folders: list[Path], names: list[str]) -> dict[str, list[Score]]:
    """Folder's name -> the scores of the files that all of them have.

    Prints their DistillMOS side by side.
    """
    files = [wav_files(folder) for folder in folders]
    common = [name for name in files[0] if all(name in other for other in files)]
    if not common:
        raise BadInput("no_wav.common")
    meters = Meters(names, {r.name: r.samples for r in references()})
    scores: list[list[Score]] = [[] for _ in folders]
    for name in common:
        for column, paths in zip(scores, files, strict=True):
            column.append(meters.score(name, utterance_of(paths[name].name), read_wav(paths[name])))
        print(f"{name:<44}" + side_by_side([column[-1].mos for column in scores]), flush=True)
    titles = [folder.name for folder in folders]
    if len(set(titles)) < len(titles):
        titles = [f"{n} {title}" for n, title in enumerate(titles, 1)]
    return dict(zip(titles, scores, strict=True))


def side_by_side(mos: list[float | None]) -> str:
    scores = [m for m in mos if m is not None]
    more = f"  {scores[1] - scores[0]:+.3f}" if len(scores) == 2 else ""
    return "".join(f" {m:6.3f}" for m in scores) + more


def gap(before: list[Score], after: list[Score]) -> str:
    """What the second folder's DistillMOS is more than the first's, file by file."""
    gaps = np.array([b.mos - a.mos for a, b in zip(before, after, strict=True)])
    low, error = int(gaps.argmin()), gaps.std() / np.sqrt(len(gaps))
    return (
        f"DistillMOS, second less first 后减前: mean {gaps.mean():+.3f} ± {error:.3f}, lowest"
        f" {gaps[low]:+.3f} ({before[low].file}), highest {gaps.max():+.3f}; {(gaps < 0).sum()} of"
        f" {len(gaps)} lower"
    )


def pinyin() -> Figure:
    """Of the whole labelled sentences."""
    counts = [count for (kind, _), count in readings.counted().items() if kind == "full"]
    return share(sum(right for right, _ in counts), sum(n for _, n in counts))


def names_of(allowed: tuple[str, ...]):
    """For argparse: names with commas between."""

    def read(text: str) -> list[str]:
        names = [name for name in text.split(",") if name]
        unknown = [name for name in names if name not in allowed]
        if unknown or not names:
            raise argparse.ArgumentTypeError(
                f"unknown 不认识: {', '.join(unknown) or text!r}; known 可用: {', '.join(allowed)}"
            )
        return names

    return read


def up_to(most: int):
    """For argparse: a whole number from 1 to `most`."""

    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= most:
            raise argparse.ArgumentTypeError(
                f"{text!r}: a number from 1 to {most} 须是 1 到 {most}"
            )
        return int(text)

    return read


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--engines",
        type=names_of(VOICE_ENGINES),
        metavar="NAME,…",
        help=(
            f"{', '.join(VOICE_ENGINES)}, or both with a comma between (default: both, and the"
            " model where one is given) 要测的音色"
        ),
    )
    parser.add_argument(
        "--model", type=Path, metavar="DIR", help="folder of a CosyVoice model 模型文件夹"
    )
    parser.add_argument(
        "--sentences",
        type=up_to(8),
        default=8,
        metavar="N",
        help="of each language, 1 to 8 每种语言几句",
    )
    parser.add_argument(
        "--references", type=up_to(6), default=6, metavar="N", help="1 to 6 几个参考音色"
    )
    parser.add_argument(
        "--meters",
        type=names_of(NAMES),
        default=list(NAMES),
        metavar="NAME,…",
        help=f"of {', '.join(NAMES)} (default: all) 用哪些量尺",
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="keep the wav files 保留音频 (DIR/natural/…)"
    )
    parser.add_argument(
        "--wavs",
        nargs="+",
        type=Path,
        metavar="DIR",
        help="one folder of wav files, or two with the same names 一个或两个音频文件夹",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="all figures 全部数字")
    args = parser.parse_args(argv)
    if args.wavs and (len(args.wavs) > 2 or args.engines or args.model or args.out):
        parser.error(
            "--wavs: one folder or two, without --engines, --model and --out 只给一两个文件夹"
        )
    args.engines = (args.engines or list(VOICE_ENGINES)) + ([MODEL] if args.model else [])
    for name in ("model", "out", "json"):  # eSpeak goes to another folder
        path = getattr(args, name)
        setattr(args, name, path and path.absolute())
    args.wavs = args.wavs and [folder.absolute() for folder in args.wavs]
    folders = [*(args.wavs or ()), args.model, args.json and args.json.parent]
    absent = [str(folder) for folder in folders if folder and not folder.is_dir()]
    if absent:
        parser.error(f"no such folder 没有这个文件夹: {', '.join(absent)}")
    return args


def main(argv: list[str] | None = None) -> int:
    args = arguments(argv)
    try:
        scores = compare(args.wavs, args.meters) if args.wavs else measure(args)
    except KaikouError as e:
        print(e.en, e.zh, sep="\n", file=sys.stderr)
        return 2
    columns = {name: figures(voice_scores) for name, voice_scores in scores.items()}
    if VOICE in columns:
        columns[VOICE]["pinyin"] = pinyin()
    print("", *table(columns), sep="\n")
    if args.wavs and len(scores) == 2 and "mos" in args.meters:
        print(gap(*scores.values()))
    for name, voice_scores in scores.items():
        low = [s for s in voice_scores if s.mos is not None and s.mos < LOW_MOS]
        if name == VOICE and low:
            print(f"below 低于 {LOW_MOS}: " + ", ".join(f"{s.file} {s.mos:.2f}" for s in low))
    if args.json:
        args.json.write_text(
            json.dumps(
                {
                    "figures": {
                        name: {k: dataclasses.asdict(f) for k, f in column.items()}
                        for name, column in columns.items()
                    },
                    "scores": {
                        name: [dataclasses.asdict(s) for s in voice_scores]
                        for name, voice_scores in scores.items()
                    },
                },
                indent=1,
                ensure_ascii=False,
            ),
            "utf-8",
        )
    return 1 if missed(columns.get(VOICE, {})) else 0


if __name__ == "__main__":
    sys.exit(main())
