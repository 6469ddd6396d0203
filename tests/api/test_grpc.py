"""gRPC: the same sound as over HTTP, no more of it than is taken, an end when it is cancelled."""

from __future__ import annotations

import queue
import time

import grpc
import pytest
from google.protobuf.json_format import MessageToDict
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from tests.api import rpc
from tests.api.rpc import TEXT, VOICE, read_pcm, refusal, request, trailers_of
from tests.api.test_stream import idle, settle
from tests.api.typist import Typist
from tests.serve import free_port, running
from webui.proto import kaikou_pb2 as pb

LONG = "seconds=600"
# a connection holds 64 kB, a message that waits for it a second, the engine is a second ahead of
# that, and a chunk of 0.2 s is being made
MOST = 65535 // 2 + 24000 + 24000 + 4800


@pytest.fixture(scope="module")
def served():
    with rpc.rpc_running(env={"KAIKOU_STARTS_PER_MINUTE": "100000"}) as served:
        yield served


def body(**fields) -> dict:
    fields = MessageToDict(request(**fields), preserving_proto_field_name=True)
    return {**fields, "seed": int(fields["seed"]), "response_format": "pcm"}


def state_of(served, call) -> dict:
    job = dict(call.initial_metadata())["x-job-id"]
    with served.studio.client() as http:
        return http.get(f"/tts/result/{job}.json").json()


def settled_samples(served, call) -> int:
    """Made so far, once that has stopped growing."""
    n, end = -1, time.monotonic() + 20
    while time.monotonic() < end:
        now = state_of(served, call)["samples"]
        if now == n > 0:
            return n
        n = now
        time.sleep(0.4)
    raise AssertionError("it goes on and on")


def test_a_stream_and_a_whole_are_what_http_sends(served):
    with served.studio.client() as http:
        expected = http.post("/v1/audio/speech", json=body()).content
    assert len(expected) > 100_000
    call = served.speech.Stream(request())
    assert read_pcm(call) == expected
    about = dict(call.initial_metadata())
    assert (about["x-seed"], about["x-voice"], about["x-engine"]) == ("5", VOICE, "fake")
    assert b"AI-generated" in about["wav-head-bin"]
    whole = served.speech.Speak(request())
    assert whole.pcm == expected and whole.last and (whole.seed, whole.rate) == (5, 24000)


def test_every_message_lies_in_one_sentence_and_names_it(served):
    sounds = list(served.speech.Stream(request(input="One. Two, three. Four.")))
    segments = [sound.segment for sound in sounds]
    assert segments == sorted(segments) and len(set(segments)) > 1 and segments[0] == 0


def test_fields_that_are_not_set_mean_what_http_means_by_them(served):
    with served.studio.client() as http:
        expected = http.post(
            "/v1/audio/speech",
            json={"input": TEXT, "voice": VOICE, "seed": 0, "response_format": "pcm"},
        ).content
    assert read_pcm(served.speech.Stream(pb.Request(input=TEXT, voice=VOICE, seed=0))) == expected
    assert served.speech.Speak(pb.Request(input=TEXT, voice=VOICE)).seed >= 0


def test_a_text_in_pieces_is_what_the_text_socket_speaks(served):
    pieces = ("你好，今天", "我们来听一听声音。", " And a second sentence.")
    typist = Typist(served.studio)
    expected = bytes(typist.say(*pieces, mode="instruct").pcm)
    typist.close()
    for credit in (1 << 40, None):
        assert read_pcm(served.speech.Talk(rpc.talk(*pieces, credit=credit))) == expected


def test_a_reader_who_reads_nothing_stops_the_engine(served):
    call = served.speech.Stream(request(instructions=LONG))
    n = settled_samples(served, call)
    assert 0 < n <= MOST
    sounds = [next(call) for _ in range(5)]
    assert sum(len(sound.pcm) for sound in sounds) > 0
    call.cancel()
    assert idle(settle(served.studio, idle))


def test_one_who_reads_nothing_holds_nobody_else_back(served):
    unread = [served.speech.Stream(request(instructions=LONG, seed=n)) for n in range(3)]
    for call in unread:
        settled_samples(served, call)
    assert len(read_pcm(served.speech.Stream(request()))) > 100_000, "on the same connection"
    for call in unread:
        call.cancel()
    assert idle(settle(served.studio, idle))


def test_no_more_is_sent_than_was_credited(served):
    messages: queue.SimpleQueue = queue.SimpleQueue()
    for message in rpc.talk(TEXT, credit=48000, instructions=LONG):
        messages.put(message)
    call = served.speech.Talk(iter(messages.get, None))
    n_samples = 0
    while n_samples < 48000:
        n_samples += len(next(call).pcm) // 2
    assert n_samples == 48000
    n_ahead = settled_samples(served, call)
    assert n_ahead <= 48000 + 2 * 4800
    messages.put(rpc.credit(60000))
    while n_samples < 60000:
        n_samples += len(next(call).pcm) // 2
    assert n_samples == 60000
    messages.put(pb.TalkMessage(cancel=pb.Cancel()))
    error = refusal(lambda: call)
    assert (error.code(), trailers_of(error)["kaikou-code"]) == (
        grpc.StatusCode.CANCELLED,
        "cancelled",
    )
    messages.put(None)
    assert idle(settle(served.studio, idle))


@pytest.mark.parametrize("kind", ["Speak", "Stream", "Talk"])
def test_cancelling_a_call_ends_its_job_within_one_step(served, kind):
    before = served.studio.state()
    if kind == "Speak":
        call = served.speech.Speak.future(request(instructions="seconds=600 rtf=0.5"))
        settle(served.studio, lambda s: s["opened"] > before["opened"])
    else:
        messages = rpc.talk(TEXT, instructions="seconds=600 rtf=0.5")
        slow = request(instructions="seconds=600 rtf=0.5")
        call = getattr(served.speech, kind)(messages if kind == "Talk" else slow)
        next(call)
    call.cancel()
    after = settle(served.studio, lambda s: idle(s) and s["opened"] == s["finalised"])
    assert idle(after) and after["opened"] == after["finalised"] == before["opened"] + 1


def test_a_connection_that_goes_away_ends_its_jobs(served):
    with grpc.insecure_channel(served.address) as channel:
        calls = [
            pb_stub.Stream(request(instructions=LONG, seed=n))
            for n, pb_stub in enumerate([rpc.SpeechStub(channel)] * 3)
        ]
        for call in calls:
            next(call)
    assert idle(settle(served.studio, idle))


def test_a_failure_in_mid_stream_is_told_and_the_next_one_works(served):
    call = served.speech.Stream(request(instructions="seconds=5 fail=3"))
    assert len(next(call).pcm) > 0
    error = refusal(lambda: call)
    assert (error.code(), trailers_of(error)["kaikou-code"]) == (grpc.StatusCode.INTERNAL, "fault")
    assert read_pcm(served.speech.Stream(request()))


def test_the_library_of_voices(served):
    from tests.voice_like import file_of, voice_like

    listed = served.voices.List(pb.ListVoices()).voices
    with served.studio.client() as http:
        assert [v.id for v in listed] == [
            v["id"] for v in http.get("/v1/audio/voices").json()["data"]
        ]
    new = pb.CreateVoice(recording=file_of(voice_like()), name="Ann")
    error = refusal(lambda: served.voices.Create(new))
    assert error.code() == grpc.StatusCode.PERMISSION_DENIED
    assert trailers_of(error)["kaikou-code"] == "consent"
    new.consent = "Ann agreed"
    created = served.voices.Create(new)
    assert (
        created.voice.name == "Ann"
        and created.report["sample_rate_hz"]
        and created.end_s > created.start_s
    )
    assert served.voices.Get(pb.GetVoice(id=created.voice.id)) == created.voice
    assert read_pcm(served.speech.Stream(request(voice=created.voice.id)))
    assert served.voices.Delete(pb.DeleteVoice(id=created.voice.id)).id == created.voice.id
    error = refusal(lambda: served.voices.Get(pb.GetVoice(id=created.voice.id)))
    assert error.code() == grpc.StatusCode.NOT_FOUND


def test_a_recording_for_one_request_needs_consent(served):
    from tests.voice_like import file_of, voice_like

    fields = request(voice="", ref_audio=file_of(voice_like()))
    error = refusal(lambda: served.speech.Stream(fields))
    assert error.code() == grpc.StatusCode.PERMISSION_DENIED
    fields.consent = True
    assert read_pcm(served.speech.Stream(fields))


def test_health_and_reflection_answer_the_official_clients(served):
    health = health_pb2_grpc.HealthStub(served.channel)
    for name in ("", "kaikou.v1.Speech", "kaikou.v1.Voices"):
        answer = health.Check(health_pb2.HealthCheckRequest(service=name))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    listed = health.List(health_pb2.HealthListRequest()).statuses
    assert set(listed) == {"", "kaikou.v1.Speech", "kaikou.v1.Voices"}
    unknown = refusal(lambda: health.Check(health_pb2.HealthCheckRequest(service="x")))
    assert unknown.code() == grpc.StatusCode.NOT_FOUND
    listed = ProtoReflectionDescriptorDatabase(served.channel)
    assert set(listed.get_services()) >= {"kaikou.v1.Speech", "kaikou.v1.Voices"}
    file = listed.FindFileContainingSymbol("kaikou.v1.Sound")
    assert [m.name for m in file.message_type] == list(pb.DESCRIPTOR.message_types_by_name)


def test_until_it_is_ready_it_says_so():
    with rpc.rpc_running(fake_start_s=60, wait=False) as served:
        error = refusal(lambda: served.speech.Stream(request()))
        assert error.code() == grpc.StatusCode.UNAVAILABLE and trailers_of(error)["retry-after"]
        health = health_pb2_grpc.HealthStub(served.channel)
        answer = health.Check(health_pb2.HealthCheckRequest(service="kaikou.v1.Speech"))
        assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING


def test_a_full_line_says_when_to_come_again():
    env = {"KAIKOU_MAX_STREAMS": "1", "KAIKOU_MAX_WAITING": "1"}
    with rpc.rpc_running(env=env) as served:
        slow = [served.speech.Stream(request(instructions="seconds=600 rtf=0.9")) for _ in range(2)]
        next(slow[0])
        settle(served.studio, lambda s: s["waiting"] == 1)
        error = refusal(lambda: served.speech.Stream(request()))
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (
            trailers_of(error)["kaikou-code"] == "busy"
            and int(trailers_of(error)["retry-after"]) >= 1
        )
        zh = refusal(
            lambda: served.speech.Stream(request(), metadata=(("accept-language", "zh-CN"),))
        )
        assert any("\u4e00" <= c <= "\u9fff" for c in zh.details())


def test_with_its_certificate_it_listens_to_other_machines_too(tmp_path):
    chain, own = rpc.certificate(tmp_path)
    tls = ("--host", "0.0.0.0", "--grpc-cert", str(chain), "--grpc-key", str(own))
    port, bearer = free_port(), rpc.key("kk_x")
    with running("--grpc-port", str(port), *tls, env={"KAIKOU_API_KEY": "kk_x"}):
        trusted = grpc.ssl_channel_credentials(chain.read_bytes())
        with grpc.secure_channel(f"localhost:{port}", trusted) as channel:
            assert read_pcm(rpc.SpeechStub(channel).Stream(request(), metadata=bearer, timeout=20))
        for channel in (
            grpc.insecure_channel(f"localhost:{port}"),
            grpc.secure_channel(f"localhost:{port}", grpc.ssl_channel_credentials()),
        ):
            call = rpc.SpeechStub(channel).Stream(request(), metadata=bearer, timeout=20)
            assert refusal(lambda c=call: c).code() == grpc.StatusCode.UNAVAILABLE
            channel.close()


def test_the_beats_of_a_client_that_waits_are_taken_for_no_attack(served):
    """gRPC's own rule would let one come in five minutes and close the connection at the third."""
    beats = [("grpc.keepalive_time_ms", 6000)]
    with grpc.insecure_channel(served.address, beats) as channel:
        slow = request(instructions="seconds=40 rtf=1.0 chunk=5")
        assert rpc.SpeechStub(channel).Speak(slow).last


def test_the_program_ends_while_a_stream_is_read():
    with rpc.rpc_running() as served:
        call = served.speech.Stream(request(instructions="seconds=600 rtf=0.5"))
        next(call)
        served.studio.process.send_signal(2)
        assert served.studio.process.wait(20) == 0
        assert refusal(lambda: call).code() in (
            grpc.StatusCode.UNAVAILABLE,
            grpc.StatusCode.CANCELLED,
        )
