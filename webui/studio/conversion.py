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
        raise BadInput("no_source", param="source_audio")
    if recording and not consent:
        raise NotAllowed("consent.speaker", param="consent")
    clip = (
        _inspect_recording(drafts, owner, recording)
        if recording
        else drafts.sound(drafts.get(owner, source), whole=True)
    )
    seconds = clip.duration_s
    if seconds > MAX_SOURCE_S:
        raise TooLarge(
            "too_large.conversion", seconds=seconds, max_source_s=MAX_SOURCE_S, param=param
        )
    if seconds < MIN_SOURCE_S:
        raise BadInput(
            "too_short.conversion", seconds=seconds, min_source_s=MIN_SOURCE_S, param=param
        )
    return clip


def _inspect_recording(drafts: Drafts, owner: str, recording: bytes) -> audio.Clip:
    """With a voice in it."""
    try:
        with drafts.open_draft(owner, recording) as draft:
            return draft.clip
    except (BadInput, TooLarge) as error:
        error.param = "source_audio"
        raise
