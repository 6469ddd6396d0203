"""What the OpenAPI document says of every route alike: how it refuses, what its bodies are.

Describes only; decides nothing.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

JSON = "application/json"
EVERYWHERE = (401, 403, 408, 413, 429, 431)  # at the door
WORDS = {
    200: "Done",
    201: "Made",
    202: "Begun",
    204: "Gone",
    206: "A part of it",
    303: "Go there",
    400: "The body cannot be read",
    401: "Not logged in, or a wrong key",
    403: "Not allowed",
    404: "Nothing is there, or it is another's",
    408: "The body came too slowly",
    409: "It is in use",
    413: "The body is too large",
    416: "No such part",
    422: "Something in the request is wrong",
    429: "Too much at once; `Retry-After` says when",
    431: "Too many header lines",
    500: "Something went wrong here",
    503: "The engine is not ready, or failed",
    507: "The disk is full",
}
ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {
                    "type": "string",
                    "description": (
                        "A sentence for people, in Chinese or English by Accept-Language"
                    ),
                },
                "type": {"type": "string"},
                "param": {"type": ["string", "null"], "description": "The field at fault"},
                "code": {"type": "string", "description": "Stable, for programs"},
                "sentences": {
                    "type": "object",
                    "description": "The sentence in both languages",
                    "properties": {"en": {"type": "string"}, "zh": {"type": "string"}},
                },
            },
        }
    },
}
WAIT = {
    "Retry-After": {
        "description": "Seconds after which it is worth trying again",
        "schema": {"type": "integer"},
    }
}
ABOUT = """\
What the page does, a program can do by the same routes. Names and shapes are those of OpenAI's \
audio API where it has them: its own client libraries work with
`base_url` set to `<this address>/v1`. Our own fields are additions to it (`extra_body` in its \
Python client).

**Errors** have one shape, `{"error": {"message", "type", "param", "code"}}`, and come before \
the first byte of sound. A failure after it ends the connection abnormally:
a file that ends properly is whole. `message` is Chinese or English by `Accept-Language`.

**Keys**: `Authorization: Bearer <key>` where the studio asks for a login. Another's \
things answer exactly as things that are not there.

**Recordings** come as bytes: as a file of a form, or in `ref_audio` as base64. No \
address and no path is ever opened."""
REFERENCE = {"$ref": "#/components/schemas/Error"}


def refusals(*statuses: int) -> dict[int, dict]:
    """For a route's `responses`: these, and those of the door."""
    return {
        s: {
            "description": WORDS[s],
            "content": {JSON: {"schema": REFERENCE}},
            **({"headers": WAIT} if s in (429, 503) else {}),
        }
        for s in sorted({*EVERYWHERE, *statuses})
    }


def answers(
    *statuses: int, content: dict | None = None, of: type[BaseModel] | None = None
) -> dict[int, dict]:
    return {
        s: {
            "description": WORDS[s],
            **({"content": content} if content else {}),
            **({"model": of} if of else {}),
        }
        for s in statuses
    }


def file_of(*kinds: str) -> dict:
    return {kind: {"schema": {"type": "string", "format": "binary"}} for kind in kinds}


def body_of(model: type[BaseModel]) -> dict:
    """For `openapi_extra` of a route that reads its JSON body itself."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)
    return {"requestBody": {"required": True, "content": {JSON: {"schema": schema}}}}


def install(app: FastAPI) -> None:
    """The document is made at its first reading, when all routes are there."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _build_document(app)
        return app.openapi_schema

    app.openapi = openapi


def _build_document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title, version=app.version, description=ABOUT, routes=app.routes
    )
    parts = document.setdefault("components", {}).setdefault("schemas", {})
    parts["Error"] = ERROR
    for name in (
        "HTTPValidationError",
        "ValidationError",
    ):  # FastAPI's own shape, which no route answers with
        parts.pop(name, None)
    for route in document["paths"].values():
        for operation in route.values():
            replies = operation["responses"]
            if "422" in replies:
                replies["422"] = refusals(422)[422]
            for status in (*EVERYWHERE, *((400,) if "requestBody" in operation else ())):
                replies.setdefault(str(status), refusals(status)[status])
    document["components"]["securitySchemes"] = {
        "key": {
            "type": "http",
            "scheme": "bearer",
            "description": "An API key. Not needed where the studio asks for no login",
        }
    }
    document["security"] = [{"key": []}, {}]
    return document
