"""One studio over gRPC, for the blocking client and for asyncio. Needs grpcio and protobuf."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import chain
from urllib.parse import urlsplit

import grpc
from google.protobuf.json_format import MessageToDict

from ..errors import Busy, KaikouError, LoginNeeded, TooLarge, error_from_dict
from ..messages import Message
from ..proto import kaikou_pb2 as pb
from ..proto.kaikou_pb2_grpc import SpeechStub, VoicesStub
from .errors import Broken, Unreachable
from .request import SpeechResponse

HEAD = "wav-head-bin"  # metadata: what a WAV of the sound begins with
OPTIONS = (
    ("grpc.max_receive_message_length", -1),  # a whole utterance is one message
    # the window does not grow with what comes quickly, so that a slow reader slows the studio down
    ("grpc.http2.bdp_probe", 0),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)
REQUEST = frozenset(pb.Request.DESCRIPTOR.fields_by_name)


def _metadata(api_key: str | None, language: str) -> tuple[tuple[str, str], ...]:
    metadata = (("accept-language", language),)
    return (*metadata, ("authorization", f"Bearer {api_key}")) if api_key else metadata


def _channel(module, url: str):
    """module: grpc or grpc.aio. TLS trusts what gRPC trusts: GRPC_DEFAULT_SSL_ROOTS_FILE_PATH."""
    parts = urlsplit(url)
    if parts.scheme == "grpcs":
        return module.secure_channel(parts.netloc, grpc.ssl_channel_credentials(), OPTIONS)
    return module.insecure_channel(parts.netloc, OPTIONS)


def error_of(failure: grpc.RpcError) -> KaikouError:
    """The studio's own error, or what stands for a failure between it and here."""
    trailers, details = dict(failure.trailing_metadata() or ()), failure.details() or ""
    with suppress(KeyError, ValueError, AttributeError):
        return error_from_dict(json.loads(trailers["kaikou-error-bin"]))
    match failure.code():
        case grpc.StatusCode.UNAVAILABLE if details.startswith("failed to connect"):
            return Unreachable("unreachable")
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return Unreachable("timeout")
        case grpc.StatusCode.RESOURCE_EXHAUSTED if "larger than max" in details:
            return TooLarge(Message(details, details))
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return Busy(Message(details, details))
        case grpc.StatusCode.UNAUTHENTICATED:
            return LoginNeeded(Message(details, details))
    return Broken()


@contextmanager
def as_rpc_error() -> Iterator[None]:
    """What gRPC raises, as our errors."""
    try:
        yield
    except grpc.RpcError as failure:
        raise error_of(failure) from failure


def _request(response: SpeechResponse) -> tuple[pb.Request, bool]:
    """And whether it is spoken as for a listener."""
    body = response.body()
    return pb.Request(**{k: v for k, v in body.items() if k in REQUEST}), body["stream"]


def _begin(response: SpeechResponse, metadata) -> list[bytes]:
    """Raises Broken where nothing is said of a sound."""
    headers = dict(metadata)
    if HEAD not in headers:
        raise Broken()
    response.begin(headers, True)
    return [headers[HEAD]]


def _voice(voice: pb.Voice) -> dict:
    """As JSON has it over HTTP."""
    fields = {field.name: getattr(voice, field.name) for field in voice.DESCRIPTOR.fields}
    return {**fields, "engines": list(voice.engines), "object": "audio.voice"}


def _create(form: dict) -> pb.CreateVoice:
    ((_, recording),) = form["files"].values()
    data = form["data"]
    window = {k: float(data[k]) for k in ("start_s", "end_s") if k in data}
    words = {k: data[k] for k in ("name", "transcript", "language", "consent") if k in data}
    denoise = data.get("denoise") == "true"
    return pb.CreateVoice(recording=recording, denoise=denoise, **window, **words)


def _created(answer: pb.VoiceCreated) -> dict:
    return {
        **_voice(answer.voice),
        "report": MessageToDict(answer.report),
        "used": {"start_s": answer.start_s, "end_s": answer.end_s},
        "notes": [{"message": n.message, "message_zh": n.message_zh} for n in answer.notes],
    }


class GrpcLink:
    """As HttpLink."""

    def __init__(self, url: str, api_key: str | None, language: str):
        channel = _channel(grpc, url)
        self._speech, self._voices = SpeechStub(channel), VoicesStub(channel)
        self._metadata, self.close = _metadata(api_key, language), channel.close

    @contextmanager
    def speech(self, response: SpeechResponse, n_chars: int) -> Iterator[Iterator[bytes]]:
        """As HttpLink.speech."""
        request, is_live = _request(response)
        with as_rpc_error():
            if not is_live:
                answer, call = self._speech.Speak.with_call(request, metadata=self._metadata)
                yield chain(_begin(response, call.initial_metadata()), [answer.pcm])
                return
            call = self._speech.Stream(request, metadata=self._metadata)
            try:
                first = next(call, None)  # raises what was refused
                head = _begin(response, call.initial_metadata())
                sounds = chain([first] if first is not None else [], call)
                yield chain(head, (sound.pcm for sound in sounds))
            finally:
                call.cancel()

    def voices(self) -> list[dict]:
        """As HttpLink.voices."""
        with as_rpc_error():
            answer = self._voices.List(pb.ListVoices(), metadata=self._metadata)
        return [_voice(voice) for voice in answer.voices]

    def clone(self, form: dict) -> dict:
        """As HttpLink.clone."""
        with as_rpc_error():
            return _created(self._voices.Create(_create(form), metadata=self._metadata))


class AsyncGrpcLink:
    """As AsyncHttpLink. Its channel is opened by the first call, on the loop of that."""

    def __init__(self, url: str, api_key: str | None, language: str):
        self._url, self._metadata, self._channel = url, _metadata(api_key, language), None

    def _open(self):
        if self._channel is None:
            self._channel = _channel(grpc.aio, self._url)
        return self._channel

    @asynccontextmanager
    async def speech(
        self, response: SpeechResponse, n_chars: int
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """As HttpLink.speech."""
        request, is_live = _request(response)
        stub = SpeechStub(self._open())
        call = (stub.Stream if is_live else stub.Speak)(request, metadata=self._metadata)

        async def pieces(first) -> AsyncIterator[bytes]:
            yield _begin(response, await call.initial_metadata())[0]
            sound = first
            while sound is not grpc.aio.EOF:
                yield sound.pcm
                sound = await call.read() if is_live else grpc.aio.EOF

        with as_rpc_error():
            try:
                yield pieces(await call.read() if is_live else await call)
            finally:
                call.cancel()

    async def voices(self) -> list[dict]:
        """As HttpLink.voices."""
        with as_rpc_error():
            stub = VoicesStub(self._open())
            answer = await stub.List(pb.ListVoices(), metadata=self._metadata)
        return [_voice(voice) for voice in answer.voices]

    async def clone(self, form: dict) -> dict:
        """As HttpLink.clone."""
        with as_rpc_error():
            stub = VoicesStub(self._open())
            return _created(await stub.Create(_create(form), metadata=self._metadata))

    async def close(self) -> None:
        """Ends what is under way."""
        if self._channel is not None:
            await self._channel.close()
