"""One line per request for the log: ids and figures; of what was said and by whom only a length and
a keyed hash, never a word.
"""

from __future__ import annotations

from ..logs import mark
from .speech_job import SpeechJob
from .usage import billing_id

__all__ = ["line", "mark"]


def line(job: SpeechJob) -> str:
    """key=value, one blank between.

    `job` is the id of the request everywhere: X-Job-Id, the stream's begin, the take, the engine;
    `request`: X-Request-Id.
    """
    snapshot, trace, request = job.snapshot(), job.trace.to_dict(), job.request
    end = "done" if snapshot.state == "saving" else snapshot.state
    figures = {
        "request": job.asked_as or "-",
        "job": job.id,
        "end": end,
        "engine": f"{job.engine}/{job.engine_version}",
        "mode": request.mode,
        "visit": mark(job.owner),
        "by": billing_id(job.owner) or "-",
        "voice": mark(job.voice.id),
        "text": mark(request.text),
        "chars": len(request.text),
        "segments": len(request.segments),
        "sound_s": f"{snapshot.n_samples / job.rate:.2f}",
        "rtf": f"{snapshot.rtf:.4f}",
        "underruns": job.underruns,
        "first_ms": trace.get("first_ms", "-"),
        "sent_ms": trace.get("sent_ms", "-"),
    }
    if snapshot.error is not None and end == "failed":
        figures["code"] = snapshot.error.code
    return " ".join(
        f"{k}={v}"
        for k, v in (figures | {f"{stage}_ms": ms for stage, ms in trace["whole"].items()}).items()
    )
