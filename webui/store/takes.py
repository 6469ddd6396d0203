"""Finished takes: sound and record, one folder each, kept for a while and then swept."""

from __future__ import annotations

import json
import logging
import math
import shutil
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Container, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from sys import intern
from typing import NamedTuple

from ..errors import NotFound, StorageFull
from ..types import SpeechRequest, Take
from .folder_store import Folder, record

log = logging.getLogger(__name__)
LEVELS = tuple(
    i / 1000 for i in range(1001)
)  # what peaks are rounded to: a float for each would be most of a record's memory
# whole records in memory, 5 KB each; a studio that is used for weeks has many more on its disk
AT_HAND = 512


class _Entry(NamedTuple):
    """What finding, ordering and sweeping need of a take."""

    owner: str
    created_at: float
    starred: bool
    n_bytes: int  # of its sound


class Usage(NamedTuple):
    """How much there is of an owner's: takes, of these starred, and bytes of sound."""

    n_takes: int
    n_starred: int
    n_bytes: int


class TakeStore:
    """Thread-safe.

    In memory lie an index and the records used last; records and sound (WAV) are on disk.

    An owner is `account/visit`. Where one is asked for, an account alone means the takes of all its
    visits.
    """

    def __init__(self, root: Path, *, clock: Callable[[], float] = time.time):
        self.folder = Folder(root / "takes")
        self.folder.sweep()
        self._lock, self._clock = threading.Lock(), clock
        self._changing = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        self._of: defaultdict[str, set[str]] = defaultdict(set)  # ids by owner and by account
        self._at_hand: OrderedDict[str, Take] = OrderedDict()
        for entry in self.folder.ids():
            if (take := self._read(entry)) is not None:
                self._index(take)

    def add(self, take: Take, wav: bytes | None) -> None:
        """Raises StorageFull; then nothing is kept of it."""
        self.folder.write(
            take.id, {"take.json": _record(take), **({"take.wav": wav} if wav is not None else {})}
        )
        with self._lock:
            self._index(take)
            self._hold(replace(take, peaks=shared(take.peaks)))

    def ids(self, owner: str) -> list[str]:
        """Newest first; always in the same order."""
        with self._lock:
            return sorted(self._of.get(owner, ()), key=lambda i: (-self._entries[i].created_at, i))

    def has_any(self, owner: str) -> bool:
        return owner in self._of

    def usage(self, owner: str, without: Container[str] = ()) -> Usage:
        with self._lock:
            entries = [self._entries[i] for i in self._of.get(owner, ()) if i not in without]
        return Usage(len(entries), sum(e.starred for e in entries), sum(e.n_bytes for e in entries))

    def free_bytes(self) -> int:
        """Of the disk that takes lie on."""
        places = (self.folder.root, *self.folder.root.parents)  # the first is made with a take
        return shutil.disk_usage(next(p for p in places if p.exists())).free

    def list(self, owner: str) -> list[Take]:
        return self.get_many(self.ids(owner))

    def get_many(self, ids: Iterable[str]) -> list[Take]:
        """Those that are still there, in this order."""
        return [take for i in ids if (take := self._whole(i)) is not None]

    def get(self, take_id: str, owner: str) -> Take:
        entry = self._entries.get(take_id)
        is_theirs = entry is not None and owner in (entry.owner, _account(entry.owner))
        take = self._whole(take_id) if is_theirs else None
        if take is None:
            raise take_gone()
        return take

    def wav_path(self, take: Take) -> Path:
        path = self.folder.path(take.id, "take.wav")
        if not path.is_file():
            raise NotFound("take_gone.no_sound")
        return path

    def change(self, take: Take, **changes) -> Take:
        """Only what is given changes: another change since `take` was read is kept.

        Raises StorageFull, NotFound.
        """
        with self._changing:
            changed = replace(self._whole(take.id) or take, **changes)
            self.folder.put(take.id, "take.json", _record(changed))
            with self._lock:
                if take.id in self._entries:
                    self._index(changed)
                    self._hold(changed)
        return changed

    def delete(self, take_id: str) -> None:
        """Raises StorageFull when it cannot be removed: then it is still listed."""
        self.folder.remove(take_id)
        with self._lock:
            entry = self._entries.pop(take_id, None)
            self._at_hand.pop(take_id, None)
            if entry is not None:
                for owner in (entry.owner, _account(entry.owner)):
                    self._of[owner].discard(take_id)
                    if not self._of[owner]:
                        del self._of[owner]

    def sweep(
        self,
        max_age_s: Callable[[str], float],
        max_each: int,
        scope: Callable[[str], str] = lambda owner: owner,
    ) -> int:
        """Drop what is too old for its owner, or the oldest where a scope has too many; starred
        ones stay. One that cannot be removed keeps none of the others. Returns how many went.

        scope: of an owner, whose takes are counted together.
        """
        self.folder.purge()
        by_scope: defaultdict[str, list[tuple[str, _Entry]]] = defaultdict(list)
        with self._lock:
            for take_id, entry in self._entries.items():
                by_scope[scope(entry.owner)].append((take_id, entry))
        now, take_gone = self._clock(), []
        for takes in by_scope.values():
            takes.sort(key=lambda t: (t[1].starred, t[1].created_at), reverse=True)
            take_gone += [
                i
                for n, (i, t) in enumerate(takes)
                if not t.starred and (n >= max_each or now - t.created_at > max_age_s(t.owner))
            ]
        failures: list[StorageFull] = []
        for take_id in take_gone:
            try:
                self.delete(take_id)
            except StorageFull as error:
                failures.append(error)
        if failures:
            log.warning("%d takes could not be removed yet: %s", len(failures), failures[0])
        return len(take_gone) - len(failures)

    def _index(self, take: Take) -> None:
        owner = intern(take.owner)
        self._entries[take.id] = _Entry(owner, take.created_at, take.starred, 2 * take.n_samples)
        for key in (owner, _account(owner)):
            self._of[key].add(take.id)

    def _hold(self, take: Take) -> None:
        self._at_hand[take.id] = take
        self._at_hand.move_to_end(take.id)
        while len(self._at_hand) > AT_HAND:
            self._at_hand.popitem(last=False)

    def _whole(self, take_id: str) -> Take | None:
        """The record of an indexed take; None once it is gone."""
        with self._lock:
            if (take := self._at_hand.get(take_id)) is not None:
                self._at_hand.move_to_end(take_id)
                return take
            before = self._entries.get(take_id)
        take = self._read(take_id) if before is not None else None
        with self._lock:
            if (
                take is not None and self._entries.get(take_id) is before
            ):  # else it was changed or deleted meanwhile, and what was read may be old
                self._hold(take)
        return take

    def _read(self, take_id: str) -> Take | None:
        try:
            fields = record(self.folder.read(take_id, "take.json"), None)
            fields["request"]["segments"] = tuple(fields["request"]["segments"])
            take = Take(
                **{
                    **fields,
                    "request": SpeechRequest(**fields["request"]),
                    "peaks": shared(fields["peaks"]),
                    "voice_notes": tuple(map(tuple, fields.get("voice_notes", ()))),
                    "marks": tuple(map(tuple, fields.get("marks", ()))),
                    "error": tuple(fields.get("error", ())),
                }
            )
            is_whole = math.isfinite(take.created_at + take.n_samples / take.sample_rate)
            return take if is_whole else None
        except (NotFound, ValueError, TypeError, KeyError, ZeroDivisionError):
            return None


def _account(owner: str) -> str:
    return intern(owner.partition("/")[0])


def take_gone() -> NotFound:
    return NotFound("take_gone.gone")


def shared(peaks: Iterable[float]) -> tuple[float, ...]:
    """The same values, each a float that all takes have in common."""
    return tuple(LEVELS[round(1000 * min(max(p, 0.0), 1.0))] for p in peaks)


def _record(take: Take) -> bytes:
    return json.dumps(asdict(take), ensure_ascii=False).encode()
