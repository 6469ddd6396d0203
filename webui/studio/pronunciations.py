"""The pronunciation dictionary of an account: change it, take it in and out as a file, and have it
ready, compiled, when it speaks.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict

from .. import text
from ..errors import BadInput, KaikouError, NotFound, StorageDamaged
from ..messages import message
from ..store import PronunciationStore
from ..store.pronunciations import MAX_ROWS
from . import dictionary_files
from .drafts import account_of

log = logging.getLogger(__name__)
TERM_LIMITS = {
    "terms": MAX_ROWS,
    "term": text.MAX_TERM,
    "reading": text.MAX_READING,
    "file": dictionary_files.MAX_FILE,
}
MAX_COMPILED = 128  # accounts whose dictionary is held ready


class Pronunciations:
    def __init__(self, store: PronunciationStore):
        self._store, self._lock = store, threading.Lock()
        self._ready: OrderedDict[str, tuple[tuple[int, int], text.Readings]] = OrderedDict()
        self._warned_accounts: set[str] = set()  # accounts that have seen that the file was damaged

    # ---- for speech ------------------------------------------------------------------------------
    def readings(self, owner: str) -> text.Readings:
        """The dictionary as it is now, compiled once per change.

        Raises StorageDamaged, StorageFull, Busy.
        """
        account, mark = account_of(owner), self._store.mark()
        with self._lock:
            cache_entry = self._ready.get(account)
            if cache_entry is not None and cache_entry[0] == mark:
                self._ready.move_to_end(account)
                return cache_entry[1]
        readings = text.Readings(self._entries(account))
        with self._lock:
            self._ready[account] = (mark, readings)
            while len(self._ready) > MAX_COMPILED:
                self._ready.popitem(last=False)
        return readings

    def as_read(self, owner: str) -> tuple[text.Readings, list[tuple[str, str]]]:
        """What a request is spoken with, and what its listener must know of it, (English, Chinese):
        a dictionary that fails stops nobody from speaking.
        """
        try:
            try:
                return self.readings(owner), self._warning(owner)
            except StorageDamaged:
                return self.readings(owner), self._warning(
                    owner
                )  # from the file that was begun in its place
        except KaikouError as error:
            log.warning("spoken without the pronunciation dictionary: %s", error)
            return text.NO_READINGS, [message("note.dictionary_unused", error=error)]

    def _warning(self, owner: str) -> list[tuple[str, str]]:
        """Until the account has looked: the file may have been damaged while nobody of it was
        here.
        """
        notice = self.notice()
        if notice is None or account_of(owner) in self._warned_accounts:
            return []
        return [(notice["message"], notice["message_zh"])]

    # ---- for the page and the API ----------------------------------------------------------------
    def notice(self) -> dict | None:
        """What happened to the file in this run: which name it was set aside under, and how many
        entries could be kept.
        """
        name, saved = self._store.set_aside, self._store.saved
        if not name:
            return None
        sentence = message("note.dictionary_damaged", file=name, saved=saved)
        return {
            "code": "dictionary_damaged",
            "file": name,
            "saved": saved,
            "message": sentence.en,
            "message_zh": sentence.zh,
        }

    def list(self, owner: str) -> list[text.Pronunciation]:
        entries = self._entries(account_of(owner))
        if self._store.set_aside:
            self._warned_accounts.add(account_of(owner))
        return entries

    def put(
        self,
        owner: str,
        term: str,
        reading: str,
        language: str = "",
        was: tuple[str, str] | None = None,
    ) -> text.Pronunciation:
        """Add or change an entry.

        `was`: (term, language) of the entry that it takes the place of. Raises BadInput,
        StorageFull, Busy.
        """
        entry = text.check(term, reading, language)
        self._store.put(
            account_of(owner),
            _row(entry),
            (text.find_key(was[0]), text.check_language(was[1])) if was else None,
        )
        return entry

    def delete(self, owner: str, term: str, language: str = "") -> None:
        """Raises NotFound."""
        if not self._store.delete(
            account_of(owner), text.find_key(term), text.check_language(language)
        ):
            raise NotFound("term_gone", param="term")

    def clear(self, owner: str) -> int:
        return self._store.clear(account_of(owner))

    def take_in(self, owner: str, data: bytes, kind: str, replace: bool = False) -> tuple[int, int]:
        """All entries of a file or none; `replace`: they become the whole dictionary.

        Returns (added, changed).
        """
        return self._store.merge(
            account_of(owner), map(_row, dictionary_files.read(data, _check_kind(kind))), replace
        )

    def file(self, owner: str, kind: str) -> bytes:
        return dictionary_files.write(self.list(owner), _check_kind(kind))

    def close(self) -> None:
        self._store.close()

    def _entries(self, account: str) -> list[text.Pronunciation]:
        return [
            text.Pronunciation(term, reading, language, key)
            for key, language, term, reading in self._store.rows(account)
        ]


def _row(entry: text.Pronunciation) -> tuple[str, str, str, str]:
    return entry.key, entry.language, entry.term, entry.reading


def _check_kind(kind: str) -> str:
    if kind not in dictionary_files.KINDS:
        raise BadInput("bad_format.dictionary_file")
    return kind
