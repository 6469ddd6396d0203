"""Many lines under fire: every one delivered once or reported, in the order of the input, with
bounded hands. The usual pattern fails the same questions.
"""

from __future__ import annotations

import asyncio
import gc
import io
import zipfile
from functools import cache

import httpx
import pytest

from tests.client.fire import burning, pcm_of, wav, zipped
from webui.client import AsyncBatchClient, Line, Retry, Sound, SpeechParams
from webui.client.errors import Broken
from webui.client.ordered_gather import ordered
from webui.client.zip_reader import ZipReader
from webui.errors import BadInput, EngineFault, LoginNeeded
from webui.messages import Message

QUICK = Retry(tries=4, first_s=0.01, longest_s=0.03, patience_s=20)
PASSING = [
    "reset ok",
    "half ok",
    "short ok",
    "error ok",
    "page ok",
    "noise close ok",
    "full full full full full full ok",
    "stall ok",
    "odd ok",
    "empty ok",
    "old ok",
    "away ok",
]
LASTING = ["bad", "error", "half", "reset", "page"]


@pytest.fixture
def fire():
    with burning() as (url, fire):
        fire.url = url
        yield fire


def lines_under_fire(n: int = 60) -> list[str]:
    """Good ones, ones that need more tries, ones that never come, one without text."""
    lines = [f"ok line {i}" for i in range(n)]
    lines[3::7] = [f"{PASSING[i % len(PASSING)]} line {i}" for i in range(len(lines[3::7]))]
    lines[5::11] = [f"{LASTING[i % len(LASTING)]} line {i}" for i in range(len(lines[5::11]))]
    return [*lines, "", lines[0]]


def is_lasting(line: str) -> bool:
    return not line or (line.split()[0] in LASTING and line.split()[1] == "line")


def check(lines: list[str], ends: list[tuple[str, bytes | None, bool]]) -> None:
    """ends: (text, samples or None, is it reported as failed).

    Every line once, in order, with its own sound or its own error.
    """
    assert [text for text, _, _ in ends] == lines
    for text, pcm, is_reported in ends:
        assert is_reported == is_lasting(text) and (pcm is None) == is_reported, text


async def all_of(client: AsyncBatchClient, lines, **kw) -> list:
    return [r async for r in client.results(lines, voice="v", **kw)]


@pytest.mark.parametrize("size", [1, 2, 5, 16])
def test_every_line_is_delivered_once_or_reported(fire, size):
    lines, progress_reports = lines_under_fire(), []

    async def run():
        async with AsyncBatchClient(
            fire.url, "k", in_flight=6, batch=size, retry=QUICK, timeout_s=0.3
        ) as client:
            return await all_of(client, lines, progress=progress_reports.append)

    ends = asyncio.run(run())
    check(lines, [(r.line.ask.text, r.sound and r.sound.pcm, r.error is not None) for r in ends])
    assert all(r.sound.pcm == pcm_of(text, r.seed) for text, r in zip(lines, ends) if r.sound) and [
        r.line.n for r in ends
    ] == list(range(1, len(lines) + 1))
    assert ends[0].seed != ends[-1].seed, "the same words twice are two lines"
    assert (progress_reports[-1].done, progress_reports[-1].failed, progress_reports[-1].total) == (
        sum(not is_lasting(x) for x in lines),
        sum(map(is_lasting, lines)),
        len(lines),
    )
    assert all(
        r.attempts == 4 for text, r in zip(lines, ends) if text.startswith("half line")
    ) and fire.connections < sum(fire.n_asked.values())


def test_the_usual_pattern_fails_the_same_questions(fire):
    """Control: workers on a queue without a bound, a poison pill each, results as they come."""

    async def naive(lines: list[str], results: list) -> None:
        queue: asyncio.Queue = asyncio.Queue()
        for line in lines:
            queue.put_nowait(line)
        async with httpx.AsyncClient(base_url=fire.url) as http:

            async def worker() -> None:
                while (line := await queue.get()) is not None:
                    answer = await http.post("/v1/audio/speech", json={"input": line, "seed": 1})
                    answer.raise_for_status()
                    results.append((line, answer.content, False))

            for _ in range(4):
                queue.put_nowait(None)
            await asyncio.gather(*(worker() for _ in range(4)))

    mixed, outputs = ["ok a", "ok b", "error c", *(f"ok line {i}" for i in range(30))], []
    with pytest.raises(httpx.HTTPStatusError):
        asyncio.run(naive(mixed, outputs))
    assert len(outputs) < len(mixed) - 1, "one bad line took others with it"
    real = fire._answer

    async def slower(path, body, writer):
        await asyncio.sleep(0.1 if b"ok first" in body else 0)
        await real(path, body, writer)

    fire._answer = slower
    lines, outputs = ["ok first", *(f"ok line {i}" for i in range(20))], []
    asyncio.run(naive(lines, outputs))
    with pytest.raises(AssertionError):
        check(lines, outputs)


def test_one_bad_line_of_a_batch_costs_only_itself(fire):
    async def run():
        async with AsyncBatchClient(
            fire.url, in_flight=2, batch=8, retry=QUICK, timeout_s=0.3
        ) as client:
            return await all_of(client, [*(f"ok {i}" for i in range(5)), "bad 5", "ok 6", "ok 7"])

    ends = asyncio.run(run())
    assert [type(r.error) for r in ends] == [type(None)] * 5 + [BadInput] + [type(None)] * 2
    assert fire.n_asked["bad 5"] == 2  # with the others, and by itself


def test_half_a_zip_gives_what_was_whole_and_asks_for_the_rest_only(fire):
    async def run():
        async with AsyncBatchClient(fire.url, in_flight=1, batch=6, retry=QUICK) as client:
            return await all_of(client, ["ok a", "ok b", "half ok c", "ok d", "odd ok e", "ok f"])

    ends = asyncio.run(run())
    assert all(r.sound.pcm == pcm_of(r.line.ask.text, r.seed) for r in ends)
    assert [fire.n_asked[r.line.ask.text] for r in ends] == [1, 1, 2, 2, 2, 2] and [
        len(b["requests"]) for b in fire.bodies
    ] == [6, 4]


def test_a_batch_line_that_the_studio_gave_up_is_not_asked_for_again(fire):
    async def run():
        async with AsyncBatchClient(fire.url, batch=3, retry=QUICK) as client:
            return await all_of(client, ["ok a", "poison b", "ok c"])

    ends = asyncio.run(run())
    assert (
        isinstance(ends[1].error, EngineFault)
        and ends[1].error.en == "poison"
        and fire.n_asked["poison b"] == 1
        and ends[0].sound
        and ends[2].sound
    )


@pytest.mark.parametrize("size", [1, 4])
def test_a_wrong_key_is_asked_with_once_for_each_hand_not_for_each_line(fire, size):
    async def run():
        async with AsyncBatchClient(fire.url, in_flight=3, batch=size, retry=QUICK) as client:
            return await all_of(client, [f"login {i}" for i in range(100)])

    ends = asyncio.run(run())
    assert (
        len(ends) == 100
        and all(isinstance(r.error, LoginNeeded) for r in ends)
        and len(fire.bodies) <= 4
    )


def test_never_more_in_flight_than_allowed_and_connections_are_kept(fire):
    fire.slow_s = 0.005

    async def run():
        async with AsyncBatchClient(fire.url, in_flight=5, retry=QUICK, batch=1) as client:
            return await all_of(client, [f"ok {i}" for i in range(60)])

    assert all(r.sound for r in asyncio.run(run()))
    assert fire.most == 5 and fire.connections == 5


def test_every_try_takes_a_token(fire, monkeypatch):
    """What the bucket does with them is asked in test_client.py; here, that nobody passes it by."""
    from webui.client.retry import Bucket

    tokens, real = [], Bucket.take
    monkeypatch.setattr(Bucket, "take", lambda self: tokens.append(1) or real(self))

    async def run(size: int):
        async with AsyncBatchClient(
            fire.url, in_flight=4, batch=size, per_second=500.0, burst=9, retry=QUICK
        ) as client:
            return await all_of(
                client, ["reset ok a", "half ok b", "bad c", *(f"ok {i}" for i in range(12))]
            )

    for size in (1, 3):
        asyncio.run(run(size))
        assert len(tokens) == len(fire.bodies)


def test_what_was_asked_for_all_is_heeded_by_all(fire):
    """One line is told to wait a second: the others wait too, instead of running into the same
    wall.
    """
    order, fire.slow_s = [], 0.005

    async def run():
        async with AsyncBatchClient(fire.url, in_flight=2, retry=QUICK, batch=1) as client:
            real = client._bucket.take
            client._bucket.take = lambda: order.append(real()) or order[-1]
            return await all_of(client, ["busy ok a", *(f"ok {i}" for i in range(40))])

    assert all(r.sound for r in asyncio.run(run())) and fire.n_asked["busy ok a"] == 2
    assert sum(wait_s > 0.5 for wait_s in order) == 1, (
        "the one hand that was free waits; the other is the one that was told"
    )


# ---- bounded hands -------------------------------------------------------------------------------
def test_reading_stops_when_nobody_takes_or_the_first_is_stuck():
    async def run():
        read, stuck = 0, asyncio.Event()

        def items():
            nonlocal read
            for i in range(1000):
                read += 1
                yield i

        async def work(i):
            if i == 0:
                await stuck.wait()
            return -i

        answers = ordered(items(), work, 4, 16)
        first = asyncio.ensure_future(anext(answers))
        for _ in range(200):
            await asyncio.sleep(0)
        assert read <= 17, "a slow first one lets the others run away"
        stuck.set()
        assert await first == (0, 0)
        for _ in range(200):
            await asyncio.sleep(0)
        assert read <= 18, "read on although nobody takes"
        assert [x async for x in answers] == [(i, -i) for i in range(1, 1000)]

    asyncio.run(run())


def test_an_error_of_the_input_comes_in_its_turn_and_leaving_early_stops_everything():
    async def run():
        def items():
            yield from range(5)
            raise BadInput(Message("torn", "坏了"))

        started = []

        async def work(i):
            started.append(i)
            await asyncio.sleep(0)
            return i

        results = []
        with pytest.raises(BadInput):
            async for item, _ in ordered(items(), work, 2, 8):
                results.append(item)
        assert results == [0, 1, 2, 3, 4]
        answers = ordered(range(1000), work, 2, 8)
        await anext(answers)
        await answers.aclose()
        n = len(started)
        await asyncio.sleep(0.01)
        assert len(started) == n and len(asyncio.all_tasks()) == 1

    asyncio.run(run())


class Quick(httpx.AsyncBaseTransport):
    """A studio without a network: zips of tiny sounds."""

    def __init__(self):
        self.n = self.now = self.most = 0
        self._zip = cache(lambda n: zipped([("", wav(b"\x01\x00" * 2000))] * n))

    async def handle_async_request(self, request):
        import json

        self.n, self.now = self.n + 1, self.now + 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        asks = json.loads(await request.aread())["requests"]
        self.now -= 1
        return httpx.Response(
            200, headers={"Content-Length": "1"}, stream=httpx.ByteStream(self._zip(len(asks)))
        )


def test_memory_is_flat_at_forty_thousand_lines():
    """Counted: sounds alive and lines in hand, all the way; and the process' own growth after the
    first fifth.
    """
    import resource

    read, n_results, most_in_hand, most_alive, early_kb, n_lines = 0, 0, 0, 0, 0, 40_000

    def lines():
        nonlocal read
        for i in range(n_lines):
            read += 1
            yield f"line {i}"

    async def run():
        nonlocal n_results, most_in_hand, most_alive, early_kb
        transport = Quick()
        async with AsyncBatchClient(
            "http://stub", in_flight=4, batch=100, transport=transport
        ) as client:
            async for result in client.results(lines(), voice="v"):
                n_results += 1
                assert result.line.n == n_results and result.sound
                most_in_hand = max(most_in_hand, read - n_results)
                if n_results == n_lines // 5:
                    early_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                if n_results % 10_000 == 50:
                    most_alive = max(most_alive, sum(type(o) is Sound for o in gc.get_objects()))
        assert transport.most <= 4 and transport.n == n_lines // 100

    asyncio.run(run())
    assert n_results == n_lines and most_in_hand <= 7 * 100 and 0 < most_alive <= 7 * 100
    grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - early_kb) / 1024
    assert grown_mb < 40, (
        f"{grown_mb:.0f} MB more at the end than after a fifth; the sounds alone are"
        f" {n_lines * 4000 >> 20} MB"
    )


# ---- the zip, while it comes in ------------------------------------------------------------------
@pytest.mark.parametrize("step", [1, 7, 100, 100_000])
def test_a_zip_is_read_whatever_the_pieces(step):
    data = zipped([("a", wav(pcm_of("a", 1))), ("b", None), ("c", wav(pcm_of("c", 1)))])
    reader, results = ZipReader(), []
    for i in range(0, len(data), step):
        results += reader.feed(data[i : i + step])
    reader.end()
    assert results == [
        (n, zipfile.ZipFile(io.BytesIO(data)).read(n))
        for n in ("0001_x.wav", "0003_x.wav", "manifest.json")
    ]


def test_a_zip_that_is_cut_or_changed_anywhere_is_never_taken_for_whole():
    data = zipped([("a", wav(pcm_of("a", 1, 60))), ("c", wav(pcm_of("c", 1, 60)))])
    whole = [
        (n, zipfile.ZipFile(io.BytesIO(data)).read(n))
        for n in ("0001_x.wav", "0002_x.wav", "manifest.json")
    ]
    for cut in range(len(data)):
        reader = ZipReader()
        assert (
            reader.feed(data[:cut])
            == whole[: len(reader.feed(b"")) or None][: sum(cut >= end for end in _ends(data))]
        )
        with pytest.raises(Broken):
            reader.end()
    for at in range(0, len(data), 3):
        reader, damaged = ZipReader(), data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :]
        try:
            actual = reader.feed(damaged)
            reader.end()
        except Broken:
            continue
        assert [d for _, d in actual] == [d for _, d in whole], f"byte {at}"


def _ends(data: bytes) -> list[int]:
    infos = zipfile.ZipFile(io.BytesIO(data)).infolist()
    return [i.header_offset + 30 + len(i.filename) + i.file_size for i in infos]


def test_lines_may_come_in_every_shape(fire):
    async def source():
        for row in (
            "ok a",
            {"input": "ok b", "voice": "w", "seed": "7"},
            SpeechParams("ok c", "x"),
            Line(40, SpeechParams("ok d", "y")),
            {"text": "ok e", "seed": 1.5},
            7,
            {"text": "ok f", "speed": "fast"},
        ):
            yield row

    async def run():
        async with AsyncBatchClient(fire.url, retry=QUICK, batch=1) as client:
            return await all_of(client, source())

    ends = asyncio.run(run())
    assert [(r.line.n, r.line.ask.voice, r.error is None) for r in ends] == [
        (1, "v", True),
        (2, "w", True),
        (3, "x", True),
        (40, "y", True),
        (5, "v", False),
        (6, "v", False),
        (7, "v", False),
    ]
    assert ends[1].seed == 7 and "seed" in ends[4].error.en
