"""Many at once, answers in the order of the questions, and never more in hand than was allowed.

Knows nothing of sound or HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress


async def ordered(
    items: Iterable | AsyncIterable, work: Callable[[object], Awaitable], at_once: int, in_hand: int
) -> AsyncIterator[tuple]:
    """Yields (item, what `work` made of it), in the order of `items`, with `at_once` of them worked
    on.

    in_hand: read from `items` and not yet taken from here, at_once + 1 at least. When so many are,
      reading stops: a slow first one, a slow
    taker, nothing grows. `work` answers for its own failures; one that it raises ends everything,
    in its turn, as an error of `items` does.
    """
    line: asyncio.Queue = asyncio.Queue(
        max(in_hand - 2, at_once - 1, 1)
    )  # in the order of input; one more with the reader, one with the taker
    todo: asyncio.Queue = asyncio.Queue(at_once)
    loop = asyncio.get_running_loop()

    async def read() -> None:
        end = loop.create_future()
        try:
            async for item in _iterate(items):
                answer = loop.create_future()
                await line.put((item, answer))
                await todo.put((item, answer))
        except Exception as error:
            end.set_exception(error)
        else:
            end.set_result(None)
        await line.put((None, end))

    async def serve() -> None:
        while True:
            item, answer = await todo.get()
            try:
                result = await work(item)
            except Exception as error:
                answer.set_exception(error)
            else:
                answer.set_result(result)

    reader, servers = (
        asyncio.create_task(read()),
        [asyncio.create_task(serve()) for _ in range(at_once)],
    )
    try:
        while True:
            item, answer = await line.get()
            result = await answer
            if item is None:
                return
            yield item, result
            del item, answer, result
    finally:
        for task in (reader, *servers):
            task.cancel()
        await asyncio.gather(reader, *servers, return_exceptions=True)
        while not line.empty():  # what was found out and nobody will ask for
            _, answer = line.get_nowait()
            with suppress(asyncio.InvalidStateError, asyncio.CancelledError):
                answer.exception()


async def _iterate(items: Iterable | AsyncIterable) -> AsyncIterator:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
        return
    for item in items:
        yield item
