"""Lines made into sound over HTTP, one in a request or several: tried again when that may help,
reported when it does not, handed on once.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass

import httpx

from ..errors import EngineFault, KaikouError, LoginNeeded, StorageFull
from ..messages import Message
from .atomic_files import Unwritable
from .audio import Sound, WavReader
from .batch_input import Line
from .concurrency import Concurrency
from .errors import Broken, Unreachable, as_client_error, is_unheard, sentences
from .request import (
    BATCH,
    JOBS,
    SPEECH,
    SpeechParams,
    SpeechResponse,
    aread_error,
    is_framed,
    timeout,
)
from .retry import Bucket, Retry
from .zip_reader import ZipReader

HOPELESS = (LoginNeeded, StorageFull, Unwritable)  # the next line would fare no better
MOST = 1 << 10  # at once, where nobody says
UNKNOWN = "This line could not be made."
PLACE = re.compile(r"(\d+)_.*\.wav")


@dataclass(frozen=True)
class Item:
    """One line that is to be spoken, and what is asked for it."""

    line: Line
    key: bytes
    ask: SpeechParams  # with its seed


@dataclass(frozen=True)
class Result:
    """How a line ended. sound is None when it failed, and when it went into a folder; then `file`
    is its name there.
    """

    line: Line
    sound: Sound | None = None
    error: KaikouError | None = None
    attempts: int = 0
    seed: int | None = None
    seconds: float = 0.0
    file: str | None = None
    is_kept: bool = False  # it was there already, from an earlier run


Asker = Callable[[dict[int, Item], dict[int, Result], int], AsyncIterator[tuple[int, Sound]]]


class BatchRunner:
    """keep: where a sound goes as soon as it is whole; its Result is what counts. is_background:
    one line alone, too, goes behind everybody who listens. concurrency: of requests of all runners
    that share it; none: as many as `make` is called at once.

    Every method answers for every item, whatever happens.
    """

    def __init__(
        self,
        http: httpx.AsyncClient,
        bucket: Bucket,
        retry: Retry,
        timeout_s: float | None,
        keep: Callable[[Item, Sound, int], Awaitable[Result]],
        is_background: bool = False,
        concurrency: Concurrency | None = None,
    ):
        self._http, self._bucket, self._retry, self._timeout_s, self._keep = (
            http,
            bucket,
            retry,
            timeout_s,
            keep,
        )
        self._is_background = is_background
        self._concurrency = concurrency or Concurrency(MOST)
        self._no_use: KaikouError | None = None  # why nothing more is tried

    async def make(self, items: list[Item]) -> list[Result]:
        """One Result each, in their order."""
        remaining, results, tries = dict(enumerate(items)), {}, 0
        error = self._no_use
        if error is None:
            is_alone = len(items) == 1 and not self._is_background
            error, tries = await self._try(
                remaining, results, self._alone if is_alone else self._together
            )
        if isinstance(error, HOPELESS) or (isinstance(error, Unreachable) and is_unheard(error)):
            self._no_use = error
        elif (
            error is not None and not is_unheard(error) and len(items) > 1
        ):  # one of them may be to blame for all
            return [results.get(i) or (await self.make([item]))[0] for i, item in enumerate(items)]
        return [
            results.get(i) or Result(item.line, error=error, attempts=tries, seed=item.ask.seed)
            for i, item in enumerate(items)
        ]

    async def _try(
        self, remaining: dict[int, Item], results: dict[int, Result], ask: Asker
    ) -> tuple[KaikouError | None, int]:
        """Moves what comes out of it from `remaining` to `results`.

        Why something is left over, and how often it was tried.
        """
        n = 0
        try:
            async for attempt in self._retry.asynchronous():
                with attempt:
                    n += 1
                    await asyncio.sleep(self._bucket.take())
                    await self._once(remaining, results, ask, n)
        except KaikouError as error:
            return error, n
        return None, n

    async def _once(
        self, remaining: dict[int, Item], results: dict[int, Result], ask: Asker, n: int
    ) -> None:
        try:
            async with (
                self._concurrency.place(),
                aclosing(ask(dict(remaining), results, n)) as sounds,
            ):
                async for i, sound in sounds:
                    results[i] = await self._keep(remaining.pop(i), sound, n)
        except KaikouError as error:
            self._bucket.heed(error)
            raise
        finally:
            for i in results.keys() & remaining.keys():
                del remaining[i]
        if remaining:
            raise Broken()

    async def _alone(
        self, items: dict[int, Item], results: dict[int, Result], n: int
    ) -> AsyncIterator[tuple[int, Sound]]:
        ((i, item),) = items.items()
        response = SpeechResponse(item.ask, is_paced=False, is_whole=True)
        with as_client_error():
            async with self._http.stream(
                "POST",
                SPEECH,
                json=response.body(),
                timeout=timeout(len(item.ask.text), self._timeout_s),
            ) as answer:
                await aread_error(answer)
                response.begin(answer.headers, is_framed(answer))
                async for data in answer.aiter_raw():
                    response.feed(data)
                response.end()
        yield i, response.sound()

    async def _together(
        self, items: dict[int, Item], results: dict[int, Result], n: int
    ) -> AsyncIterator[tuple[int, Sound]]:
        """Lines as they come out of the zip.

        One that breaks off leaves those that were whole by then; only the others are asked for
        again.
        """
        order, zip_ = list(items), ZipReader()
        body = {
            "requests": [_request(items[i].ask) for i in order],
            "model": items[order[0]].ask.model,
        }
        with as_client_error():
            async with self._http.stream(
                "POST",
                BATCH,
                json=body,
                timeout=timeout(sum(len(x.ask.text) for x in items.values()), self._timeout_s),
            ) as answer:
                await aread_error(answer)
                async for data in answer.aiter_raw():
                    for name, entry in zip_.feed(data):
                        if name == "manifest.json":
                            results.update(_failures(entry, order, items, n))
                        elif (place := PLACE.fullmatch(name)) and 1 <= int(place[1]) <= len(order):
                            i = order[int(place[1]) - 1]
                            if i in items:
                                yield i, _sound(entry, items.pop(i).ask)
                zip_.end()
            await self._tidy(answer.headers.get("x-job-id", ""))

    async def _tidy(self, job: str) -> None:
        """Everything of it is here: it need not stand in the visitor's list of batches."""
        if job.replace("-", "").isalnum():
            with suppress(httpx.HTTPError):
                await self._http.delete(f"{JOBS}/{job}", timeout=timeout(0, self._timeout_s))


def _request(ask: SpeechParams) -> dict:
    body = ask.body()
    del body["model"]  # one for the whole batch
    return body


def _sound(entry: bytes, ask: SpeechParams) -> Sound:
    reader = WavReader()
    pcm = reader.feed(entry)
    reader.end()
    return Sound(pcm, reader.rate, reader.head, ask.seed, ask.voice)


def _failures(
    manifest: bytes, order: list[int], items: dict[int, Item], n: int
) -> dict[int, Result]:
    """What the studio itself has given up. It has tried three times already."""
    try:
        rows = [row for row in json.loads(manifest)["lines"] if row["state"] == "failed"]
        failed = {order[int(row["line"]) - 1]: row.get("error") or {} for row in rows}
    except (ValueError, KeyError, TypeError, IndexError):
        raise Broken("broken.batch_list") from None
    words = {
        i: sentences({**failure, "message": failure.get("message") or UNKNOWN})
        for i, failure in failed.items()
    }
    return {
        i: Result(
            items[i].line,
            error=EngineFault(Message(*words[i]), code=failure.get("code")),
            attempts=n,
            seed=items[i].ask.seed,
        )
        for i, failure in failed.items()
        if i in items
    }
