"""The text-in socket by the clock: from the end of a first clause to its first sound, and from a
cancel, or a new start, to silence.

Each clause is written letter by letter; time zero is when its last letter is sent, the others
having been read. "whole text" is the same clause through POST /v1/audio/speech, to its first byte.
A cancel is sent in the middle of speech; frames after it are counted. Starts a studio of its own
unless --url names one.

    python scripts/bench_text_in.py --times 50
    python scripts/bench_text_in.py --model builtin-natural --times 20
    python scripts/bench_text_in.py --url http://127.0.0.1:7860 --key ... --voice VOICE
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
from websockets.sync.client import connect

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.bench_users import wait_ready  # noqa: E402

FIRST = {
    "zh": "清晨的风从窗口吹进来，",
    "en": "In the morning the wind comes in through the window, ",
}
REST = {
    "zh": "我把要说的话写下来，它立刻就开口了，一句接着一句，直到有人打断它为止。" * 3,
    "en": (
        "and whatever I write is spoken at once, one clause after the other, until somebody"
        " interrupts. " * 3
    ),
}


@contextlib.contextmanager
def studio(engine: str, model: str):
    with tempfile.TemporaryDirectory(prefix="kaikou-bench-") as data:
        port = 7800 + os.getpid() % 90
        env = {**os.environ, "KAIKOU_STARTS_PER_MINUTE": "6000"}
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "webui",
                "--engine",
                engine,
                "--port",
                str(port),
                "--data-dir",
                data,
            ],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=env,
        )
        url = f"http://127.0.0.1:{port}"
        try:
            wait_ready(url, model)
            yield url
        finally:
            process.terminate()
            process.wait(20)


class Talk:
    """One socket. Times are milliseconds."""

    def __init__(self, url: str, key: str, voice: str, model: str):
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._ws = connect(
            url.replace("http", "ws", 1) + "/v1/audio/speech/stream",
            compression=None,
            max_size=None,
            proxy=None,
            legacy=True,
            additional_headers=headers,
        )
        self._voice, self._model = voice, model

    def send(self, kind: str, **fields) -> float:
        """When it was sent."""
        self._ws.send(json.dumps({"type": kind, **fields}))
        return time.perf_counter()

    def until(self, message_type: str) -> tuple[float, int]:
        """When a message of this type came ("sound": a frame), and how many frames came before
        it.
        """
        frames = 0
        while True:
            data = self._ws.recv(60)
            now = time.perf_counter()
            if isinstance(data, bytes):
                if message_type == "sound":
                    return now, frames
                frames += 1
            elif (kind := json.loads(data)["type"]) == message_type:
                return now, frames
            elif kind in ("error", "speech.failed"):
                raise SystemExit(data)

    def write(self, text: str) -> float:
        """Letter by letter; the last one when those before it have been read.

        When that was sent.
        """
        for letter in text[:-1]:
            self.send("text", delta=letter)
        time.sleep(0.05)
        return self.send("text", delta=text[-1])

    def start(self, seed: int) -> float:
        return self.send("start", voice=self._voice, seed=seed, model=self._model)

    def started(self) -> None:
        """Nothing of the request before may come any more."""
        if self.until("speech.started")[1]:
            raise SystemExit("sound came after it was told that it was stopped")


def first_sound(talk: Talk, text: str, seed: int) -> float:
    talk.start(seed)
    talk.started()
    began = talk.write(text)
    at, _ = talk.until("sound")
    talk.send("cancel")
    talk.until("speech.cancelled")
    return 1000 * (at - began)


def silenced(talk: Talk, first: str, rest: str, seed: int, by_start: bool) -> tuple[float, int]:
    """Milliseconds until it is told that it was stopped, and the frames that came in between."""
    talk.start(seed)
    talk.started()
    talk.write(first)
    talk.send("text", delta=rest)
    talk.until("sound")
    began = talk.start(seed) if by_start else talk.send("cancel")
    at, frames = talk.until("speech.cancelled")
    if by_start:
        talk.started()
        talk.send("cancel")
        talk.until("speech.cancelled")
    return 1000 * (at - began), frames


def whole_text(http: httpx.Client, text: str, voice: str, seed: int, model: str) -> float:
    began = time.perf_counter()
    with http.stream(
        "POST",
        "/v1/audio/speech",
        json={
            "input": text,
            "voice": voice,
            "seed": seed,
            "model": model,
            "response_format": "pcm",
        },
    ) as answer:
        answer.raise_for_status()
        next(answer.iter_raw())
        return 1000 * (time.perf_counter() - began)


def row(name: str, values: list[float]) -> str:
    ordered = sorted(values)
    return (
        f"{name:<34} | {statistics.median(ordered):>8.1f} |"
        f" {ordered[int(0.95 * (len(ordered) - 1))]:>8.1f} | {ordered[-1]:>8.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=30)
    parser.add_argument("--url", default="", help="of a studio that runs already")
    parser.add_argument("--key", default="", help="an API key with the scope speak")
    parser.add_argument("--voice", default="starter-zh-high")
    parser.add_argument("--engine", default="builtin", help="of the studio that is started")
    parser.add_argument(
        "--model",
        default="auto",
        help="e.g. builtin-natural or builtin-instant, measured when both are loaded",
    )
    parser.add_argument("--json", default="", help="file for the figures")
    args = parser.parse_args()
    figures: dict[str, list[float]] = {}
    frames: list[int] = []
    with (
        contextlib.nullcontext(args.url.rstrip("/"))
        if args.url
        else studio(args.engine, args.model)
    ) as url:
        talk = Talk(url, args.key, args.voice, args.model)
        with httpx.Client(
            base_url=url,
            timeout=60,
            headers={"Authorization": f"Bearer {args.key}"} if args.key else {},
        ) as http:
            first_sound(talk, FIRST["zh"], 0)
            for n in range(args.times):
                for language in FIRST:
                    figures.setdefault(f"clause to first sound, {language}", []).append(
                        first_sound(talk, FIRST[language], n)
                    )
                    figures.setdefault(f"whole text to first byte, {language}", []).append(
                        whole_text(http, FIRST[language], args.voice, n, args.model)
                    )
                for label, by_start in (
                    ("cancel to silence", False),
                    ("new start to silence", True),
                ):
                    took, late = silenced(talk, FIRST["zh"], REST["zh"], n, by_start)
                    figures.setdefault(label, []).append(took)
                    frames.append(late)
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, {args.url or args.engine}, model"
        f" {args.model}; milliseconds of {args.times} each"
    )
    print(f"{'':<34} | {'median':>8} | {'P95':>8} | {'worst':>8}")
    for name, values in figures.items():
        print(row(name, values))
    print(
        f"frames that were on their way when it was stopped: {statistics.median(frames):.0f} (at"
        f" most {max(frames)}), 0.2 s or less each; none came after it was told"
    )
    if args.json:
        Path(args.json).write_text(json.dumps({**figures, "frames": frames}, indent=1))


if __name__ == "__main__":
    main()
