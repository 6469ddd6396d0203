#!/usr/bin/env python3
"""Makes assets/natural/voices.safetensors: the styles of the natural voice's base voices, and what
each sounds like before it is bent.

Usage: python scripts/make_natural_voices.py STYLES [--weights DIR] [--out FILE]. Same output every
  time; some minutes for each voice.
STYLES: the folder package/voices of the npm package kokoro-js 1.2.1 (npm pack kokoro-js@1.2.1),
  Apache-2.0.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import multiprocessing
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from webui.engine.espeak.base_voices import STOCK
from webui.engine.espeak.library import EspeakLibrary
from webui.engine.espeak.mel_bands import HOP_S, bands_of, energy_of, warp, warp_columns
from webui.engine.espeak.voice_mapping import Base
from webui.engine.espeak.voice_profile import PITCH_HZ, at_rate, listen, syllable_rate
from webui.engine.natural import weights
from webui.engine.natural.convolution import Scratch
from webui.engine.natural.equaliser import analyse
from webui.engine.natural.generator import BLOCKS, EPSILON, one_pass
from webui.engine.natural.network import RATE_HZ, Network, tokens_of
from webui.engine.natural.phonemes import clauses
from webui.engine.natural.speech_stream import Trim, active_rms
from webui.engine.natural.styles import FILE, LANGUAGE_OF, Statistics
from webui.settings import Paths

# sha256 of each voice's file as published
VOICES = {
    "zf_xiaobei": "5dde6e1c9c4f12c8b327bc29c0cee361a23b52b952c04636858ba637ec66e640",
    "zf_xiaoxiao": "03adb5d5e3ddd88b047954e974e651cb0a4b524c985057e5d872e962c7be1169",
    "zm_yunjian": "de48a00bdbf3649f07162269a2b6e0513604389bfac8a2e6c75cb34b323ad6fa",
    "zm_yunxi": "7243892fb4e560d47014090ddf010f8b8b790f3c6b029ff82b2ac06aa4e27c8b",
    "af_heart": "d583ccff3cdca2f7fae535cb998ac07e9fcb90f09737b9a41fa2734ec44a8f0b",
    "af_bella": "f69d836209b78eb8c66e75e3cda491e26ea838a3674257e9d4e5703cbaf55c8b",
    "am_michael": "1d1f21dd8da39c30705cd4c75d039d265e9bc4a2a93ed09bc9e1b1225eb95ba1",
    "am_fenrir": "c27989f741f7ee34d273a39d8a595cc0837d35f5ced9a29b7cc162614616df43",
    "bf_emma": "669fe0647f9dd04fcab92f1439a40eeb4c8b4ab1f82e4996fe3d918ce4a63b73",
}
# What the norms see is learnt from: clauses of all lengths, beside the stock text.
TEXTS = {
    "zh": (
        "你好，大家晚上好。是吗？真的太好了！我们走吧。他笑了。这是什么意思？一共三百二十八块五。"
        "今天早上我在公园里看见一只白色的小狗。"
        "请把桌子上的那本书递给我，谢谢你。这座城市的夜晚很热闹，街上到处都是人。他说明天会下雨，"
        "我们最好带上雨伞。音乐会七点半开始，别迟到了。"
        "你知道最近的地铁站在哪里吗？工程师们连续工作了三天三夜终于找到了问题的原因。春眠不觉晓，"
        "处处闻啼鸟。"
    ),
    "en": (
        "Hello there, good evening everyone. Really? That is wonderful! Let us go now. He smiled."
        " What does it mean? It costs three dollars. The quick brown fox jumps over the lazy dog"
        " near the river. Please remember to close the window before you leave. Nobody expected the"
        " meeting to last more than three hours. Could you tell me where the nearest station is? It"
        " was a bright cold day in April, and the clocks were striking thirteen. Music sounds"
        " better when you share it with friends. She opened the letter slowly and smiled."
    ),
}
SPREAD = 0.2, 0.15  # ln: how far the range and the middle of the pitch are moved while learning
RIDGE = 2.0
MAX_TOKENS = 200  # a style is kept for each length up to this
N_VOICED, N_UNVOICED = 96, 32  # frames that are kept of each


def styles_of(path: Path, sha256: str) -> np.ndarray:
    """float32 (MAX_TOKENS, 256): row i for i + 1 tokens."""
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != sha256:
        raise SystemExit(f"{path}: another checksum than the published file's")
    return np.frombuffer(data, "<f4").reshape(-1, 256)[1 : MAX_TOKENS + 1]


def learn(
    network: Network, speaker: EspeakLibrary, styles: np.ndarray, language: str
) -> Statistics:
    """What the norms of the generator see, against the share of voiced rows and their pitch: a
    ridge regression.
    """
    chance = np.random.default_rng(0)
    moments, at = [], []
    token_lists = [tokens_of(c.phonemes) for c in clauses(TEXTS[language], language, speaker)]
    longest = max(token_lists, key=len)
    middle_hz = float(np.exp(network.trunk(longest, styles[len(longest) - 1]).log_f0))
    for tokens in token_lists:
        style = styles[len(tokens) - 1]
        factor, moved = np.exp(SPREAD * chance.standard_normal(2))
        middle = middle_hz * moved
        trunk = network.trunk(
            tokens, style, 1.0, factor * middle / middle_hz, middle * (1 - factor)
        )
        _, statistics = one_pass(network.generator, trunk.features, trunk.source, style[:128])
        mean, variance = (
            np.concatenate([statistics[name][:, i].ravel() for name in BLOCKS]) for i in (0, 1)
        )
        moments.append((mean, np.log(variance + EPSILON)))
        at.append((trunk.voiced, trunk.log_f0))
    moments, at = np.array(moments), np.array(at)
    middle, spread = at.mean(0), at.std(0)
    away = (at - middle) / spread
    rates = np.linalg.solve(
        away.T @ away + RIDGE * np.eye(2),
        away.T @ (moments - moments.mean(0)).reshape(len(moments), -1),
    )
    rates = (rates / spread[:, None]).reshape(2, *moments.shape[1:])
    ranges = np.stack((at.min(0), middle, at.max(0)), 1)
    return Statistics(
        np.concatenate((moments.mean(0)[None], rates)).astype(np.float16).astype(np.float32),
        *(tuple(float(v) for v in row) for row in ranges),
    )


def stock_sound(
    network: Network,
    speaker: EspeakLibrary,
    styles: np.ndarray,
    language: str,
    statistics: Statistics,
):
    """float32 (n,) at RATE_HZ: the stock text of the built-in voice, clause by clause without the
    silences between them.
    """
    sounds, scratch = [], Scratch()
    for clause in clauses(STOCK[language], language, speaker):
        tokens = tokens_of(clause.phonemes)
        style = styles[len(tokens) - 1]
        trunk = network.trunk(tokens, style)
        sound = np.concatenate(list(network.sound(trunk, style, statistics, scratch)))
        sounds.append(Trim(active_rms(sound)).push(sound, True))
    return np.concatenate(sounds)


def base_of(sound: np.ndarray) -> Base:
    """As builtin.stock.base_voice does it for eSpeak, on sound that is there."""
    f0, log_power = analyse(sound, round(HOP_S * RATE_HZ))
    energy = energy_of(bands_of(warp(log_power, warp_columns(1.0))))[:, 0]
    active = energy > np.percentile(energy, 95) - 6.9
    voiced, unvoiced = active & (f0 > 0), active & (f0 == 0)
    log = np.log(f0[voiced])
    p16, middle, p84 = np.percentile(log[np.abs(log - np.median(log)) < 0.9], [16, 50, 84])
    [narrow] = at_rate(sound.astype(np.float64), RATE_HZ, (PITCH_HZ,))

    def thin(rows: np.ndarray, n: int) -> np.ndarray:
        at = np.flatnonzero(rows)
        return log_power[at[np.linspace(0, len(at) - 1, min(n, len(at))).astype(int)]]

    return Base(
        float(middle),
        float((p84 - p16) / 2),
        thin(voiced, N_VOICED),
        thin(unvoiced, N_UNVOICED),
        float(np.median(energy[unvoiced]) - np.median(energy[voiced])),
        syllable_rate(narrow, float(active.sum()) * HOP_S),
    )


def make(job: tuple[str, Path, Path]) -> tuple[str, dict[str, np.ndarray], dict]:
    """(name, folder of the styles, folder of the weights) -> name, arrays, numbers."""
    name, folder, weights_dir = job
    network, speaker = Network(weights.obtain([weights_dir])), EspeakLibrary()
    language = LANGUAGE_OF[name[0]]
    styles = styles_of(folder / f"{name}.bin", VOICES[name])
    sound = stock_sound(
        network, speaker, styles, language, statistics := learn(network, speaker, styles, language)
    )
    base = dataclasses.asdict(base_of(sound))
    arrays = {
        "styles": styles.astype(np.float16),
        "mean_voiced": listen(sound, RATE_HZ).mean_voiced.astype(np.float16),
        "statistics": statistics.rates.astype(np.float16),
        **{field: base.pop(field).astype(np.float16) for field in ("voiced", "unvoiced")},
    }
    numbers = {"base": base, "rms": active_rms(sound)}
    return name, arrays, numbers | {"voiced": statistics.voiced, "log_f0": statistics.log_f0}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("styles", type=Path, metavar="STYLES")
    parser.add_argument("--weights", type=Path, default=Paths().natural_dir, metavar="DIR")
    parser.add_argument("--out", type=Path, default=FILE, metavar="FILE")
    args = parser.parse_args()
    arrays: dict[str, np.ndarray] = {}
    plain: dict[str, dict] = {}
    weights.obtain([args.weights.absolute()])
    jobs = [(name, args.styles.absolute(), args.weights.absolute()) for name in VOICES]
    with multiprocessing.get_context("spawn").Pool() as pool:
        for name, voice_arrays, numbers in pool.imap(make, jobs, 1):
            arrays |= {f"{name}.{field}": value for field, value in voice_arrays.items()}
            plain[name] = numbers
            print(name, {k: v for k, v in numbers.items() if k != "base"}, flush=True)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    save_file(arrays, args.out, {"voices": json.dumps(plain)})
    print(args.out, args.out.stat().st_size, hashlib.sha256(args.out.read_bytes()).hexdigest())


if __name__ == "__main__":
    main()
