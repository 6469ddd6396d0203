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


def draft(it, clip: str = "") -> dict:
    """`clip`: the id of the first draft made of this recording; it stays while windows and cleaning
    change.
    """
    return {
        "id": it.id,
        "clip": clip or it.id,
        "report": it.report.to_json(),
        "start_s": round(it.start_s, 3),
        "end_s": round(it.end_s, 3),
        "clean": it.clean,
        "gain": it.gain,
        "varying": it.varying,
        "worse": it.worse,
        "before": it.before,
        "after": it.after,
    }


def voice(it: Voice, given: ConsentInfo | None = None) -> dict:
    """given: what is known of the consent it was made under, for who made it."""
    return {
        "id": it.id,
        "name": it.name,
        "name_zh": it.name_zh,
        "language": it.language,
        "transcript": it.transcript,
        "duration_s": round(it.duration_s, 1),
        "starter": it.starter,
        "consent": given and asdict(given),
        "sample": not it.id.startswith(
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


def take(it: Take) -> dict:
    r = it.request
    return {
        "id": it.id,
        "text": r.text,
        "voice": r.voice,
        "voice_name": it.voice_name,
        "mode": r.mode,
        "instruction": r.instruction,
        "language": r.language,
        "speed": r.speed,
        "seed": str(r.seed),
        "engine": it.engine,
        "voice_engine": r.voice_engine,
        "model": it.model,
        "voice_notes": [list(note) for note in it.voice_notes],
        "first_sound_ms": it.first_sound_ms,
        "rtf": it.rtf,
        "n_samples": it.n_samples,
        "sample_rate": it.sample_rate,
        "created_at": it.created_at,
        "state": it.state,
        "error": dict(zip(("en", "zh"), it.error, strict=False)),
        "stopped_at": stopped_at(it),
        "starred": it.starred,
        "peaks": list(it.peaks),
        "usual_s": usual_s(it),
    }
