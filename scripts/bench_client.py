"""What the client package gets out of a studio: the same texts one at a time, many at once, and in
batches of 2 to 16 lines, in one table.

Rows: `sync` is TTS.synthesize line after line, the whole at once; `sync paced` the same as a
  listener gets it (samples as they are made, at
most ten seconds ahead of the clock: what a plain call with `stream` left on costs once a line is
longer than that); `sync fresh` opens a connection for every line. `async` is AsyncBatchClient with
one line in a request, `batch N` with N lines through /v2/synthesize/batch.

x: times `sync`. p50, p95: of a request, from its start to its last byte. CPU ms: of one line, in
  the engine's workers, in the server beside
them, and in the client. `ceiling` is what the cores could make if they were busy with nothing but
that; `busy` how much of it was reached. Client and server share the machine. Seeds differ from row
to row, so that nothing comes out of a cache.

    python scripts/bench_client.py --lines 96
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx
from bench_batch import VOICE, Peak, family, own_studio, percentile, texts

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from webui.client import TTS, AsyncBatchClient


@dataclass
class Row:
    way: str
    in_flight: int
    audio_s_per_s: float
    p50_ms: float
    p95_ms: float
    engine_ms: float
    server_ms: float
    client_ms: float
    ceiling: float
    server_mb: float
    client_mb: float
    failed: int


class Timed(httpx.AsyncHTTPTransport):
    """Notes how long each request took, to its last byte."""

    def __init__(self, **kw):
        super().__init__(**kw)
        self.took_ms: list[float] = []

    async def handle_async_request(self, request):
        began = time.monotonic()
        answer = await super().handle_async_request(request)
        answer.stream = _Ended(
            answer.stream, lambda: self.took_ms.append(1000 * (time.monotonic() - began))
        )
        return answer


class _Ended(httpx.AsyncByteStream):
    def __init__(self, stream, on_end):
        self._stream, self._on_end = stream, on_end

    async def __aiter__(self):
        async for data in self._stream:
            yield data

    async def aclose(self):
        await self._stream.aclose()
        self._on_end()


# ---- the ways ------------------------------------------------------------------------------------
def synchronous(
    url: str, sentences: list[str], seed: int, is_paced: bool = False, is_fresh: bool = False
) -> tuple[list[float], float, int]:
    """Latencies in ms, seconds of sound, failures."""
    took, audio_s, tts = [], 0.0, TTS(url)
    for i, text in enumerate(sentences):
        began = time.monotonic()
        if is_fresh:
            tts.close()
            tts = TTS(url)
        audio_s += tts.synthesize(
            text, VOICE, seed=seed + i, on_first_audio=(lambda s: None) if is_paced else None
        ).seconds
        took.append(1000 * (time.monotonic() - began))
    tts.close()
    return took, audio_s, 0


def asynchronous(
    url: str, sentences: list[str], seed: int, batch: int, in_flight: int
) -> tuple[list[float], float, int]:
    async def run():
        timed = Timed(
            limits=httpx.Limits(max_connections=in_flight, max_keepalive_connections=in_flight)
        )
        audio_s = failed = 0
        async with AsyncBatchClient(
            url, in_flight=in_flight, batch=batch, seed=seed, transport=timed
        ) as client:
            async for result in client.results(sentences, voice=VOICE):
                audio_s += result.seconds
                if result.error is not None:
                    failed += 1
                    print("error:", result.error, file=sys.stderr)
        return timed.took_ms, audio_s, failed

    return asyncio.run(run())


# ---- the table -----------------------------------------------------------------------------------
def spent_s(pid: int) -> dict[int, float]:
    """CPU seconds of each process of the studio."""
    cpu_s_by_process = {}
    for p in family(pid):
        try:
            cpu_s_by_process[p] = sum(
                map(int, Path(f"/proc/{p}/stat").read_text().rpartition(")")[2].split()[11:13])
            ) / os.sysconf("SC_CLK_TCK")
        except OSError:  # it ended meanwhile
            continue
    return cpu_s_by_process


def measured(way: str, in_flight: int, pid: int, n: int, work) -> Row:
    before, own_s = spent_s(pid), time.process_time()
    with Peak(pid) as peak:
        began = time.monotonic()
        took, audio_s, failed = work()
        s = time.monotonic() - began
    client_s, after = time.process_time() - own_s, spent_s(pid)
    server_s = after[pid] - before[pid]
    engine_s = sum(after.values()) - sum(before.get(p, 0.0) for p in after) - server_s
    ceiling = audio_s * len(os.sched_getaffinity(0)) / max(1e-9, client_s + server_s + engine_s)
    return Row(
        way,
        in_flight,
        audio_s / s,
        percentile(took, 50),
        percentile(took, 95),
        1000 * engine_s / n,
        1000 * server_s / n,
        1000 * client_s / n,
        ceiling,
        peak.mb,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        failed,
    )


def rows(url: str, pid: int, lines: list[str], sizes: list[int], flights: list[int]):
    seeds = iter(range(1000, 1 << 30, 10_000))
    n = len(lines)
    synchronous(
        url, lines[:8], next(seeds)
    )  # workers, connections and caches are warm for all alike
    yield measured("sync", 1, pid, n, lambda: synchronous(url, lines, next(seeds)))
    yield measured(
        "sync fresh", 1, pid, n, lambda: synchronous(url, lines, next(seeds), is_fresh=True)
    )
    yield measured(
        "sync paced", 1, pid, n, lambda: synchronous(url, lines, next(seeds), is_paced=True)
    )
    for size in (1, *sizes):
        for in_flight in flights:
            yield measured(
                "async" if size == 1 else f"batch {size}",
                in_flight,
                pid,
                n,
                lambda size=size, in_flight=in_flight: asynchronous(
                    url, lines, next(seeds), size, in_flight
                ),
            )


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--lines", type=int, default=96)
    p.add_argument("--sentences", type=int, default=1, help="in one line; 1 is about 6 s of sound")
    p.add_argument(
        "--batch", default="2,4,8,16", help="lines in one request, one group of rows each"
    )
    p.add_argument("--in-flight", default="4,16,32", help="requests at the same time, one row each")
    p.add_argument(
        "--workers",
        type=int,
        default=0,
        help="processes of the built-in voice; 0 = as it starts by itself",
    )
    p.add_argument("--engine", default="builtin")
    p.add_argument("--model-dir")
    p.add_argument("--json", metavar="FILE")
    args = p.parse_args()
    pieces = texts(args.lines * args.sentences)
    lines = [
        " ".join(pieces[i : i + args.sentences]) for i in range(0, len(pieces), args.sentences)
    ]
    if args.workers:
        os.environ["KAIKOU_WORKERS"] = str(args.workers)
    result_rows: list[Row] = []
    with own_studio(args.engine, args.model_dir) as (url, pid):
        print(
            f"{platform.processor() or platform.machine()}, {len(os.sched_getaffinity(0))} cores;"
            f" client and server share them; engine {args.engine}, {args.lines} lines"
        )
        print(
            "way         | in flight | audio s/s |    x | p50 ms | p95 ms | CPU ms: engine | server"
            " | client | ceiling | busy | server MB | client MB | failed"
        )
        for r in rows(
            url,
            pid,
            lines,
            [int(x) for x in args.batch.split(",")],
            [int(x) for x in args.in_flight.split(",")],
        ):
            result_rows.append(r)
            print(
                f"{r.way:<11} | {r.in_flight:>9} | {r.audio_s_per_s:>9.1f} |"
                f" {r.audio_s_per_s / result_rows[0].audio_s_per_s:>4.2f} | {r.p50_ms:>6.0f} |"
                f" {r.p95_ms:>6.0f} | {r.engine_ms:>14.1f} | {r.server_ms:>6.1f} |"
                f" {r.client_ms:>6.1f} | {r.ceiling:>7.0f} | {r.audio_s_per_s / r.ceiling:>4.0%} |"
                f" {r.server_mb:>9.0f} | {r.client_mb:>9.0f} | {r.failed}",
                flush=True,
            )
    if args.json:
        Path(args.json).write_text(
            json.dumps({"rows": [asdict(r) for r in result_rows]}, indent=1), "utf-8"
        )


if __name__ == "__main__":
    main()
