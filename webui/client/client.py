"""The blocking client. Its asynchronous twin is in async_client.py, line by line the same."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import httpx

from .audio import Sound
from .endpoints import Choice, Endpoints
from .errors import is_unheard
from .first_audio import FirstAudio, OnFirst
from .http_link import HttpLink
from .request import SpeechParams, SpeechResponse, clone_form, grpc_links, is_grpc
from .retry import Retry


class Stream:
    """An iterator of samples: little-endian int16 bytes, mono, whole samples each.

    `rate` (Hz) and `seed` are known from the first piece on. One that is forgotten is closed.
    """

    def __init__(self, response: SpeechResponse, pieces: Iterator[bytes]):
        self._response, self._pieces = response, pieces
        self._end = weakref.finalize(self, _close, pieces)

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> bytes:
        return next(self._pieces)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """The studio stops making the rest."""
        self._pieces.close()
        self._end.detach()

    @property
    def rate(self) -> int:
        """Samples a second."""
        return self._response.rate

    @property
    def seed(self) -> int | None:
        """The seed that was used; None where the studio has not said it."""
        return self._response.seed


class TTS:
    """A studio at `base_url`: http://, https://, or grpc:// and grpcs:// with HOST:PORT.

    Keeps connections open between calls; `close` it, or use it in a `with`; one that is forgotten
    closes them too. May be used from several threads.

    base_url: several addresses: whichever is asked and fails before the first sound leaves the
      request to another one. choose: among them "random", or "least_busy" by this client's own
      requests. language: of error sentences, "en" or "zh". timeout_s: how long the studio may be
      silent; by itself it grows with the text. Over gRPC the connection's own beats say that.
    """

    def __init__(
        self,
        base_url: str | Sequence[str] = "http://127.0.0.1:7860",
        api_key: str | None = None,
        *,
        retry: Retry | None = None,
        timeout_s: float | None = None,
        language: str = "en",
        transport: httpx.BaseTransport | None = None,
        choose: Choice = "random",
    ):
        links = [
            grpc_links().GrpcLink(url, api_key, language)
            if is_grpc(url)
            else HttpLink(url, api_key, language, timeout_s, transport)
            for url in ([base_url] if isinstance(base_url, str) else base_url)
        ]
        self._endpoints, self._retry = Endpoints(links, choose), retry or Retry()
        self._end = weakref.finalize(self, _close, *links)

    def synthesize(
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
        for _ in self._stream_pcm(response, len(text), on_first_audio):
            pass
        return response.sound()

    def stream(
        self, text: str, voice: str, *, on_first_audio: OnFirst | None = None, **how
    ) -> Stream:
        """Samples while they are made. on_first_audio: as of `synthesize`.

        A connection that breaks is taken up again where it was; no sample comes twice.
        """
        response = SpeechResponse(SpeechParams(text, voice, **how), is_paced=True, is_whole=False)
        return Stream(response, self._stream_pcm(response, len(text), on_first_audio))

    def _stream_pcm(
        self, response: SpeechResponse, n_chars: int, on_first: OnFirst | None
    ) -> Iterator[bytes]:
        first, place = FirstAudio(on_first), None
        for attempt in self._retry.sync(has_another=lambda: self._may_leave(response)):
            with (
                attempt,
                self._endpoints.lease(place if response.is_begun else None) as place,
                place.link.speech(response, n_chars) as pieces,
            ):
                for data in pieces:
                    if pcm := response.feed(data):
                        first(pcm)
                        yield pcm
                response.end()

    def _may_leave(self, response: SpeechResponse) -> bool:
        return not response.is_begun and self._endpoints.has_another()

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
        return self._retry.sync(is_unheard, self._endpoints.has_another)(self._clone, form)

    def voices(self) -> list[dict]:
        """Every voice that this key may use: `id`, `name`, `language` and more of each."""
        return self._retry.sync(has_another=self._endpoints.has_another)(self._voices)

    def _clone(self, form: dict) -> dict:
        with self._endpoints.lease() as endpoint:
            return endpoint.link.clone(form)

    def _voices(self) -> list[dict]:
        with self._endpoints.lease() as endpoint:
            return endpoint.link.voices()

    def close(self) -> None:
        """Close the connections."""
        self._end()

    def __enter__(self) -> TTS:
        return self

    def __exit__(self, *_) -> None:
        self.close()


def _close(*resources) -> None:
    for resource in resources:
        with suppress(ValueError):  # of the program's end: it is read in another thread just now
            resource.close()
