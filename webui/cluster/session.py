"""One socket between a studio and a replica, on the replica's side: a stream, or one call."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

from anyio import to_thread
from fastapi import WebSocket
from starlette.websockets import WebSocketDisconnect

from ..engine.remote.protocol import prompt_of
from ..errors import BadInput, Busy, EngineFault, KaikouError, error_from_dict
from ..studio.scheduler import Scheduler
from ..types import Prompt
from .job import RemoteJob
from .messages import BEAT_S, BUSY_RETRY_S, SILENT_S, Damaged, pack, unpack
from .prompts import PromptCache

log = logging.getLogger(__name__)
GONE = (RuntimeError, OSError, WebSocketDisconnect)  # what sending raises on a socket that closed


class Session:
    """hello: the first message. call(words, body, prompt): answers what is no stream; blocking.

    max_streams: open on the replica, beyond which a new stream is refused.
    """

    def __init__(
        self,
        socket: WebSocket,
        scheduler: Scheduler,
        prompts: PromptCache,
        hello: dict,
        call: Callable[[dict, bytes, Prompt | None], tuple[dict, bytes]],
        max_streams: int,
    ):
        self._socket, self._scheduler, self._prompts = socket, scheduler, prompts
        self._hello, self._call, self._max_streams = hello, call, max_streams
        self._loop = asyncio.get_running_loop()
        self._outgoing: asyncio.Queue[bytes] = asyncio.Queue()  # bounded by the reader's credit
        self._sender: asyncio.Task | None = None
        self._job: RemoteJob | None = None

    async def run(self) -> None:
        await self._socket.accept()
        self._sender = asyncio.create_task(self._send_all())
        try:
            self._post(self._hello)
            words, body = await self._receive()
            if words["op"] == "call":
                await self._answer(words, body)
            elif words["op"] == "open":
                await self._stream(words, body)
            await self._flush()
        except (WebSocketDisconnect, TimeoutError):
            pass
        except (Damaged, KeyError, TypeError, ValueError) as fault:
            log.warning("what a studio sent has no sense: %r", fault)
            self._post({"op": "error", "error": Damaged().to_dict()})
            await self._flush()
        finally:
            if self._job is not None:
                self._job.leave()
                self._scheduler.poke()
            self._sender.cancel()
            with contextlib.suppress(*GONE):
                await self._socket.close()

    async def _receive(self) -> tuple[dict, bytes]:
        """Raises WebSocketDisconnect, and TimeoutError when the studio is silent."""
        data = await asyncio.wait_for(self._socket.receive_bytes(), SILENT_S)
        return unpack(data)

    def _post(self, words: dict, body=b"") -> None:
        """From any thread."""
        message = pack(words, body)
        self._loop.call_soon_threadsafe(self._outgoing.put_nowait, message)

    async def _send_all(self) -> None:
        beat = pack({"op": "beat"})
        with contextlib.suppress(*GONE):
            while True:
                try:
                    message = await asyncio.wait_for(self._outgoing.get(), BEAT_S)
                except TimeoutError:
                    await self._socket.send_bytes(beat)
                    continue
                await self._socket.send_bytes(message)
                self._outgoing.task_done()

    async def _flush(self) -> None:
        """Until all that was posted before has been sent."""
        await asyncio.sleep(0)  # what was posted from other threads reaches the queue
        joined = asyncio.ensure_future(self._outgoing.join())
        await asyncio.wait((joined, self._sender), return_when=asyncio.FIRST_COMPLETED)
        joined.cancel()

    async def _prompt(self, key: str) -> Prompt:
        """From the cache, from where prompts are shared, or from the studio that asked."""
        prompt = self._prompts.get(key)
        if prompt is None and self._prompts.is_shared:
            prompt = await to_thread.run_sync(self._prompts.find_shared, key)
        while prompt is None:
            self._post({"op": "prompt_wanted"})
            words, body = await self._receive()
            if words["op"] == "prompt":
                prompt = prompt_of(words["prompt"], body)
                if self._prompts.put(prompt) != key:
                    raise Damaged
        return prompt

    async def _answer(self, words: dict, body: bytes) -> None:
        prompt = await self._prompt(words["key"]) if "key" in words else None
        work = asyncio.ensure_future(
            to_thread.run_sync(self._call, words, body, prompt, abandon_on_cancel=True)
        )
        try:
            async for _ in self._until(work):
                pass
            answer, data = work.result()
            self._post({"op": "answer", **answer}, data)
        except KaikouError as error:
            self._post({"op": "error", "error": error.to_dict()})
        except (WebSocketDisconnect, TimeoutError, Damaged):
            work.cancel()
            raise
        except Exception:
            log.exception("a call failed in the engine")
            self._post({"op": "error", "error": EngineFault().to_dict()})

    async def _stream(self, words: dict, body: bytes) -> None:
        """Until its last chunk is sent or the studio leaves."""
        prompt, over = await self._prompt(words["key"]), asyncio.Event()
        try:
            # a listener in the middle of a take whose replica died is never turned away
            if not words.get("is_replay") and self._scheduler.n_open >= self._max_streams:
                raise Busy("busy.fleet", retry_after_s=BUSY_RETRY_S)
            self._job = job = RemoteJob(
                words, body, self._scheduler.engine.describe().sample_rate, self._post
            )
        except (BadInput, Busy) as error:
            return self._post({"op": "error", "error": error.to_dict()})
        self._scheduler.add(job, prompt, lambda _: self._loop.call_soon_threadsafe(over.set))
        async for words, _ in self._until(asyncio.ensure_future(over.wait())):
            self._take(job, words)

    async def _until(self, end: asyncio.Future) -> AsyncIterator[tuple[dict, bytes]]:
        """What the studio says until `end` is done."""
        while not end.done():
            message = asyncio.ensure_future(self._receive())
            # where both are done at once, nobody asks what became of this one
            message.add_done_callback(lambda task: task.cancelled() or task.exception())
            try:
                await asyncio.wait((end, message), return_when=asyncio.FIRST_COMPLETED)
                if not message.done():
                    return
                yield message.result()
            finally:
                message.cancel()

    def _take(self, job: RemoteJob, words: dict) -> None:
        op = words["op"]
        if op == "next":
            job.grant(int(words["credit"]), words.get("slack_ms"))
            self._scheduler.poke()
        elif op == "piece" and job.text_source is not None:
            error = words.get("error")
            job.text_source.put(error_from_dict(error) if error else words["text"])
        elif op == "close":
            raise WebSocketDisconnect
        elif op != "beat":
            raise Damaged
