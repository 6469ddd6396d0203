"""No number that comes in by a route or a socket may be NaN or infinite: every field that takes a
float is found and tried, then some by hand.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any
from unittest.mock import MagicMock

import pytest
from fastapi import FastAPI, Form, Query
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from tests.api.client import Socket
from tests.api.test_http import error
from tests.api.typist import Typist
from webui import api
from webui.api.compat.gptsovits import Asked
from webui.api.fields import JsonBody
from webui.settings import Paths, Settings

ODD = (math.nan, math.inf, -math.inf, "nan", "inf", "-Infinity", "1e999")


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    """All routes.

    Only their parameters are looked at, so there is nothing behind them but what building them asks
    for.
    """
    settings = Settings(paths=replace(Paths(), data_dir=tmp_path_factory.mktemp("data")))
    studio = MagicMock(version="0")
    return api.build_app(studio, settings)[0]


def kind_of(field: FieldInfo) -> Any:
    """Its type with what bounds it."""
    return Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation


def parameters(routes) -> Iterator[tuple[str, Any]]:
    """(where, type) of everything that FastAPI reads for a route: address, query, headers, cookies,
    form and body.
    """
    for route in routes:
        inner = getattr(route, "original_router", None)
        if inner is not None:
            yield from parameters(inner.routes)
        if isinstance(route, APIRoute):
            d = route.dependant
            for p in (*d.path_params, *d.query_params, *d.header_params, *d.cookie_params,
                *d.body_params):  # fmt: skip
                yield f"{route.path} {p.name}", kind_of(p.field_info)


def bodies(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for subclass in model.__subclasses__():
        if subclass.__module__.startswith("webui."):
            yield from (subclass, *bodies(subclass))


def open_to_odd(kinds) -> list[str]:
    """Those that take a number and let one pass that is not finite."""
    open_fields = []
    for path, kind in kinds:
        adapter = TypeAdapter(kind)
        if '"number"' not in json.dumps(adapter.json_schema()):
            continue
        for odd in ODD:
            try:
                value = adapter.validate_python(odd)
            except ValidationError:
                continue
            if isinstance(value, float) and not math.isfinite(value):
                open_fields.append(path)
                break
    return open_fields


def fields_of(models) -> list[tuple[str, Any]]:
    return [
        (f"{m.__name__}.{name}", kind_of(f)) for m in models for name, f in m.model_fields.items()
    ]


def test_every_float_of_every_route_and_body_is_finite(app):
    params = list(parameters(app.routes))
    models = [*bodies(JsonBody), Asked]
    assert len(params) > 40 and len(models) >= 10, "the walk finds nothing"
    kinds = fields_of(models)
    numbers = [w for w,
        k in kinds + params if '"number"' in json.dumps(TypeAdapter(k).json_schema())]  # fmt: skip
    assert {"Speech.speed", "Wanted.speed", "BatchBody.speed", "NewDemo.days",
        "Asked.speed_factor"} <= set(numbers)  # fmt: skip
    assert "/tts/draft/{draft_id}/audio clean" in numbers
    assert open_to_odd(params + kinds) == []


def test_every_body_of_a_route_is_of_the_kind_that_is_walked(app):
    loose = [
        path
        for path, kind in parameters(app.routes)
        if isinstance(kind, type) and issubclass(kind, BaseModel) and not issubclass(kind, JsonBody)
    ]  # fmt: skip
    assert loose == []


def test_a_planted_float_is_noticed():
    app = FastAPI()

    @app.get("/a")
    def a(x: float = 0.0, y: Annotated[float, Query(allow_inf_nan=False)] = 0.0):
        return x + y

    @app.post("/b")
    def b(z: float = Form(0.0)):
        return z

    assert open_to_odd(parameters(app.routes)) == ["/a x", "/b z"]

    class Planted(BaseModel):
        speed: float | None = None
        many: list[int] = []

    assert open_to_odd(fields_of([Planted])) == ["Planted.speed"]


@pytest.mark.parametrize("odd", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_bodies_with_what_is_no_number_are_refused(studio, odd):
    kind = {"Content-Type": "application/json"}
    with studio.client() as http:
        http.post("/tts/session")
        for method, path, body in (
            ("POST", "/v1/audio/speech", '{"input": "Hi.", "voice": "alloy", "speed": %s}'),
            ("POST", "/v1/audio/speech", '{"input": "Hi.", "voice": "alloy", "seed": %s}'),
            ("POST", "/v2/synthesize/batch", '{"texts": ["Hi."], "voice": "alloy", "speed": %s}'),
            ("POST", "/v2/synthesize/batch", '{"requests": [{"input": "Hi.", "speed": %s}]}'),
            ("POST", "/v1/demos", '{"voice": "starter-zh-high", "days": %s}'),
            ("POST", "/v1/demos", '{"voice": "starter-zh-high", "speed": %s}'),
            ("POST", "/v1/demos", '{"voice": "starter-zh-high", "max_uses": %s}'),
            ("POST", "/v1/keys", '{"name": "x", "per_minute": %s}'),
        ):
            answer = http.request(method, path, content=body % odd, headers=kind)
            assert answer.status_code == 422 and error(answer)["code"] == "bad_field", body
        for call_kwargs in ({"data": {"speed_factor": odd}}, {"json": {"speed_factor": odd}}):
            ask = {
                k: {"text": "Hi.", "ref_audio_path": "alloy", **v} for k, v in call_kwargs.items()
            }
            assert http.post("/tts", **ask).status_code == 400
        response = http.get("/tts", params={"text": "Hi.", "ref_audio_path": "alloy",
            "speed_factor": odd})  # fmt: skip
        assert response.status_code == 400
        response = http.get("/tts/draft/draft-x/audio", params={"clean": odd})
        assert response.status_code == 422 and error(response)["param"] == "clean"


@pytest.mark.parametrize("odd", ["NaN", "Infinity", "1e999"])
def test_a_socket_closes_on_what_is_no_json(studio, odd):
    sock = Socket(studio)
    sock.ws.send(f'{{"op": "ping", "t": {odd}}}')
    with pytest.raises(Exception) as closed:
        sock.recv()
    assert closed.value.rcvd.code == 1008
    typist = Typist(studio)
    typist.ws.send(f'{{"type": "start", "voice": "starter-zh-high", "speed": {odd}}}')
    assert typist.recv()["error"]["code"] == "bad_json"
    typist.ws.close()


@pytest.mark.parametrize(
    "field", ["voice", "model", "language", "transcript", "instructions", "profile", "ref_text"]
)
def test_half_a_character_in_any_field_of_a_start_is_answered(studio, field):
    """It could be told in no answer, so the socket fell silent."""
    sock = Socket(studio)
    errors = sock.say({"input": "Hi.", field: "a\ud800"}).of("error")
    assert errors and errors[0]["code"] == "bad_text" and errors[0]["param"] == field
    assert sock.say({"input": "Hi."}).of("end"), "the socket lives on"
    sock.close()
