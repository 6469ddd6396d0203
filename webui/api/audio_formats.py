"""In which file format, and in which wrapping, spoken sound leaves.

Knows names and headers; blind to samples.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Mapping

from ..errors import BadInput, KaikouError
from ..studio import CODED

RAW = {"wav": "audio/wav", "pcm": "audio/pcm"}
TYPES = {**CODED, **RAW}
WRAPPINGS = ("audio", "sse")
SSE = "text/event-stream"
TOKENS_PER_S = 25  # of sound, as the language models of voices count it
RULE = (
    "Without `response_format` the answer is mp3 for an OpenAI client library (its `User-Agent`"
    " begins with `OpenAI/` or `AsyncOpenAI/`, or it sends `X-Stainless-*` headers), as such"
    " clients expect, and wav for everyone else."
)
WHOLE = (
    "true: while it is made; false: the whole file at once, with its true sizes. Without it"
    " everything is streamed but flac: the header of a FLAC file holds its length, and many readers"
    " open no file whose header says 0 samples."
)
USAGE = (
    "`usage` counts what OpenAI counts in tokens by what is known of every engine: `input_tokens`"
    " are the characters of `input` and `instructions`, `output_tokens` are 25 for each second of"
    " sound, rounded up, `total_tokens` are both together."
)


def _of(kind: str, **fields: dict) -> dict:
    return {
        "type": "object",
        "required": ["type", *fields],
        "properties": {"type": {"const": kind}, **fields},
    }


_COUNTS = ("input_tokens", "output_tokens", "total_tokens")
# one event, for the OpenAPI document
EVENT = {
    "type": "object",
    "required": ["data"],
    "properties": {
        "data": {
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": {
                "oneOf": [
                    _of(
                        "speech.audio.delta", audio={"type": "string", "contentEncoding": "base64"}
                    ),
                    _of(
                        "speech.audio.done",
                        usage={
                            "type": "object",
                            "required": list(_COUNTS),
                            "properties": {name: {"type": "integer"} for name in _COUNTS},
                        },
                        segments={
                            "type": "array",
                            "items": {
                                "type": "object",
                                "required": ["text", "start_s", "end_s"],
                                "properties": {
                                    "text": {"type": "string"},
                                    "start_s": {"type": "number"},
                                    "end_s": {"type": "number"},
                                },
                            },
                        },
                    ),
                    _of("error", error={"type": "object"}),
                ]
            },
        }
    },
}


def format_of(format_name: str | None, headers: Mapping[str, str]) -> str:
    """A key of TYPES. headers: names in any case. Raises BadInput."""
    if format_name is None:
        return "mp3" if is_openai_client(headers) else "wav"
    return _check_choice(format_name, TYPES, "response_format")


def file_format(format: str = "wav") -> str:
    """Of files that are made already: wav or a key of CODED.

    A dependency of routes. Raises BadInput.
    """
    return _check_choice(format, ("wav", *CODED), "format")


def _check_choice(value: str, allowed: Iterable[str], param: str) -> str:
    if value not in allowed:
        names = ", ".join(allowed)
        raise BadInput("bad_format.audio", asked=value[:20], names=names, param=param)
    return value


def is_openai_client(headers: Mapping[str, str]) -> bool:
    """OpenAI's own libraries, and those generated alike, name themselves."""
    return headers.get("user-agent", "").startswith(("OpenAI/", "AsyncOpenAI/")) or any(
        name.lower().startswith("x-stainless-") for name in headers
    )


def is_streamed(stream_field: bool | None, kind: str) -> bool:
    """See WHOLE. stream_field: None = not said."""
    return kind != "flac" if stream_field is None else stream_field


def is_wrapped(wrapping: str) -> bool:
    """As server-sent events, or else as plain bytes. Raises BadInput."""
    if wrapping not in WRAPPINGS:
        raise BadInput("bad_field.stream_format", param="stream_format")
    return wrapping == "sse"


def usage(text: str, instruction: str, n_samples: int, rate: int) -> dict:
    """See USAGE."""
    n_input_tokens, n_output_tokens = (
        len(text) + len(instruction),
        math.ceil(n_samples * TOKENS_PER_S / rate),
    )
    return {
        "input_tokens": n_input_tokens,
        "output_tokens": n_output_tokens,
        "total_tokens": n_input_tokens + n_output_tokens,
    }


def event(payload: dict) -> bytes:
    return (
        b"data: "
        + json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()
        + b"\n\n"
    )


def delta(sound: bytes) -> bytes:
    return event({"type": "speech.audio.delta", "audio": base64.b64encode(sound).decode()})


def done(counts: dict, segments: list[dict]) -> bytes:
    return event({"type": "speech.audio.done", "usage": counts, "segments": segments})


def failed(error: KaikouError, language: str) -> bytes:
    """The last event of a stream that breaks off: OpenAI's clients raise what stands in `error`."""
    return event(
        {
            "type": "error",
            "error": {
                "message": error.sentence(language),
                "type": error.kind,
                "param": error.param,
                "code": error.code,
            },
        }
    )
