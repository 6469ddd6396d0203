"""What batches gain: the same texts one call after the other, many calls in flight, and batches of
2 to 16 lines in flight, in one table.

Every row makes the same texts with seeds of its own, so that nothing comes out of the cache.
Latency is that of a request: of one line in the first two kinds of rows, of a whole zip in the
others. Client and server share the machine. Memory is the server's with its children.

What limits a row is in its last columns: how many milliseconds of processor a second of sound
costs, server and client together, and who had the rest of the machine: others ("else") or nobody
("idle"). Cores over cost is the most that this machine could give.

    python scripts/bench_batch.py --lines 96
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import os
import platform
import re
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parent.parent
WORDS = [
    "The quiet harbour woke before the sun",
    "a small red boat came home",
    "the keeper counted every light",
    "rain moved over the hills",
    "she wrote the letter twice",
    "children ran along the wall",
    "the market opened at last",
]
VOICE = "starter-en-mid"


@dataclass
class Row:
    kind: str
    batch: int
    in_flight: int
    audio_s_per_s: float
    p50_ms: float
    p95_ms: float
    peak_rss_mb: float
    cpu_cores: float
    cpu_ms_per_s: float  # of processor for a second of sound
    idle: float  # share of the machine that nobody used
    elsewhere: float  # share that went to processes that have no part in it
    failed: int = 0


def texts(n: int) -> list[str]:
    return [
        f"{WORDS[i % 7]}, and {WORDS[(i * 3 + 1) % 7].lower()}, said number {i + 100}."
        for i in range(n)
    ]


def seconds_of(wav: bytes) -> float:
    at = wav.index(b"data", 12)
    rate = struct.unpack_from("<I", wav, 24)[0]
    return min(struct.unpack_from("<I", wav, at + 4)[0], len(wav) - at - 8) / 2 / rate


# ---- the three ways ------------------------------------------------------------------------------
async def line(http: httpx.AsyncClient, text: str, seed: int) -> float:
    answer = await http.post(
        "/v1/audio/speech",
        json={
            "input": text,
            "voice": VOICE,
            "seed": seed,
            "stream": False,
            "response_format": "wav",
        },
    )
    answer.raise_for_status()
    return seconds_of(answer.content)


async def batch(http: httpx.AsyncClient, sentences: list[str], seed: int) -> float:
    answer = await http.post(
        "/v2/synthesize/batch", json={"texts": sentences, "voice": VOICE, "seed": seed}
    )
    answer.raise_for_status()
    with zipfile.ZipFile(io.BytesIO(answer.content)) as z:
        return sum(seconds_of(z.read(n)) for n in z.namelist() if n.endswith(".wav"))


async def all_of(url: str, asks: list, in_flight: int) -> tuple[list[float], float, int]:
    """Latencies in ms, seconds of sound, failures."""
    gate, took, audio_s, failed = asyncio.Semaphore(in_flight), [], 0.0, 0
    async with httpx.AsyncClient(
        base_url=url, timeout=600, limits=httpx.Limits(max_connections=in_flight)
    ) as http:

        async def send(ask) -> None:
            nonlocal audio_s, failed
            async with gate:
                began = time.monotonic()
                try:
                    # not in one line: what is added to must not be read before the wait
                    seconds = await ask(http)
                    audio_s += seconds
                except httpx.HTTPError as error:
                    failed += 1
                    print("error:", error, file=sys.stderr)
                took.append(1000 * (time.monotonic() - began))

        await asyncio.gather(*map(send, asks))
    return took, audio_s, failed


def synchronous(url: str, sentences: list[str], seed: int) -> tuple[list[float], float, int]:
    """As a script without asyncio does it: one call, and the next when its answer is there."""
    took, audio_s = [], 0.0
    with httpx.Client(base_url=url, timeout=600) as http:
        for i, text in enumerate(sentences):
            began = time.monotonic()
            answer = http.post(
                "/v1/audio/speech",
                json={
                    "input": text,
                    "voice": VOICE,
                    "seed": seed + i,
                    "stream": False,
                    "response_format": "wav",
                },
            )
            answer.raise_for_status()
            audio_s += seconds_of(answer.content)
            took.append(1000 * (time.monotonic() - began))
    return took, audio_s, 0


# ---- the server ----------------------------------------------------------------------------------
def family(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        kids = [
            int(k)
            for t in Path(f"/proc/{pid}/task").iterdir()
            for k in (t / "children").read_text().split()
        ]
        return [pid, *(p for k in kids for p in family(k))]
    return []


def rss_mb(pid: int) -> float:
    total = 0
    for p in family(pid):
        with contextlib.suppress(OSError, TypeError):
            total += int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{p}/status").read_text())[1])
    return total / 1024


def cpu_s(pid: int) -> float:
    total = 0
    for p in family(pid):
        with contextlib.suppress(OSError, IndexError):
            total += sum(
                map(int, Path(f"/proc/{p}/stat").read_text().rpartition(")")[2].split()[11:13])
            )
    return total / os.sysconf("SC_CLK_TCK")


def machine_s() -> tuple[float, float]:
    """Seconds of all cores since the machine started: (in all, idle)."""
    ticks = [
        int(x) / os.sysconf("SC_CLK_TCK")
        for x in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    ]
    return sum(ticks), ticks[3] + ticks[4]


class Peak:
    """The most memory that was seen while it was on, looked at four times a second."""

    def __init__(self, pid: int):
        self._pid, self._end, self.mb = pid, threading.Event(), 0.0

    def __enter__(self) -> Peak:
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def _look(self) -> None:
        while True:
            self.mb = max(self.mb, rss_mb(self._pid))
            if self._end.wait(0.25):
                return

    def __exit__(self, *_) -> None:
        self._end.set()
        self._thread.join()


@contextlib.contextmanager
def own_studio(engine: str, model_dir: str | None):
    with tempfile.TemporaryDirectory(prefix="kaikou-bench-") as data:
        port = 7990 + os.getpid() % 9
        flags = [
            "--engine",
            engine,
            "--port",
            str(port),
            "--data-dir",
            data,
            *(["--model-dir", model_dir] if model_dir else []),
        ]
        env = {
            **os.environ,
            "KAIKOU_STARTS_PER_MINUTE": "100000",
            "KAIKOU_MAX_STREAMS_PER_VISITOR": "64",
            "KAIKOU_MAX_WAITING": "64",
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "webui", *flags],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=env,
        )
        try:
            url = f"http://127.0.0.1:{port}"
            for _ in range(1500):
                with contextlib.suppress(httpx.TransportError):
                    if httpx.get(url + "/health/ready", timeout=5).status_code == 200:
                        break
                time.sleep(0.2)
            httpx.post(
                url + "/v1/audio/speech",
                json={"input": "warm", "voice": VOICE, "stream": False},
                timeout=300,
            ).raise_for_status()
            yield url, process.pid
        finally:
            process.terminate()
            process.wait(30)


def percentile(values: list[float], p: float) -> float:
    return (
        sorted(values)[min(len(values) - 1, int(len(values) * p / 100))] if values else float("nan")
    )


def measured(kind: str, size: int, in_flight: int, pid: int, work) -> Row:
    with Peak(pid) as peak:
        before, (whole, idle), began = (
            cpu_s(pid) + time.process_time(),
            machine_s(),
            time.monotonic(),
        )
        took, audio_s, failed = work()
        s, used = time.monotonic() - began, cpu_s(pid) + time.process_time() - before
        whole, idle = (now - then for now, then in zip(machine_s(), (whole, idle)))
    return Row(
        kind,
        size,
        in_flight,
        audio_s / s,
        percentile(took, 50),
        percentile(took, 95),
        peak.mb,
        used / s,
        1000 * used / audio_s,
        idle / whole,
        max(0.0, 1 - (idle + used) / whole),
        failed,
    )


def rows(url: str, pid: int, lines: list[str], sizes: list[int], flights: list[int]):
    """Seeds go on from row to row: nothing is made of what an earlier one kept."""
    serial = iter(range(1000, 1 << 30, 10_000))
    seed = next(serial)
    yield measured("one at a time", 1, 1, pid, lambda: synchronous(url, lines, seed))
    for n in flights:
        first = next(serial)
        asks = [
            lambda http, t=t, i=i, first=first: line(http, t, first + i)
            for i, t in enumerate(lines)
        ]
        yield measured(
            "async single", 1, n, pid, lambda asks=asks, n=n: asyncio.run(all_of(url, asks, n))
        )
    for size in sizes:
        for n in flights:
            first = next(serial)
            asks = [
                lambda http, part=lines[i : i + size], i=i, first=first: batch(
                    http, part, first + i
                )
                for i in range(0, len(lines), size)
            ]
            yield measured(
                "async batch",
                size,
                n,
                pid,
                lambda asks=asks, n=n: asyncio.run(all_of(url, asks, n)),
            )


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--lines", type=int, default=96)
    p.add_argument("--batch", default="2,4,8,16", help="lines in one batch, one group of rows each")
    p.add_argument("--in-flight", default="4,16,32", help="requests at the same time, one row each")
    p.add_argument("--engine", default="builtin")
    p.add_argument("--model-dir")
    p.add_argument("--json", metavar="FILE")
    args = p.parse_args()
    result_rows: list[Row] = []
    with own_studio(args.engine, args.model_dir) as (url, pid):
        print(
            f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores; client and"
            f" server share them; engine {args.engine}, {args.lines} lines"
        )
        print(
            "way           | batch | in flight | audio s/s | x   | p50 ms | p95 ms | RSS MB | CPU"
            " cores | CPU ms / s | idle | else | failed"
        )
        for r in rows(
            url,
            pid,
            texts(args.lines),
            [int(x) for x in args.batch.split(",")],
            [int(x) for x in args.in_flight.split(",")],
        ):
            result_rows.append(r)
            print(
                f"{r.kind:<13} | {r.batch:>5} | {r.in_flight:>9} | {r.audio_s_per_s:>9.1f} |"
                f" {r.audio_s_per_s / result_rows[0].audio_s_per_s:>3.1f} | {r.p50_ms:>6.0f} |"
                f" {r.p95_ms:>6.0f} | {r.peak_rss_mb:>6.0f} | {r.cpu_cores:>9.2f} |"
                f" {r.cpu_ms_per_s:>10.2f} | {r.idle:>4.0%} | {r.elsewhere:>4.0%} | {r.failed}",
                flush=True,
            )
        cost, cores = min(r.cpu_ms_per_s for r in result_rows), os.cpu_count() or 1
        print(
            f"{cores} cores at {cost:.2f} ms for a second of sound can make"
            f" {1000 * cores / cost:.0f} s/s; the best row made"
            f" {max(r.audio_s_per_s for r in result_rows):.0f}"
        )
    if args.json:
        Path(args.json).write_text(
            json.dumps({"rows": [asdict(r) for r in result_rows]}, indent=1), "utf-8"
        )


if __name__ == "__main__":
    main()
