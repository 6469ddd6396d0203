"""Bad days of a fleet: what a listener hears when replicas die, freeze, differ or refuse."""

import ast
import contextlib
import threading
import time

import httpx
import numpy as np
import pytest

from tests.engine.contract import ask, whole
from tests.engine.fake import RATE, FakeEngine
from tests.engine.fleet import STALL_S, Proxy, ReplicaProcess, joined, served
from tests.engine.stage_floor import until
from tests.serve import ROOT, free_port
from webui.cluster import connection, messages, replica, session, stream
from webui.cluster.replica import Replica
from webui.errors import BadInput, Busy, EngineFault, NotReady

SOUND = "seconds=2 chunk=0.2 first=0.04"


def engine_of(version="1", **more):
    engine = FakeEngine(lanes=4, version=version, **more)
    engine.start()
    return engine


@contextlib.contextmanager
def fleet(*engines, key="", **proxy):
    """(studio's engine, proxy, replicas): one replica for each of `engines`."""
    with contextlib.ExitStack() as stack:
        replicas = [Replica(engine, STALL_S, key) for engine in engines]
        ports = [stack.enter_context(served(node)) for node in replicas]
        front = Proxy(*ports, **proxy)
        stack.callback(front.close)
        yield stack.enter_context(joined(front.address, key)), front, replicas


def prompt_of(engine):
    samples = np.sin(np.arange(RATE * 4) / 20).astype(np.float32)
    return engine.encode(samples, RATE, "hello", "en")


@pytest.fixture(scope="module")
def undisturbed():
    engine = engine_of()
    return whole(engine.stream(ask(instruction=SOUND), prompt_of(engine)))


@pytest.mark.parametrize("n_bytes", [1, 150, 400, 4_500, 25_000, 60_000, 130_000, 190_000])
def test_a_replica_that_dies_at_any_moment_is_replaced_and_no_sample_is_wrong(n_bytes, undisturbed):
    with fleet(engine_of(), engine_of(), cut_after=(1 << 30, n_bytes)) as (engine, _, _):
        chunk_stream = engine.stream(ask(instruction=SOUND), prompt_of(engine))
        chunks = list(chunk_stream)
        assert np.array_equal(whole(chunks), undisturbed)
        assert [c.number for c in chunks] == list(range(len(chunks))) and chunks[-1].last
        assert [c.start for c in chunks] == [
            sum(len(c.samples) for c in chunks[:n]) for n in range(len(chunks))
        ]


def test_a_text_that_kills_every_replica_is_told_and_the_next_is_spoken():
    cuts = (1 << 30, 9_000, 9_000, 9_000)
    with fleet(engine_of(), engine_of(), cut_after=cuts) as (engine, _, _):
        prompt = prompt_of(engine)
        with pytest.raises(EngineFault) as error:
            list(engine.stream(ask(instruction=SOUND), prompt))
        assert error.value.code == "engine_lost"
        assert len(whole(engine.stream(ask(id="next"), prompt)))


def test_a_replica_that_makes_other_sound_is_no_replacement():
    class Other(FakeEngine):
        def _steps(self, request, f0):
            return super()._steps(request, f0 + 1)

    other = Other(lanes=2)
    other.start()
    with fleet(engine_of(), other, cut_after=(1 << 30, 60_000)) as (engine, front, _):
        prompt = prompt_of(engine)
        front.take_turns(0, 1, 1, 1)
        with pytest.raises(EngineFault) as error:
            list(engine.stream(ask(instruction=SOUND), prompt))
        assert error.value.code == "replay_differs"


def test_a_frozen_replica_and_a_deaf_way_are_left_for_another(monkeypatch, undisturbed):
    monkeypatch.setattr(connection, "SILENT_S", 0.6)
    monkeypatch.setattr(connection, "CONNECT_S", 0.5)
    monkeypatch.setattr(session, "BEAT_S", 0.1)
    with fleet(engine_of(), engine_of()) as (engine, front, _):
        prompt = prompt_of(engine)
        chunk_stream = engine.stream(ask(instruction=SOUND + " rtf=0.2"), prompt)
        chunks = [next(chunk_stream), next(chunk_stream)]
        front.is_deaf = True
        threading.Timer(1.0, setattr, (front, "is_deaf", False)).start()
        assert (
            np.array_equal(whole([*chunks, *chunk_stream]), undisturbed)
            and chunk_stream.n_replays == 1
        )


def test_streams_are_spoken_by_replicas_of_their_version_only():
    newer = Replica(engine_of("2"), STALL_S)
    with fleet(engine_of("1")) as (engine, front, _), served(newer) as port:
        prompt = prompt_of(engine)
        front.ports.insert(0, port)
        for n in range(4):
            assert len(whole(engine.stream(ask(id=f"b{n}"), prompt)))
        front.ports[:] = [port]
        with pytest.raises(NotReady) as error:
            list(engine.stream(ask(id="c"), prompt))
        assert error.value.code == "fleet_version" and error.value.retry_after_s


def test_an_older_protocol_is_not_spoken_with(monkeypatch):
    with fleet(engine_of()) as (engine, _, _):
        monkeypatch.setattr(replica, "PROTOCOL", messages.PROTOCOL + 1)
        with pytest.raises(NotReady):
            prompt_of(engine)


def test_a_listener_that_stops_is_not_spoken_ahead_of_and_harms_nobody():
    local_engine = engine_of()
    with fleet(local_engine) as (engine, _, _):
        prompt = prompt_of(engine)
        spoken_ids = []
        steps = local_engine._steps

        def counted(request, f0):
            for chunk in steps(request, f0):
                spoken_ids.append(request.id)
                yield chunk

        local_engine._steps = counted
        paused = engine.stream(ask(id="paused", instruction="seconds=20"), prompt)
        next(paused)
        for n in range(3):
            assert len(whole(engine.stream(ask(id=f"other{n}"), prompt)))
        assert spoken_ids.count("paused") <= 1 + messages.WINDOW
        paused.close()


def test_a_prompt_is_sent_once_to_each_replica_and_again_when_it_was_forgotten():
    with fleet(engine_of(), engine_of()) as (engine, _, replicas):
        prompt = prompt_of(engine)
        for n in range(6):
            list(engine.stream(ask(id=f"s{n}"), prompt))
        assert [len(node.prompts) for node in replicas] == [1, 1]
        for node in replicas:
            node.forget(prompt.fingerprint)
        assert [len(node.prompts) for node in replicas] == [0, 0]
        assert len(whole(engine.stream(ask(id="more"), prompt)))


def test_another_voice_under_the_same_fingerprint_is_not_taken_for_it():
    from dataclasses import replace

    with fleet(engine_of()) as (engine, _, _):
        prompt = prompt_of(engine)
        forged = replace(prompt, data=np.float32(440.0).tobytes())
        reply = whole(engine.stream(ask(), prompt))
        assert not np.array_equal(whole(engine.stream(ask(id="f"), forged)), reply)
        assert np.array_equal(whole(engine.stream(ask(id="g"), prompt)), reply)


def test_deleting_a_voice_is_tried_until_the_fleet_confirms_it(monkeypatch):
    local_engine = engine_of()
    with fleet(local_engine) as (engine, _, replicas):
        prompt = prompt_of(engine)
        with monkeypatch.context() as away:
            away.setattr(engine, "_http", httpx.Client(base_url="http://127.0.0.1:1"))
            engine._forgotten.add(prompt.fingerprint)
            engine._confirm_forgotten()
            assert engine.n_unconfirmed == 1 and len(replicas[0].prompts) == 1
        engine._confirm_forgotten()
        assert engine.n_unconfirmed == 0 and len(replicas[0].prompts) == 0
        assert prompt.fingerprint in local_engine.forgotten


def test_without_the_key_nothing_is_told_and_nothing_spoken():
    with fleet(engine_of(), key="secret") as (engine, front, _):
        prompt = prompt_of(engine)
        assert len(whole(engine.stream(ask(), prompt)))
        for wrong in ("", "secreT"):
            with pytest.raises(NotReady), joined(front.address, wrong):
                pass
        engine._key = "other"
        with pytest.raises(NotReady) as error:
            list(engine.stream(ask(id="x"), prompt))
        assert error.value.code == "fleet_key"


def test_nonsense_ends_its_socket_and_nothing_else():
    from websockets.sync.client import connect

    with fleet(engine_of()) as (engine, front, _):
        prompt = prompt_of(engine)
        url = f"ws://{front.address}{messages.PATH}"
        good = messages.pack({"op": "open", "how": "stream"})
        for message in (b"", b"\xff" * 40, "text", messages.pack({"op": 7}), good, good[:-3]):
            with connect(url) as socket:
                socket.recv()
                socket.send(message)
                with contextlib.suppress(Exception):
                    while True:
                        socket.recv(5)
        assert len(whole(engine.stream(ask(), prompt)))


def test_errors_of_the_engine_keep_their_names():
    with fleet(engine_of()) as (engine, _, _):
        prompt = prompt_of(engine)
        with pytest.raises(EngineFault):
            list(engine.stream(ask(instruction="fail=2"), prompt))
        with pytest.raises(BadInput) as error:
            engine.check(ask(transcript="no room"), prompt)
        assert error.value.code == "too_long_sentence" and error.value.zh
        assert engine.notes(ask(instruction="sing")) == [("I only hum.", "我只会哼。")]


def test_a_text_that_is_still_written_is_read_again_by_the_replacement():
    class Reader(FakeEngine):
        def stream_text(self, request, prompt, pieces):
            from dataclasses import replace

            text = "".join(pieces)
            yield from self.stream(replace(request, text=text, segments=(text,)), prompt)

    readers = [Reader(lanes=2), Reader(lanes=2)]
    for reader in readers:
        reader.start()
    pieces = ["One, ", "two, ", "three, ", "four, ", "five, ", "six."]
    with fleet(*readers, cut_after=(1 << 30, 30_000)) as (engine, _, _):
        prompt = prompt_of(engine)
        chunk_stream = engine.stream_text(ask(), prompt, iter(pieces))
        reader_stream = readers[0].stream_text(ask(), prompt, iter(pieces))
        assert (
            np.array_equal(whole(chunk_stream), whole(reader_stream))
            and chunk_stream.n_replays == 1
        )


def test_two_studios_have_half_of_the_fleet_each():
    second_replica = Replica(engine_of(), STALL_S, max_streams=10)
    with served(second_replica) as port, joined(port) as engine:
        assert engine.describe().streams == 10
        with joined(port) as other:
            engine._ask()
            assert engine.describe().streams == other.describe().streams == 5


def test_killed_processes_under_load(undisturbed):
    """Real processes, real SIGKILL: eight listeners, a replica dies while they are spoken to."""
    replicas = [ReplicaProcess() for _ in range(3)]
    front = Proxy(*(node.port for node in replicas))
    try:
        with joined(front.address) as engine:
            prompt, reply = prompt_of(engine), {}

            def listen(n):
                request = ask(id=f"r{n}", instruction=SOUND + " rtf=0.4")
                reply[n] = whole(engine.stream(request, prompt))

            threads = [threading.Thread(target=listen, args=(n,)) for n in range(8)]
            for thread in threads:
                thread.start()
            time.sleep(0.4)
            replicas[0].kill()
            front.ports[:] = front.ports[1:]
            for thread in threads:
                thread.join(60)
            assert len(reply) == 8
            assert all(np.array_equal(sound, undisturbed) for sound in reply.values())
    finally:
        front.close()
        for node in replicas:
            node.kill()


def test_a_stopped_process_is_left_for_another(undisturbed):
    """A real SIGSTOP: its sockets stay open, and say nothing more."""
    replicas = [ReplicaProcess() for _ in range(2)]
    front = Proxy(*(replica_process.port for replica_process in replicas))
    try:
        with joined(front.address) as engine:
            prompt = prompt_of(engine)
            front.take_turns(0, 1, 1, 1)
            stream = engine.stream(ask(instruction=SOUND + " rtf=0.4"), prompt)
            chunks = [next(stream)]
            replicas[0].freeze()
            front.ports[:] = front.ports[1:]
            chunks += stream
            assert np.array_equal(whole(chunks), undisturbed) and stream.n_replays == 1
    finally:
        front.close()
        for replica_process in replicas:
            replica_process.kill()


def test_no_clock_of_the_day_is_read_between_a_studio_and_its_fleet():
    """Two machines may be an hour apart: what is said of time is a length, never a moment."""
    files = list((ROOT / "webui" / "cluster").glob("*.py"))
    assert len(files) > 10
    for path in files:
        names = {
            node.attr
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in ("time", "datetime")
        }
        assert names <= {"monotonic", "sleep"}, path.name


def test_a_full_replica_says_when_to_come_back_and_goes_on_with_what_it_has():
    full = Replica(engine_of(), STALL_S, max_streams=2)
    with served(full) as port, joined(port) as engine:
        prompt, sound = prompt_of(engine), "seconds=2 chunk=0.2 first=0.04"
        streams = [engine.stream(ask(id=f"s{n}", instruction=sound), prompt) for n in range(2)]
        chunks = [[next(stream)] for stream in streams]
        with pytest.raises(Busy) as error:
            next(engine.stream(ask(id="s3"), prompt))
        assert error.value.code == "busy" and error.value.retry_after_s
        assert engine.notes(ask(instruction="sing")), "questions are answered all the same"
        streams[0]._connection.close()  # as if its replica had died: a replay is never refused
        streams[0]._connection = None
        for stream, stream_chunks in zip(streams, chunks, strict=True):
            stream_chunks += stream
        assert streams[0].n_replays == 1 and np.array_equal(*map(whole, chunks))
        assert until(lambda: full.scheduler.n_open == 0)
        assert len(whole(engine.stream(ask(id="s4"), prompt)))


def test_a_proxy_without_any_replica_is_busy():
    with fleet(engine_of()) as (engine, _, _):
        assert isinstance(engine._refusal(503), Busy) and engine._refusal(503).retry_after_s


@pytest.mark.parametrize("n_bytes", [400, 60_000], ids=["before the first chunk", "in the middle"])
def test_a_fleet_that_needs_a_moment_to_see_a_death_is_asked_again(n_bytes, undisturbed):
    """Its proxy refuses connections until it has found another replica."""
    with fleet(engine_of(), cut_after=(1 << 30, n_bytes)) as (engine, _, _):
        prompt, connect, refusals = prompt_of(engine), engine._connect, [Busy("busy.fleet")] * 3

        def connect_late(version=""):
            if chunk_stream.n_replays + chunk_stream._tries and refusals:
                raise refusals.pop()
            return connect(version)

        engine._connect = connect_late
        chunk_stream = engine.stream(ask(instruction=SOUND), prompt)
        assert np.array_equal(whole(chunk_stream), undisturbed) and not refusals


def test_who_hears_the_wait_is_told_within_a_second(monkeypatch):
    with fleet(engine_of(), cut_after=(1 << 30, 60_000)) as (engine, front, _):
        monkeypatch.setattr(stream, "HEARD_S", 0.2)
        chunk_stream = engine.stream(ask(instruction=SOUND), prompt_of(engine))
        chunk_stream.slack_s = 0.0
        chunks = [next(chunk_stream)]
        front.ports[:] = [free_port()]  # nobody lives there
        with pytest.raises(EngineFault) as error:
            chunks += chunk_stream
        assert error.value.code == "engine_lost" and len(chunks) < 10
