"""/v1/models: the engines that can speak now, the models of this disk, and the names other programs
know them by.
"""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from ..studio import Studio
from .openapi import answers, refusals


class Model(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "kaikou"
    active: bool = True  # False: installed, but another one speaks, or it is still loading


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[Model]


def routes(studio: Studio) -> APIRouter:
    router = APIRouter()

    @router.get("/v1/models", responses={**answers(200, of=ModelList), **refusals()})
    def every():
        speaking = studio.model_library.speaking if studio.model_library is not None else ""
        names = {"auto": True, **studio.model_names()}
        return ModelList(
            data=[Model(id=name, active=is_active) for name, is_active in names.items()]
            + [
                Model(id=name, active=name == speaking)
                for name in studio.installed_names()
                if name not in names
            ]
        )

    @router.get(
        "/v1/models/{model}",
        responses={**answers(200, of=Model), **refusals(404, 422, 503)},
        name="one",
    )
    def get_model(model: str):
        """OpenAI's names are not in the list, but they are known: each means `auto`."""
        if model in studio.installed_names():
            return Model(id=model, active=model == studio.model_library.speaking)
        studio.voice_resolver.check_model(model)
        return Model(id=model, active=studio.model_names().get(model, True))

    return router
