#!/usr/bin/env python
"""Kill and freeze the engine's process again and again while people listen; print what they and the
page noticed of it.

    python scripts/chaos.py
        50 faults, every fifth a freeze, on a small random model made for it
    python scripts/chaos.py --rounds 4 --freeze-every 4 --frozen-s 2
    python scripts/chaos.py --model-dir DIR
        on a real model directory

Promised: the page answers throughout; a stream in flight ends with a named error within 2 s of a
  kill, 15 s of a freeze; ready again within
20 s (small model); nothing is left of the old process; and when the studio itself is killed, the
engine is gone within 10 s. Exit code 1 when any of that is broken. Linux and macOS.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

ROOT = Path(__file__).resolve().parent.parent
CHILD = "webui.engine.remote.child"
TEXT = (
    "风从窗口慢慢吹进来，老人把故事讲了一遍。Nobody had seen the harbour so quiet before the sun"
    " came up. " * 12
)
TOLD_S, TOLD_FROZEN_S, READY_S, GONE_S = 2.0, 15.0, 20.0, 10.0


# ---- the studio, in a process of its own ---------------------------------------------------------


def serve(arguments: list[str], frozen_s: float) -> int:
    """As `python -m webui`, but with as many restarts as are asked for."""
    from webui import __main__ as program
    from webui import app as root
    from webui.engine.remote import RemoteEngine, Timeouts
    from webui.settings import load

    settings = load(arguments)
    listener = program.listen(settings)
    patience = Timeouts(frozen_s=frozen_s, max_restarts=1 << 30, back_off_s=(0.0,))
    app, studio = root.build(
        settings,
        lambda: RemoteEngine(
            "cosyvoice2",
            root.cosyvoice_arguments(settings, root.first_model(settings).path),
            patience,
        ),
    )
    return program.run(settings, listener, app, studio)


@contextlib.contextmanager
def studio(model_dir: Path, frozen_s: float) -> Iterator[tuple[subprocess.Popen, str]]:
    import httpx

    with tempfile.TemporaryDirectory(prefix="kaikou-chaos-") as temp_dir:
        port = free_port()
        command = [
            sys.executable,
            str(Path(__file__).resolve()),
            "--serve",
            "--frozen-s",
            str(frozen_s),
            "--",
            "--port",
            str(port),
            "--data-dir",
            temp_dir,
            "--model-dir",
            str(model_dir),
        ]
        env = {**os.environ, "KAIKOU_STARTS_PER_MINUTE": "100000", "KAIKOU_MAX_STREAMS": "8"}
        with (Path(temp_dir) / "log.txt").open("wb") as log:
            process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log)
        url = f"http://127.0.0.1:{port}"
        try:
            end = time.monotonic() + 300
            while not is_ready(url):
                if process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(
                        (Path(temp_dir) / "log.txt").read_text("utf-8", "replace")[-3000:]
                    )
                time.sleep(0.2)
            httpx.get(url, timeout=60)  # the page itself, once
            yield process, url
        finally:
            process.kill()
            process.wait()


def free_port() -> int:
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def is_ready(url: str) -> bool:
    import httpx

    try:
        return httpx.get(url + "/health/ready", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


# ---- who is looked at ----------------------------------------------------------------------------


def processes() -> list[tuple[int, int, int, str, str]]:
    """(pid, parent, group, state, command) of everything that runs."""
    ps_output = subprocess.run(
        ["ps", "-ww", "-eo", "pid=,ppid=,pgid=,stat=,args="],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    rows = (line.split(None, 4) for line in ps_output.splitlines())
    return [(int(r[0]), int(r[1]), int(r[2]), r[3], r[4] if len(r) > 4 else "") for r in rows]


def engine_of(studio_pid: int) -> int | None:
    return next(
        (
            pid
            for pid, parent, _, state, command in processes()
            if parent == studio_pid and CHILD in command and not state.startswith("Z")
        ),
        None,
    )


def left_of(group: int) -> int:
    return sum(g == group and not state.startswith("Z") for _, _, g, state, _ in processes())


@dataclass
class Listener:
    """Speaks one long text after another and takes sound as fast as it comes."""

    url: str
    seed: int
    is_sounding: bool = False
    errors: list[tuple[float, str]] = field(
        default_factory=list
    )  # when an error came to a stream that sounded, and its code
    whole: int = 0
    wrong: list[str] = field(default_factory=list)

    def run(self, is_over: threading.Event) -> None:
        import httpx
        from websockets.sync.client import connect

        with httpx.Client(base_url=self.url, timeout=60) as http:
            token = http.post("/tts/session").json()["token"]
        with connect(
            self.url.replace("http", "ws", 1) + "/tts/ws",
            compression=None,
            max_size=None,
            proxy=None,
        ) as ws:
            ws.send(json.dumps({"op": "hello", "v": 1, "token": token, "locale": "en"}))
            seq = 0
            while not is_over.is_set():
                seq += 1
                params = {
                    "input": TEXT,
                    "voice": "starter-zh-high",
                    "mode": "cross_lingual",
                    "seed": self.seed + seq,
                }
                ws.send(
                    json.dumps(
                        {
                            "op": "start",
                            "seq": seq,
                            "params": params,
                            "rate": 24000,
                            "credit": 1 << 40,
                        }
                    )
                )
                wait_s = self._listen(ws, seq, is_over)
                is_over.wait(wait_s)

    def _listen(self, ws, seq: int, is_over: threading.Event) -> float:
        had_sound = False
        while not is_over.is_set():
            try:
                raw = ws.recv(timeout=0.5)
            except TimeoutError:
                continue
            if isinstance(raw, bytes):
                had_sound = self.is_sounding = True
                continue
            message = json.loads(raw)
            if message.get("seq") != seq or message["op"] not in ("end", "error"):
                continue
            self.is_sounding = False
            if message["op"] == "end":
                self.whole += 1
                return 0.0
            if had_sound:
                self.errors.append((time.monotonic(), message["code"]))
            if not message.get("text"):
                self.wrong.append(f"no sentence with {message['code']}")
            return min(message["retry"] or 1.0, 1.0)
        return 0.0


@dataclass
class Page:
    """Asks for the page's state ten times a second, as an impatient visitor."""

    url: str
    n_requests: int = 0
    failed: int = 0
    worst_s: float = 0.0

    def run(self, is_over: threading.Event) -> None:
        import httpx

        with httpx.Client(base_url=self.url, timeout=5) as http:
            while not is_over.wait(0.1):
                began = time.monotonic()
                try:
                    is_good = http.get("/tts/health").status_code == 200
                except httpx.TransportError:
                    is_good = False
                self.n_requests += 1
                self.failed += not is_good
                self.worst_s = max(self.worst_s, time.monotonic() - began)


# ---- the rounds ----------------------------------------------------------------------------------


@dataclass
class Round:
    fault: str
    sounding: int
    told_s: list[float]
    codes: set[str]
    ready_s: float
    left: int
    page_worst_s: float = 0.0

    def broken(self) -> list[str]:
        """What must hold on any machine."""
        out = (
            [f"{self.sounding - len(self.told_s)} streams were not told"]
            if len(self.told_s) < self.sounding
            else []
        )
        return out + ([f"{self.left} processes left"] if self.left else [])

    def late(self) -> list[str]:
        """What a busy machine may break too."""
        limit = TOLD_FROZEN_S if self.fault == "freeze" else TOLD_S
        out = (
            [f"told after {max(self.told_s):.1f} s"]
            if self.told_s and max(self.told_s) > limit
            else []
        )
        return out + (
            [f"ready after {self.ready_s:.1f} s"]
            if self.ready_s > READY_S + (limit if self.fault == "freeze" else 0)
            else []
        )


def wait_for(condition, limit_s: float):
    """What `condition()` gives when it is true, else its last answer."""
    end = time.monotonic() + limit_s
    while not (result := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return result


def one_round(process: subprocess.Popen, url: str, listeners: list[Listener], fault: str) -> Round:
    wait_for(lambda: any(x.is_sounding for x in listeners), 60)
    wait_for(lambda: all(x.is_sounding for x in listeners), 5)
    child = engine_of(process.pid)
    if child is None:
        raise RuntimeError("the engine's process is not there")
    before, sounding = [len(x.errors) for x in listeners], [x for x in listeners if x.is_sounding]
    began = time.monotonic()
    os.kill(child, signal.SIGSTOP if fault == "freeze" else signal.SIGKILL)
    wait_for(
        lambda: all(len(x.errors) > n for x, n in zip(listeners, before) if x in sounding),
        TOLD_FROZEN_S + 5,
    )
    wait_for(lambda: engine_of(process.pid) not in (None, child) and is_ready(url), 120)
    ready_s = time.monotonic() - began
    new = [
        (at - began, code)
        for x, n in zip(listeners, before)
        for at, code in x.errors[n:]
        if x in sounding
    ]
    wait_for(lambda: not left_of(child), 2)
    return Round(
        fault, len(sounding), [s for s, _ in new], {c for _, c in new}, ready_s, left_of(child)
    )


@dataclass
class Report:
    rounds: list[Round]
    page: Page
    listeners: list[Listener]
    gone_s: float  # after the studio was killed

    def broken(self) -> list[str]:
        out = [f"round {n}: {why}" for n, r in enumerate(self.rounds, 1) for why in r.broken()]
        out += (
            [f"the page failed {self.page.failed} of {self.page.n_requests} times"]
            if self.page.failed
            else []
        )
        return out + [why for x in self.listeners for why in x.wrong]

    def late(self) -> list[str]:
        out = [f"round {n}: {why}" for n, r in enumerate(self.rounds, 1) for why in r.late()]
        return out + (
            [f"the engine outlived the studio by {self.gone_s:.1f} s"]
            if self.gone_s > GONE_S
            else []
        )


def run(
    model_dir: Path,
    rounds: int,
    freeze_every: int,
    frozen_s: float = 10.0,
    n_listeners: int = 3,
    say=print,
) -> Report:
    """freeze_every: each so-maniest fault is a freeze, 0 = none."""
    is_over = threading.Event()
    say(
        f"{'round':>5} | {'fault':<6} | {'sounding':>8} | {'told s':>6} | {'ready s':>7} |"
        f" {'left':>4} | {'page ms':>7} | codes"
    )
    with studio(model_dir, frozen_s) as (process, url):
        page, listeners = Page(url), [Listener(url, 1000 * n) for n in range(n_listeners)]
        threads = [
            threading.Thread(target=x.run, args=(is_over,), daemon=True) for x in (page, *listeners)
        ]
        for thread in threads:
            thread.start()
        done = []
        for n in range(1, rounds + 1):
            result = one_round(
                process,
                url,
                listeners,
                "freeze" if freeze_every and n % freeze_every == 0 else "kill",
            )
            result.page_worst_s, page.worst_s = page.worst_s, 0.0
            done.append(result)
            say(
                f"{n:>5} | {result.fault:<6} | {result.sounding:>8} |"
                f" {max(result.told_s, default=float('nan')):>6.2f} | {result.ready_s:>7.1f} |"
                f" {result.left:>4} | {1000 * result.page_worst_s:>7.0f} |"
                f" {', '.join(sorted(result.codes))}"
            )
        child = engine_of(process.pid)
        is_over.set()
        for thread in threads:
            thread.join(10)
        process.kill()
        began = time.monotonic()
        wait_for(lambda: not left_of(child), GONE_S + 5)
        return Report(done, page, listeners, time.monotonic() - began)


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    own, rest = (
        (arguments[: arguments.index("--")], arguments[arguments.index("--") + 1 :])
        if "--" in arguments
        else (arguments, [])
    )
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument(
        "--freeze-every",
        type=int,
        default=5,
        help="each so-maniest fault is a freeze, 0 = none (default: %(default)s)",
    )
    parser.add_argument(
        "--frozen-s",
        type=float,
        default=10.0,
        help="silence after which the studio takes it for frozen (default: %(default)s)",
    )
    parser.add_argument("--listeners", type=int, default=3)
    parser.add_argument(
        "--model-dir",
        type=Path,
        help="a model directory; default: a small random one, made and removed again",
    )
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(own)
    if args.serve:
        return serve(rest, args.frozen_s)
    with tempfile.TemporaryDirectory(prefix="kaikou-model-") as temp_dir:
        if args.model_dir is None:
            from scripts.make_small_model import make

            make(Path(temp_dir) / "CosyVoice2-0.5B")
        report = run(
            args.model_dir or Path(temp_dir),
            args.rounds,
            args.freeze_every,
            args.frozen_s,
            args.listeners,
        )
    kills = [s for r in report.rounds if r.fault == "kill" for s in r.told_s]
    print(
        f"\n{len(report.rounds)} faults; worst told after a kill {max(kills, default=0):.2f} s;"
        f" worst ready {max(r.ready_s for r in report.rounds):.1f} s; page asked"
        f" {report.page.n_requests} times, failed {report.page.failed}; whole texts heard"
        f" {sum(x.whole for x in report.listeners)}; left behind"
        f" {sum(r.left for r in report.rounds)}; studio killed: engine gone after"
        f" {report.gone_s:.1f} s"
    )
    broken = [*report.broken(), *report.late()]
    for why in broken:
        print("BROKEN:", why)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
