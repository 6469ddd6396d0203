"""The recording that a conversion says again in another voice: where it comes from, and whether it
will do.
"""

from __future__ import annotations

from .. import audio
from ..errors import BadInput, NotAllowed, TooLarge
from .drafts import Drafts

MIN_SOURCE_S, MAX_SOURCE_S = 1.0, 30.0


def source_of(
    drafts: Drafts, owner: str, source: str, recording: bytes, consent: bool
) -> audio.Clip:
    """A recording that came along, or else the visitor's clip `source`.

    Raises BadInput, TooLarge, NotFound, NotAllowed (consent), Busy.
    """
    param = "source_audio" if recording else "source"
    if not (recording or source):
        raise BadInput(
            "Say what to convert: send the recording along as source_audio.",
            "请给出要变声的录音：随请求传 source_audio。",
            code="no_source",
            param="source_audio",
        )
    if recording and not consent:
        raise NotAllowed(
            "Say that the speaker agreed: send consent: true along with the recording.",
            "请确认说话人已同意：带录音的请求须同时传 consent: true。",
            code="consent",
            param="consent",
        )
    clip = (
        _heard(drafts, owner, recording)
        if recording
        else drafts.sound(drafts.get(owner, source), whole=True)
    )
    seconds = clip.duration_s
    if seconds > MAX_SOURCE_S:
        raise TooLarge(
            f"The clip is {seconds:.0f} s long; {MAX_SOURCE_S:.0f} s at most for conversion.",
            f"这段音频长 {seconds:.0f} 秒，变声最多 {MAX_SOURCE_S:.0f} 秒。",
            param=param,
        )
    if seconds < MIN_SOURCE_S:
        raise BadInput(
            f"The clip is {seconds:.1f} s long; conversion needs {MIN_SOURCE_S:.0f} s at least.",
            f"这段音频只有 {seconds:.1f} 秒，变声至少需要 {MIN_SOURCE_S:.0f} 秒。",
            code="too_short",
            param=param,
        )
    return clip


def _heard(drafts: Drafts, owner: str, recording: bytes) -> audio.Clip:
    """With a voice in it."""
    try:
        with drafts.hearing(owner, recording) as draft:
            return draft.clip
    except (BadInput, TooLarge) as error:
        error.param = "source_audio"
        raise
