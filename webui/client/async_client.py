"""The client for asyncio, line by line the blocking one of client.py."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx

from .audio import Sound
from .errors import as_client_error, is_unheard
from .request import (
    SPEECH,
    VOICES,
    SpeechParams,
    SpeechResponse,
    aread_error,
    as_json,
    clone_form,
    headers,
    timeout,
)
from .retry import Retry


def pool(
    base_url: str,
    api_key: str | None,
    language: str,
    connections: int,
    transport: httpx.AsyncBaseTransport | None,
) -> httpx.AsyncClient:
    """An HTTP client with connections that are kept open."""
    with as_client_error():
        return httpx.AsyncClient(
            base_url=base_url,
            headers=headers(api_key, language),
            transport=transport,
            limits=httpx.Limits(
                max_connections=connections,
                max_keepalive_connections=connections,
                keepalive_expiry=30.0,
            ),
        )


class AsyncStream:
    """An iterator of samples: little-endian int16 bytes, mono, whole samples each.

    `rate` (Hz) and `seed` are known from the first piece on.
    """

    def __init__(self, response: SpeechResponse, pieces: AsyncIterator[bytes]):
        self._response, self._pieces = response, pieces

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._pieces

    async def __anext__(self) -> bytes:
        return await anext(self._pieces)

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(self, *_) -> None:
        await self.close()

    async def close(self) -> None:
        """The studio stops making the rest."""
        await self._pieces.aclose()

    @property
    def rate(self) -> int:
        """Samples a second."""
        return self._response.rate

    @property
    def seed(self) -> int | None:
        """The seed that was used; None where the studio has not said it."""
        return self._response.seed


class AsyncTTS:
    """A studio at `base_url`.

    Keeps connections open between calls; `close` it, or use it in an `async with`. Of one event
    loop.

    language: of error sentences, "en" or "zh". timeout_s: how long the studio may be silent; by
      itself it grows with the text.
    """

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:7860",
        api_key: str | None = None,
        *,
        retry: Retry | None = None,
        timeout_s: float | None = None,
        language: str = "en",
        transport: httpx.AsyncBaseTransport | None = None,
    ):
        self._http = pool(base_url, api_key, language, 100, transport)
        self._retry, self._timeout_s = retry or Retry(), timeout_s

    async def synthesize(
        self, text: str, voice: str, *, on_first_audio: Callable[[float], None] | None = None, **how
    ) -> Sound:
        """The whole utterance. how: the other fields of Ask. on_first_audio is told, once, the
        seconds until the first sample was here; asking for that has its price: the studio then
        sends as for a listener, ten seconds ahead of the clock at most.

        Raises the named errors of webui.errors and .faults once another try is of no use.
        """
        response = SpeechResponse(
            SpeechParams(text, voice, **how), is_paced=on_first_audio is not None, is_whole=True
        )
        async for _ in self._stream_pcm(response, len(text), on_first_audio):
            pass
        return response.sound()

    def stream(
        self, text: str, voice: str, *, on_first_audio: Callable[[float], None] | None = None, **how
    ) -> AsyncStream:
        """Samples while they are made.

        A connection that breaks is taken up again where it was; no sample comes twice.
        """
        response = SpeechResponse(SpeechParams(text, voice, **how), is_paced=True, is_whole=False)
        return AsyncStream(response, self._stream_pcm(response, len(text), on_first_audio))

    async def _stream_pcm(
        self, response: SpeechResponse, n_chars: int, on_first: Callable[[float], None] | None
    ) -> AsyncIterator[bytes]:
        began, is_first = time.monotonic(), True
        async for attempt in self._retry.asynchronous():
            with attempt, as_client_error():
                async with self._http.stream(
                    "POST", SPEECH, json=response.body(), timeout=timeout(n_chars, self._timeout_s)
                ) as answer:
                    await aread_error(answer)
                    response.begin(answer)
                    async for data in answer.aiter_raw():
                        if pcm := response.feed(data):
                            if is_first and on_first:
                                on_first(time.monotonic() - began)
                            is_first = False
                            yield pcm
                    response.end()

    async def clone(
        self,
        path: str | Path,
        name: str,
        *,
        transcript: str = "",
        language: str = "",
        denoise: bool = False,
        consent: str = "",
        start_s: float | None = None,
        end_s: float | None = None,
    ) -> dict:
        """A voice from a recording: what the studio tells of it, `id` and `report` among others.
        consent: who agrees and on what basis; the studio refuses without it. start_s, end_s: the
        part of it to use, both or neither; transcript is exactly what is said there. Tried again
        only when the studio cannot have heard of it: it would make two voices.
        """
        form = clone_form(path, name, transcript, language, denoise, consent, start_s, end_s)
        return await self._retry.asynchronous(is_unheard)(self._call_voices, "POST", form)

    async def voices(self) -> list[dict]:
        """Every voice that this key may use: `id`, `name`, `language` and more of each."""
        return (await self._retry.asynchronous()(self._call_voices, "GET", {}))["data"]

    async def _call_voices(self, method: str, form: dict) -> dict:
        with as_client_error():
            async with self._http.stream(
                method, VOICES, timeout=timeout(0, self._timeout_s), **form
            ) as answer:
                await aread_error(answer)
                await answer.aread()
                return as_json(answer)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncTTS:
        return self

    async def __aexit__(self, *_) -> None:
        await self.close()
