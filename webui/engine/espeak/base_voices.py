"""The base voice saying fixed texts: what it is like before it is bent.

Needs eSpeak, so it runs in worker processes.
"""

from __future__ import annotations

import numpy as np

from .library import EspeakLibrary
from .mel_bands import FFT, HOP_S, SOURCE_HZ, bands_of, energy_of, warp, warp_columns
from .speech_analysis import emphasised, envelope, pitch, pitch_search, smoothing
from .voice_mapping import BASE_WPM, Base

STOCK = {
    "en": (
        "The morning light came slowly over the quiet hills, and a small boat moved across the"
        " lake. She asked whether the bread was fresh; he laughed, and said that the shop had just"
        " opened. Five young children watched the huge grey clouds, wondering if it would rain"
        " before noon."
    ),
    "zh": (
        "清晨的阳光照在安静的山谷里，一条小船慢慢划过湖面。她问面包是不是刚出炉的，他笑着说店铺才开门。"
        "五个孩子望着远处灰色的云，猜想中午以前会不会下雨，后来他们决定去图书馆看书。"
    ),
    "yue": (
        "清晨嘅阳光照喺山谷里面，一只船慢慢划过湖面。佢问面包系唔系新鲜，佢笑住话铺头先至开门。"
        "几个细路望住远处灰色嘅云。"
    ),
    "ja": (
        "あさのひかりが、しずかなやまをゆっくりてらしました。"
        "ちいさなふねがみずうみをわたっていきます。こどもたちはそらをみあげて、"
        "あめがふるかどうかかんがえました。"
    ),
    "ko": (
        "아침 햇살이 조용한 산을 천천히 비추었습니다. 작은 배가 호수를 건너갑니다. 아이들은 하늘을"
        " 보며 비가 올지 생각했습니다."
    ),
    "ru": (
        "Утренний свет медленно осветил тихие холмы, и маленькая лодка пересекла озеро. Дети"
        " смотрели на серые облака и думали, будет ли дождь."
    ),
}
BASE_OF = {"de": "en", "es": "en", "fr": "en", "it": "en", "zh-sichuan": "zh"}
KEPT = 400
SEARCH = pitch_search(SOURCE_HZ // 2, 100.0, 400.0)
TABLES = smoothing(SOURCE_HZ, FFT)


def as_float(samples: np.ndarray) -> np.ndarray:
    return samples.astype(np.float32) * np.float32(1.0 / 32768.0)


def halved(pcm: np.ndarray) -> np.ndarray:
    """Half the rate, for the pitch search: every second sample of a four-point mean."""
    n = len(pcm) // 2
    x = np.zeros(2 * n + 3, np.float32)
    x[1 : 1 + len(pcm)] = pcm
    out = x[1 : 2 * n + 1 : 2] + x[2 : 2 * n + 2 : 2]
    out *= 3
    out += x[0 : 2 * n : 2]
    out += x[3 : 2 * n + 3 : 2]
    out *= np.float32(0.125)
    return out


def analyse(pcm: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """float32 (n,) at 22050 Hz -> f0 (m,), log power (m, 257) every HOP_S."""
    centres = np.round(
        (np.arange(int(len(pcm) / SOURCE_HZ / HOP_S)) + 0.5) * HOP_S * SOURCE_HZ
    ).astype(np.int64)
    half, bright = halved(pcm), emphasised(pcm)
    parts = [
        centres[i : i + 128] for i in range(0, len(centres), 128)
    ]  # all at once would need a hundred megabytes
    f0 = [pitch(half, part // 2, SEARCH) for part in parts]
    return np.concatenate(f0), np.concatenate(
        [envelope(bright, part, f, TABLES) for part, f in zip(parts, f0, strict=True)]
    )


def base_voice(speaker: EspeakLibrary, language: str) -> tuple[Base, np.ndarray, np.ndarray]:
    """(Base, f0 (m,), log power (m, 257) of the first seconds of stock text, for measuring the
    gain).
    """
    from .voice_profile import PITCH_HZ, at_rate, syllable_rate

    pcm = as_float(speaker.say(language, BASE_WPM, STOCK[language]).samples)
    f0, log_power = analyse(pcm)
    energy = energy_of(bands_of(warp(log_power, warp_columns(1.0))))[:, 0]
    active = energy > np.percentile(energy, 95) - 6.9
    voiced, unvoiced = active & (f0 > 0), active & (f0 == 0)
    log = np.log(f0[voiced])
    p16, middle, p84 = np.percentile(log[np.abs(log - np.median(log)) < 0.9], [16, 50, 84])
    (narrow,) = at_rate(pcm.astype(np.float64), SOURCE_HZ, (PITCH_HZ,))

    def thin(rows: np.ndarray) -> np.ndarray:
        at = np.flatnonzero(rows)
        return log_power[at[np.linspace(0, len(at) - 1, min(KEPT, len(at))).astype(int)]]

    base = Base(
        float(middle), float((p84 - p16) / 2), thin(voiced), thin(unvoiced),
        float(np.median(energy[unvoiced]) - np.median(energy[voiced])),
        syllable_rate(narrow, float(active.sum()) * HOP_S),
    )  # fmt: skip
    n_frames = int(4.0 / HOP_S)
    return base, f0[:n_frames], log_power[:n_frames]
