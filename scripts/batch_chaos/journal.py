"""A disk that writes down what it was asked for, kills its process at a given step, and a power cut
that takes away what was not synced by then.

The journal is written to the page cache, which outlives a kill; the power cut is played afterwards,
by whoever killed.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path

from webui.store.blob_store import Disk


class Journal:
    """One life's steps, numbered from 1.

    `die_at`: the step at whose end, or before whose beginning, the process kills itself; 0 = never.
    """

    def __init__(self, path: Path, die_at: int = 0):
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._die_at, self._n, self._lock = die_at, 0, threading.Lock()

    def tell(self, operation: str, *names: Path) -> None:
        with self._lock:
            os.write(self._file, (json.dumps([operation, *map(str, names)]) + "\n").encode())
            self._n += 1
            if self._n == self._die_at:
                os.kill(os.getpid(), signal.SIGKILL)


class ToldDisk(Disk):
    """What puts something at risk is told before it is done, what makes it safe after."""

    def __init__(self, journal: Journal, is_lazy: bool = False):
        self._journal, self._is_lazy = journal, is_lazy  # lazy: says it has synced and has not

    def put(self, path: Path, data: bytes) -> None:
        self._journal.tell("put", path)
        super().put(path, data)

    def sync(self, path: Path) -> None:
        if not self._is_lazy:
            super().sync(path)
            self._journal.tell("sync", path)

    def move(self, draft: Path, final: Path) -> None:
        self._journal.tell("move", draft, final)
        super().move(draft, final)

    def sync_folder(self, path: Path) -> None:
        super().sync_folder(path)
        self._journal.tell("sync_folder", path)


def steps(path: Path) -> list[list[str]]:
    """A line that the kill cut short was not yet a step."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def cut_power(journal: list[list[str]]) -> int:
    """What was put and not synced loses its second half; a name given in a folder that was not
    synced is taken back. Returns how many files suffered.
    """
    unsynced: set[str] = set()
    moved: dict[str, str] = {}  # final -> draft, not yet safe
    for operation, *names in journal:
        if operation == "put":
            unsynced.add(names[0])
        elif operation == "sync":
            unsynced.discard(names[0])
        elif operation == "move":
            moved[names[1]] = names[0]
            if names[0] in unsynced:
                unsynced.discard(names[0])
                unsynced.add(names[1])
        elif operation == "sync_folder":
            moved = {
                final: draft
                for final, draft in moved.items()
                if Path(final).parent != Path(names[0])
            }
    hurt = 0
    for final, draft in moved.items():
        if Path(final).exists():
            os.replace(final, draft)
            hurt += 1
            if final in unsynced:
                unsynced.add(draft)
    for name in unsynced:
        if Path(name).exists():
            os.truncate(name, Path(name).stat().st_size // 2)
            hurt += 1
    return hurt
