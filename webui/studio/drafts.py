"""Clips a visitor tried but has not saved: decoded once, inspected, cleaned on wish, their prompt made while the user still types."""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from .. import audio, text
from ..audio import Clip, Report
from ..errors import BadInput, NotAllowed, NotFound
from ..store import VoiceStore
from ..store.files import new_id
from ..types import Voice

ONCE_BYTES = 16 << 20  # of clips that came along with a request


@dataclass(frozen=True)
class Draft:
    id: str
    owner: str
    clip: Clip
    report: Report
    start_s: float
    end_s: float
    clean: float = 0.0  # amount of denoising in the sound that will be used, 0..1
    varying: bool = False  # the noise comes and goes: cleaned as such, not as a steady one
    gain: bool = False
    worse: bool = False  # cleaning by that amount hurts the voice
    transcript: str = ""
    is_once: bool = False  # it came along with a request to speak, as its reference

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s


class Drafts:
    """`prepare(voice, clip)` is told of each draft so that its prompt can be made in the background, `forget(id)` of each that is gone."""

    def __init__(
        self,
        voices: VoiceStore,
        prepare: Callable[[Voice, Callable[[], Clip]], None],
        max_bytes: int,
        forget: Callable[[str], None] = lambda draft_id: None,
    ):
        self._voices, self._prepare, self._max_bytes, self._forget = (
            voices,
            prepare,
            max_bytes,
            forget,
        )
        self._lock = threading.Lock()
        self._drafts: OrderedDict[str, Draft] = OrderedDict()
        self._cleaned: OrderedDict[tuple, tuple[Clip, Clip]] = (
            OrderedDict()
        )  # by id of a clip and amount: that clip, so that its id stays its own; cleaned

    def inspect(self, data: bytes) -> Report:
        return audio.inspect(audio.decode(data))

    def make(self, owner: str, data: bytes, after: str = "") -> Draft:
        """Decode and look. after: id of a draft of theirs that this recording goes on from; when that is gone, what was said now is all there is.
        Raises BadInput, TooLarge."""
        clip = audio.decode(data)
        with suppress(NotFound):
            clip = audio.joined(self.get(owner, after).clip, clip) if after else clip
        report = audio.inspect(clip)
        best = report.windows[0]
        draft = Draft(
            "draft-" + secrets.token_hex(16), owner, clip, report, best.start_s, best.end_s
        )
        self._keep(draft)
        self._begin(draft)
        return draft

    def once(self, owner: str, data: bytes) -> Draft:
        """The clip of a request that brings its own reference: only its best part, kept in little room, so that the next request with the same
        bytes need not make its prompt again. Raises BadInput, TooLarge."""
        key = "draft-" + hashlib.sha256(owner.encode() + b"\0" + data).hexdigest()[:32]
        try:
            return self.get(owner, key)
        except NotFound:
            pass
        clip = audio.decode(data)
        best = audio.inspect(clip)
        window = best.windows[0]
        cut = audio.cut(clip, window.start_s, window.end_s)
        draft = Draft(key, owner, cut, best, 0.0, cut.duration_s, is_once=True)
        self._keep(draft)
        return draft

    def change(
        self,
        owner: str,
        draft_id: str,
        window: tuple[float, float] | None = None,
        clean: float | None = None,
        gain: bool | None = None,
        varying: bool | None = None,
    ) -> Draft:
        """A new draft (new id) with another window, cleaning or level; the old one stays for undo."""
        old = self.get(owner, draft_id)
        start_s, end_s = window or (old.start_s, old.end_s)
        start_s, end_s = max(0.0, float(start_s)), min(old.clip.duration_s, float(end_s))
        if not end_s - start_s >= 0.5:
            raise BadInput(
                "This part is too short.", "这一段太短了。", code="too_short", param="window"
            )
        clean = old.clean if clean is None else min(1.0, max(0.0, float(clean)))
        new = replace(
            old,
            id="draft-" + secrets.token_hex(16),
            start_s=start_s,
            end_s=end_s,
            clean=clean,
            gain=old.gain if gain is None else bool(gain),
            varying=old.varying if varying is None else bool(varying),
        )
        if clean:
            new = replace(
                new,
                worse=audio.cleaning_hurts(
                    audio.cut(new.clip, start_s, end_s),
                    audio.cut(self._clean(new, clean, new.varying), start_s, end_s),
                ),
            )
        else:
            new = replace(new, worse=False)
        self._keep(new)
        self._begin(new)
        return new

    def get(self, owner: str, draft_id: str) -> Draft:
        with self._lock:
            draft = self._drafts.get(draft_id)
            if draft is None or draft.owner != owner:
                raise NotFound(
                    "This clip is no longer here. Add it again.",
                    "这段参考音频已经不在了，请重新放入。",
                    code="voice_gone",
                    param="voice",
                )
            self._drafts.move_to_end(draft_id)
            return draft

    def voice(self, owner: str, draft_id: str) -> Voice:
        return self._voice(self.get(owner, draft_id))

    def sound(self, draft: Draft, whole: bool = False) -> Clip:
        """What the engine will hear: the window (or the whole clip), cleaned and levelled as chosen."""
        cleaned = self._clean(draft, draft.clean, draft.varying)
        cut = cleaned if whole else audio.cut(cleaned, draft.start_s, draft.end_s)
        return audio.raise_level(cut) if draft.gain else cut

    def reference(self, draft: Draft) -> Clip:
        """What the engine makes a prompt of: the sound as it is kept when the draft is saved, so that both have the same prompt."""
        sound = self.sound(draft)
        return replace(sound, samples=audio.from_s16(audio.to_s16(sound.samples)))

    def audio(self, owner: str, draft_id: str, clean: float, varying: bool = False) -> bytes:
        """WAV of the whole clip, cleaned by that amount: both sides of the A/B have the same length."""
        draft = self.get(owner, draft_id)
        return wav(self._clean(draft, min(1.0, max(0.0, clean)), varying))

    def save(self, owner: str, draft_id: str, name: str, transcript: str, consent: str) -> Voice:
        draft = self.get(owner, draft_id)
        name = " ".join(name.split())
        if not name or len(name) > 60:
            raise BadInput(
                "Give the voice a name of up to 60 characters.",
                "请给音色起个名字，最多 60 字。",
                code="bad_name",
                param="name",
            )
        if not consent:
            raise NotAllowed(
                "Tick the consent box before saving or speaking.",
                "先勾选同意，才能保存或合成。",
                code="consent",
                param="consent",
            )
        sound = self.sound(draft)
        voice = replace(
            self._voice(draft),
            id=new_id("voice"),
            name=name,
            transcript=transcript.strip()[:500],
            consent=consent[:500],
            draft=False,
            created_at=time.time(),
            owner=account_of(owner),
            language=told_language(transcript),
        )
        kept = wav(sound)
        self._voices.add(voice, kept)
        self._prepare(
            voice, lambda: audio.decode(kept)
        )  # of what is on the disk: the same prompt whenever it is made
        return voice

    def drop(self, draft_id: str) -> None:
        """Nobody will ask for it any more."""
        with self._lock:
            draft = self._drafts.get(draft_id)
            gone = [draft] if draft is not None else []
            self._remove(gone)
        self._tell(gone)

    def drop_like(self, voice: Voice) -> None:
        """The voice that was saved of them is deleted: the account's drafts of that same sound go with it."""
        with self._lock:
            mine = [d for d in self._drafts.values() if account_of(d.owner) == voice.owner]
        gone = [d for d in mine if self._voice(d).fingerprint == voice.fingerprint]
        with self._lock:
            self._remove(gone)
        self._tell(gone)

    def _remove(self, gone: list[Draft]) -> None:
        """With the lock held. What was cleaned of a clip goes with the last draft of it."""
        for draft in gone:
            self._drafts.pop(draft.id, None)
        left = {id(d.clip) for d in self._drafts.values()}
        for key in [k for k, (clip, _) in self._cleaned.items() if id(clip) not in left]:
            del self._cleaned[key]

    def _tell(self, gone: list[Draft]) -> None:
        for draft in gone:
            self._forget(draft.id)

    def _voice(self, draft: Draft) -> Voice:
        mark = hashlib.sha256(
            draft.clip.samples.tobytes()
            + repr((draft.start_s, draft.end_s, draft.clean, draft.gain, draft.varying)).encode()
        ).hexdigest()[:32]
        return Voice(
            draft.id,
            "",
            "",
            draft.transcript,
            mark,
            round(draft.duration_s, 1),
            0.0,
            owner=account_of(draft.owner),
            draft=True,
        )

    def _begin(self, draft: Draft) -> None:
        self._prepare(self._voice(draft), lambda: self.reference(draft))
        with self._lock:
            is_here = draft.id in self._drafts
        if not is_here:  # pushed out meanwhile
            self._forget(draft.id)

    def _clean(self, draft: Draft, amount: float, varying: bool) -> Clip:
        if not amount:
            return draft.clip
        key = (id(draft.clip), round(amount, 2), varying)
        with self._lock:
            if key in self._cleaned:
                return self._cleaned[key][1]
        cleaned = audio.denoise(draft.clip, amount, stationary=not varying)
        with self._lock:
            self._cleaned[key] = draft.clip, cleaned
            while len(self._cleaned) > 4:
                self._cleaned.popitem(last=False)
        return cleaned

    def _keep(self, draft: Draft) -> None:
        gone: list[Draft] = []
        with self._lock:
            self._drafts[draft.id] = draft
            for is_once, most in ((True, ONCE_BYTES), (False, self._max_bytes)):
                while self._bytes(is_once) > most and (
                    others := [
                        d for d in self._drafts.values() if d.is_once == is_once and d is not draft
                    ]
                ):
                    gone.append(others[0])
                    self._remove(others[:1])
        self._tell(gone)

    def _bytes(self, is_once: bool) -> int:
        return sum(
            {
                id(d.clip): d.clip.samples.nbytes
                for d in self._drafts.values()
                if d.is_once == is_once
            }.values()
        )


def account_of(owner: str) -> str:
    """An owner is `account/visit`: voices belong to the account, takes and drafts to the visit."""
    return owner.partition("/")[0]


def told_language(transcript: str) -> str:
    """What a transcript says of the language of its voice; "" without one."""
    return text.detect(transcript) if transcript.strip() else ""


def wav(clip: Clip) -> bytes:
    return audio.wav_header(clip.rate, len(clip.samples)) + audio.to_s16(clip.samples)
