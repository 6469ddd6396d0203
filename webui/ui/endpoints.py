"""The main jobs as named Gradio endpoints, for gradio_client and for Gradio's MCP server.

Each is a function with plain parameters that asks the studio and waits for the end. They pass
Gradio's queue by: the studio has a queue of its own. What a browser's page does goes another way.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gradio as gr
from starlette.requests import Request

from ..errors import BadInput, KaikouError
from ..studio import ADMIN, Studio, collect, known_language, open_job
from ..types import CONVERT, MAX_TRANSCRIPT, Voice
from .auth import owner_of, scope_of

NAMES = ("speak", "clone_voice", "list_voices", "convert")


def wire(studio: Studio, root_path: str) -> None:
    """Adds the endpoints to the page that is being built. root_path: as in the settings."""

    async def speak(  # noqa: D417  the request is Gradio's
        text: str,
        request: gr.Request,
        voice: str = "",
        language: str = "auto",
        instruction: str = "",
        speed: float = 1.0,
        seed: int = -1,
    ) -> dict[str, Any]:
        """Speak a text and return the sound as a WAV file.

        Args:
            text: What to say.
            voice: Id of a voice as list_voices gives it; empty for the first starter voice.
            language: auto, or a language tag such as zh, en, ja, ko, yue.
            instruction: How to say it, in words; never spoken. Empty for none.
            speed: 0.25 to 4; 1 is the voice's own.
            seed: The same seed gives the same sound; -1 for any.

        """
        _need(request, "speak")
        return await _speak(
            request,
            text_in=text,
            voice_id=voice[:200] or _first_starter(),
            language=known_language(language[:17]),
            instruction=instruction,
            speed=float(speed),
            seed=int(seed),
        )

    async def convert(  # noqa: D417
        recording: str, request: gr.Request, voice: str, consent: bool = False
    ) -> dict[str, Any]:
        """Say the words of a recording again in another voice and return a WAV file.

        Args:
            recording: The recording of 1 to 30 s, any common audio file, as base64.
            voice: Id of the voice that says it, as list_voices gives it.
            consent: True when the speaker of the recording agreed to this use.

        """
        _need(request, "speak")
        with _sentences():
            data = _bytes(recording, "recording")
        return await _speak(
            request,
            text_in="",
            mode=CONVERT,
            voice_id=voice[:200],
            recording=data,
            consent=bool(consent),
        )

    def clone_voice(  # noqa: D417
        name: str, clip: str, consent: str, request: gr.Request, transcript: str = ""
    ) -> dict[str, Any]:
        """Save a voice made from a clip of somebody who agreed to it, and return its id.

        Args:
            name: What the voice is called.
            clip: A recording of 3 to 30 s, any common audio file, as base64.
            consent: Who agreed to this use of the voice, in words.
            transcript: What is said in the clip, word for word; makes the voice sound closer.

        """
        _need(request, "voices")
        with _sentences():
            voice, draft = studio.voices.add(
                owner_of(request),
                _bytes(clip, "clip"),
                name,
                transcript=transcript[:MAX_TRANSCRIPT],
                consent=consent,
            )
        return _voice(voice) | {"notes": [en for en, _ in draft.notes]}

    def list_voices(request: gr.Request) -> list[dict[str, Any]]:
        """List the voices that can speak: your own, newest first, then those of the studio."""
        return [_voice(voice) for voice in studio.voices.list(owner_of(request))]

    def _first_starter() -> str:
        return next((voice.id for voice in studio.voices.list("-") if voice.starter), "")

    async def _speak(request: gr.Request, **params: Any) -> dict[str, Any]:
        owner = owner_of(request)
        with _sentences():
            job = await open_job(studio, lambda: studio.synthesis.open(owner, **params))
            await collect(studio, job, until_saved=True)
        return _file(request, root_path, job.id)

    for function in (speak, clone_voice, list_voices, convert):
        gr.api(function, api_name=function.__name__, queue=False)


def _need(request: gr.Request, scope: str) -> None:
    """Raises gr.Error where the request came by a key that may not do this."""
    key = scope_of(request).get("kk_key")
    if key is not None and ADMIN not in key.scopes and scope not in key.scopes:
        raise gr.Error(
            f"This key may not do that: it lacks the scope {scope}.", print_exception=False
        )


def _bytes(text: str, param: str) -> bytes:
    """The recording in base64, with or without a data address before it. Raises BadInput."""
    try:
        return base64.b64decode(text.rpartition(",")[2], validate=True)
    except (binascii.Error, ValueError):
        raise BadInput("bad_base64", param=param) from None


@contextmanager
def _sentences() -> Iterator[None]:
    """Named errors go to Gradio's clients as their English sentence and their code."""
    try:
        yield
    except KaikouError as error:
        raise gr.Error(f"{error.en} ({error.code})", print_exception=False) from error


def _file(request: gr.Request, root_path: str, take_id: str) -> dict[str, Any]:
    """A take's WAV as Gradio's clients expect a file: they fetch it with their own headers."""
    base = str(Request(scope_of(request)).base_url).rstrip("/")
    base = base.removesuffix(root_path) + root_path
    return {
        "path": f"{take_id}.wav",
        "url": f"{base}/tts/result/{take_id}.wav",
        "orig_name": f"{take_id}.wav",
        "mime_type": "audio/wav",
        "meta": {"_type": "gradio.FileData"},
    }


def _voice(voice: Voice) -> dict[str, Any]:
    return {"id": voice.id, "name": voice.name, "language": voice.language}
