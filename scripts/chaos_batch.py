"""Kills the studio (-9) again and again while it works on a batch, each time with a power cut that
takes what was not synced, and says what was lost.

Wanted: 0 lines lost, 0 made twice over, 0 half files, and at most one sound written again per kill.
  `--wrong` shows that the same judge
catches a studio that marks a line before its sound is on the disk, or says it has synced and has
not. Exit code 1 when something is wrong.

    python scripts/chaos_batch.py --kills 200 --lines 1000
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.batch_chaos.kills import Account, run


def print_progress(n: int, account: Account) -> None:
    states = account.last.states
    print(
        f"life {n}: {account.kills} kills, {states.get('done', 0)} of {sum(states.values())} lines"
        f" done, {account.hurt} files hurt by power cuts",
        file=sys.stderr,
        flush=True,
    )


def main() -> int:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--kills", type=int, default=200)
    p.add_argument("--lines", type=int, default=1000)
    p.add_argument(
        "--engine",
        choices=("builtin", "tone"),
        default="builtin",
        help="tone: a sine, which starts at once",
    )
    p.add_argument(
        "--steps",
        type=int,
        default=40,
        help=(
            "a life is killed after at most so many steps of its disk; a line takes five"
            " (default 40)"
        ),
    )
    p.add_argument(
        "--wrong", choices=("mark_first", "no_sync"), default="", help="make the mistake on purpose"
    )
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--json", type=Path, help="write the account there")
    a = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="kaikou-chaos-") as folder:
        account = run(
            Path(folder), a.kills, a.lines, a.engine, a.wrong, a.steps, a.seed, print_progress
        )
    last = account.last
    print(
        f"{account.kills} kills ({account.at_a_step} at an exact step) in {account.seconds:.0f} s:"
        f" {last.states.get('done', 0)} of {a.lines} lines done, {len(last.lost)} lost,"
        f" {len(last.twice)} made twice over, {len(last.half)} half files, {account.redone} sounds"
        f" written again, {account.hurt} unsynced files taken by power cuts"
    )
    if a.json:
        a.json.write_text(
            json.dumps(asdict(account) | {"redone": account.redone}, indent=1), "utf-8"
        )
    return (
        0
        if last.is_clean and last.states.get("done") == a.lines and account.redone <= account.kills
        else 1
    )


if __name__ == "__main__":
    sys.exit(main())
