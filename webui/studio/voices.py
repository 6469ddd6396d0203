"""The library of voices: add from bytes, rename, delete, and the reference for whoever owns it."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from .. import audio
from ..errors import BadInput, NotAllowed, NotFound
from ..store import VoiceStore
from ..types import MAX_TRANSCRIPT, Voice
from .consents import Consents
from .drafts import Draft, Drafts, account_of, left_out, told_language
from .prompt_cache import PromptCache
from .request_builder import PRESET


class Voices:
    def __init__(self, store: VoiceStore, drafts: Drafts, prompts: PromptCache, consents: Consents):
        self._store, self._drafts, self._prompts = store, drafts, prompts
        self._consents = consents
        self._presets: dict[str, Voice] = {}

    def list(self, owner: str) -> list[Voice]:
        """Own voices, newest first, then those the engine brings, then the starters."""
        saved = self._store.list(account_of(owner))
        return (
            [v for v in saved if not v.starter]
            + list(self._presets.values())
            + [v for v in saved if v.starter]
        )

    def get(self, owner: str, voice_id: str) -> Voice:
        return self._presets.get(voice_id) or self._store.get(voice_id, account_of(owner))

    def set_presets(self, names: tuple[str, ...]) -> None:
        """An engine took over: these voices are its own."""
        presets = [
            Voice(
                PRESET + hashlib.sha256(n.encode()).hexdigest()[:16],
                n,
                "",
                "",
                n,
                0.0,
                0.0,
                starter=True,
            )
            for n in names
        ]
        self._presets = {v.id: v for v in presets}

    def add(
        self,
        owner: str,
        data: bytes,
        name: str,
        transcript: str = "",
        language: str = "",
        denoise: bool = False,
        consent: str = "",
        window: tuple[float, float] | None = None,
    ) -> tuple[Voice, Draft]:
        """Decode, and save the whole clip, or its part `window` (start and end in seconds), whose
        words `transcript` then holds. The draft's notes say where the transcript was left out, of a
        clip that is too long for its whole to be used, and where it hardly fits. consent: words, or
        the id of a recorded one. Raises BadInput, TooLarge, NotAllowed (no consent), NotFound (no
        such consent), Busy, StorageFull.
        """
        if not consent.strip():
            raise NotAllowed("consent.who_agreed", param="consent")
        language = _tag(language) if language else ""  # before anything is saved
        self._consents.words(owner, consent)
        with self._drafts.open_draft(owner, data) as draft:
            if denoise or window is not None:
                draft = self._drafts.changed(draft, window, clean=0.6 if denoise else None)
            if draft.report.uses_part and window is None and transcript.strip():
                transcript, draft = "", replace(draft, notes=(left_out(draft.report),))
            odd = audio.check_transcript(draft.report, draft.duration_s, transcript)
            if odd is not None:
                draft = replace(draft, notes=(odd.sentences,))
            with self._consents.binding(owner, consent) as words:
                voice = self._drafts.store(draft, name, transcript, words)
        if language:
            voice = self.change(owner, voice.id, language=language)
        return voice, draft

    def change(
        self,
        owner: str,
        voice_id: str,
        name: str | None = None,
        transcript: str | None = None,
        language: str | None = None,
    ) -> Voice:
        voice = self._own_voice(owner, voice_id)
        changes: dict[str, str] = {}
        if name is not None:
            name = " ".join(name.split())
            if not name or len(name) > 60:
                raise BadInput("bad_name.voice", param="name")
            changes["name"] = name
        if transcript is not None:
            changes["transcript"] = transcript.strip()[:MAX_TRANSCRIPT]
            if voice.language == told_language(voice.transcript):  # nobody said otherwise
                changes["language"] = told_language(changes["transcript"])
        if language is not None:
            changes["language"] = _tag(language)
        return self._store.change(voice, **changes) if changes else voice

    def delete(self, owner: str, voice_id: str) -> None:
        """Samples, prompts and record go, here and in the engine's own memory; a running stream
        finishes, a new one gets NotFound. Raises StorageFull when the files cannot be removed: then
        the voice is still listed.
        """
        voice = self._own_voice(owner, voice_id)
        self._store.delete(voice)
        self._drafts.drop_like(voice)
        self._prompts.forget(voice.id, voice.fingerprint)

    def sweep(self) -> None:
        """Take away what is left of deleted voices."""
        self._store.purge()

    def sample(self, owner: str, voice_id: str) -> bytes:
        """WAV bytes of the reference, for its owner (and of starters for everyone).

        Presets of an engine have none.
        """
        if voice_id in self._presets:
            raise NotFound("no_sample", param="voice")
        return self._store.reference(self.get(owner, voice_id))

    def natural_sample(self, owner: str, voice_id: str) -> bytes | None:
        """MP3 bytes of a starter as the natural voice speaks with it; None where there is no such
        sound. Raises NotFound for an unknown voice.
        """
        return self._store.natural_sample(self.get(owner, voice_id))

    def clip(self, voice: Voice) -> audio.Clip:
        return audio.decode(self._store.reference(voice))

    def _own_voice(self, owner: str, voice_id: str) -> Voice:
        voice = self.get(owner, voice_id)
        if voice.starter:
            raise NotAllowed("starter", param="voice")
        return voice


def _tag(language: str) -> str:
    """The primary tag. Raises BadInput."""
    if not language.replace("-", "").isalnum() or len(language) > 16:
        raise BadInput("bad_language.tag", param="language")
    return language.partition("-")[0].lower()
