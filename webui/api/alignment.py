"""Which part of a text sounds when: of takes and requests still spoken, and of lines of batches, as
JSON, SubRip or WebVTT. JSON <-> studio, no decisions.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from ..errors import Conflict, NotFound
from ..studio import SUBTITLES, AlignedSegment, Alignment, SpeechJob, Studio, is_guest
from . import schemas
from .middleware.access import language_of
from .openapi import answers, refusals
from .recent_jobs import RecentJobs
from .takes import PATH

TYPES = {"json": "application/json", **{name: kind for name, (kind, _) in SUBTITLES.items()}}
ABOUT = (
    "`text` is what was typed, from character `characters[0]` to `characters[1]`; where that cannot"
    " be told, `characters` is null and `text` is what is read, as `spoken_text`. A segment is a"
    " sentence, or a part of a long one, and ends where the next begins: the silence behind it is"
    " its own. `format`: `json`, `srt` or `vtt`; without it `Accept` decides. `words=true`: the"
    " times of the words of English segments, where the studio has PocketSphinx installed; else"
    " `words` is null, and `words_note` says why."
)
Format = Annotated[Literal["json", "srt", "vtt"] | None, Query()]
ANSWERS = {
    **answers(
        200,
        of=schemas.AlignmentInfo,
        content={kind: {"schema": {"type": "string"}} for _, (kind, _) in SUBTITLES.items()},
    ),
    **refusals(404, 409, 422, 429),
}


def routes(studio: Studio, recent_jobs: RecentJobs) -> APIRouter:
    router = APIRouter()

    @router.get(PATH + "/{take_id}/alignment", description=ABOUT, responses=ANSWERS)
    async def of_take(take_id: str, request: Request, format: Format = None, words: bool = False):
        """Of a take, or of a request by its `X-Job-Id` while it is spoken: what there is so far."""
        owner = request.scope["kk_owner"]
        job = recent_jobs.find(take_id, owner)

        def work() -> Response:
            try:
                alignment = studio.alignments.of_take(owner, take_id)
            except NotFound:
                if job is None:
                    raise
                alignment = studio.alignments.of_job(job)
            return _reply(studio, request, alignment, format, words)

        return await run_in_threadpool(work)

    @router.get("/v2/jobs/{job_id}/lines/{n}/alignment", description=ABOUT, responses=ANSWERS)
    def of_line(job_id: str, n: int, request: Request, format: Format = None, words: bool = False):
        owner = request.scope["kk_owner"]
        line, sound = studio.batch.line(owner, job_id, n), studio.batch.sound(owner, job_id, n)
        alignment = studio.alignments.of_line(owner, line, sound)
        return _reply(studio, request, alignment, format, words)

    return router


def _reply(
    studio: Studio, request: Request, alignment: Alignment, name: str | None, has_words: bool
) -> Response:
    name = name or _accepted(request.headers.get("accept", ""))
    headers = {"Cache-Control": "no-store", "Vary": "Accept"}
    if name in SUBTITLES:
        kind, write = SUBTITLES[name]
        return Response(write(alignment), 200, headers, f"{kind}; charset=utf-8")
    language = language_of(dict(request.headers.raw))
    body = {
        "id": alignment.id or None,
        "object": "audio.alignment",
        "state": alignment.state,
        "rate": alignment.rate,
        "duration_s": _seconds(alignment.n_samples, alignment),
        "segments": [
            _segment(alignment, segment) | _words(studio, alignment, segment, has_words, language)
            for segment in alignment.segments
        ],
    }
    return JSONResponse(body, headers=headers)


def _accepted(accept: str) -> str:
    """The first kind named there that there is; JSON where none is."""
    kinds = [kind.partition(";")[0].strip().lower() for kind in accept.split(",")]
    return next((n for kind in kinds for n, mime in TYPES.items() if kind == mime), "json")


def _segment(alignment: Alignment, segment: AlignedSegment) -> dict:
    return {
        "index": segment.index,
        "text": segment.text,
        "spoken_text": segment.spoken_text,
        "characters": segment.characters,
        "language": segment.language,
        "start": segment.start,
        "end": segment.end,
        "start_s": _seconds(segment.start, alignment),
        "end_s": _seconds(segment.end, alignment),
        "is_whole": segment.is_whole,
    }


def _words(
    studio: Studio, alignment: Alignment, segment: AlignedSegment, has_words: bool, language: str
) -> dict:
    if not has_words:
        return {"words": None, "words_note": None}
    words, note = studio.word_aligner.words(alignment, segment)
    return {
        "words": words
        and [
            {
                "text": word.text,
                "start_s": _seconds(word.start, alignment),
                "end_s": _seconds(word.end, alignment),
            }
            for word in words
        ],
        "words_note": note and (note.zh if language == "zh" else note.en),
    }


def brief(studio: Studio, job: SpeechJob) -> list[dict]:
    """Of a job that is over, for the last message of its stream; [] of a conversion, and for a
    guest, who is not shown how the maker of a link has words read. Blocking.
    """
    if is_guest(job.owner):
        return []
    with suppress(Conflict):
        alignment = studio.alignments.of_job(job)
        names = ("text", "start_s", "end_s")
        infos = [_segment(alignment, segment) for segment in alignment.segments]
        return [{name: fields[name] for name in names} for fields in infos]
    return []


def _seconds(sample: int, alignment: Alignment) -> float:
    return round(sample / alignment.rate, 3)
