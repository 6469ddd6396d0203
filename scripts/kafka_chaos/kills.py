"""Books through a broker, a studio with the tone engine, and consumers that are killed again and
again at exact steps.
"""

from __future__ import annotations

import json
import logging
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .brokers import ROOT, TansuBroker
from .judge import Account, Verdict
from .life import STEPS

POISON, NO_JSON, NO_VOICE = 997, 401, 607  # one message in so many, from the first such on
LOOK_S = 0.2
log = logging.getLogger(__name__)


@dataclass
class Run:
    """What is asked for, and how it went."""

    messages: int
    kills: int
    down_s: float
    books: int = 97
    consumers: int = 2
    seed: int = 0
    n_kills: int = 0
    kills_by_step: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    verdict: Verdict = field(default_factory=Verdict)


def messages(run: Run) -> Iterator[tuple[str, bytes, bool]]:
    """(book, value, whether it can be spoken). Every text is another one."""
    for n in range(1, run.messages + 1):
        fields = {"text": f"Line {n}.", "voice": "starter-en-mid", "seed": n, "id": n}
        is_good = n % NO_JSON != 0 and n % NO_VOICE != 0 and n % POISON != 0
        if n % NO_VOICE == 0:
            fields["voice"] = "nobody"
        if n % POISON == 0:
            fields["instructions"] = "fail=0"
        value = json.dumps({**fields, "end": True})
        yield f"book-{n % run.books}", (value[:-1] if n % NO_JSON == 0 else value).encode(), is_good


class Lives:
    """Consumers as processes, each with a step at which it dies, until there were kills enough."""

    def __init__(self, run: Run, flags: list[str], folder: Path):
        self._run, self._flags, self._folder = run, flags, folder
        self._random = random.Random(run.seed)
        self._lives: list[tuple[subprocess.Popen, str]] = []
        self._log = (folder / "consumers.log").open("ab")

    def keep_up(self) -> None:
        """Count those that died, and begin others."""
        for life, step in [*self._lives]:
            if life.poll() is None:
                continue
            self._lives.remove((life, step))
            if life.returncode != -9:
                raise RuntimeError(f"a consumer ended with {life.returncode}: see the log")
            self._run.n_kills += 1
            by_step = self._run.kills_by_step
            by_step[step] = by_step.get(step, 0) + 1
        while len(self._lives) < self._run.consumers:
            self._begin()

    def _begin(self) -> None:
        step, argv = "", []
        n_doomed = sum(1 for _, step in self._lives if step)
        if self._run.n_kills + n_doomed < self._run.kills:
            step = STEPS[(self._run.n_kills + n_doomed) % len(STEPS)]
            per_kill = max(2, self._run.messages // self._run.kills // 2)
            if step.startswith("commit"):
                per_kill = per_kill // 8 + 1  # a commit is of a whole batch
            n = self._random.randint(1, per_kill)
            argv = ["--die-at", f"{step}:{n}"]
        argv = ["--journal", str(self._folder / "journal"), *argv, "kafka", *self._flags]
        program = [sys.executable, "-m", "scripts.kafka_chaos.life", *argv]
        life = subprocess.Popen(program, cwd=ROOT, stdout=self._log, stderr=self._log)
        self._lives.append((life, step))

    def end(self) -> None:
        for life, _ in self._lives:
            life.terminate()
        for life, _ in self._lives:
            life.wait()
        self._log.close()


def go(
    run: Run,
    broker: TansuBroker,
    studio_url: str,
    folder: Path,
    on_progress: Callable[[Run, int], None],
    limit_s: float = 3600.0,
) -> Run:
    """Raises TimeoutError when nothing has come for long."""
    begin, plan = time.monotonic(), list(messages(run))
    good = [n for n, (_, _, is_good) in enumerate(plan, 1) if is_good]
    account = Account(good, set(range(1, run.messages + 1)) - set(good))
    broker.send((book, value) for book, value, _ in plan)
    client = folder / "client.properties"
    client.write_text("session.timeout.ms=4000\nheartbeat.interval.ms=500\nlog_level=2\n")
    flags = ["--brokers", broker.address, "--studio", studio_url, "--out", str(folder / "out")]
    lives = Lives(run, [*flags, "--config", str(client)], folder)
    thaw_at, was_frozen, shown = 0.0, False, 0
    with broker.reader("voice-done") as done, broker.reader("voice-dead") as dead:
        try:
            while not account.is_complete:
                lives.keep_up()
                for message in done.consume(500, LOOK_S):
                    if message.error() is None:
                        account.add_done(message)
                for message in dead.consume(100, 0.05):
                    if message.error() is None:
                        account.add_dead(message)
                if not was_frozen and run.down_s and account.n_done > run.messages // 2:
                    broker.freeze()
                    was_frozen, thaw_at = True, time.monotonic() + run.down_s
                    log.info("the broker is frozen for %.0f s", run.down_s)
                if thaw_at and time.monotonic() > thaw_at:
                    broker.thaw()
                    thaw_at = 0.0
                if account.n_done - shown > run.messages // 20:
                    shown = account.n_done
                    on_progress(run, shown)
                if time.monotonic() - begin > limit_s:
                    raise TimeoutError(f"{account.n_done} of {run.messages} were announced")
        finally:
            broker.thaw()
            lives.end()
    run.seconds = time.monotonic() - begin
    run.verdict = account.judge(folder / "out", folder / "journal")
    return run
