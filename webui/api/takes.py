"""/v1/audio/takes: what was spoken, for who spoke it: listed in pages, looked at, starred.

Their sound is /tts/result/{id}.wav. JSON <-> studio, no decisions.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel

from ..studio import Studio, stopped_at
from ..types import Take
from .fields import JsonBody
from .openapi import answers, refusals

PATH = "/v1/audio/takes"
ABOUT = (
    "Newest first. An account has its takes in every browser and program that logs in to it, and a"
    " key without one its own. Where nobody logs in, a browser has those of its visit, and programs"
    " share one list. A star keeps a take when others are swept. The next page begins after"
    " `last_id`."
)


class TakeKept(BaseModel):
    """With these fields and its seed `/v1/audio/speech` makes it again.

    `url`: of the sound, below the address of the studio. One that was stopped or failed has what
    was made of it; with its id as `continue_from` it goes on from sentence `stopped_at`.
    """

    id: str
    object: Literal["audio.take"] = "audio.take"
    input: str
    voice: str
    voice_name: str
    mode: str
    instructions: str
    language: str
    speed: float
    seed: int
    engine: str
    engine_version: str
    model: str
    created_at: int
    duration_s: float
    first_sound_ms: float | None
    rtf: float | None
    starred: bool
    state: Literal["done", "cancelled", "failed"]
    stopped_at: int | None
    url: str


class TakeList(BaseModel):
    object: Literal["list"] = "list"
    data: list[TakeKept]
    first_id: str | None
    last_id: str | None
    has_more: bool


class Star(JsonBody):
    starred: bool


def take_info(take: Take) -> TakeKept:
    request = take.request
    return TakeKept(
        id=take.id,
        input=request.text,
        voice=request.voice,
        voice_name=take.voice_name,
        mode=request.mode,
        instructions=request.instruction,
        language=request.language,
        speed=request.speed,
        seed=request.seed,
        engine=take.engine,
        engine_version=take.engine_version,
        model=take.model,
        created_at=int(take.created_at),
        duration_s=round(take.n_samples / take.sample_rate, 3),
        first_sound_ms=take.first_sound_ms,
        rtf=take.rtf,
        starred=take.starred,
        state=take.state,
        stopped_at=at[0] if (at := stopped_at(take)) else None,
        url=f"/tts/result/{take.id}.wav",
    )


def routes(studio: Studio) -> APIRouter:
    router, takes = APIRouter(), studio.takes

    def owner(request: Request) -> str:
        return request.scope["kk_owner"]

    @router.get(
        PATH, description=ABOUT, responses={**answers(200, of=TakeList), **refusals(404, 422)}
    )
    def every(request: Request, after: str = "", limit: Annotated[int, Query(ge=1, le=100)] = 20):
        page, has_more = takes.page(owner(request), after, limit)
        return TakeList(
            data=[take_info(t) for t in page],
            first_id=page[0].id if page else None,
            last_id=page[-1].id if page else None,
            has_more=has_more,
        )

    @router.get(
        PATH + "/{take_id}",
        responses={**answers(200, of=TakeKept), **refusals(404, 422)},
        name="one",
    )
    def get_take(take_id: str, request: Request):
        return take_info(takes.get_visible(owner(request), take_id))

    @router.patch(
        PATH + "/{take_id}", responses={**answers(200, of=TakeKept), **refusals(404, 422, 507)}
    )
    def star(take_id: str, body: Star, request: Request):
        return take_info(takes.star(owner(request), take_id, body.starred))

    # of the page, which may take it back for some seconds
    @router.delete(PATH + "/{take_id}", include_in_schema=False)
    def delete(take_id: str, request: Request):
        takes.delete(owner(request), take_id)
        return {"id": take_id, "deleted": True, "storage": takes.storage(owner(request))}

    @router.post(PATH + "/{take_id}/restore", include_in_schema=False)
    def restore(take_id: str, request: Request):
        takes.restore(owner(request), take_id)
        return {"id": take_id, "deleted": False, "storage": takes.storage(owner(request))}

    return router
