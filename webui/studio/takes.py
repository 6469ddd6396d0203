"""History of what was spoken: list, play, star, delete with undo, retention, zip."""

from __future__ import annotations

import io
import json
import re
import threading
import time
import zipfile
from dataclasses import replace
from pathlib import Path

from .. import audio
from ..store import TakeStore
from ..types import Take
from .job import Job

DAY_S = 86400.0
UNDO_S = 12.0


class Takes:
    def __init__(self, store: TakeStore, keep_days: int, max_each: int, label: str):
        self._store, self._keep_days, self._max_each, self._label = store, keep_days, max_each, label
        self._lock = threading.Lock()
        self._hidden: dict[str, threading.Timer] = {}  # deleted, may still be undone
        self._keep_for: dict[str, int] = {}
        self._label_off: set[str] = set()

    def record(self, job: Job) -> Take:
        """Write a finished job's take. Raises StorageFull."""
        n = job.produced
        data = job.pcm(0, n)
        asked = replace(job.request, speed=round(job.request.speed * job.tempo, 4))  # what it takes to make it again, not what was left to the engine
        take = Take(job.id, asked, job.owner, job.voice.name, job.engine, job.engine_version, job.rate, n, time.time(),
                    first_sound_ms=round(1000 * job.trace.first_s, 1) if job.trace.first_s is not None else None,
                    rtf=round(job.snapshot().rtf, 4), peaks=tuple(round(p, 3) for p in audio.peaks(audio.from_s16(data), 160)), trace=job.trace.told())
        self._store.add(take, audio.wav_header(job.rate, n, self.label_for(job.owner)) + data)
        return take

    def label_for(self, owner: str) -> str:
        """What a file of theirs says of its origin; "" when they wish for none."""
        return "" if owner in self._label_off else self._label

    def list(self, owner: str) -> list[Take]:
        return [t for t in self._store.list(owner) if t.id not in self._hidden]

    def get(self, owner: str, take_id: str) -> Take:
        return self._store.get(take_id, owner)

    def wav_path(self, owner: str, take_id: str) -> Path:
        return self._store.wav_path(self.get(owner, take_id))

    def star(self, owner: str, take_id: str, on: bool) -> Take:
        return self._store.change(self.get(owner, take_id), starred=bool(on))

    def told(self, owner: str, take_id: str, first_sound_ms: float) -> Take:
        """The player's own measurement, click to first rendered sample, replaces the server's."""
        return self._store.change(self.get(owner, take_id), first_sound_ms=round(min(max(first_sound_ms, 0.0), 1e6), 1))

    def traced(self, job: Job) -> None:
        """The last of it was sent after the take was written. Raises NotFound when there is no take of this job, or none any more."""
        take, trace = self.get(job.owner, job.id), job.trace.told()
        if take.trace != trace:
            self._store.change(take, trace=trace)

    def delete(self, owner: str, take_id: str) -> None:
        take = self.get(owner, take_id)
        timer = threading.Timer(UNDO_S, self._forget, (take.id,))
        timer.daemon = True
        with self._lock:
            if take.id in self._hidden:
                return
            self._hidden[take.id] = timer
        timer.start()

    def restore(self, owner: str, take_id: str) -> None:
        self.get(owner, take_id)
        with self._lock:
            timer = self._hidden.pop(take_id, None)
        if timer:
            timer.cancel()

    def _forget(self, take_id: str) -> None:
        self._store.delete(take_id)
        with self._lock:
            self._hidden.pop(take_id, None)

    def days(self, owner: str) -> int:
        return self._keep_for.get(owner, self._keep_days)

    def keep(self, owner: str, days: int) -> None:
        self._keep_for[owner] = min(max(int(days), 0), self._keep_days)

    def label(self, owner: str, on: bool) -> None:
        (self._label_off.discard if on else self._label_off.add)(owner)

    def sweep(self) -> int:
        """Do not keep (0 days) still serves the page that is open: ten minutes."""
        return self._store.sweep(lambda owner: self.days(owner) * DAY_S or 600.0, self._max_each)

    def zip(self, owner: str) -> bytes:
        """All takes of this visit as WAV, with a manifest that tells how each can be made again."""
        out, told = io.BytesIO(), []
        with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as z:
            for n, take in enumerate(reversed(self.list(owner)), 1):
                name = f"{n:03d}_{file_name(take)}"
                z.write(self._store.wav_path(take), name)
                told.append({"file": name, "text": take.request.text, "voice": take.voice_name, "seed": take.request.seed, "speed": take.request.speed,
                             "mode": take.request.mode, "instruction": take.request.instruction, "engine": f"{take.engine} {take.engine_version}"})
            z.writestr("manifest.json", json.dumps(told, ensure_ascii=False, indent=1))
        return out.getvalue()

    def close(self) -> None:
        with self._lock:
            timers = list(self._hidden.items())
        for take_id, timer in timers:
            timer.cancel()
            self._forget(take_id)


def file_name(take: Take) -> str:
    """voice_first-words_time.wav, safe on every file system."""
    safe = lambda s, n: re.sub(r"[^\w-]+", "-", s)[:n].strip("-") or "kaikou"  # noqa: E731
    return f"{safe(take.voice_name or 'voice', 24)}_{safe(take.request.text, 24)}_{time.strftime('%H%M%S', time.localtime(take.created_at))}.wav"

