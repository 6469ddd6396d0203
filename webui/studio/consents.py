"""Recorded consents: kept, listed, and bound to the voices that were made under them."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from .. import audio
from ..errors import BadInput, Conflict, NotFound
from ..store import ConsentStore, VoiceStore
from ..store.consents import consent_gone
from ..store.folder_store import new_id
from ..types import Consent, Voice
from .drafts import account_of, wav
from .intake import Intake

ID = "consent-"
MAX_NAME = 60
# what is written down with a voice whose box was ticked
BY_PAGE = "page: own voice, or its owner has agreed"
USER = "user-"  # what accounts of people with a login begin with


@dataclass(frozen=True)
class ConsentInfo:
    """What is known of the consent that a voice was made under. way: "page", the box there;
    "recording"; "words", a program's; "" = nothing was written down. who: the name of the
    recording, the words, or whose login it was; "" when nobody knows. at: Unix seconds.
    """

    way: str
    who: str
    at: float


class Consents:
    def __init__(self, store: ConsentStore, voices: VoiceStore, intake: Intake | None = None):
        self._store, self._voices, self._lock = store, voices, threading.Lock()
        self._intake = intake or Intake()

    def add(self, owner: str, data: bytes, name: str, language: str) -> Consent:
        """Kept as it is heard: decoded, so that nothing else in the file stays.

        Raises BadInput, TooLarge, Busy, StorageFull.
        """
        name = _name(name)
        if len(language) > 35 or not re.fullmatch(r"[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*", language):
            raise BadInput("bad_language.tag", param="language")
        consent = Consent(new_id("consent"), name, language, time.time(), account_of(owner))
        with self._intake.admit(owner, len(data)):
            self._store.add(consent, wav(audio.decode(data)))
        return consent

    def list(self, owner: str, after: str = "", limit: int = 20) -> tuple[list[Consent], bool]:
        """Newest first, from the one that follows `after`; and whether more follow.

        Raises NotFound when there is no `after`.
        """
        every = self._store.list(account_of(owner))
        ids = [c.id for c in every]
        if after and after not in ids:
            raise consent_gone()
        start = ids.index(after) + 1 if after else 0
        return every[start : start + limit], len(every) > start + limit

    def get(self, owner: str, consent_id: str) -> Consent:
        return self._store.get(consent_id, account_of(owner))

    def rename(self, owner: str, consent_id: str, name: str) -> Consent:
        return self._store.rename(self.get(owner, consent_id), _name(name))

    def delete(self, owner: str, consent_id: str) -> None:
        """Raises Conflict while there are voices that were made under it: what allows them stays as
        long as they do. Raises StorageFull when it cannot be removed.
        """
        consent = self.get(owner, consent_id)
        with self._lock:
            using = [
                v for v in self._voices.list(account_of(owner)) if v.consent.startswith(consent.id)
            ]
            if using:
                raise Conflict("consent_in_use", n=len(using), param="consent_id")
            self._store.delete(consent)

    def sweep(self) -> None:
        """Take away what is left of deleted consents."""
        self._store.purge()

    def words(self, owner: str, consent_text: str) -> str:
        """What is written down with a voice: the id of a recorded consent with its name, or the
        given words. Raises NotFound for an unknown id.
        """
        consent_text = consent_text.strip()
        if not consent_text.startswith(ID):
            return consent_text
        consent = self.get(owner, consent_text)
        return f"{consent.id} {consent.name}"

    @contextmanager
    def binding(self, owner: str, consent_text: str) -> Iterator[str]:
        """The words, while the voice is saved that they are written down with: the consent is not
        deleted meanwhile. Raises NotFound.
        """
        with self._lock:
            yield self.words(owner, consent_text)

    def of(self, voice: Voice) -> ConsentInfo:
        consent_text = voice.consent.strip()
        if consent_text == BY_PAGE:
            return ConsentInfo(
                "page",
                voice.owner.removeprefix(USER) if voice.owner.startswith(USER) else "",
                voice.created_at,
            )
        if consent_text.startswith(ID):
            entry, _, name = consent_text.partition(" ")
            try:
                consent = self._store.get(entry, voice.owner)
            except NotFound:  # a folder that somebody took away by hand
                return ConsentInfo("recording", name, voice.created_at)
            return ConsentInfo("recording", consent.name, consent.created_at)
        return ConsentInfo("words" if consent_text else "", consent_text, voice.created_at)


def _name(name: str) -> str:
    name = " ".join(name.split())
    if not name or len(name) > MAX_NAME:
        raise BadInput("bad_name.consent", max_name=MAX_NAME, param="name")
    return name
