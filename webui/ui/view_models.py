"""From the studio's objects to what the scripts draw, as plain dicts.

Sentences of failures go out in both languages: the page picks.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict

from ..errors import KaikouError
from ..studio import ConsentInfo, Studio, stopped_at, usual_s
from ..types import Take, Voice


def fault(error: KaikouError) -> dict:
    """`at` makes each one new: Gradio does not tell the page of a value that is equal to the
    last.
    """
    return {"zh": error.zh, "en": error.en, "code": error.code, "at": time.monotonic_ns()}


def draft(draft, clip: str = "") -> dict:
    """`clip`: the id of the first draft made of this recording; it stays while windows and cleaning
    change.
    """
    return {
        "id": draft.id,
        "clip": clip or draft.id,
        "report": draft.report.to_json(),
        "start_s": round(draft.start_s, 3),
        "end_s": round(draft.end_s, 3),
        "clean": draft.clean,
        "gain": draft.gain,
        "varying": draft.varying,
        "worse": draft.worse,
        "before": draft.before,
        "after": draft.after,
    }


def voice(voice: Voice, consent: ConsentInfo | None = None) -> dict:
    """consent: what is known of the consent it was made under, for who made it."""
    return {
        "id": voice.id,
        "name": voice.name,
        "name_zh": voice.name_zh,
        "language": voice.language,
        "transcript": voice.transcript,
        "duration_s": round(voice.duration_s, 1),
        "starter": voice.starter,
        "consent": consent and asdict(consent),
        "sample": not voice.id.startswith(
            "preset-"
        ),  # voices an engine brings have no recording to play
    }


def takes(studio: Studio, owner: str, changed: Sequence[Take]) -> dict:
    """The takes that the page does not have yet as they are, the ids of all, newest first, and how
    much is kept for how long. `at` as in `fault`.
    """
    return {
        "takes": [take(t) for t in changed],
        "ids": studio.takes.ids(owner),
        "storage": studio.takes.storage(owner),
        "at": time.monotonic_ns(),
    }


def take(take: Take) -> dict:
    r = take.request
    return {
        "id": take.id,
        "text": r.text,
        "voice": r.voice,
        "voice_name": take.voice_name,
        "mode": r.mode,
        "instruction": r.instruction,
        "language": r.language,
        "speed": r.speed,
        "seed": str(r.seed),
        "engine": take.engine,
        "voice_engine": r.voice_engine,
        "model": take.model,
        "voice_notes": [list(note) for note in take.voice_notes],
        "first_sound_ms": take.first_sound_ms,
        "rtf": take.rtf,
        "n_samples": take.n_samples,
        "sample_rate": take.sample_rate,
        "created_at": take.created_at,
        "state": take.state,
        "error": dict(zip(("en", "zh"), take.error, strict=False)),
        "stopped_at": stopped_at(take),
        "starred": take.starred,
        "peaks": list(take.peaks),
        "usual_s": usual_s(take),
    }
