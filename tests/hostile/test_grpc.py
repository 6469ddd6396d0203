"""gRPC's door, and what it makes of messages that nobody should send."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import re
import socket

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from tests.api import rpc
from tests.api.rpc import key, read_pcm, refusal, request, trailers_of
from tests.api.test_stream import idle, settle
from webui.api.rpc import guard
from webui.errors import KaikouError
from webui.proto import kaikou_pb2 as pb
from webui.settings import load

OWNER = "kk_the_first_key"
LONG = "seconds=600 rtf=0.5"
OPEN = {"/grpc.health.v1.Health/Check"}  # for probes, which have no key; says serving or not
FILES = (pb.DESCRIPTOR, health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR)


@pytest.fixture(scope="module")
def locked():
    with rpc.rpc_running(env={"KAIKOU_API_KEY": OWNER, "KAIKOU_MAX_BODY_MB": "1"}) as served:
        yield served


@pytest.fixture(scope="module")
def served():
    env = {
        "KAIKOU_IDLE_S": "1",
        "KAIKOU_BODY_S": "1",
        "KAIKOU_UNREAD_S": "2",
        "KAIKOU_MAX_BODY_MB": "1",
    }
    env["KAIKOU_STARTS_PER_MINUTE"] = "100000"
    with rpc.rpc_running(env={**env, "KAIKOU_SOCKETS_PER_ADDRESS": "3"}) as served:
        yield served


def methods() -> set[str]:
    return {
        f"/{service.full_name}/{method.name}"
        for file in FILES
        for service in file.services_by_name.values()
        for method in service.methods
    }


def raw(served, method: str):
    """A call whose messages are bytes, whatever kind the method is of."""
    return served.channel.stream_stream(method)


def open_methods(served) -> set[str]:
    def code(method):
        return refusal(lambda: raw(served, method)(iter([b""]), timeout=20)).code()

    open_now = set()
    for method in methods():
        try:
            if code(method) != grpc.StatusCode.UNAUTHENTICATED:
                open_now.add(method)
        except AssertionError:  # it was answered
            open_now.add(method)
    return open_now


def new_key(served, *scopes: str, per_minute: int = 600) -> tuple[str, str]:
    with served.studio.client(headers={"Authorization": f"Bearer {OWNER}"}) as http:
        created = http.post(
            "/v1/keys", json={"name": "k", "scopes": scopes, "per_minute": per_minute}
        ).json()
        return created["key"], created["id"]


def test_every_method_refuses_without_a_key_but_the_named_one(locked):
    assert len(methods()) == 11 and methods() - set(guard.NEEDS) == {"/grpc.health.v1.Health/Watch"}
    assert {m for m, needs in guard.NEEDS.items() if needs is None} == OPEN
    assert open_methods(locked) == OPEN


def test_the_census_finds_a_method_that_is_let_through(monkeypatch, tmp_path):
    """The control: were a method open that nobody named, the test above would fail."""
    from tests.engine.fake import FakeEngine
    from tests.serve import free_port
    from webui import app as root

    monkeypatch.setitem(guard.NEEDS, "/kaikou.v1.Voices/Get", None)
    port = free_port()
    monkeypatch.setenv("KAIKOU_API_KEY", OWNER)

    async def open_in_process(data_dir) -> set[str]:
        settings = load(["--grpc-port", str(port), "--data-dir", data_dir])
        app, studio = root.build(settings, FakeEngine)
        await app.state.rpc.start()
        try:
            with pytest.raises(KaikouError, match="--grpc-port"):  # it is taken now
                await app.state.rpc.start()
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                served = rpc.Rpc(None, port, channel)
                return await asyncio.to_thread(open_methods, served)
        finally:
            await app.state.rpc.stop(1)
            studio.close()

    assert asyncio.run(open_in_process(str(tmp_path))) == {*OPEN, "/kaikou.v1.Voices/Get"}


def test_what_is_unknown_is_told_only_to_those_who_may_ask(locked):
    for method in ("/kaikou.v1.Speech/Fly", "/x/y", "/grpc.health.v1.Health/Watch"):
        call = raw(locked, method)
        assert refusal(lambda c=call: c(iter([b""]))).code() == grpc.StatusCode.UNAUTHENTICATED
        code = refusal(lambda c=call: c(iter([b""]), metadata=key(OWNER))).code()
        assert code == grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(
    "metadata",
    [
        (),
        key("kk_wrong"),
        key(""),
        (("authorization", "Basic a:b"),),
        (("authorization", OWNER),),
        (("cookie", f"kk_login={OWNER}"),),
    ],
)
def test_a_stranger_gets_nothing_and_what_he_sends_is_not_read(locked, metadata):
    error = refusal(lambda: locked.speech.Stream(request(), metadata=metadata))
    assert error.code() == grpc.StatusCode.UNAUTHENTICATED
    assert trailers_of(error)["kaikou-code"] in ("login_needed", "invalid_api_key")
    silent: queue.SimpleQueue = queue.SimpleQueue()  # he never sends his message
    call = raw(locked, "/kaikou.v1.Speech/Speak")(iter(silent.get, None), metadata=metadata)
    assert refusal(lambda: call).code() == grpc.StatusCode.UNAUTHENTICATED
    silent.put(None)


def test_scopes_rates_and_revocation_are_those_of_http(locked):
    voices, _ = new_key(locked, "voices")
    speak, speak_id = new_key(locked, "speak", per_minute=12)
    error = refusal(lambda: locked.speech.Stream(request(), metadata=key(voices)))
    assert error.code() == grpc.StatusCode.PERMISSION_DENIED
    assert trailers_of(error)["kaikou-code"] == "scope"
    deleting = refusal(lambda: locked.voices.Delete(pb.DeleteVoice(id="x"), metadata=key(speak)))
    assert deleting.code() == grpc.StatusCode.PERMISSION_DENIED
    assert locked.voices.List(pb.ListVoices(), metadata=key(speak)).voices
    assert read_pcm(locked.speech.Stream(request(), metadata=key(speak)))
    with locked.studio.client(headers={"Authorization": f"Bearer {speak}"}) as http:
        assert http.get("/v1/audio/voices").status_code == 200
    long = request(instructions=LONG)
    call = locked.speech.Stream(long, metadata=key(speak))
    next(call)
    error = refusal(lambda: locked.voices.List(pb.ListVoices(), metadata=key(speak)))
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, "HTTP's requests count too"
    assert (
        trailers_of(error)["kaikou-code"] == "rate_limited"
        and int(trailers_of(error)["retry-after"]) > 0
    )
    with locked.studio.client(headers={"Authorization": f"Bearer {OWNER}"}) as http:
        assert http.delete(f"/v1/keys/{speak_id}").status_code == 204
    ended = refusal(lambda: call)
    assert ended.code() == grpc.StatusCode.UNAUTHENTICATED, "in mid-stream"
    assert idle(settle(locked.studio, idle))


def test_one_visitor_does_not_see_what_is_anothers(locked):
    from tests.voice_like import file_of, voice_like

    voices, _ = new_key(locked, "voices")
    created = locked.voices.Create(
        pb.CreateVoice(recording=file_of(voice_like()), name="Ann", consent="Ann agreed"),
        metadata=key(voices),
    )
    other, _ = new_key(locked, "voices", "speak")
    fixed = refusal(lambda: locked.voices.Get(pb.GetVoice(id="voice-x"), metadata=key(other)))
    assert fixed.code() == grpc.StatusCode.NOT_FOUND
    with locked.studio.client(headers={"Authorization": f"Bearer {voices}"}) as http:
        assert http.get(f"/v1/audio/voices/{created.voice.id}").status_code == 200, "one library"


def test_a_page_of_a_browser_is_refused(served):
    metadata = (("origin", "https://example.org"),)
    error = refusal(lambda: served.speech.Stream(request(), metadata=metadata))
    assert error.code() == grpc.StatusCode.PERMISSION_DENIED
    assert trailers_of(error)["kaikou-code"] == "bad_origin"


@pytest.mark.parametrize("method", ["Speak", "Stream", "Talk"])
@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\x02\xff\xfe",  # input: no UTF-8
        b"\x0a\x03\xed\xa0\x80",  # input: half a character
        b"\x0a\x7fshort",  # cut off
        b"\xff\xff\xff\xff",
        b"\x0f",  # a wire type that is none
    ],
)
def test_what_is_no_message_is_refused_by_name(served, method, data):
    if method == "Talk" and data[:1] == b"\x0a" and b"short" not in data:
        data = b"\x0a" + bytes([len(data) + 2]) + b"\x0a" + bytes([len(data)]) + data
    error = refusal(lambda: raw(served, f"/kaikou.v1.Speech/{method}")(iter([data])))
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert trailers_of(error)["kaikou-code"] == "bad_body"
    assert len(read_pcm(served.speech.Stream(request()))) > 1000, "and the next one works"


def test_a_field_of_a_later_version_is_passed_over(served):
    foreign = b"\xa2\x06\x03abc" + b"\x98\x06\x05"  # fields 100 and 99
    call = raw(served, "/kaikou.v1.Speech/Speak")(iter([request().SerializeToString() + foreign]))
    assert pb.Sound.FromString(next(call)).pcm == served.speech.Speak(request()).pcm
    later = [m.SerializeToString() for m in rpc.talk(rpc.TEXT)]
    later.insert(1, b"\xaa\x06\x02hi")  # a message of Talk that this version does not know
    sounds = [pb.Sound.FromString(d) for d in raw(served, "/kaikou.v1.Speech/Talk")(iter(later))]
    assert read_pcm(sounds) == read_pcm(served.speech.Talk(rpc.talk(rpc.TEXT)))


def test_a_message_over_the_limit_is_not_read(locked):
    big = request(ref_audio=bytes(2 << 20), consent=True)
    error = refusal(lambda: locked.speech.Stream(big, metadata=key(OWNER)))
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "larger than max" in error.details()
    assert read_pcm(locked.speech.Stream(request(), metadata=key(OWNER)))


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"input": ""}, "no_text"),
        ({"input": "\x00\x07"}, "no_text"),
        ({"input": "字" * 100_000}, "too_long_text"),
        ({"voice": "nobody"}, "voice_gone"),
        ({"voice": "../../etc/passwd"}, "voice_gone"),
        ({"voice": ""}, "no_voice"),
        ({"mode": "opera"}, "bad_field"),
        ({"speed": 9.0}, "bad_speed"),
        ({"speed": float("nan")}, "bad_field"),
        ({"speed": 0.0}, "bad_speed"),
        ({"ref_audio": b"no sound at all", "consent": True}, "bad_audio"),
    ],
)
def test_what_cannot_be_spoken_is_refused_as_over_http(served, fields, code):
    error = refusal(lambda: served.speech.Stream(request(**fields)))
    assert trailers_of(error)["kaikou-code"] == code
    assert error.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND)
    assert b"Traceback" not in trailers_of(error)["kaikou-error-bin"]


@pytest.mark.parametrize("name", ["start_s", "end_s"])
def test_a_window_that_is_no_window_is_refused(served, name):
    fields = {"recording": b"x", "name": "n", "consent": "c"}
    for value in (float("nan"), float("inf"), 1.0):
        error = refusal(lambda v=value: served.voices.Create(pb.CreateVoice(**fields, **{name: v})))
        assert trailers_of(error)["kaikou-code"] == "bad_field"
    empty = refusal(lambda: served.voices.Create(pb.CreateVoice(name="n", consent="c")))
    assert trailers_of(empty)["kaikou-param"] == "recording"


def piece(text: str, **more) -> pb.TalkMessage:
    return pb.TalkMessage(piece=pb.Piece(text=text, **more))


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        ([piece("Hello.")], "no_request"),
        ([], "no_request"),
        ([*rpc.talk("Hello.", instructions=LONG), *rpc.talk("Again.")], "no_request"),
        ([*rpc.talk("Hello.", instructions=LONG), piece("", last=True), piece("x")], "text_over"),
        ([*rpc.talk()], "no_text"),
        ([*rpc.talk("字" * 5000)], "too_long_text"),
        ([*rpc.talk("Hello.", voice="nobody")], "voice_gone"),
    ],
)
def test_a_talk_out_of_order_is_refused_by_name(served, messages, code):
    error = refusal(lambda: served.speech.Talk(iter(messages)))
    assert trailers_of(error)["kaikou-code"] == code
    assert idle(settle(served.studio, idle))


def test_a_call_that_ends_while_it_begins_is_ended(served):
    """What is being sent then cannot be taken back, and must not be sent twice."""
    for _ in range(60):
        messages = [*rpc.talk("Hello."), piece("", last=True), piece("more")]
        with contextlib.suppress(grpc.RpcError):  # or it was spoken before the last one came
            list(served.speech.Talk(iter(messages), timeout=20))
    codes = "ExecuteBatchError|unexpected failure"
    assert not re.search(codes, served.studio.log.read_text())


def test_whoever_falls_silent_is_not_waited_for(served):
    quiet: queue.SimpleQueue = queue.SimpleQueue()
    for messages in ([], list(rpc.talk("Hello")), list(rpc.talk(rpc.TEXT, credit=100))):
        for message in messages:
            quiet.put(message)
        call = served.speech.Talk(iter(quiet.get, None), timeout=30)
        assert trailers_of(refusal(lambda c=call: c))["kaikou-code"] == "idle"
        quiet.put(None)
        quiet = queue.SimpleQueue()


def test_a_message_that_never_comes_is_not_waited_for(served):
    silent: queue.SimpleQueue = queue.SimpleQueue()
    call = raw(served, "/kaikou.v1.Speech/Speak")(iter(silent.get, None), timeout=60)
    error = refusal(lambda: call)
    assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert trailers_of(error)["kaikou-code"] == "too_slow"
    silent.put(None)


def test_a_reader_who_takes_nothing_is_given_up(served):
    call = served.speech.Stream(request(instructions="seconds=600"))
    assert dict(call.initial_metadata())["x-seed"] == "5"
    assert settle(served.studio, lambda s: s["open"])["open"]
    after = settle(served.studio, idle, limit_s=20)
    assert idle(after) and after["opened"] == after["finalised"]
    assert refusal(lambda: call)


def test_talks_count_as_sockets_do(served):
    quiet: queue.SimpleQueue = queue.SimpleQueue()
    calls = [served.speech.Talk(iter(quiet.get, None)) for _ in range(4)]
    codes = [trailers_of(refusal(lambda c=call: c)).get("kaikou-code") for call in calls]
    assert sorted(codes) == ["idle", "idle", "idle", "too_many_sockets"]
    for _ in calls:
        quiet.put(None)


def test_what_is_not_grpc_is_not_answered(served):
    for line in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01" + bytes(200), bytes(100)):
        with socket.create_connection(("127.0.0.1", served.port), timeout=10) as raw_socket:
            raw_socket.sendall(line)
            assert b"200" not in raw_socket.recv(1 << 16)
    assert read_pcm(served.speech.Stream(request()))


def test_no_word_or_key_reaches_the_log(locked):
    refusal(lambda: locked.speech.Stream(request(input="secretword " * 900), metadata=key(OWNER)))
    refusal(lambda: raw(locked, "/secretword/x")(iter([b""]), metadata=key("kk_secretword")))
    log = locked.studio.log.read_text()
    assert "RPC" in log and not re.search(f"secretword|{OWNER}", log)
