"""One studio over HTTP, for the blocking client and for asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import httpx

from .errors import as_client_error
from .request import (
    SPEECH,
    VOICES,
    SpeechResponse,
    aread_error,
    as_json,
    headers,
    is_framed,
    read_error,
    timeout,
)


class HttpLink:
    """timeout_s: how long the studio may be silent; None: it grows with the text."""

    def __init__(
        self,
        url: str,
        api_key: str | None,
        language: str,
        timeout_s: float | None,
        transport: httpx.BaseTransport | None,
    ):
        with as_client_error():
            self._http = httpx.Client(
                base_url=url, headers=headers(api_key, language), transport=transport
            )
        self._timeout_s, self.close = timeout_s, self._http.close

    @contextmanager
    def speech(self, response: SpeechResponse, n_chars: int) -> Iterator[Iterator[bytes]]:
        """The bytes of a WAV; `response` is told what the answer says of itself."""
        with (
            as_client_error(),
            self._http.stream(
                "POST", SPEECH, json=response.body(), timeout=timeout(n_chars, self._timeout_s)
            ) as answer,
        ):
            read_error(answer)
            response.begin(answer.headers, is_framed(answer))
            yield answer.iter_raw()

    def voices(self) -> list[dict]:
        """All that this key may use."""
        return self._call_voices("GET", {})["data"]

    def clone(self, form: dict) -> dict:
        """A voice from `clone_form`."""
        return self._call_voices("POST", form)

    def _call_voices(self, method: str, form: dict) -> dict:
        with (
            as_client_error(),
            self._http.stream(
                method, VOICES, timeout=timeout(0, self._timeout_s), **form
            ) as answer,
        ):
            read_error(answer)
            answer.read()
            return as_json(answer)


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


class AsyncHttpLink:
    """As HttpLink."""

    def __init__(
        self,
        url: str,
        api_key: str | None,
        language: str,
        timeout_s: float | None,
        transport: httpx.AsyncBaseTransport | None,
    ):
        self._http = pool(url, api_key, language, 100, transport)
        self._timeout_s, self.close = timeout_s, self._http.aclose

    @asynccontextmanager
    async def speech(
        self, response: SpeechResponse, n_chars: int
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """As HttpLink.speech."""
        with as_client_error():
            async with self._http.stream(
                "POST", SPEECH, json=response.body(), timeout=timeout(n_chars, self._timeout_s)
            ) as answer:
                await aread_error(answer)
                response.begin(answer.headers, is_framed(answer))
                yield answer.aiter_raw()

    async def voices(self) -> list[dict]:
        """As HttpLink.voices."""
        return (await self._call_voices("GET", {}))["data"]

    async def clone(self, form: dict) -> dict:
        """As HttpLink.clone."""
        return await self._call_voices("POST", form)

    async def _call_voices(self, method: str, form: dict) -> dict:
        with as_client_error():
            async with self._http.stream(
                method, VOICES, timeout=timeout(0, self._timeout_s), **form
            ) as answer:
                await aread_error(answer)
                await answer.aread()
                return as_json(answer)
