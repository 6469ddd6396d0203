#!/usr/bin/env python3
"""How fast the natural voice is here: load, memory, time to the first piece of sound, and seconds
of work per second of sound.

    python scripts/bench_natural.py [--times 5] [--starter NAME] [--json FILE]

Through the engine, one stream at a time, on one thread, as its worker runs it. "First piece" counts
from the request to the first samples in the engine's hands, for first clauses of 3 to 8 syllables;
"work" is processor time of the worker over the sound that is heard, silence cut off.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import soundfile  # noqa: E402

from webui.engine.espeak import EspeakEngine  # noqa: E402
from webui.engine.natural.packages import RATE_HZ  # noqa: E402
from webui.errors import Cancelled  # noqa: E402
from webui.settings import Paths  # noqa: E402
from webui.types import SpeechRequest  # noqa: E402

FIRST = {
    "zh": (
        "大家好，今天我们来聊一聊天气。",
        "今天天气很好，我们出去走走吧。",
        "欢迎来到我的频道，请多关照。",
    ),
    "en": ("Good morning, how are you today?", "Welcome to my channel, my friends."),
}
LONG = {
    "zh": (
        "春天到了，山上的花都开了，空气里有泥土的味道。我从来没有去过那么远的地方，心里有点紧张，"
        "可是一路上的风景让我慢慢平静下来。"
    ),
    "en": (
        "Spring is here, and the hills are covered with flowers. I had never been so far from home,"
        " and I was a little nervous, but the view from the window calmed me down."
    ),
}


def cpu_s(pid: int) -> float:
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def request_of(text: str, language: str, n: int) -> SpeechRequest:
    return SpeechRequest(
        id=f"b{n}",
        text=text,
        mode="cross_lingual",
        voice="v",
        language=language,
        seed=n,
        segments=(text,),
        voice_engine="natural",
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=5, metavar="N")
    parser.add_argument("--starter", default="starter-zh-high", metavar="NAME")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    began = time.perf_counter()
    engine = EspeakEngine(2, natural=[Paths().natural_dir])
    engine.start()
    ready_s = time.perf_counter() - began
    engine.natural.is_decided.wait()
    natural_s = time.perf_counter() - began
    health = engine.natural.health()
    if health.state != "ready":
        sys.exit(health.reason)
    pid = engine.natural.lanes[0].pid
    sound, rate = soundfile.read(ROOT / "assets" / "voices" / f"{args.starter}.wav")
    prompt = engine.encode(sound.astype(np.float32), rate)
    n = 0

    def speak(text: str, language: str) -> tuple[float, float, float, list[float]]:
        """(first piece s, sound s, worker's processor s, seconds that playing would have stood
        still)
        """
        nonlocal n
        n += 1
        before, began = cpu_s(pid), time.perf_counter()
        arrived, lengths = [], []
        for chunk in engine.stream(request_of(text, language, n), prompt):
            arrived.append(time.perf_counter() - began)
            lengths.append(len(chunk.samples) / RATE_HZ)
        played = np.concatenate(([0.0], np.cumsum(lengths)))
        late = [a - arrived[0] - p for a, p in zip(arrived, played, strict=False)]
        return arrived[0], float(played[-1]), cpu_s(pid) - before, max(late)

    def cancel(text: str, language: str, after_s: float) -> float:
        """Seconds from a cancel in the midst of a step until the reader has its end and the worker
        is free.
        """
        nonlocal n
        n += 1
        stream = engine.stream(request_of(text, language, n), prompt)

        def read() -> None:
            with suppress(Cancelled):
                for _ in stream:
                    pass

        reader = threading.Thread(target=read)
        reader.start()
        time.sleep(after_s)
        began = time.perf_counter()
        engine.cancel(f"b{n}")
        reader.join()
        engine.natural.lanes[0].ask({"op": "count"})
        return time.perf_counter() - began

    for language, texts in FIRST.items():  # the first of each is not counted
        speak(texts[0], language)
    rows = {}
    for language, texts in FIRST.items():
        measurements = [speak(text, language) for _ in range(args.times) for text in texts]
        rows[f"first piece {language} ms"] = [round(1000 * f[0]) for f in measurements]
        rows[f"late {language} ms"] = [round(1000 * f[3]) for f in measurements]
        long = [speak(LONG[language], language) for _ in range(args.times)]
        rows[f"work {language}"] = [round(f[2] / f[1], 3) for f in long]
        rows[f"work short {language}"] = [round(f[2] / f[1], 3) for f in measurements]
        rows[f"late long {language} ms"] = [round(1000 * f[3]) for f in long]
        rows[f"cancel {language} ms"] = [
            round(1000 * cancel(LONG[language], language, 0.3 + 0.1 * i))
            for i in range(4 * args.times)
        ]
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores")
    print(
        f"instant voice ready {ready_s:.2f} s, natural {natural_s:.2f} s after the start; worker"
        f" {rss_mb(pid):.0f} MB"
    )
    for name, values in rows.items():
        print(
            f"{name:22s} median {statistics.median(values):8.3f}  worst {max(values):8.3f}  of"
            f" {len(values)}"
        )
    if args.json:
        args.json.write_text(json.dumps(rows))
    engine.close()


if __name__ == "__main__":
    main()
