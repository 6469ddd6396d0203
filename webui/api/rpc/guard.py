"""The one interceptor: every RPC, of whatever service, passes the door that HTTP passes.

Nothing of a message is read before its sender was let in.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from inspect import isasyncgenfunction

import grpc
from google.protobuf.message import DecodeError

from ...errors import BadInput, Cancelled, KaikouError, NotAllowed, TooSlow
from ...logs import REQUEST_ID, request_id
from ...settings import Limits
from ...studio import Studio
from .. import permissions
from ..door import BLANK_SCOPE, Door, owner_of
from .call import Call, language_of
from .status import Unimplemented, status_of, trailers

log = logging.getLogger(__name__)
SPEECH, VOICES = "/kaikou.v1.Speech/", "/kaikou.v1.Voices/"
HEALTH, REFLECTION = "/grpc.health.v1.Health/", "/grpc.reflection.v1alpha.ServerReflection/"
# What a key needs, one of them is enough; what is not named asks for admin. None: open to everyone.
NEEDS: dict[str, frozenset[str] | None] = {
    **{SPEECH + name: frozenset({"speak"}) for name in ("Speak", "Stream", "Talk")},
    VOICES + "List": permissions.ANY,  # whoever speaks must know the ids
    **{VOICES + name: frozenset({"voices"}) for name in ("Get", "Delete", "Create")},
    HEALTH + "Check": None,  # probes have no key; the answer is serving or not
    HEALTH + "List": permissions.ANY,
    REFLECTION + "ServerReflectionInfo": permissions.ANY,
}
LASTING = (SPEECH + "Talk", REFLECTION + "ServerReflectionInfo")  # counted as WebSockets are
AREAS = {SPEECH: "speech", VOICES: "voices"}
BYTES_PER_S = 128_000  # of a message: how much of it has come, only gRPC knows
GIVE_UP_S = 5.0  # until a refusal is sent to somebody who takes nothing


class Guard(grpc.aio.ServerInterceptor):
    def __init__(self, studio: Studio, door: Door, limits: Limits):
        self._studio, self._door, self._limits = studio, door, limits

    async def intercept_service(self, continuation, details):
        """Every kind of RPC is taken as a stream of bytes both ways, so that it begins before its
        first message; what is unknown is told so only to those who may ask.
        """
        handler, method = await continuation(details), details.method
        metadata = dict(details.invocation_metadata)

        async def serve(messages, context) -> None:
            await self._serve(handler, method, metadata, messages, context)

        return grpc.stream_stream_rpc_method_handler(
            serve, None, handler.response_serializer if handler is not None else None
        )

    async def _serve(self, handler, method: str, metadata, messages, context) -> None:
        scope, began_s, error = (
            {**BLANK_SCOPE, "client": _client(context.peer())},
            time.perf_counter(),
            None,
        )
        request, call = request_id(str(metadata.get("x-request-id", ""))), None
        REQUEST_ID.set(request)
        try:
            await self._let_in(scope, method, metadata)
            with self._door.holder(scope) as holder:
                holder.listen(asyncio.current_task().cancel)
                call = Call(context, scope["kk_owner"], holder, metadata, self._limits.unread_s)
                try:
                    await self._run(handler, method, scope, messages, call)
                except asyncio.CancelledError:
                    if holder.error is None:
                        raise
                    asyncio.current_task().uncancel()
                    raise holder.error from None
        except asyncio.CancelledError:
            error = Cancelled()
            raise
        except KaikouError as failure:
            error = failure
        except Exception:
            log.exception("unexpected failure at %s", method)
            error = KaikouError("fault.unexpected")
        finally:
            self._write_down(request, scope, method, error, time.perf_counter() - began_s)
        if error is not None:
            if call is not None:
                await call.settle(GIVE_UP_S)
            async with asyncio.timeout(GIVE_UP_S):
                await context.abort(
                    status_of(error), error.sentence(language_of(metadata)), trailers(error)
                )

    async def _let_in(self, scope, method: str, metadata) -> None:
        """Raises every refusal that depends on who asks."""
        try:
            if "origin" in metadata:  # a browser's page; no program of gRPC says where it is from
                raise NotAllowed("bad_origin")
            caller = await asyncio.get_running_loop().run_in_executor(
                self._door.threads,
                self._door.identify,
                scope,
                {},
                str(metadata.get("authorization", "")),
                NEEDS.get(method, frozenset()),
            )
        except KaikouError as error:
            self._studio.metrics.count_turned_away(error)
            raise
        scope["kk_owner"] = owner_of(caller)

    async def _run(self, handler, method: str, scope, messages, call: Call) -> None:
        if handler is None:
            raise Unimplemented()
        if method in LASTING:
            with self._door.sockets.one_more(scope):
                return await self._answer(handler, messages, call)
        await self._answer(handler, messages, call)

    async def _answer(self, handler, messages, call: Call) -> None:
        incoming = _decoded(messages, handler.request_deserializer)
        if handler.request_streaming:
            serve = handler.stream_stream
        else:
            serve = handler.unary_stream if handler.response_streaming else handler.unary_unary
            incoming = await self._only(incoming)
        if isasyncgenfunction(serve):
            async with aclosing(serve(incoming, call)) as answers:
                async for answer in answers:
                    await call.write(answer)
        elif handler.response_streaming:
            await serve(incoming, call)
        else:
            await call.write(await serve(incoming, call))

    async def _only(self, messages: AsyncIterator):
        """The one message of a caller who sends no stream."""
        try:
            limits = self._limits
            async with asyncio.timeout(limits.body_s + (limits.max_body_mb << 20) / BYTES_PER_S):
                return await anext(messages)
        except TimeoutError:
            raise TooSlow() from None
        except StopAsyncIteration:
            raise BadInput("bad_body") from None

    def _write_down(self, request: str, scope, method: str, error, seconds: float) -> None:
        status = 200 if error is None else error.status
        area = AREAS.get(method[: method.rfind("/") + 1], "other")
        self._studio.metrics.count_answer(area, status)
        if method == HEALTH + "Check":  # asked too often to be worth a line
            return
        key = scope["kk_key"]
        log.info(
            "request=%s RPC %s status=%d ms=%.1f by=%s",
            request,
            method if method in NEEDS else "(other)",
            status,
            1000 * seconds,
            key.id if key else "-",
        )


async def _decoded(messages, decode) -> AsyncIterator:
    """Raises BadInput for what is no message of this kind, such as text that is not UTF-8."""
    async for data in messages:
        try:
            yield decode(data)
        except DecodeError:
            raise BadInput("bad_body") from None


def _client(peer: str) -> tuple[str, int]:
    """ "ipv4:127.0.0.1:5000", "ipv6:%5B::1%5D:5000" as ASGI has it."""
    host, _, port = peer.partition(":")[2].rpartition(":")
    host = host.removeprefix("%5B").removesuffix("%5D").strip("[]")
    return host, int(port) if port.isdigit() else 0
