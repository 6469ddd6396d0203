"""A folder of finished lines: one WAV each, the resume file, and a manifest in the order of the
input. Knows disks, no network.
"""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import suppress
from pathlib import Path

from .atomic_files import ResumeLog, on_disk, put
from .audio import Sound
from .batch_input import file_name
from .batch_worker import Item, Result

MANIFEST = "manifest.json"


class OutputFolder:
    """`keep` and `find` may be called for several lines at once. Close it, whatever happened."""

    def __init__(self, path: str | Path):
        self.path = Path(path).absolute()
        self._marks, self._lock = ResumeLog(self.path), asyncio.Lock()
        self._part, self._n = self.path / f".{MANIFEST}.part", 0
        with on_disk(self._part):
            self._list = self._part.open("wb")

    async def find(self, item: Item) -> Result | None:
        """What an earlier run has made of the very same line, under the name that its place now
        gives it.
        """
        record = self._marks.get(item.key)
        if record is None:
            return None
        name = file_name(item.line.n, item.key, item.ask.text)
        path = self.path / str(record["file"])
        try:
            if path.parent != self.path or path.stat().st_size != record["bytes"]:
                return None
        except FileNotFoundError:
            return None
        if path.name != name:
            async with self._lock:
                await asyncio.to_thread(self._rename, path, item, {**record, "file": name})
        return Result(
            item.line, seed=record["seed"], seconds=record["seconds"], file=name, is_kept=True
        )

    def _rename(self, path: Path, item: Item, record: dict) -> None:
        with on_disk(path):
            put(path, self.path / record["file"])
        self._marks.add(item.key, {k: v for k, v in record.items() if k != "key"})

    async def keep(self, item: Item, sound: Sound, attempts: int) -> Result:
        """On the disk, and then marked, when this returns. Raises StorageFull, Unwritable."""
        name = file_name(item.line.n, item.key, item.ask.text)
        seed, seconds = (
            sound.seed if sound.seed is not None else item.ask.seed,
            round(sound.seconds, 3),
        )
        path = await asyncio.to_thread(sound.save, self.path / name)
        record = {"file": name, "bytes": path.stat().st_size, "seconds": seconds, "seed": seed}
        async with self._lock:
            await asyncio.to_thread(self._marks.add, item.key, record)
        return Result(item.line, attempts=attempts, seed=seed, seconds=seconds, file=name)

    def list(self, result: Result) -> None:
        """In the order of the input."""
        ask, error = result.line.ask, result.error
        row = {
            "line": result.line.n,
            "text": ask.text,
            "voice": ask.voice,
            "seed": result.seed,
            "state": "failed" if error else "done",
            "file": result.file,
            "seconds": result.seconds or None,
            "attempts": result.attempts,
            "error": {"code": error.code, "message": error.en} if error else None,
        }
        with on_disk(self._part):
            self._list.write(
                (b",\n  " if self._n else b'{"lines": [\n  ')
                + json.dumps(row, ensure_ascii=False).encode()
            )
        self._n += 1

    def finish(self) -> Path:
        """The manifest takes its place."""
        with on_disk(self._part):
            self._list.write(b"\n]}\n" if self._n else b'{"lines": []}\n')
            self._list.flush()
            os.fsync(self._list.fileno())
            put(self._part, self.path / MANIFEST)
        return self.path / MANIFEST

    def close(self) -> None:
        """Close the files and remove the unfinished one."""
        self._marks.close()
        with suppress(OSError):
            self._list.close()
        with suppress(FileNotFoundError):
            self._part.unlink()
