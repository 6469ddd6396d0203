"""Samples to file bytes for a reader, off the event loop.

The codec of a request lives exactly as long as its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor

from starlette.responses import StreamingResponse

from ..studio import Encoder, SpeechJob, Studio

PIECE_BYTES = (
    1 << 16
)  # of a long sound at a time: streams that are heard now get their turn in between


class EncoderPool:
    """The coding thread: one, because there is one process behind it, and because what a request
    asks of it stays in order even when it is given up.
    """

    def __init__(self, studio: Studio):
        self._studio, self._thread = studio, ThreadPoolExecutor(1, thread_name_prefix="coder")

    async def open(self, job: SpeechJob, kind: str, is_whole: bool = False) -> Encoder:
        """Raises KaikouError. If the caller is cancelled meanwhile, what still comes is closed."""
        encoder_future = self._thread.submit(self._studio.coder, job, kind, is_whole)
        try:
            return await asyncio.shield(asyncio.wrap_future(encoder_future))
        except asyncio.CancelledError:
            encoder_future.add_done_callback(
                lambda done: done.cancelled() or done.exception() or self.close(done.result())
            )
            raise

    async def pack(self, coder: Encoder, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """What is ready of each piece, then the rest."""
        loop = asyncio.get_running_loop()
        async for piece in pieces:
            if ready := await loop.run_in_executor(self._thread, coder.push, piece):
                yield ready
        if rest := await loop.run_in_executor(self._thread, coder.finish):
            yield rest

    def close(self, coder: Encoder) -> None:
        """After what it is doing now. Returns at once, idempotent."""
        self._thread.submit(coder.close)

    async def whole(self, job: SpeechJob, kind: str, pcm: bytes) -> bytes:
        """A file that knows its own length."""

        async def pieces() -> AsyncIterator[bytes]:
            for at in range(0, len(pcm), PIECE_BYTES):
                yield pcm[at : at + PIECE_BYTES]

        coder = await self.open(job, kind, is_whole=True)
        try:
            return b"".join([ready async for ready in self.pack(coder, pieces())])
        finally:
            self.close(coder)


class Held(StreamingResponse):
    """A streamed answer that lets go of what it holds however it ends, even when it was never
    begun.
    """

    def __init__(
        self,
        content: AsyncIterator[bytes],
        headers: dict,
        media_type: str,
        release: Callable[[], None],
    ):
        super().__init__(content, 200, headers, media_type)
        self._release = release

    async def __call__(self, scope, receive, send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._release()
