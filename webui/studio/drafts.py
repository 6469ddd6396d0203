"""Clips a visitor tried but has not saved: decoded once, inspected, cleaned on wish, their prompt
made while the user still types.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from .. import audio, text
from ..audio import Clip, ClipReport
from ..errors import BadInput, NotAllowed, NotFound
from ..messages import message
from ..store import VoiceStore
from ..store.folder_store import new_id
from ..types import MAX_TRANSCRIPT, Voice, finite
from .intake import Intake

ONCE_BYTES = 96 << 20  # of clips that came along with a request
ONCE_SHARE_BYTES = (
    72 << 20
)  # of these, of one owner: as many of 30 s at 48 kHz as a visitor may have streams
MAX_CLEANED = 4  # copies
MAX_DRAFTS = 64  # of one owner; windows and cleanings of one clip share its sound


@dataclass(frozen=True)
class Draft:
    id: str
    owner: str
    clip: Clip
    report: ClipReport
    start_s: float
    end_s: float
    clean: float = 0.0  # amount of denoising in the sound that will be used, 0..1
    varying: bool = False  # the noise comes and goes: cleaned as such, not as a steady one
    gain: bool = False
    worse: bool = False  # cleaning by that amount hurts the voice
    before: dict | None = None  # audio.measure of the part in use, as it was recorded
    after: dict | None = None  # and as it will be used
    transcript: str = ""
    is_once: bool = False  # it came along with a request to speak, as its reference
    notes: tuple[tuple[str, str], ...] = ()  # what was not done as asked (English, Chinese)

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s

    def words(self, transcript: str) -> tuple[str, list[tuple[str, str]]]:
        """The transcript, and no note; or "" and the reason, where a clip that is too long to be
        used as a whole came along with a request: of which part somebody wrote down the words,
        nobody was asked.
        """
        if not (transcript.strip() and self.is_once and self.report.uses_part):
            return transcript, []
        return "", [left_out(self.report)]


class Drafts:
    """`prepare(voice, clip)` is told of each draft so that its prompt can be made in the
    background, `forget(id)` of each that is gone.

    max_bytes: of all decoded sound that is kept; max_each_bytes: of one owner's. Who has more than
      that loses their own oldest clip; where
    all together have too much it is one of who has most, and nobody's only clip while somebody has
    several.
    """

    def __init__(
        self,
        voices: VoiceStore,
        prepare: Callable[[Voice, Callable[[], Clip]], None],
        max_bytes: int,
        forget: Callable[[str], None] = lambda draft_id: None,
        max_each_bytes: int = 32 << 20,
        intake: Intake | None = None,
    ):
        self._voices, self._prepare, self._forget = voices, prepare, forget
        self._max_bytes, self._max_each_bytes = max_bytes, max_each_bytes
        self._intake = intake or Intake()
        self._lock = threading.Lock()
        self._drafts: OrderedDict[str, Draft] = OrderedDict()
        self._cleaned: OrderedDict[tuple, tuple[Clip, Clip]] = (
            OrderedDict()
        )  # by id of a clip and amount: that clip, so that its id stays its own; cleaned

    @contextmanager
    def open_draft(self, owner: str, data: bytes, after: str = "") -> Iterator[Draft]:
        """Decode and look; nothing of it is kept, and others wait meanwhile. after: id of a draft
        of theirs that this recording goes on from; when that is gone, what was said now is all
        there is. Raises BadInput, TooLarge, Busy.
        """
        with self._intake.admit(owner, len(data)):
            clip = audio.decode(data)
            with suppress(NotFound):
                clip = audio.joined(self.get(owner, after).clip, clip) if after else clip
            report = audio.inspect(clip)
            used = report.used
            try:
                yield Draft(_new_id(), owner, clip, report, used.start_s, used.end_s)
            finally:
                with self._lock:
                    self._remove([])

    def inspect(self, owner: str, data: bytes) -> ClipReport:
        with self.open_draft(owner, data) as draft:
            return draft.report

    def make(self, owner: str, data: bytes, after: str = "") -> Draft:
        """As `open_draft`, and kept."""
        with self.open_draft(owner, data, after) as draft:
            self._keep(draft)
        self._begin(draft)
        return draft

    def once(self, owner: str, data: bytes) -> Draft:
        """The clip of a request that brings its own reference: only the part in use, kept in little
        room, so that the next request with the same bytes need not make its prompt again. Raises
        BadInput, TooLarge, Busy.
        """
        key = "draft-" + hashlib.sha256(owner.encode() + b"\0" + data).hexdigest()[:32]
        try:
            return self.get(owner, key)
        except NotFound:
            pass
        with self.open_draft(owner, data) as inspection:
            cut = audio.cut(inspection.clip, inspection.start_s, inspection.end_s)
            draft = Draft(key, owner, cut, inspection.report, 0.0, cut.duration_s, is_once=True)
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
        """A new draft (new id) with another window, cleaning or level; the old one stays for
        undo.
        """
        new = self.changed(self.get(owner, draft_id), window, clean, gain, varying)
        self._keep(new)
        self._begin(new)
        return new

    def changed(
        self,
        old: Draft,
        window: tuple[float, float] | None = None,
        clean: float | None = None,
        gain: bool | None = None,
        varying: bool | None = None,
    ) -> Draft:
        """The same, and nothing of it is kept. Raises BadInput."""
        start_s, end_s = (finite(s, "window") for s in window or (old.start_s, old.end_s))
        start_s, end_s = max(0.0, float(start_s)), min(old.clip.duration_s, float(end_s))
        if not end_s - start_s >= 0.5:
            raise BadInput("too_short.part", param="window")
        if end_s - start_s > audio.MAX_PROMPT_S:
            raise BadInput(
                "too_long.part",
                seconds=end_s - start_s,
                max_prompt_s=audio.MAX_PROMPT_S,
                param="window",
            )
        clean = old.clean if clean is None else min(1.0, max(0.0, finite(clean, "clean")))
        new = replace(
            old,
            id=_new_id(),
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
        return self._with_figures(new)

    def _with_figures(self, draft: Draft) -> Draft:
        """With the figures of its part before and after its cures, so that the page can show what
        they did.
        """
        start, end = (round(s * draft.clip.rate) for s in (draft.start_s, draft.end_s))
        raw = draft.clip.with_samples(draft.clip.samples[start:end])
        before = after = audio.measure(raw)
        if draft.clean or draft.gain:
            cleaned = self._clean(draft, draft.clean, draft.varying).samples[start:end]
            cured = raw.with_samples(cleaned)
            after = audio.measure(audio.raise_level(cured) if draft.gain else cured)
        return replace(draft, before=before, after=after)

    def get(self, owner: str, draft_id: str) -> Draft:
        with self._lock:
            draft = self._drafts.get(draft_id)
            if draft is None or draft.owner != owner:
                raise NotFound("voice_gone.clip", param="voice")
            self._drafts.move_to_end(draft_id)
            return draft

    def voice(self, owner: str, draft_id: str) -> Voice:
        return self._voice(self.get(owner, draft_id))

    def sound(self, draft: Draft, whole: bool = False) -> Clip:
        """What the engine will hear: the window (or the whole clip), cleaned and levelled as
        chosen.
        """
        cleaned = self._clean(draft, draft.clean, draft.varying)
        cut = cleaned if whole else audio.cut(cleaned, draft.start_s, draft.end_s)
        return audio.raise_level(cut) if draft.gain else cut

    def reference(self, draft: Draft) -> Clip:
        """What the engine makes a prompt of: the sound as it is kept when the draft is saved, so
        that both have the same prompt.
        """
        sound = self.sound(draft)
        return replace(sound, samples=audio.from_s16(audio.to_s16(sound.samples)))

    def audio(self, owner: str, draft_id: str, clean: float, varying: bool = False) -> bytes:
        """WAV of the whole clip, cleaned by that amount: both sides of the A/B have the same
        length.
        """
        draft = self.get(owner, draft_id)
        return wav(self._clean(draft, min(1.0, max(0.0, finite(clean, "clean"))), varying))

    def save(self, owner: str, draft_id: str, name: str, transcript: str, consent: str) -> Voice:
        return self.store(self.get(owner, draft_id), name, transcript, consent)

    def store(self, draft: Draft, name: str, transcript: str, consent: str) -> Voice:
        """As a voice of its owner's account. Raises BadInput, NotAllowed, StorageFull."""
        name = " ".join(name.split())
        if not name or len(name) > 60:
            raise BadInput("bad_name.voice", param="name")
        if not consent:
            raise NotAllowed("consent.checkbox", param="consent")
        sound = self.sound(draft)
        voice = replace(
            self._voice(draft),
            id=new_id("voice"),
            name=name,
            transcript=transcript.strip()[:MAX_TRANSCRIPT],
            consent=consent[:500],
            draft=False,
            created_at=time.time(),
            owner=account_of(draft.owner),
            language=told_language(transcript),
        )
        self._voices.add(voice, wav(sound))
        self._prepare(
            voice, lambda: audio.decode(self._voices.reference(voice))
        )  # of what is on the disk: the same prompt whenever it is made
        return voice

    def drop(self, draft_id: str) -> None:
        """Nobody will ask for it any more."""
        with self._lock:
            draft = self._drafts.get(draft_id)
            old_drafts = [draft] if draft is not None else []
            self._remove(old_drafts)
        self._tell(old_drafts)

    def drop_like(self, voice: Voice) -> None:
        """The voice that was saved of them is deleted: the account's drafts of that same sound go
        with it.
        """
        with self._lock:
            own_drafts = [d for d in self._drafts.values() if account_of(d.owner) == voice.owner]
        old_drafts = [d for d in own_drafts if self._voice(d).fingerprint == voice.fingerprint]
        with self._lock:
            self._remove(old_drafts)
        self._tell(old_drafts)

    def _remove(self, old_drafts: list[Draft]) -> None:
        """With the lock held. What was cleaned of a clip goes with the last draft of it."""
        for draft in old_drafts:
            self._drafts.pop(draft.id, None)
        used_clip_ids = {id(d.clip) for d in self._drafts.values()}
        for key in [k for k, (clip, _) in self._cleaned.items() if id(clip) not in used_clip_ids]:
            del self._cleaned[key]

    def _tell(self, old_drafts: list[Draft]) -> None:
        for draft in old_drafts:
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
            while len(self._cleaned) > MAX_CLEANED:
                self._cleaned.popitem(last=False)
            old_drafts = self._make_room(draft)
        self._tell(old_drafts)
        return cleaned

    def _keep(self, draft: Draft) -> None:
        with self._lock:
            self._drafts[draft.id] = draft
            old_drafts = self._make_room(draft)
        self._tell(old_drafts)

    def _make_room(self, new: Draft) -> list[Draft]:
        """With the lock held: until each and all have no more than they may.

        Returns the drafts that went; never one of `new`'s own clip, but for those that are too
        many.
        """
        share, total = (
            (ONCE_SHARE_BYTES, ONCE_BYTES)
            if new.is_once
            else (self._max_each_bytes, self._max_bytes)
        )
        kind = [d for d in self._drafts.values() if d.is_once == new.is_once]
        old_drafts = [d for d in kind if d.owner == new.owner][:-MAX_DRAFTS]
        self._remove(old_drafts)
        while True:
            sizes = self._sizes(new.is_once)
            if sizes[new.owner] > share:
                owners = {new.owner}
            elif sizes.total() > total:
                owners = set(sizes)
            else:
                return old_drafts
            if self._drop_cleaned(owners):
                continue
            oldest = self._oldest_clip(owners, sizes, new)
            if not oldest:
                return old_drafts
            self._remove(oldest)
            old_drafts += oldest

    def _sizes(self, is_once: bool) -> Counter[str]:
        """Bytes of decoded sound by owner, what was cleaned of it included."""
        sizes, owners = Counter(), {id(d.clip): d for d in self._drafts.values()}
        for draft in owners.values():
            if draft.is_once == is_once:
                sizes[draft.owner] += draft.clip.samples.nbytes
        for clip, cleaned in self._cleaned.values():
            draft = owners.get(id(clip))
            if draft is not None and draft.is_once == is_once:
                sizes[draft.owner] += cleaned.samples.nbytes
        return sizes

    def _drop_cleaned(self, owners: set[str]) -> bool:
        """The oldest cleaned copy of theirs goes first, for it can be made again; not the one that
        was made last.
        """
        clip_ids = {id(d.clip) for d in self._drafts.values() if d.owner in owners}
        for key, (clip, _) in list(self._cleaned.items())[:-1]:
            if id(clip) in clip_ids:
                del self._cleaned[key]
                return True
        return False

    def _oldest_clip(self, owners: set[str], sizes: Counter[str], new: Draft) -> list[Draft]:
        """All drafts of the clip that goes: of who has most among those with several, else the
        longest unused of all.
        """
        clips: dict[int, list[Draft]] = {}  # the longest unused first
        for draft in self._drafts.values():
            if draft.is_once == new.is_once:
                clips[id(draft.clip)] = [*clips.pop(id(draft.clip), []), draft]
        counts = Counter(drafts[0].owner for drafts in clips.values())
        other_groups = [
            drafts
            for drafts in clips.values()
            if drafts[0].owner in owners and drafts[0].clip is not new.clip
        ]
        several = [drafts for drafts in other_groups if counts[drafts[0].owner] > 1]
        most = max((sizes[drafts[0].owner] for drafts in several), default=0)
        return next((d for d in several if sizes[d[0].owner] == most), (other_groups or [[]])[0])


def _new_id() -> str:
    return "draft-" + secrets.token_hex(16)


def account_of(owner: str) -> str:
    """An owner is `account/visit`: voices belong to the account, takes and drafts to the visit."""
    return owner.partition("/")[0]


def left_out(report: ClipReport) -> tuple[str, str]:
    """Why the transcript of a clip that is too long was not used (English, Chinese)."""
    used = report.used
    part = f"{used.start_s:.1f}–{used.end_s:.1f}"
    if report.speaker_changes_s:
        return message("note.several_speakers", part=part)
    return message("note.long_clip", seconds=report.duration_s, part=part)


def told_language(transcript: str) -> str:
    """What a transcript says of the language of its voice; "" without one."""
    return text.detect(transcript) if transcript.strip() else ""


def wav(clip: Clip) -> bytes:
    return audio.wav_header(clip.rate, len(clip.samples)) + audio.to_s16(clip.samples)
