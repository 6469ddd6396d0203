"""The blocking client. Its asynchronous twin is in async_client.py, line by line the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx

from .audio import Sound
from .errors import as_client_error, is_unheard
from .request import (
    SPEECH,
    VOICES,
    SpeechParams,
    SpeechResponse,
    as_json,
    clone_form,
    headers,
    read_error,
    timeout,
)
from .retry import Retry


class Stream:
    """An iterator of samples: little-endian int16 bytes, mono, whole samples each.

    `rate` (Hz) and `seed` are known from the first piece on.
    """

    def __init__(self, response: SpeechResponse, pieces: Iterator[bytes]):
        self._response, self._pieces = response, pieces

    def __iter__(self) -> Iterator[bytes]:
        return self._pieces

    def __next__(self) -> bytes:
        return next(self._pieces)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """The studio stops making the rest."""
        self._pieces.close()

    @property
    def rate(self) -> int:
        """Samples a second."""
        return self._response.rate

    @property
    def seed(self) -> int | None:
        """The seed that was used; None where the studio has not said it."""
        return self._response.seed


class TTS:
    """A studio at `base_url`.

    Keeps connections open between calls; `close` it, or use it in a `with`. May be used from
    several threads.

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
        transport: httpx.BaseTransport | None = None,
    ):
        with as_client_error():
            self._http = httpx.Client(
                base_url=base_url, headers=headers(api_key, language), transport=transport
            )
        self._retry, self._timeout_s = retry or Retry(), timeout_s

    def synthesize(
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
        for _ in self._stream_pcm(response, len(text), on_first_audio):
            pass
        return response.sound()

    def stream(
        self, text: str, voice: str, *, on_first_audio: Callable[[float], None] | None = None, **how
    ) -> Stream:
        """Samples while they are made.

        A connection that breaks is taken up again where it was; no sample comes twice.
        """
        response = SpeechResponse(SpeechParams(text, voice, **how), is_paced=True, is_whole=False)
        return Stream(response, self._stream_pcm(response, len(text), on_first_audio))

    def _stream_pcm(
        self, response: SpeechResponse, n_chars: int, on_first: Callable[[float], None] | None
    ) -> Iterator[bytes]:
        began, is_first = time.monotonic(), True
        for attempt in self._retry.sync():
            with (
                attempt,
                as_client_error(),
                self._http.stream(
                    "POST", SPEECH, json=response.body(), timeout=timeout(n_chars, self._timeout_s)
                ) as answer,
            ):
                read_error(answer)
                response.begin(answer)
                for data in answer.iter_raw():
                    if pcm := response.feed(data):
                        if is_first and on_first:
                            on_first(time.monotonic() - began)
                        is_first = False
                        yield pcm
                response.end()

    def clone(
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
        return self._retry.sync(is_unheard)(self._call_voices, "POST", form)

    def voices(self) -> list[dict]:
        """Every voice that this key may use: `id`, `name`, `language` and more of each."""
        return self._retry.sync()(self._call_voices, "GET", {})["data"]

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

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> TTS:
        return self

    def __exit__(self, *_) -> None:
        self.close()
