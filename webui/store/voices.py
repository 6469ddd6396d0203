"""Saved and starter voices: record, reference samples and the prompts engines made of them."""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import asdict, replace
from pathlib import Path

from ..errors import NotFound
from ..types import Prompt, Voice
from .folder_store import Folder, record


def voice_gone() -> NotFound:
    return NotFound("voice_gone.deleted", param="voice")


class VoiceStore:
    """`root`: the folder of saved voices.

    `starters`: assets/voices with voices.json, read-only; their prompts are kept under root too.
    """

    def __init__(self, root: Path, starters: Path):
        self._starters_folder = starters
        self.folder = Folder(root / "voices")
        self.starter_prompts = Folder(root / "starters")
        self._changing = threading.Lock()
        for folder in (self.folder, self.starter_prompts):
            folder.sweep()
        self.starters: dict[str, tuple[Voice, Path]] = {}
        index = starters / "voices.json"
        for item in json.loads(index.read_text("utf-8")) if index.is_file() else []:
            path = starters / item["file"]
            mark = hashlib.sha256(path.read_bytes()).hexdigest()[:32]
            seconds = (
                path.stat().st_size - 44
            ) / 32000  # 16 kHz s16 mono, as the folder's README says
            voice = Voice(
                item["id"],
                item["name"],
                item["language"],
                item["transcript"],
                mark,
                round(seconds, 1),
                0.0,
                starter=True,
                name_zh=item["name_zh"],
            )
            self.starters[voice.id] = (voice, path)
        self._saved: dict[str, Voice] = {}
        for entry in self.folder.ids():
            try:
                self._saved[entry] = Voice(**record(self.folder.read(entry, "voice.json"), 0.0))
            except (NotFound, ValueError, TypeError):
                continue  # a folder that is not ours is left alone, and not shown

    def list(self, account: str) -> list[Voice]:
        own_voices = [v for v in list(self._saved.values()) if v.owner == account]
        return sorted(own_voices, key=lambda v: -v.created_at) + [
            v for v, _ in self.starters.values()
        ]

    def get(self, voice_id: str, account: str) -> Voice:
        if voice_id in self.starters:
            return self.starters[voice_id][0]
        voice = self._saved.get(voice_id)
        if voice is None or voice.owner != account:
            raise voice_gone()
        return voice

    def natural_sample(self, voice: Voice) -> bytes | None:
        """MP3 of a starter as the natural voice speaks with it; None for other voices."""
        path = self._starters_folder / "natural" / f"{voice.id}.mp3"
        return path.read_bytes() if voice.starter and path.is_file() else None

    def reference(self, voice: Voice) -> bytes:
        """WAV bytes of the reference."""
        if voice.starter:
            return self.starters[voice.id][1].read_bytes()
        return self.folder.read(voice.id, "reference.wav")

    def add(self, voice: Voice, reference: bytes) -> None:
        self.folder.write(voice.id, {"voice.json": _record(voice), "reference.wav": reference})
        self._saved[voice.id] = voice

    def change(self, voice: Voice, **changes) -> Voice:
        """Only what is given changes: another change since `voice` was read is kept.

        Raises StorageFull, NotFound.
        """
        with self._changing:
            if voice.id not in self._saved:
                raise voice_gone()
            changed = replace(self._saved[voice.id], **changes)
            self.folder.put(voice.id, "voice.json", _record(changed))
            self._saved[voice.id] = changed
        return changed

    def delete(self, voice: Voice) -> None:
        """Raises StorageFull when it cannot be removed: then it is still listed."""
        with self._changing:
            self.folder.remove(voice.id)
            self._saved.pop(voice.id, None)

    def purge(self) -> None:
        self.folder.purge()

    def load_prompt(
        self, voice: Voice, engine: str, version: str, words: str = ""
    ) -> Prompt | None:
        """words: a mark of what was told besides the sound, "" where that is no part of a
        prompt.
        """
        folder, name = self._place(voice), f"{engine}-{version}.prompt"
        if not folder.has(voice.id, name):
            return None
        head, _, data = folder.read(voice.id, name).partition(b"\n")
        try:
            header = json.loads(head)
        except ValueError:
            return None
        if (header.get("fingerprint"), header.get("words", "")) != (voice.fingerprint, words):
            return None
        return Prompt(
            engine, version, header.get("prompt", voice.fingerprint), data, tuple(header["notes"])
        )

    def keep_prompt(self, voice: Voice, prompt: Prompt, words: str = "") -> None:
        folder, name = self._place(voice), f"{prompt.engine}-{prompt.version}.prompt"
        data = (
            json.dumps(
                {
                    "fingerprint": voice.fingerprint,
                    "words": words,
                    "prompt": prompt.fingerprint,
                    "notes": prompt.notes,
                }
            ).encode()
            + b"\n"
            + prompt.data
        )
        if folder is self.starter_prompts and not folder.path(voice.id).is_dir():
            folder.write(voice.id, {name: data})
        else:
            folder.put(voice.id, name, data)

    def _place(self, voice: Voice) -> Folder:
        return self.starter_prompts if voice.starter else self.folder


def _record(voice: Voice) -> bytes:
    return json.dumps(asdict(voice), ensure_ascii=False, indent=1).encode()
