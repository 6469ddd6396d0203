"""What is asked of the studio, and the hearing of one answer over as many connections as it takes.

Knows the routes, not how bytes travel.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

import httpx

from .. import __version__
from ..errors import BadInput
from .audio import Sound, WavReader
from .errors import MAX_ERROR_BYTES, Broken, Changed, fault_of

SPEECH, BATCH, JOBS, VOICES = "v1/audio/speech", "v2/synthesize/batch", "v2/jobs", "v1/audio/voices"


@dataclass(frozen=True)
class SpeechParams:
    """One utterance. seed: -1 = the studio draws one.

    Fields left as they are mean what the studio's own page means by them.
    """

    text: str
    voice: str
    instructions: str = ""
    mode: str = "auto"
    language: str = "auto"
    speed: float = 1.0
    seed: int = -1
    model: str = "auto"

    def __post_init__(self):
        words = f"{self.text}{self.voice}{self.instructions}{self.mode}{self.language}{self.model}"
        if not words.isascii() and any(0xD800 <= ord(c) <= 0xDFFF for c in words):
            raise BadInput("bad_text.client", param="input")
        if not math.isfinite(self.speed):
            raise BadInput("bad_speed", param="speed")

    def body(self) -> dict:
        """The JSON body of `POST /v1/audio/speech`."""
        fields = dict(vars(self))
        return {"input": fields.pop("text"), **fields}


def is_grpc(url: str) -> bool:
    """And not HTTP."""
    return url.lower().startswith(("grpc://", "grpcs://"))


def grpc_links() -> ModuleType:
    """Loaded when it is asked for. Raises BadInput where its packages are missing."""
    try:
        return import_module(f"{__package__}.grpc_link")
    except Exception as error:  # not there, or of a version that does not fit what was generated
        raise BadInput("bad_url.no_grpc", error=error, param="base_url") from error


def headers(api_key: str | None, language: str) -> dict[str, str]:
    """`identity`: a sound is not worth unpacking, and nothing unpacks to more than came."""
    request_headers = {
        "User-Agent": f"kaikou-client/{__version__}",
        "Accept-Encoding": "identity",
        "Accept-Language": language,
    }
    return request_headers | ({"Authorization": f"Bearer {api_key}"} if api_key else {})


def timeout(n_chars: int, given_s: float | None) -> httpx.Timeout:
    """How long a silence may last.

    An answer that comes in one piece is silent while it is made, so it grows with the text.
    """
    return httpx.Timeout(connect=10.0, write=60.0, pool=None, read=given_s or 60.0 + 0.5 * n_chars)


def is_framed(answer: httpx.Response) -> bool:
    """The connection itself will say where this answer ends; one that ends by closing proves
    nothing.
    """
    answer_headers = answer.headers
    return (
        "content-length" in answer_headers
        or "chunked" in answer_headers.get("transfer-encoding", "").lower()
        or answer.http_version == "HTTP/2"
    )


def check(answer: httpx.Response) -> None:
    """Raises the named error of an answer whose status is not 2xx, without reading its body."""
    if answer.has_redirect_location:
        raise BadInput("bad_url.redirect", status=answer.status_code)
    if answer.headers.get("content-encoding", "identity") != "identity":
        raise Broken("broken.compressed")


class SpeechResponse:
    """One utterance.

    When a connection breaks after samples were handed on, the same is asked for again with the seed
    that was told, and what was heard already is compared and left out: every sample is given once.
    Where nobody listens yet (is_whole), it begins anew instead.
    """

    def __init__(self, ask: SpeechParams, is_paced: bool, is_whole: bool):
        self._ask, self._is_paced, self._is_whole = ask, is_paced, is_whole
        self._n_bytes, self._so_far, self._parts = 0, hashlib.sha256(), []
        self._headers: dict[str, str] = {}
        self._reader, self._skip, self._again, self._is_framed = (
            WavReader(),
            0,
            hashlib.sha256(),
            False,
        )

    def body(self) -> dict:
        """is_paced: samples as they are made, ten seconds ahead at most; else the whole at once, as
        fast as it can be made.
        """
        body = self._ask.body() | {"response_format": "wav", "stream": self._is_paced}
        return body | (
            {"seed": int(self._headers["x-seed"])}
            if self._n_bytes and "x-seed" in self._headers
            else {}
        )

    def begin(self, headers: Mapping[str, str], is_framed: bool) -> None:
        """headers: of the answer, in small letters. is_framed: as of the function of that name.

        Raises Changed when another engine would go on.
        """
        answer_headers = {k: v for k, v in headers.items() if k.startswith("x-")}
        if self._is_whole:
            self._n_bytes = 0
            self._parts.clear()
        elif self._n_bytes and answer_headers.get("x-engine") != self._headers.get("x-engine"):
            raise Changed()
        self._headers, self._is_framed = answer_headers, is_framed
        self._reader, self._skip, self._again = WavReader(), self._n_bytes, hashlib.sha256()

    def feed(self, data: bytes) -> bytes:
        """New samples. Raises Broken, Changed."""
        pcm = self._reader.feed(data)
        if self._skip and pcm:
            old, pcm = pcm[: self._skip], pcm[self._skip :]
            self._again.update(old)
            self._skip -= len(old)
            if not self._skip and self._again.digest() != self._so_far.digest():
                raise Changed()
        if self._is_whole:
            self._parts.append(pcm)
        else:
            self._so_far.update(pcm)
        self._n_bytes += len(pcm)
        return pcm

    def end(self) -> None:
        """Check that the sound is whole. Raises Broken, or Changed after a resumed request."""
        self._reader.end(self._is_framed)
        if self._skip:
            raise Changed()

    @property
    def is_begun(self) -> bool:
        """Samples were handed on: only the same studio may go on."""
        return bool(self._n_bytes) and not self._is_whole

    @property
    def rate(self) -> int:
        """Hz; 0 before the first sample."""
        return self._reader.rate

    @property
    def seed(self) -> int | None:
        """The seed that was used; None where the studio has not said it."""
        seed_header = self._headers.get("x-seed", "")
        return int(seed_header) if seed_header.isdigit() else None

    def sound(self) -> Sound:
        """All that came, with what the studio says of it."""
        answer_headers = self._headers
        return Sound(
            b"".join(self._parts),
            self.rate,
            self._reader.head,
            self.seed,
            answer_headers.get("x-voice", ""),
            answer_headers.get("x-engine", ""),
            answer_headers.get("x-job-id", ""),
        )


def clone_form(
    path: str | Path,
    name: str,
    transcript: str,
    language: str,
    denoise: bool,
    consent: str,
    start_s: float | None,
    end_s: float | None,
) -> dict:
    """Keywords for a POST. start_s, end_s: None = not told.

    Raises BadInput when the file cannot be read.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadInput(
            "no_file.path", path=path, reason=error.strerror or error, param="path"
        ) from error
    fields = {
        "name": name,
        "transcript": transcript,
        "language": language,
        "denoise": str(bool(denoise)).lower(),
        "consent": consent,
        "start_s": "" if start_s is None else str(start_s),
        "end_s": "" if end_s is None else str(end_s),
    }
    return {
        "files": {"audio_sample": (path.name, data)},
        "data": {k: v for k, v in fields.items() if v},
    }


def as_json(answer: httpx.Response) -> dict:
    """Of an answer that was read. Raises Broken."""
    try:
        return dict(answer.json())
    except (ValueError, TypeError):
        raise Broken("not_json") from None


def read_error(answer: httpx.Response) -> None:
    """Raises what an answer that is not 2xx stands for. Blocking twin of `aread_error`."""
    check(answer)
    if not answer.is_success:
        body = b""
        for piece in answer.iter_raw():
            body += piece
            if len(body) > MAX_ERROR_BYTES:
                break
        raise fault_of(answer.status_code, answer.headers, body)


async def aread_error(answer: httpx.Response) -> None:
    """As `read_error`, of an asynchronous answer."""
    check(answer)
    if not answer.is_success:
        body = b""
        async for piece in answer.aiter_raw():
            body += piece
            if len(body) > MAX_ERROR_BYTES:
                break
        raise fault_of(answer.status_code, answer.headers, body)
