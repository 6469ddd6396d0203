"""Many lines, many at once: results in the order of the input, bounded in everything, and a folder
that a killed run is continued in.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sized
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import httpx

from .audio import Sound
from .batch_input import Known, Line, lines_of, with_seed
from .batch_worker import BatchRunner, Item, Result
from .concurrency import Concurrency
from .http_link import pool
from .ordered_gather import ordered
from .output_folder import OutputFolder
from .request import SpeechParams
from .retry import Bucket, Retry

AHEAD = 3  # lines for each request in flight: how far the others may run ahead of a slow one


@dataclass(frozen=True)
class Progress:
    """kept: of `done`, what an earlier run had made. seconds: of sound. total: None when the input
    does not tell.
    """

    done: int = 0
    failed: int = 0
    kept: int = 0
    seconds: float = 0.0
    total: int | None = None


class AsyncBatchClient:
    """in_flight: requests at once at most, over as many connections that stay open; a studio that
    refuses some is asked for half as many at once, then for more again. batch: lines in one
    request; above 1 they go through
    /v2/synthesize/batch, behind everybody who listens and bound by no rate of starts; 1 asks for
    each as a listener does. per_second, burst: a token bucket that every try takes from. seed:
    lines without one of their own get theirs from it and from what they say, so that another try,
    or another run, makes the same.

    Memory: what is in flight and a few lines more are in hand, however long the input. One event
      loop; several runs at once share the limits.
    """

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:7860",
        api_key: str | None = None,
        *,
        in_flight: int = 4,
        batch: int = 8,
        per_second: float | None = None,
        burst: int = 1,
        seed: int = 0,
        retry: Retry | None = None,
        timeout_s: float | None = None,
        language: str = "en",
        transport: httpx.AsyncBaseTransport | None = None,
    ):
        if in_flight < 1 or batch < 1:
            raise ValueError("in_flight and batch are at least 1")
        self._http = pool(base_url, api_key, language, in_flight, transport)
        self._in_flight, self._batch, self._seed, self._timeout_s = (
            in_flight,
            batch,
            seed,
            timeout_s,
        )
        self._concurrency = Concurrency(in_flight)
        self._retry, self._bucket = retry or Retry(patience_s=900.0), Bucket(per_second, burst)

    async def results(
        self,
        lines: Iterable | AsyncIterable,
        *,
        voice: str = "",
        progress: Callable[[Progress], None] | None = None,
        **how,
    ) -> AsyncIterator[Result]:
        """One Result for each line, in the order of `lines`: strings, mappings with the fields of
        Ask, Asks or Lines. Voice and the other fields of Ask are for lines that leave them out. A
        line that fails is a Result with its error; the others are not touched by it.
        """

        async def hand_on(item: Item, sound: Sound, attempts: int) -> Result:
            return Result(
                item.line, sound, attempts=attempts, seed=sound.seed, seconds=sound.seconds
            )

        async with aclosing(
            self._run(lines, SpeechParams("", voice, **how), hand_on, None, progress)
        ) as run:
            async for result in run:
                yield result

    async def to_folder(
        self,
        lines: Iterable | AsyncIterable,
        folder: str | Path,
        *,
        voice: str = "",
        progress: Callable[[Progress], None] | None = None,
        on_result: Callable[[Result], None] | None = None,
        **how,
    ) -> Progress:
        """WAVs and a manifest.json into `folder`.

        What lies there from an earlier run of the same lines is not made again. on_result: told of
        every line, in order. Raises StorageFull, Unwritable, and NotAllowed while another client
        writes there.
        """
        place, last = OutputFolder(folder), Progress()

        def look(now: Progress) -> None:
            nonlocal last
            last = now
            if progress:
                progress(now)

        try:
            async with aclosing(
                self._run(lines, SpeechParams("", voice, **how), place.keep, place, look)
            ) as run:
                async for result in run:
                    place.list(result)
                    if on_result:
                        on_result(result)
            place.finish()
        finally:
            place.close()
        return last

    async def _run(
        self, lines, usual: SpeechParams, keep, place: OutputFolder | None, progress
    ) -> AsyncIterator[Result]:
        maker, counter, line_keys = (
            BatchRunner(
                self._http,
                self._bucket,
                self._retry,
                self._timeout_s,
                keep,
                concurrency=self._concurrency,
            ),
            _Counter(lines, progress),
            Known(self._seed),
        )

        async def work(items: list[Item]) -> list[Result]:
            """Those with a problem and those that are there already have their Result; the others
            are asked for together.
            """
            results_by_index: dict[int, Result] = {}
            for i, item in enumerate(items):
                if item.line.problem is not None:
                    results_by_index[i] = Result(item.line, error=item.line.problem)
                elif place is not None and (stored_result := await place.find(item)) is not None:
                    results_by_index[i] = stored_result
                if i in results_by_index:
                    counter.add(results_by_index[i])
            todo = [i for i in range(len(items)) if i not in results_by_index]
            for i, result in zip(todo, await maker.make([items[i] for i in todo]) if todo else ()):
                results_by_index[i] = result
                counter.add(result)
            return [results_by_index[i] for i in range(len(items))]

        groups = _groups(lines, usual, line_keys, self._batch)
        in_hand = self._in_flight + max(2, AHEAD * self._in_flight // self._batch)
        async with aclosing(ordered(groups, work, self._in_flight, in_hand)) as answers:
            async for _, results in answers:
                for result in results:
                    yield result

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncBatchClient:
        return self

    async def __aexit__(self, *_) -> None:
        await self.close()


class _Counter:
    def __init__(self, lines, tell: Callable[[Progress], None] | None):
        self._total, self._tell = len(lines) if isinstance(lines, Sized) else None, tell
        self._done = self._failed = self._n_kept = 0
        self._seconds = 0.0

    def add(self, result: Result) -> None:
        self._failed += result.error is not None
        self._done += result.error is None
        self._n_kept += result.is_kept
        self._seconds += result.seconds
        if self._tell:
            self._tell(Progress(self._done, self._failed, self._n_kept, self._seconds, self._total))


async def _groups(
    lines, usual: SpeechParams, line_keys: Known, size: int
) -> AsyncIterator[list[Item]]:
    """Of `size` lines of one model each; the last may be smaller."""
    group: list[Item] = []
    async for line in _lines(lines, usual):
        key = line_keys.key(line.ask)
        if group and (len(group) == size or line.ask.model != group[0].ask.model):
            yield group
            group = []
        group.append(Item(line, key, with_seed(line.ask, key)))
    if group:
        yield group


async def _lines(lines, usual: SpeechParams) -> AsyncIterator[Line]:
    if isinstance(lines, AsyncIterable):
        n = 0
        async for row in lines:
            n += 1
            for line in lines_of([row], usual):
                yield line if isinstance(row, Line) else Line(n, line.ask, line.problem)
        return
    for line in lines_of(lines, usual):
        yield line
