"""Kills a studio that works on a batch, again and again: half of the times at an exact step of its
disk, half at any moment. Then lets it finish.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from .journal import cut_power, steps
from .judge import Verdict, judge

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Account:
    kills: int = 0  # that fell while the batch was being worked on
    at_a_step: int = 0
    hurt: int = 0  # files that the power cuts took something from
    n_written: int = 0  # sounds that were begun to be written, in all lives
    first_bad: Verdict | None = None  # after which kill something was wrong
    last: Verdict = field(default_factory=Verdict)
    seconds: float = 0.0

    @property
    def redone(self) -> int:
        """Sounds that were written more often than once."""
        return self.n_written - self.last.states.get("done", 0)


def alone(argv: list[str], log: Path) -> subprocess.Popen:
    """A life as a process of its own."""
    with log.open("wb") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "scripts.batch_chaos.life", *argv],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=out,
        )


def life(
    folder: Path,
    n: int,
    lines: int,
    die_at: int,
    engine: str,
    wrong: str,
    rng: random.Random,
    start=alone,
) -> tuple[list[list[str]], bool]:
    """One process from its start to its end.

    Returns the steps of its disk, and whether it ended by itself.
    """
    journal, log = folder / f"life-{n}.jsonl", folder / f"life-{n}.log"
    argv = [
        "--data",
        str(folder / "data"),
        "--journal",
        str(journal),
        "--lines",
        str(lines),
        "--engine",
        engine,
        *(["--die-at", str(die_at)] if die_at > 0 else []),
        *(["--wrong", wrong] if wrong else []),
    ]
    child = start(argv, log)
    with child.stdout:
        if die_at < 0:  # from outside: when it has done a few steps, at no moment in particular
            child.stdout.readline()
            while child.poll() is None and len(steps(journal)) < -die_at:
                time.sleep(0.005)
            time.sleep(rng.uniform(0, 0.05))
            child.kill()
        child.wait()
        is_over = child.returncode == 0
    if child.returncode not in (0, -9):
        raise RuntimeError(log.read_text("utf-8", "replace")[-2000:])
    return steps(journal), is_over


def run(
    folder: Path,
    kills: int,
    lines: int,
    engine: str = "builtin",
    wrong: str = "",
    steps_each: int = 40,
    seed: int = 0,
    on_progress=lambda n, account: None,
    start=alone,
) -> Account:
    """`steps_each`: a life is killed after at most so many steps of its disk; a line takes five.

    Stops at the first thing that is wrong.
    `start`: how a life comes into being.
    """
    rng, account, began = random.Random(seed), Account(), time.monotonic()
    for n in range(1, kills + 1):
        at = rng.randint(1, steps_each)
        journal, is_over = life(folder, n, lines, at if n % 2 else -at, engine, wrong, rng, start)
        account.n_written += sum(s[0] == "put" for s in journal)
        account.kills += not is_over
        account.at_a_step += not is_over and n % 2
        account.hurt += cut_power(journal) if not is_over else 0
        account.last = judge(folder / "data")
        on_progress(n, account)
        if not account.last.is_clean:
            account.first_bad = account.last
            break
        if is_over:
            break
    else:
        journal, _ = life(folder, 0, lines, 0, engine, wrong, rng, start)
        account.n_written += sum(s[0] == "put" for s in journal)
        account.last = judge(folder / "data")
    account.seconds = time.monotonic() - began
    return account
