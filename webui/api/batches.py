"""/v2/synthesize/batch and /v2/jobs: many lines in one request, as a zip in their order while they
are made, or as a job. JSON <-> studio, no decisions.
"""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import Field, ValidationError
from starlette.concurrency import run_in_threadpool

from ..errors import BadInput, NotFound
from ..studio import BATCH_LIMITS, LineRequest, Studio, ZipStream
from . import schemas
from .audio_formats import file_format
from .error_handlers import wrong_field
from .fields import JsonBody, Number
from .middleware.access import language_of
from .openapi import answers, file_of, refusals
from .range_file import RangeFile
from .speech_response import BrokenStream

PAGE = 100
MAX_ROWS = BATCH_LIMITS["lines"]
COLUMNS = (
    *("line", "text", "voice", "mode", "instructions", "language", "speed", "seed", "model"),
    *("state", "engine", "seconds", "notes", "error"),
)
PIECE_BYTES = 1 << 20  # of a zip held in memory, and one line more


class Wanted(JsonBody):
    """One line; what it leaves out is taken from the batch."""

    input: str | None = None
    text: str | None = None  # the same under its shorter name
    voice: str | dict[str, Any] | None = None
    mode: str | None = None
    instructions: str | None = None
    language: str | None = None
    speed: Number | None = None
    seed: int | None = None
    model: str | None = Field(None, description="As in /v1/audio/speech")


class BatchBody(JsonBody):
    """`texts` or `requests`, 1 to 10,000 of them."""

    texts: list[str] | None = Field(None, max_length=BATCH_LIMITS["lines"])
    requests: list[Wanted] | None = Field(None, max_length=BATCH_LIMITS["lines"])
    voice: str | dict[str, Any] = ""
    mode: str = "auto"
    instructions: str = ""
    language: str = "auto"
    speed: Number = 1.0
    seed: int | None = None
    model: str = "auto"
    name: str = ""
    is_async: bool = Field(False, alias="async")

    def asks(self) -> list[LineRequest]:
        """Raises BadInput when it is not clear what to speak."""
        if self.texts is not None and self.requests is not None:
            raise BadInput("bad_field.texts_or_requests", param="texts")
        return [
            self._ask(w)
            for w in (
                self.requests
                if self.requests is not None
                else [Wanted(input=x) for x in self.texts or ()]
            )
        ]

    def _ask(self, w: Wanted) -> LineRequest:
        def of(name: str):
            value = getattr(w, name)
            return getattr(self, name) if value is None else value

        words = w.input if w.input is not None else w.text
        return LineRequest(
            words or "",
            _id(of("voice")),
            of("mode"),
            of("instructions"),
            of("language")[:16],
            float(of("speed")),
            w.seed,
            w.model or "",
        )


def _id(voice: str | dict[str, Any]) -> str:
    return (voice if isinstance(voice, str) else str(voice.get("id", "")))[:200]


def read(data: bytes) -> tuple[BatchBody, list[LineRequest]]:
    """Raises BadInput."""
    try:
        body = BatchBody.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        if first["type"] == "too_long" and first["loc"] in (("texts",), ("requests",)):
            n = BATCH_LIMITS["lines"]
            raise BadInput("too_many_lines.at_most", n=n, param=str(first["loc"][0])) from None
        raise wrong_field(error) from None
    return body, body.asks()


def routes(studio: Studio) -> APIRouter:
    router, batch = APIRouter(), studio.batch

    def owner(request: Request) -> str:
        return request.scope["kk_owner"]

    def to_dict(job, request: Request) -> dict:
        zh = language_of(dict(request.headers.raw)) == "zh"
        eta_s = batch.eta_s(job)
        return {
            "id": job.id,
            "object": "job",
            "name": job.name,
            "state": job.state,
            "total": job.total,
            "done": job.lines.get("done", 0),
            "failed": job.lines.get("failed", 0),
            "cancelled": job.lines.get("cancelled", 0),
            "eta_s": None if eta_s is None else round(eta_s, 1),
            "seed": job.seed,
            "model": job.model,
            "created_at": int(job.created_at),
            "error": {"code": job.code, "message": job.error_zh if zh else job.error}
            if job.code
            else None,
        }

    def line_told(line, request: Request) -> dict:
        zh = language_of(dict(request.headers.raw)) == "zh"
        return {
            "line": line.n,
            "text": line.text,
            "voice": line.voice,
            "mode": line.mode,
            "instructions": line.instruction,
            "language": line.language,
            "speed": line.speed,
            "seed": line.seed,
            "model": line.model,
            "state": "waiting" if line.state == "resting" else line.state,
            "attempts": line.attempts,
            "engine": line.engine or None,
            "seconds": round(line.samples / line.rate, 3) if line.rate else None,
            "notes": [zh_words if zh else en for en, zh_words in line.notes],
            "error": {"code": line.code, "message": line.error_zh if zh else line.error}
            if line.code
            else None,
        }

    @router.post(
        "/v2/synthesize/batch",
        openapi_extra=_schema(),
        response_class=StreamingResponse,
        responses={
            200: {"description": "The zip, line by line", "content": file_of("application/zip")},
            **answers(202, of=schemas.JobInfo),
            **refusals(404, 422, 500, 503, 507),
        },
    )
    async def synthesize(request: Request):
        data = await request.body()  # the guard ends it at its limit
        body, asks = await run_in_threadpool(read, data)
        job = await run_in_threadpool(
            lambda: batch.submit(
                owner(request), asks, seed=body.seed, name=body.name, model=body.model
            )
        )
        if body.is_async:
            return JSONResponse(to_dict(job, request), 202, {"Location": f"/v2/jobs/{job.id}"})
        headers = {
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",
            "X-Job-Id": job.id,
            "X-Seed": str(job.seed),
            "Content-Disposition": _attachment(job.id),
        }
        return StreamingResponse(
            _as_made(studio, owner(request), job), 200, headers, "application/zip"
        )

    @router.get(
        "/v2/jobs",
        responses={**answers(200, of=schemas.JobList), **refusals(404, 422, 500, 507)},
        name="every",
    )
    def list_batches(request: Request, limit: Annotated[int, Query(ge=1, le=200)] = 50):
        return {
            "object": "list",
            "data": [to_dict(job, request) for job in batch.list(owner(request), limit)],
            "limits": {**BATCH_LIMITS, "keep_days": batch.keep_days},
        }

    @router.get(
        "/v2/jobs/{job_id}",
        responses={**answers(200, of=schemas.JobInfo), **refusals(404, 422, 500, 507)},
        name="one",
    )
    def get_batch(job_id: str, request: Request):
        return to_dict(batch.get(owner(request), job_id), request)

    @router.get(
        "/v2/jobs/{job_id}/lines",
        responses={**answers(200, of=schemas.LineList), **refusals(404, 422, 500, 507)},
    )
    def lines(
        job_id: str,
        request: Request,
        start: Annotated[int, Query(ge=1, le=1 << 31)] = 1,
        count: Annotated[int, Query(ge=1, le=1000)] = PAGE,
        state: str = "",
    ):
        rows = batch.lines(owner(request), job_id, start, count, state[:20])
        return {
            "object": "list",
            "data": [line_told(x, request) for x in rows],
            "next": rows[-1].n + 1 if len(rows) == count else None,
        }

    @router.get(
        "/v2/jobs/{job_id}/lines.csv",
        response_class=Response,
        responses={
            **answers(200, content=file_of("text/csv")),
            **refusals(404, 422, 500, 507),
        },
    )
    def table(job_id: str, request: Request):
        """One row a line, for a spreadsheet: what it says, what became of it, and what was left out
        or changed.
        """
        rows = [line_told(x, request) for x in batch.lines(owner(request), job_id, 1, MAX_ROWS)]
        return Response(
            _csv(rows),
            200,
            {"Content-Disposition": _attachment(job_id, "csv"), "Cache-Control": "no-store"},
            "text/csv",
        )

    @router.get(
        "/v2/jobs/{job_id}/lines/{n}.wav",
        response_class=RangeFile,
        responses={
            **answers(200, 206, content=file_of("audio/wav")),
            **refusals(404, 416, 422, 500, 507),
        },
    )
    def sound(job_id: str, n: int, request: Request):
        return RangeFile(
            batch.sound(owner(request), job_id, n),
            media_type="audio/wav",
            headers={"Cache-Control": "private, max-age=600"},
        )

    @router.post(
        "/v2/jobs/{job_id}/cancel",
        responses={**answers(200, of=schemas.JobInfo), **refusals(404, 422, 500, 507)},
    )
    def cancel(job_id: str, request: Request):
        return to_dict(batch.cancel(owner(request), job_id), request)

    @router.post(
        "/v2/jobs/{job_id}/resume",
        responses={**answers(200, of=schemas.JobInfo), **refusals(404, 422, 500, 507)},
    )
    def resume(job_id: str, request: Request):
        return to_dict(batch.resume(owner(request), job_id), request)

    @router.post(
        "/v2/jobs/{job_id}/retry",
        responses={**answers(200, of=schemas.JobInfo), **refusals(404, 422, 500, 507)},
    )
    def retry(
        job_id: str, request: Request, line: Annotated[int | None, Query(ge=1, le=1 << 31)] = None
    ):
        return to_dict(batch.retry(owner(request), job_id, line), request)

    @router.get(
        "/v2/jobs/{job_id}/download",
        response_class=StreamingResponse,
        responses={
            200: {"description": "The zip", "content": file_of("application/zip")},
            **refusals(404, 422, 500, 507),
        },
    )
    def download(job_id: str, request: Request, kind: Annotated[str, Depends(file_format)]):
        return StreamingResponse(
            batch.zip(owner(request), job_id, kind),
            200,
            {"Cache-Control": "no-store", "Content-Disposition": _attachment(job_id)},
            "application/zip",
        )

    @router.delete("/v2/jobs/{job_id}", status_code=204, responses=refusals(404, 422, 500, 507))
    def delete(job_id: str, request: Request):
        batch.delete(owner(request), job_id)
        return Response(status_code=204)

    return router


# ---- for the OpenAPI document --------------------------------------------------------------------
def _schema() -> dict:
    """For the OpenAPI document: the body is read by us, cut while it comes in and checked off the
    event loop.
    """
    line = Wanted.model_json_schema()
    body = BatchBody.model_json_schema(ref_template="{model}")
    body.pop("$defs", None)
    body["properties"]["requests"]["anyOf"][0]["items"] = line
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": body}}}}


# ---- the answers ---------------------------------------------------------------------------------
def _attachment(job_id: str, kind: str = "zip") -> str:
    return f'attachment; filename="kaikou-{job_id}.{kind}"'


def _csv(rows: list[dict]) -> bytes:
    """With the mark in front by which spreadsheets know UTF-8."""
    out = io.StringIO()
    table = csv.DictWriter(out, COLUMNS, extrasaction="ignore")
    table.writeheader()
    for row in rows:
        error = row["error"]["message"] if row["error"] else ""
        table.writerow({**row, "notes": " ".join(row["notes"]), "error": error})
    return out.getvalue().encode("utf-8-sig")


async def _as_made(studio: Studio, owner: str, job) -> AsyncIterator[bytes]:
    """The zip, each line as soon as those before it are there.

    A reader who leaves cancels the rest; what is made stays, under the job's id. One look, one
    visit to a thread, for all that has ended since the last.
    """
    batch, loop, news = studio.batch, asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        with suppress(RuntimeError):  # the loop has closed
            loop.call_soon_threadsafe(news.set)

    def look() -> tuple[str, list[bytes], bool]:
        """The job's state, what can be sent now, and whether that is not all."""
        state, ended = batch.ended(owner, job.id, len(rows) + 1, PAGE)
        pieces: list[bytes] = []
        for line in ended:
            entry, row = batch.entry(line, job.total)
            rows.append(row)
            if entry is not None:
                pieces.append(zip_stream.add(*entry))
            if sum(map(len, pieces)) > PIECE_BYTES:
                break
        if len(rows) == job.total:
            pieces.append(zip_stream.add(*batch.manifest(job, rows)) + zip_stream.end())
        return state, pieces, len(ended) == PAGE or (bool(ended) and ended[-1].n > len(rows))

    unwatch, zip_stream, rows, is_whole = batch.watch(job.id, wake), ZipStream(), [], False
    try:
        while len(rows) < job.total:
            news.clear()
            state, pieces, is_more = await run_in_threadpool(look)
            for piece in pieces:
                yield piece
            if len(rows) < job.total and not is_more:
                if state == "paused":
                    raise BrokenStream(job.id)
                await news.wait()
        is_whole = True
    except NotFound:
        raise BrokenStream(job.id) from None  # it was deleted meanwhile
    finally:
        unwatch()
        if not is_whole:
            loop.run_in_executor(None, _give_up, studio, owner, job.id)


def _give_up(studio: Studio, owner: str, job_id: str) -> None:
    with suppress(NotFound):
        if studio.batch.get(owner, job_id).state == "running":
            studio.batch.cancel(owner, job_id)
