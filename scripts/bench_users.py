"""Many listeners at once over real sockets: first-chunk latency, underruns, refusals, CPU and
memory, printed as one table.

Each user speaks sentences of about five seconds one after another and listens in real time; every
text is different, so nothing can be answered from a cache. Linux only for the CPU and RSS columns.

    python scripts/bench_users.py --users 1,10,50,100 --seconds 30
    python scripts/bench_users.py --users 1,2,4 --seconds 60 --engine cosyvoice2 --model-dir DIR
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import platform
import random
import re
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from websockets.asyncio.client import connect

ROOT = Path(__file__).resolve().parent.parent
FRAME = struct.Struct("<HHIQ")
EN = [
    "The quiet harbour woke before the sun",
    "a small red boat came home",
    "nobody had seen number {n}",
    "the keeper counted every light",
    "rain moved over the hills",
    "she wrote the letter twice",
    "children ran along the wall",
    "the market opened at last",
]
ZH = [
    "清晨的风从窗口慢慢吹进来",
    "第{n}号的灯还亮着",
    "老人把故事讲了一遍",
    "孩子们沿着河边跑过去",
    "她把那封信写了两次",
    "雨停了以后街上很安静",
    "大家都在等他开口",
    "船从远处回到了港口",
]


def sentence(rng: random.Random, serial: int) -> str:
    """About five seconds of speech, never the same twice."""
    if serial % 2:
        return (
            "，".join(w.format(n=serial * 7 + 1000) for w in rng.sample(ZH, 2))
            + f"，他数到{serial + 20}。"
        )
    return (
        ", ".join(w.format(n=serial * 7 + 1000) for w in rng.sample(EN, 2))
        + f", and then {serial + 20} more."
    )


@dataclass
class Tally:
    first_ms: list[float] = field(default_factory=list)
    queued_ms: list[float] = field(default_factory=list)
    underruns: int = 0
    refused: int = 0
    failed: int = 0
    spoken_s: float = 0.0
    late_ms: float = 0.0
    late: list[tuple[float, float]] = field(default_factory=list)

    def late_since(self, began: float) -> float:
        return max((ms for at, ms in self.late if at >= began), default=0.0)


async def pulse(tally: Tally) -> None:
    """How late this program itself woke at worst: what the clients' own waiting adds to every
    figure of the round.
    """
    while True:
        due = time.monotonic() + 0.01
        await asyncio.sleep(0.01)
        late_ms = (time.monotonic() - due) * 1000
        tally.late_ms = max(tally.late_ms, late_ms)
        tally.late = [*tally.late[-50:], (time.monotonic(), late_ms)]


def stolen_s() -> float:
    """Processor time the machine under a virtual one gave to others."""
    with contextlib.suppress(OSError, IndexError):
        return int(Path("/proc/stat").read_text().split("\n", 1)[0].split()[8]) / os.sysconf(
            "SC_CLK_TCK"
        )
    return 0.0


async def user(
    url: str, number: int, until: float, tally: Tally, serials, voices: list[str], model: str
) -> None:
    rng = random.Random(number)
    await asyncio.sleep(rng.uniform(0, 5))
    async with httpx.AsyncClient(
        base_url=url, timeout=30, verify=False
    ) as http:  # a context of certificates takes longer to load than the first chunk to come
        token = (await http.post("/tts/session")).json()["token"]
    async with connect(
        url.replace("http", "ws", 1) + "/tts/ws", compression=None, max_size=None, proxy=None
    ) as ws:
        await ws.send(json.dumps({"op": "hello", "v": 1, "token": token, "locale": "en"}))
        await ws.recv()
        for seq in itertools.count(1):
            if time.monotonic() > until:
                return
            params = {
                "input": sentence(rng, next(serials)),
                "voice": voices[number % len(voices)],
                "seed": seq,
                "model": model,
            }
            wait_s = await listen(ws, seq, params, tally)
            await asyncio.sleep(wait_s)


async def listen(ws, seq: int, params: dict, tally: Tally) -> float:
    """One sentence.

    Returns how long the listener still has sound, or should wait after a refusal.
    """
    sent = time.monotonic()
    await ws.send(
        json.dumps(
            {"op": "start", "seq": seq, "params": params, "rate": 24000, "credit": 24000 * 15}
        )
    )
    first, rate, n_received, dry_until, was_queued = 0.0, 24000, 0, 0.0, False
    async for message in ws:
        now = time.monotonic()
        if isinstance(message, bytes):
            if not first:
                first = dry_until = now
                (tally.queued_ms if was_queued else tally.first_ms).append((now - sent) * 1000)
            elif now > dry_until:
                tally.underruns += 1
                print(
                    f"underrun: {(now - dry_until) * 1000:.0f} ms dry after"
                    f" {n_received / rate:.2f} s of sound; this program itself woke"
                    f" {tally.late_since(dry_until - 0.2):.0f} ms"
                    " late meanwhile",
                    file=sys.stderr,
                )
                dry_until = now
            n = (len(message) - FRAME.size) // 2
            n_received += n
            dry_until += n / rate
            continue
        event = json.loads(message)
        if event.get("seq") != seq:
            continue
        if event["op"] == "begin":
            rate = event["rate"]
        elif event["op"] == "queued":
            was_queued = True
        elif event["op"] == "end":
            tally.spoken_s += n_received / rate
            return max(0.0, dry_until - time.monotonic())
        elif event["op"] == "error":
            if event["code"] in ("busy", "rate_limited"):
                tally.refused += 1
            else:
                tally.failed += 1
                print("error:", event["code"], event["text"], file=sys.stderr)
            return event["retry"] or 1.0
    return 0.0


def tree(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    with contextlib.suppress(OSError):
        kids = (
            [
                int(k)
                for t in Path(f"/proc/{pid}/task").iterdir()
                for k in (t / "children").read_text().split()
            ]
            if children.exists()
            else []
        )
        return [pid, *(p for k in kids for p in tree(k))]
    return []


def cpu_s(pids: list[int]) -> float:
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, IndexError):
            total += sum(
                map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13])
            )
    return total / os.sysconf("SC_CLK_TCK")


def rss_mb(pids: list[int]) -> float:
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1])
    return total / 1024


def percentile(values: list[float], p: float) -> float:
    return (
        sorted(values)[min(len(values) - 1, int(len(values) * p / 100))] if values else float("nan")
    )


async def round_of(
    url: str, n_users: int, seconds: float, pid: int | None, serials, voices, model: str
) -> dict:
    tally, until = Tally(), time.monotonic() + 5 + seconds
    before, began, stolen = cpu_s(tree(pid)) if pid else 0.0, time.monotonic(), stolen_s()
    beat = asyncio.create_task(pulse(tally))
    await asyncio.gather(
        *(user(url, i, until, tally, serials, voices, model) for i in range(n_users))
    )
    beat.cancel()
    took = time.monotonic() - began
    pids = tree(pid) if pid else []
    return {
        "users": n_users,
        "sentences": len(tally.first_ms) + len(tally.queued_ms),
        "first_chunk_ms_p50": percentile(tally.first_ms, 50),
        "first_chunk_ms_p95": percentile(tally.first_ms, 95),
        "first_chunk_ms_p99": percentile(tally.first_ms, 99),
        "queued": len(tally.queued_ms),
        "queued_ms_p95": percentile(tally.queued_ms, 95),
        "underruns": tally.underruns,
        "refused": tally.refused,
        "failed": tally.failed,
        "audio_s_per_s": tally.spoken_s / took,
        "server_cpu_cores": (cpu_s(pids) - before) / took if pid else float("nan"),
        "server_cpu_s_per_audio_s": (
            (cpu_s(pids) - before) / max(tally.spoken_s, 1e-9) if pid else float("nan")
        ),
        "rss_mb": rss_mb(pids) if pid else float("nan"),
        "client_late_ms": tally.late_ms,
        "stolen_s": stolen_s() - stolen,
    }


def row(r: dict) -> str:
    return (
        f"{r['users']:>5} | {r['sentences']:>9} | {r['first_chunk_ms_p50']:>6.0f}"
        f" {r['first_chunk_ms_p95']:>6.0f} {r['first_chunk_ms_p99']:>6.0f} | {r['queued']:>6}"
        f" {r['queued_ms_p95']:>7.0f} | {r['underruns']:>9} | {r['refused']:>7} | {r['failed']:>6}"
        f" | {r['audio_s_per_s']:>9.1f} | {r['server_cpu_cores']:>9.2f} |"
        f" {r['server_cpu_s_per_audio_s']:>11.4f} | {r['rss_mb']:>6.0f} |"
        f" {r['client_late_ms']:>11.0f} | {r['stolen_s']:>8.2f}"
    )


@contextlib.contextmanager
def own_studio(engine: str, model_dir: str | None = None):
    with tempfile.TemporaryDirectory(prefix="kaikou-bench-") as data:
        port = 7900 + os.getpid() % 90
        flags = [
            "--engine",
            engine,
            "--port",
            str(port),
            "--data-dir",
            data,
            *(["--model-dir", model_dir] if model_dir else []),
        ]
        process = subprocess.Popen(
            [sys.executable, "-m", "webui", *flags],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            env={
                **os.environ,
                "KAIKOU_STARTS_PER_MINUTE": "6000",
                "KAIKOU_SOCKETS_PER_ADDRESS": "1000",
            },
        )
        try:
            yield f"http://127.0.0.1:{port}", process.pid
        finally:
            process.terminate()
            process.wait(20)


def wait_ready(url: str, model: str = "auto") -> list[str]:
    """One of the built-in engine's two voices by name: when both are there."""
    needed_engines = ["natural"] if model in ("builtin-natural", "builtin-instant") else []
    for _ in range(1500):  # a large model takes minutes
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(url + "/health/ready", timeout=5).status_code == 200:
                reply = httpx.get(url + "/tts/health", timeout=5).json()
                if set(needed_engines) <= set(reply.get("voice_engines", needed_engines)):
                    break
        time.sleep(0.2)
    usable = []
    for voice in [
        v["id"] for v in httpx.get(url + "/v1/audio/voices", timeout=10).json()["data"]
    ]:  # warm: prompts are made before the clock starts
        reply = httpx.post(
            url + "/v1/audio/speech",
            json={"input": "warm", "voice": voice, "stream": False, "model": model},
            timeout=120,
        )
        if reply.status_code == 422:  # random networks hear too little in some clips
            print(f"{voice} is left out: {reply.json()['error']['message']}", file=sys.stderr)
            continue
        reply.raise_for_status()
        usable.append(voice)
    return usable


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--users", default="1,10,50,100", help="numbers of users, one round each")
    p.add_argument("--seconds", type=float, default=30, help="length of a round")
    p.add_argument("--engine", default="builtin")
    p.add_argument(
        "--model-dir",
        help=(
            "of --engine cosyvoice2; its settings are read from KAIKOU_PRECISION, KAIKOU_STEPS,"
            " KAIKOU_PROFILE ..."
        ),
    )
    p.add_argument(
        "--model",
        default="auto",
        help=(
            "e.g. builtin-instant or builtin-natural, measured while both are loaded;"
            " KAIKOU_NATURAL=0 loads the instant voice alone"
        ),
    )
    p.add_argument("--url", help="an already running studio instead of an own one")
    p.add_argument("--json", metavar="FILE")
    args = p.parse_args()
    with contextlib.ExitStack() as stack:
        url, pid = (
            (args.url, None)
            if args.url
            else stack.enter_context(own_studio(args.engine, args.model_dir))
        )
        voices = wait_ready(url, args.model)
        print(
            f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores; clients and"
            f" server share them; engine {args.engine}, model {args.model}, {len(voices)} voices,"
            f" {args.seconds:.0f} s a round"
        )
        print(
            "users | sentences | first chunk ms: p50 p95 p99 | queued, p95 | underruns | refused |"
            " failed | audio s/s | CPU cores | CPU s/audio s | RSS MB | clients late | stolen s"
        )
        rows, serials = [], itertools.count(1)
        for n in map(int, args.users.split(",")):
            rows.append(
                asyncio.run(round_of(url, n, args.seconds, pid, serials, voices, args.model))
            )
            print(row(rows[-1]), flush=True)
    if args.json:
        Path(args.json).write_text(json.dumps({"rows": rows}, indent=1))


if __name__ == "__main__":
    main()
