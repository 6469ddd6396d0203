"""What a kill may not do to a batch: lose a line that was marked, leave half a file under a real
name, make a line twice over. Reads the disk only.
"""

from __future__ import annotations

import sqlite3
import struct
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Verdict:
    states: dict[str, int] = field(default_factory=dict)
    lost: list[int] = field(default_factory=list)  # marked, and its sound is not there
    half: list[str] = field(default_factory=list)  # files under a real name that are not whole
    twice: list[str] = field(default_factory=list)  # sounds that more than one line has
    strays: list[str] = field(default_factory=list)  # sounds that no line has

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.half or self.twice)


def is_whole(path: Path) -> bool:
    """RIFF whose every size is true."""
    data = path.read_bytes()
    if len(data) < 44 or data[:4] != b"RIFF" or struct.unpack("<I", data[4:8])[0] != len(data) - 8:
        return False
    at = 12
    while at + 8 <= len(data) and data[at : at + 4] != b"data":
        at += 8 + struct.unpack("<I", data[at + 4 : at + 8])[0]
    return at + 8 <= len(data) and at + 8 + struct.unpack("<I", data[at + 4 : at + 8])[0] == len(
        data
    )


def judge(data: Path) -> Verdict:
    sounds = data / "sounds"
    with closing(sqlite3.connect(data / "jobs.sqlite")) as db:
        rows = db.execute("SELECT n, state, key, samples FROM lines ORDER BY n").fetchall()
    verdict = Verdict(dict(Counter(r[1] for r in rows)))
    files = {p.stem: p for p in sounds.glob("??/[0-9a-f]*.wav")}
    verdict.half = [p.name for p in files.values() if not is_whole(p)]
    verdict.lost = [
        n
        for n, state, key, samples in rows
        if state == "done"
        and (
            key not in files
            or files[key].name in verdict.half
            or files[key].stat().st_size < 2 * samples
        )
    ]
    keys = Counter(key for _, state, key, _ in rows if state == "done")
    verdict.twice = [k for k, n in keys.items() if n > 1]
    verdict.strays = [k for k in files if k not in keys]
    return verdict
