#!/usr/bin/env python
"""Does a studio that is used for hours grow?

Mixed visitors in rounds; between rounds, when all is quiet, memory, descriptors, threads and
temporary files are counted. Ends with 1 when one of them goes up, or when nobody heard anything.
Linux only.

    python scripts/soak.py --minutes 120 --engine cosyvoice2 --model-dir DIR
    python scripts/soak.py --minutes 5 --engine builtin --json soak.json
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import httpx
from websockets.asyncio.client import connect

from scripts.bench_users import rss_mb, sentence, tree, wait_ready

ROOT = Path(__file__).resolve().parent.parent
WARM_ROUNDS = 2  # caches fill in them
QUIET_S = 20.0  # within which streams that were left must have ended
ALLOWED = {
    "rss_mb": 12.0,
    "descriptors": 3.0,
    "threads": 3.0,
    "temp_files": 3.0,
}  # between the first and the last rounds
ALLOWED_RSS_SHARE = 0.03


@dataclass(frozen=True)
class Count:
    """Of the studio and its children, when nobody speaks."""

    rss_mb: float
    descriptors: int
    threads: int
    temp_files: int


def count(pid: int, temp: Path) -> Count:
    pids = tree(pid)
    open_files = threads = 0
    for child_pid in pids:
        with contextlib.suppress(OSError):  # a child that just ended
            open_files += len(list(Path(f"/proc/{child_pid}/fd").iterdir()))
            threads += len(list(Path(f"/proc/{child_pid}/task").iterdir()))
    return Count(
        rss_mb(pids), open_files, threads, sum(len(files) for _, _, files in os.walk(temp))
    )


def growth_of(counts: Sequence[Count], filling_mb: float = 0.0) -> dict[str, float]:
    """What went up, and by how much: the last third of the rounds beside the first third, warm-up
    left out. filling_mb: what bounded caches may still take in so short a time.
    """
    steady_counts = counts[WARM_ROUNDS:]
    third = max(1, len(steady_counts) // 3)
    out = {}
    for field in fields(Count):
        before, after = (
            statistics.median(getattr(c, field.name) for c in part)
            for part in (steady_counts[:third], steady_counts[-third:])
        )
        allowed = max(
            ALLOWED[field.name],
            ALLOWED_RSS_SHARE * before + filling_mb if field.name == "rss_mb" else 0.0,
        )
        if after - before > allowed:
            out[field.name] = after - before
    return out


class Visitors:
    """visits: how often each kind of visit went as it should; anything else under its name."""

    def __init__(self, url: str, voices: list[str]):
        self._url, self._voices, self._serial, self._rng = (
            url,
            voices,
            itertools.count(1),
            random.Random(1),
        )
        self.visits: Counter[str] = Counter()
        self.kinds = (
            self.listener,
            self.leaver,
            self.stopper,
            self.slow_reader,
            self.caller,
            self.caller_who_hangs_up,
            self.looker,
        )

    async def come(self, number: int, until: float) -> None:
        for turn in itertools.count(number):
            if time.monotonic() > until:
                return
            kind = self.kinds[turn % len(self.kinds)]
            try:
                await kind()
            except (httpx.HTTPError, OSError, TimeoutError) as error:
                self.visits[f"{kind.__name__}: {type(error).__name__}"] += 1
                await asyncio.sleep(0.2)

    def _params(self) -> dict:
        n = next(self._serial)
        return {
            "input": sentence(self._rng, n),
            "voice": self._voices[n % len(self._voices)],
            "seed": n,
        }

    @contextlib.asynccontextmanager
    async def _socket(self):
        async with httpx.AsyncClient(base_url=self._url, timeout=30) as http:
            token = (await http.post("/tts/session")).json()["token"]
            cookie = "; ".join(f"{k}={v}" for k, v in http.cookies.items())
        async with connect(
            self._url.replace("http", "ws", 1) + "/tts/ws",
            compression=None,
            max_size=None,
            proxy=None,
            additional_headers={"Cookie": cookie},
        ) as ws:
            await ws.send(json.dumps({"op": "hello", "v": 1, "token": token, "locale": "en"}))
            await ws.recv()
            yield ws

    async def _say(self, ws, kind: str, credit_s: int = 60, frames: int = 1 << 30) -> None:
        """Speak one sentence and hear up to so many frames of it."""
        await ws.send(
            json.dumps(
                {
                    "op": "start",
                    "seq": 1,
                    "params": self._params(),
                    "rate": 24000,
                    "credit": 24000 * credit_s,
                }
            )
        )
        n_received = 0
        while n_received < frames:
            message = await asyncio.wait_for(ws.recv(), 60)
            if isinstance(message, bytes):
                n_received += 1
                continue
            event = json.loads(message)
            if event["op"] in ("end", "error", "cancelled"):
                if event["op"] == "error":
                    self.visits[f"{kind}: {event['code']}"] += 1
                    await asyncio.sleep(min(1.0, event["retry"] or 0.2))
                    return
                break
        self.visits[kind] += 1

    async def listener(self) -> None:
        async with self._socket() as ws:
            await self._say(ws, "listener")

    async def leaver(self) -> None:
        async with self._socket() as ws:
            await self._say(ws, "leaver", frames=self._rng.randint(0, 3))

    async def stopper(self) -> None:
        async with self._socket() as ws:
            await self._say(ws, "stopper", frames=1)
            await ws.send(json.dumps({"op": "cancel", "seq": 1}))
            while not isinstance(
                message := await asyncio.wait_for(ws.recv(), 30), str
            ) or json.loads(message)["op"] not in ("end", "error", "cancelled"):
                continue

    async def slow_reader(self) -> None:
        async with self._socket() as ws:
            await self._say(ws, "slow reader", credit_s=1, frames=2)
            await asyncio.sleep(0.5)

    async def caller(self) -> None:
        async with httpx.AsyncClient(base_url=self._url, timeout=60) as http:
            answer = await http.post("/v1/audio/speech", json={**self._params(), "stream": False})
        self.visits["caller" if answer.status_code == 200 else f"caller: {answer.status_code}"] += 1

    async def caller_who_hangs_up(self) -> None:
        async with (
            httpx.AsyncClient(base_url=self._url, timeout=60) as http,
            http.stream(
                "POST", "/v1/audio/speech", json={**self._params(), "response_format": "pcm"}
            ) as answer,
        ):
            async for _ in answer.aiter_raw(4096):
                break
        self.visits["caller who hangs up"] += 1

    async def looker(self) -> None:
        async with httpx.AsyncClient(base_url=self._url, timeout=30) as http:
            for path in ("/", "/tts/health", "/v1/audio/voices", "/metrics"):
                await http.get(path)
        self.visits["looker"] += 1


def settle(url: str, pid: int, temp: Path) -> Count:
    """Waits until nobody speaks and the counts stand still, for a while at most."""
    end, before = time.monotonic() + QUIET_S, None
    while True:
        time.sleep(0.5)
        health, now = httpx.get(url + "/tts/health", timeout=10).json(), count(pid, temp)
        is_still = before is not None and (now.descriptors, now.threads, now.temp_files) == (
            before.descriptors,
            before.threads,
            before.temp_files,
        )
        if (
            is_still and not health.get("streams") and not health.get("waiting")
        ) or time.monotonic() > end:
            return now
        before = now


@contextlib.contextmanager
def studio(command: list[str]):
    """A studio of its own, with an empty folder for temporary files: (url, pid, folder)."""
    with tempfile.TemporaryDirectory(prefix="kaikou-soak-") as temp_dir:
        temp, port = Path(temp_dir) / "tmp", 7800 + os.getpid() % 90
        temp.mkdir()
        environ = {**os.environ, "TMPDIR": str(temp), "KAIKOU_STARTS_PER_MINUTE": "100000"}
        process = subprocess.Popen(
            [*command, "--port", str(port), "--data-dir", f"{temp_dir}/data"],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            env=environ,
        )
        try:
            yield f"http://127.0.0.1:{port}", process.pid, temp
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()


async def one_round(visitors: Visitors, users: int, seconds: float) -> None:
    until = time.monotonic() + seconds
    await asyncio.gather(*(visitors.come(number, until) for number in range(users)))


def main() -> int:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument(
        "--minutes", type=float, default=5, help="of load, in all (default: %(default)s)"
    )
    p.add_argument(
        "--rounds", type=int, default=0, help="between which is counted (default: from the minutes)"
    )
    p.add_argument("--users", type=int, default=4, help="at once (default: %(default)s)")
    p.add_argument("--engine", default="builtin")
    p.add_argument("--model-dir", type=Path)
    p.add_argument("--command", help="the studio to start, instead of python -m webui")
    p.add_argument(
        "--filling-mb",
        type=float,
        default=0,
        help=(
            "memory that caches of known size may still take while it is counted; for short runs"
            " (default: none)"
        ),
    )
    p.add_argument("--json", type=Path, metavar="FILE")
    args = p.parse_args()
    command = (
        shlex.split(args.command)
        if args.command
        else [
            sys.executable,
            "-m",
            "webui",
            "--engine",
            args.engine,
            *(["--model-dir", str(args.model_dir)] if args.model_dir else []),
        ]
    )
    rounds, counts = args.rounds or max(8, round(args.minutes / 5)), []
    with studio(command) as (url, pid, temp):
        visitors = Visitors(url, wait_ready(url))
        print("round | RSS MB | descriptors | threads | temp files | visits so far", flush=True)
        for number in range(rounds):
            asyncio.run(one_round(visitors, args.users, 60 * args.minutes / rounds))
            counts.append(settle(url, pid, temp))
            c = counts[-1]
            print(
                f"{number + 1:5d} | {c.rss_mb:6.0f} | {c.descriptors:11d} | {c.threads:7d} |"
                f" {c.temp_files:10d} | {sum(visitors.visits.values())}",
                flush=True,
            )
    growth = growth_of(counts, args.filling_mb)
    print(", ".join(f"{kind} {n}" for kind, n in sorted(visitors.visits.items())))
    print(
        "it grows: " + ", ".join(f"{name} +{by:.0f}" for name, by in growth.items())
        if growth
        else "nothing grows"
    )
    if args.json:
        args.json.write_text(
            json.dumps(
                {
                    "rounds": [asdict(c) for c in counts],
                    "growth": growth,
                    "visits": visitors.visits,
                },
                indent=1,
            )
        )
    return 1 if growth or not visitors.visits["listener"] else 0


if __name__ == "__main__":
    sys.exit(main())
