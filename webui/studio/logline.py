"""One line per request for the log: ids and figures; of what was said and by whom only a length and a keyed hash, never a word."""

from __future__ import annotations

import hashlib
import secrets

from .job import Job

_KEY = secrets.token_bytes(16)  # of this run: equal texts can be told within a log, and none can be guessed from it


def mark(text: str) -> str:
    """Eight hex digits that stand for a text in the log of this run."""
    return hashlib.blake2b(text.encode("utf-8", "replace"), key=_KEY, digest_size=4).hexdigest()


def line(job: Job) -> str:
    """key=value, one blank between. `job` is the id of the request everywhere: X-Job-Id, the stream's begin, the take, the engine."""
    told, trace, request = job.snapshot(), job.trace.told(), job.request
    end = "done" if told.state == "saving" else told.state
    figures = {"job": job.id, "end": end, "engine": f"{job.engine}/{job.engine_version}", "mode": request.mode, "visit": mark(job.owner), "voice": mark(job.voice.id),
               "text": mark(request.text), "chars": len(request.text), "segments": len(request.segments), "sound_s": f"{told.n_samples / job.rate:.2f}", "rtf": f"{told.rtf:.4f}",
               "underruns": job.underruns, "first_ms": trace.get("first_ms", "-"), "sent_ms": trace.get("sent_ms", "-")}
    if told.error is not None and end == "failed":
        figures["code"] = told.error.code
    return " ".join(f"{k}={v}" for k, v in (figures | {f"{stage}_ms": ms for stage, ms in trace["whole"].items()}).items())
