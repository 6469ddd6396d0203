"""Consents on disk: a record and its recording, one folder each.

Blind to what is said in it and to the voices made under it.
"""

from __future__ import annotations

import json
import threading
from dataclasses import asdict, replace
from pathlib import Path

from ..errors import NotFound
from ..types import Consent
from .folder_store import Folder, record


def consent_gone() -> NotFound:
    return NotFound("consent_gone", param="consent")


class ConsentStore:
    """`root`: the data folder."""

    def __init__(self, root: Path):
        self.folder = Folder(root / "consents")
        self.folder.sweep()
        self._changing = threading.Lock()
        self._consents: dict[str, Consent] = {}
        for entry in self.folder.ids():
            try:
                self._consents[entry] = Consent(
                    **record(self.folder.read(entry, "consent.json"), 0.0)
                )
            except (NotFound, ValueError, TypeError):
                continue  # a folder that is not ours is left alone, and not shown

    def list(self, account: str) -> list[Consent]:
        """Newest first."""
        return sorted(
            (c for c in list(self._consents.values()) if c.owner == account),
            key=lambda c: (-c.created_at, c.id),
        )

    def get(self, consent_id: str, account: str) -> Consent:
        """Raises NotFound, the same for another's as for none."""
        consent = self._consents.get(consent_id)
        if consent is None or consent.owner != account:
            raise consent_gone()
        return consent

    def add(self, consent: Consent, recording: bytes) -> None:
        """recording: WAV bytes. Raises StorageFull."""
        self.folder.write(
            consent.id, {"consent.json": _record(consent), "recording.wav": recording}
        )
        self._consents[consent.id] = consent

    def rename(self, consent: Consent, name: str) -> Consent:
        """Raises StorageFull, NotFound."""
        with self._changing:
            if consent.id not in self._consents:
                raise consent_gone()
            changed = replace(consent, name=name)
            self.folder.put(consent.id, "consent.json", _record(changed))
            self._consents[consent.id] = changed
        return changed

    def delete(self, consent: Consent) -> None:
        """Raises StorageFull when it cannot be removed: then it is still listed."""
        with self._changing:
            self.folder.remove(consent.id)
            self._consents.pop(consent.id, None)

    def purge(self) -> None:
        self.folder.purge()


def _record(consent: Consent) -> bytes:
    return json.dumps(asdict(consent), ensure_ascii=False, indent=1).encode()
