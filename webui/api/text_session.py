"""One request whose text is still being written: what has come of it, what is spoken of it, how
much of that was sent. Blind to what came before or after, and to how it travels.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.concurrency import run_in_threadpool

from ..errors import BadInput
from ..studio import SpeechJob, Studio, TextSource, job_reader, open_job
from .alignment import brief
from .audio_field import with_param
from .recent_jobs import RecentJobs
from .socket_auth import SocketAuth

LEAD_S = 5.0  # a listener that gives no credit is served at most this far ahead of the wall clock
MIN_PIECE_S = 0.1  # and then in pieces no shorter, or the clock's every step would be a frame
INLINE_CHARS = 200  # a longer delta is normalised off the event loop


class TextSession:
    """params: what is asked for, but the text. text_source: the text, as far as it has come.

    credit: samples that may be sent so far; None: as they are played. piece_s: as of Pacing.
    idle_s: how long a listener may give no credit.
    """

    def __init__(
        self,
        studio: Studio,
        recent_jobs: RecentJobs,
        owner: str,
        holder: SocketAuth,
        params: dict[str, Any],
        text_source: TextSource,
        credit: int | None,
        piece_s: tuple[float, ...],
        idle_s: float,
    ):
        self.text_source = text_source
        self.pacing = job_reader.Pacing(
            credit, LEAD_S, MIN_PIECE_S, piece_s, idle_s, error=holder.error
        )
        self._studio, self._recent, self._owner = studio, recent_jobs, owner
        self._holder, self._params = holder, params
        self._has_words = asyncio.Event()
        self._reader: job_reader.JobReader | None = None

    # ---- the writer's side -----------------------------------------------------------------------
    async def write(self, delta: str) -> None:
        """Raises BadInput."""
        if self.text_source.is_over:
            raise BadInput("text_over", param="type")
        if len(delta) > INLINE_CHARS:
            await run_in_threadpool(self.text_source.push, delta)
        else:
            self.text_source.push(delta)
        self._look()

    async def flush(self) -> None:
        await run_in_threadpool(self.text_source.flush)
        self._look()

    async def end(self) -> None:
        await run_in_threadpool(self.text_source.end)
        self._look()

    def _look(self) -> None:
        """The text may have begun, or ended without having begun."""
        if self.text_source.first or self.text_source.is_over:
            self._has_words.set()

    def poke(self) -> None:
        """The right to be here may have ended."""
        self.pacing.error = self._holder.error
        self._has_words.set()
        if self._reader is not None:
            self._reader.poke()

    def raise_credit(self, upto: int) -> None:
        self.pacing.raise_credit(upto)
        if self._reader is not None:
            self._reader.poke()

    @property
    def is_their_turn(self) -> bool:
        """Nothing happens until the writer writes, or the listener gives credit."""
        return not self.text_source.is_over or self.pacing.is_held_back

    # ---- the speaker's side ----------------------------------------------------------------------
    @asynccontextmanager
    async def reader(self) -> AsyncIterator[job_reader.JobReader]:
        """What is spoken, from the first words on. Raises what the studio refuses."""
        await self._has_words.wait()
        self.pacing.check()
        job = await self._open()
        try:
            async with job_reader.JobReader(self._studio, job, self.pacing) as self._reader:
                self._recent.keep(job)
                yield self._reader
        finally:
            self._reader = None

    async def _open(self) -> SpeechJob:
        text_source, studio = self.text_source, self._studio
        if not text_source.first:
            raise BadInput("no_text", param="delta")
        with with_param("ref_audio"):
            return await open_job(
                studio,
                lambda: studio.synthesis.open(
                    self._owner, text_in=text_source.first, text_source=text_source, **self._params
                ),
            )

    async def segments(self, job: SpeechJob) -> list[dict[str, Any]]:
        """Which part of the text sounded when, of a job that is over."""
        return await run_in_threadpool(brief, self._studio, job)
