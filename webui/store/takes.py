"""Finished takes: sound and record, one folder each, kept for a while and then swept."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path

from ..errors import NotFound
from ..types import SpeechRequest, Take
from .files import Folder

LEVELS = tuple(i / 1000 for i in range(1001))  # what peaks are rounded to: a float for each was two thirds of the index' memory


class TakeStore:
    """Thread-safe. The index of records is kept in memory; sound stays on disk as a WAV file."""

    def __init__(self, root: Path, *, clock: Callable[[], float] = time.time):
        self.folder = Folder(root / "takes")
        self.folder.sweep()
        self._lock, self._clock = threading.Lock(), clock
        self._changing = threading.Lock()
        self._takes: dict[str, Take] = {}
        for entry in self.folder.ids():
            try:
                told = json.loads(self.folder.read(entry, "take.json"))
                told["request"]["segments"] = tuple(told["request"]["segments"])
                self._takes[entry] = Take(**{**told, "request": SpeechRequest(**told["request"]), "peaks": shared(told["peaks"])})
            except (NotFound, ValueError, TypeError, KeyError):
                continue

    def add(self, take: Take, wav: bytes | None) -> None:
        """Raises StorageFull; then nothing is kept of it."""
        self.folder.write(take.id, {"take.json": _record(take), **({"take.wav": wav} if wav is not None else {})})
        with self._lock:
            self._takes[take.id] = replace(take, peaks=shared(take.peaks))

    def list(self, owner: str) -> list[Take]:
        with self._lock:
            return sorted((t for t in self._takes.values() if t.owner == owner), key=lambda t: -t.created_at)

    def get(self, take_id: str, owner: str) -> Take:
        take = self._takes.get(take_id)
        if take is None or take.owner != owner:
            raise NotFound("This take is gone.", "这条记录已经不在了。", code="take_gone")
        return take

    def wav_path(self, take: Take) -> Path:
        path = self.folder.path(take.id, "take.wav")
        if not path.is_file():
            raise NotFound("This take has no sound.", "这条记录没有声音。", code="take_gone")
        return path

    def change(self, take: Take, **what) -> Take:
        """Only what is given changes: another change since `take` was read is kept. Raises StorageFull, NotFound."""
        with self._changing:
            changed = replace(self._takes.get(take.id, take), **what)
            self.folder.put(take.id, "take.json", _record(changed))
            with self._lock:
                self._takes[take.id] = changed
        return changed

    def delete(self, take_id: str) -> None:
        with self._lock:
            self._takes.pop(take_id, None)
        self.folder.remove(take_id)

    def sweep(self, max_age_s: Callable[[str], float], max_each: int) -> int:
        """Drop what is too old (per owner) or too many, starred ones last. Returns how many went."""
        with self._lock:
            by_owner: dict[str, list[Take]] = {}
            for take in self._takes.values():
                by_owner.setdefault(take.owner, []).append(take)
        now, gone = self._clock(), []
        for owner, takes in by_owner.items():
            takes.sort(key=lambda t: (t.starred, t.created_at), reverse=True)
            keep_s = max_age_s(owner)
            gone += [t.id for i, t in enumerate(takes) if i >= max_each or (now - t.created_at > keep_s and not t.starred)]
        for take_id in gone:
            self.delete(take_id)
        return len(gone)


def shared(peaks: Iterable[float]) -> tuple[float, ...]:
    """The same values, each a float that all takes have in common."""
    return tuple(LEVELS[round(1000 * min(max(p, 0.0), 1.0))] for p in peaks)


def _record(take: Take) -> bytes:
    return json.dumps(asdict(take), ensure_ascii=False).encode()
