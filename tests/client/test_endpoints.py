"""Several studios behind one client, and how many requests at once: counted by the servers."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
from contextlib import ExitStack, contextmanager

import pytest

from tests.client.fire import burning, pcm_of
from webui.client import TTS, AsyncBatchClient, AsyncTTS, Retry
from webui.client.concurrency import Concurrency
from webui.client.endpoints import Endpoints
from webui.client.errors import Unreachable
from webui.errors import BadInput, Busy, NotReady

QUICK = Retry(tries=4, first_s=0.01, longest_s=0.03, patience_s=5)


@pytest.fixture
def fires():
    with ExitStack() as stack:
        servers = []
        for _ in range(2):
            url, fire = stack.enter_context(burning())
            fire.url = url
            servers.append(fire)
        yield servers


@pytest.fixture
def dead():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))  # bound and not listening: refused at once, and nobody else's
        yield f"http://127.0.0.1:{s.getsockname()[1]}"


@pytest.mark.parametrize("choose", ["random", "least_busy"])
def test_a_dead_studio_costs_one_question(fires, dead, choose, monkeypatch):
    sleeps = []
    monkeypatch.setattr("tenacity.nap.time.sleep", sleeps.append)
    with TTS([dead, fires[0].url], retry=QUICK, choose=choose) as tts:
        for n in range(8):
            assert tts.synthesize(f"ok {n}", "v", seed=1).pcm == pcm_of(f"ok {n}", 1)
            with tts.stream(f"ok {n}", "v", seed=1) as stream:
                assert b"".join(stream) == pcm_of(f"ok {n}", 1)
    assert sum(sleeps) == 0, "nobody waits"


def test_a_busy_studio_is_left_alone_for_as_long_as_it_asks(fires):
    busy, good = fires
    busy._behaviour_of = lambda text: "busy"  # Retry-After: 1
    with TTS([busy.url, good.url], retry=QUICK) as tts:
        for n in range(20):
            assert tts.synthesize(f"ok {n}", "v", seed=1).pcm == pcm_of(f"ok {n}", 1)
    assert len(good.bodies) == 20 and len(busy.bodies) <= 2


def test_what_is_wrong_with_the_request_is_asked_nobody_else(fires):
    with TTS([f.url for f in fires], retry=QUICK) as tts, pytest.raises(BadInput):
        tts.synthesize("bad x", "v")
    assert sum(len(f.bodies) for f in fires) == 1


def test_a_stream_that_has_begun_goes_on_where_it_was(fires):
    """Another studio may have another voice of that name."""
    with TTS([f.url for f in fires], retry=QUICK) as tts, tts.stream("chunk chunk ok x", "v") as s:
        assert b"".join(s) == pcm_of("chunk chunk ok x", s.seed)
    assert sorted(len(f.bodies) for f in fires) == [0, 3]


def test_the_asynchronous_twin_leaves_a_dead_and_a_busy_one(fires, dead):
    busy, good = fires
    busy._behaviour_of = lambda text: "full"

    async def run() -> None:
        async with AsyncTTS([dead, busy.url, good.url], retry=QUICK) as tts:
            sounds = await asyncio.gather(
                *(tts.synthesize(f"ok {n}", "v", seed=1) for n in range(12))
            )
            assert [s.pcm for s in sounds] == [pcm_of(f"ok {n}", 1) for n in range(12)]
            stream = tts.stream("ok s", "v", seed=1)
            assert b"".join([pcm async for pcm in stream]) == pcm_of("ok s", 1)

    asyncio.run(run())


def test_when_all_are_away_it_waits_and_says_so_at_last(dead):
    away = Retry(patience_s=0.05, first_s=0.01)
    with TTS([dead, dead], retry=away) as tts, pytest.raises(Unreachable):
        tts.synthesize("ok", "v")
    for addresses in ([], ["x"]):
        with pytest.raises(ValueError):
            TTS(addresses, choose="random" if not addresses else "nearest")


def lease_each(endpoints: Endpoints, n: int) -> list[str]:
    with ExitStack() as stack:
        return [stack.enter_context(endpoints.lease()).link for _ in range(n)]


def test_the_least_busy_has_the_fewest_requests_of_ours():
    links = lease_each(Endpoints("abc", "least_busy"), 9)
    assert sorted(links) == sorted("abc" * 3)
    assert all(len(set(links[i : i + 3])) == 3 for i in (0, 3, 6)), "each round all of them"


def test_a_studio_that_fails_again_rests_longer_and_one_that_answers_is_back():
    now = [0.0]
    endpoints = Endpoints("ab", "random", lambda: now[0])

    def fail(link: str, **fields) -> None:
        place = next(e for e in endpoints._all if e.link == link)
        with pytest.raises(Busy), endpoints.lease(place):
            raise Busy(**fields)

    fail("a")
    assert set(lease_each(endpoints, 30)) == {"b"} and endpoints.has_another()
    fail("b", retry_after_s=9.0)
    assert not endpoints.has_another() and endpoints._pick().link == "a", "it is back first"
    now[0] = 1.1
    fail("a")
    now[0] = 2.2
    assert not endpoints.has_another(), "two seconds this time"
    now[0] = 9.1
    assert set(lease_each(endpoints, 30)) == {"a", "b"}
    fail("a")
    now[0] = 10.3
    assert set(lease_each(endpoints, 30)) == {"a", "b"}, "an answer between them ends the count"


# ---- how many at once ----------------------------------------------------------------------------
def test_half_after_a_refusal_and_one_more_for_each_round_that_goes_well():
    async def run() -> list[float]:
        gate, limits = Concurrency(8), []

        async def ask(error: Exception | None) -> None:
            try:
                async with gate.place():
                    await asyncio.sleep(0)
                    if error:
                        raise error
            except (Busy, NotReady, BadInput):
                pass

        await asyncio.gather(*(ask(Busy()) for _ in range(8)))
        limits.append(gate.limit)  # eight of one round are one refusal
        await ask(NotReady())
        limits.append(gate.limit)
        for _ in range(5):
            await ask(BadInput())
        limits.append(gate.limit)
        for _ in range(2):
            await asyncio.gather(*(ask(None) for _ in range(int(gate.limit))))
            limits.append(round(gate.limit))
        for _ in range(200):
            await ask(None)
        limits.append(gate.limit)
        for _ in range(9):
            await ask(Busy())
        limits.append(gate.limit)
        return limits

    assert asyncio.run(run()) == [4.0, 2.0, 2.0, 3, 4, 8.0, 1.0]


def test_whoever_is_cancelled_while_it_waits_leaves_its_place_to_others():
    async def run() -> None:
        gate, entered = Concurrency(1), []

        async def ask(name: str, hold: asyncio.Event) -> None:
            async with gate.place():
                entered.append(name)
                await hold.wait()

        hold, free = asyncio.Event(), asyncio.Event()
        free.set()
        tasks = [asyncio.create_task(ask(n, hold if n == "a" else free)) for n in "abcd"]
        await asyncio.sleep(0)
        tasks[1].cancel()
        hold.set()
        tasks[2].cancel()
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
        assert entered == ["a", "d"]

    asyncio.run(run())


@contextmanager
def fixed(monkeypatch):
    """As it was before: always as many as may be."""
    with monkeypatch.context() as patched:
        patched.setattr("webui.client.concurrency.max", lambda a, b: 16.0, raising=False)
        yield


def refusals(places: int, n_lines: int) -> int:
    """Of a server that speaks `places` lines at once, until n_lines were spoken."""
    n_refused = 0

    async def run(url: str) -> list:
        patient = Retry(first_s=0.001, longest_s=0.002, patience_s=60)
        async with AsyncBatchClient(url, in_flight=16, batch=1, retry=patient) as client:
            return [r async for r in client.results([f"ok {n}" for n in range(n_lines)], voice="v")]

    with burning() as (url, fire):
        fire.slow_s = 0.02

        def behaviour(text: str) -> str:
            nonlocal n_refused
            n_refused += fire.now > places
            return "full" if fire.now > places else "ok"

        fire._behaviour_of = behaviour
        results = asyncio.run(run(url))
    assert len(results) == n_lines and all(r.sound for r in results)
    return n_refused


def test_a_full_studio_is_asked_for_what_it_can_take(monkeypatch):
    adaptive = refusals(places=3, n_lines=60)
    with fixed(monkeypatch):
        unbounded = refusals(places=3, n_lines=60)
    assert adaptive < 60 and 2 * adaptive < unbounded


# ---- what is forgotten ---------------------------------------------------------------------------
def settle(condition, limit_s: float = 5.0) -> bool:
    end = time.monotonic() + limit_s
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def test_a_forgotten_client_closes_its_connections(fires):
    tts = TTS(fires[0].url, retry=QUICK)
    tts.synthesize("ok", "v")
    assert len(fires[0]._writers) == 1
    circle = [tts]
    circle.append(circle)
    del tts, circle
    gc.collect()
    assert settle(lambda: not fires[0]._writers)


def test_a_forgotten_asynchronous_client_closes_its_connections(fires):
    async def run() -> None:
        tts = AsyncTTS(fires[0].url, retry=QUICK)
        await tts.synthesize("ok", "v")
        assert len(fires[0]._writers) == 1
        del tts
        gc.collect()
        for _ in range(500):
            await asyncio.sleep(0.01)
            if not fires[0]._writers:
                return
        raise AssertionError("still open")

    asyncio.run(run())
