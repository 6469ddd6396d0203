"""The client for asyncio, line by line the blocking one of client.py."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import httpx

from .audio import Sound
from .endpoints import Choice, Endpoints
from .errors import is_unheard
from .first_audio import FirstAudio, OnFirst
from .http_link import AsyncHttpLink
from .request import SpeechParams, SpeechResponse, clone_form, grpc_links, is_grpc
from .retry import Retry


class AsyncStream:
    """An iterator of samples: little-endian int16 bytes, mono, whole samples each.

    `rate` (Hz) and `seed` are known from the first piece on. One that is forgotten is closed by its
    event loop.
    """

    def __init__(self, response: SpeechResponse, pieces: AsyncIterator[bytes]):
        self._response, self._pieces = response, pieces

    def __aiter__(self) -> AsyncStream:
        return self

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
    """A studio at `base_url`, or several: as TTS.

    Keeps connections open between calls; `close` it, or use it in an `async with`; one that is
    forgotten while its event loop runs closes them too. Of one event loop.
    """

    def __init__(
        self,
        base_url: str | Sequence[str] = "http://127.0.0.1:7860",
        api_key: str | None = None,
        *,
        retry: Retry | None = None,
        timeout_s: float | None = None,
        language: str = "en",
        transport: httpx.AsyncBaseTransport | None = None,
        choose: Choice = "random",
    ):
        self._links = [
            grpc_links().AsyncGrpcLink(url, api_key, language)
            if is_grpc(url)
            else AsyncHttpLink(url, api_key, language, timeout_s, transport)
            for url in ([base_url] if isinstance(base_url, str) else base_url)
        ]
        self._endpoints, self._retry = Endpoints(self._links, choose), retry or Retry()
        self._end = None

    async def synthesize(
        self, text: str, voice: str, *, on_first_audio: OnFirst | None = None, **how
    ) -> Sound:
        """The whole utterance. how: the other fields of SpeechParams. on_first_audio is called,
        once and on a thread of its own, with the first samples; asking for that has its price: the
        studio then sends as for a listener, ten seconds ahead of the clock at most.

        Raises the named errors of webui.errors and .errors once another try is of no use.
        """
        response = SpeechResponse(
            SpeechParams(text, voice, **how), is_paced=on_first_audio is not None, is_whole=True
        )
        async for _ in self._stream_pcm(response, len(text), on_first_audio):
            pass
        return response.sound()

    def stream(
        self, text: str, voice: str, *, on_first_audio: OnFirst | None = None, **how
    ) -> AsyncStream:
        """Samples while they are made. on_first_audio: as of `synthesize`.

        A connection that breaks is taken up again where it was; no sample comes twice.
        """
        response = SpeechResponse(SpeechParams(text, voice, **how), is_paced=True, is_whole=False)
        return AsyncStream(response, self._stream_pcm(response, len(text), on_first_audio))

    async def _stream_pcm(
        self, response: SpeechResponse, n_chars: int, on_first: OnFirst | None
    ) -> AsyncIterator[bytes]:
        self._watch()
        first, place = FirstAudio(on_first), None
        async for attempt in self._retry.asynchronous(
            has_another=lambda: self._may_leave(response)
        ):
            with attempt, self._endpoints.lease(place if response.is_begun else None) as place:
                async with place.link.speech(response, n_chars) as pieces:
                    async for data in pieces:
                        if pcm := response.feed(data):
                            first(pcm)
                            yield pcm
                    response.end()

    def _may_leave(self, response: SpeechResponse) -> bool:
        return not response.is_begun and self._endpoints.has_another()

    def _watch(self) -> None:
        """From the first call on, when there is an event loop and may be a connection."""
        if self._end is None:
            loop = asyncio.get_running_loop()
            self._end = weakref.finalize(self, _forgotten, loop, self._links)
            self._end.atexit = False  # the loop is over by then

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
        tries = self._retry.asynchronous(is_unheard, self._endpoints.has_another)
        return await tries(self._clone, form)

    async def voices(self) -> list[dict]:
        """Every voice that this key may use: `id`, `name`, `language` and more of each."""
        tries = self._retry.asynchronous(has_another=self._endpoints.has_another)
        return await tries(self._voices)

    async def _clone(self, form: dict) -> dict:
        self._watch()
        with self._endpoints.lease() as endpoint:
            return await endpoint.link.clone(form)

    async def _voices(self) -> list[dict]:
        self._watch()
        with self._endpoints.lease() as endpoint:
            return await endpoint.link.voices()

    async def close(self) -> None:
        """Close the connections."""
        if self._end is not None:
            self._end.detach()
        await _close(self._links)

    async def __aenter__(self) -> AsyncTTS:
        return self

    async def __aexit__(self, *_) -> None:
        await self.close()


def _forgotten(loop: asyncio.AbstractEventLoop, links: list) -> None:
    """From any thread."""
    if loop.is_running():
        asyncio.run_coroutine_threadsafe(_close(links), loop)


async def _close(links: list) -> None:
    for link in links:
        await link.close()
