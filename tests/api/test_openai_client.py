"""The official `openai` client against the built-in voice, over a real socket: every format,
streams, events, voices, and its exceptions.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import socket
import time
import wave

import httpx
import numpy as np
import openai
import pytest
import soundfile

from tests.api.test_http import clip
from tests.api.test_stream import grown_threads, idle, settle
from tests.serve import running
from tests.unit.test_audio_coder import read, same

TEXT = "The quick brown fox jumps over the lazy dog."
FORMATS = ("mp3", "opus", "aac", "flac", "wav", "pcm")
ASK = {"model": "tts-1", "voice": "alloy", "input": TEXT}
SEED = {"seed": 7}
KINDS = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}


@pytest.fixture(scope="module")
def server():
    with running(engine="builtin", env={"KAIKOU_STARTS_PER_MINUTE": "100000"}) as studio:
        yield studio


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(
        base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=60
    ) as api_client:
        yield api_client


@pytest.fixture(scope="module")
def pcm(client) -> bytes:
    """What every format is compared with: the same words, voice and seed as bare samples."""
    return client.audio.speech.create(**ASK, response_format="pcm", extra_body=SEED).content


def samples_of(kind: str, data: bytes, n: int) -> np.ndarray:
    """Decoded by libsndfile, or by the standard library where there is nothing to decode; AAC,
    which libsndfile cannot read, by FFmpeg's own decoder.
    """
    if kind == "pcm":
        return np.frombuffer(data, "<i2").astype(np.float32) / 32768
    if kind == "wav":
        with wave.open(io.BytesIO(data)) as file:
            assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (24000, 1, 2)
            return np.frombuffer(file.readframes(n), "<i2").astype(np.float32) / 32768
    decoded, rate = read(kind, data)
    assert rate == 24000
    return decoded


def check(kind: str, data: bytes, pcm: bytes, is_whole: bool = False) -> None:
    decoded = samples_of(kind, data, len(pcm) // 2)
    if kind in ("wav", "pcm"):
        assert np.array_equal(decoded, samples_of("pcm", pcm, 0))
    else:
        same(kind, decoded, pcm, is_whole)


@pytest.mark.parametrize("kind", FORMATS)
def test_create_gives_the_same_sound_in_every_format(client, pcm, kind):
    assert len(pcm) > 48000
    answer = client.audio.speech.with_raw_response.create(
        **ASK, response_format=kind, extra_body=SEED
    )
    assert answer.headers["content-type"] == KINDS[kind]
    assert ("content-length" in answer.headers) == (kind == "flac")
    check(kind, answer.content, pcm)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_streamed_answer_is_the_same(client, pcm, kind):
    with client.audio.speech.with_streaming_response.create(
        **ASK, response_format=kind, extra_body=SEED
    ) as answer:
        assert (
            answer.headers["x-seed"] == "7"
            and answer.headers["x-voice"] == "starter-en-mid"
            and answer.headers["x-engine"] == "builtin"
        )
        check(kind, b"".join(answer.iter_bytes()), pcm)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_streamed_answer_comes_while_it_is_made(studio, kind):
    """Twenty pieces of sound, one every 50 ms."""
    ask = {
        "model": "auto",
        "voice": "alloy",
        "input": TEXT,
        "instructions": "rtf=0.25 chunk=0.2 seconds=4",
    }
    with (
        openai.OpenAI(base_url=studio.url + "/v1", api_key="none", max_retries=0) as paced,
        paced.audio.speech.with_streaming_response.create(
            **ask, response_format=kind, extra_body={"stream": True} if kind == "flac" else {}
        ) as answer,
    ):
        assert "content-length" not in answer.headers
        assert len([p for p in answer.iter_bytes() if p]) > 3


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("is_events", [False, True])
def test_what_comes_when_nobody_speaks_of_streaming_opens_in_an_ordinary_reader(
    server, pcm, kind, is_events
):
    """soundfile.read() of the bytes as they came; a FLAC whose header said 0 samples could not be
    read at all.
    """
    ask = {**ASK, **SEED, "response_format": kind}
    answer = httpx.post(
        server.url + "/v1/audio/speech",
        json=ask | ({"stream_format": "sse"} if is_events else {}),
        timeout=60,
    )
    data = answer.content
    if is_events:
        events = events_of(answer.text.splitlines())
        assert events[-1]["type"] == "speech.audio.done" and events[-1]["usage"]["output_tokens"]
        data = b"".join(base64.b64decode(e["audio"]) for e in events[:-1])
    if kind not in ("pcm", "aac"):
        sound, rate = soundfile.read(io.BytesIO(data), dtype="int16")
        room = {"mp3": 3 * 1152, "opus": 960}.get(kind, 0)  # what these pad their ends with
        assert rate == 24000 and 0 <= len(sound) - len(pcm) // 2 <= room
        if kind in ("flac", "wav"):
            assert soundfile.info(io.BytesIO(data)).frames == len(pcm) // 2
            assert sound.tobytes() == pcm
    check(kind, data, pcm, is_whole=kind == "flac")


def test_flac_is_streamed_for_who_says_so(client, pcm):
    answer = client.audio.speech.with_raw_response.create(
        **ASK, response_format="flac", extra_body={**SEED, "stream": True}
    )
    assert "content-length" not in answer.headers
    check("flac", answer.content, pcm)


@pytest.mark.parametrize("kind", ["wav", "mp3", "flac"])
def test_events_of_a_file_that_is_wanted_whole_hold_its_true_sizes(client, pcm, kind):
    with client.audio.speech.with_streaming_response.create(
        **ASK, response_format=kind, stream_format="sse", extra_body={**SEED, "stream": False}
    ) as answer:
        events = events_of(answer.iter_lines())
    data = b"".join(base64.b64decode(e["audio"]) for e in events[:-1])
    assert soundfile.info(io.BytesIO(data)).frames == len(pcm) // 2
    if kind == "wav":
        with wave.open(io.BytesIO(data)) as file:
            assert file.getnframes() == len(pcm) // 2


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("/v1/audio/speech", {"response_format": "flac"}),
        ("/v1/audio/speech", {"response_format": "wav", "stream": False}),
        ("/v1/audio/speech", {"response_format": "mp3", "stream": False, "stream_format": "sse"}),
    ],
)
def test_a_whole_file_is_made_for_nobody_who_has_left(studio, path, params):
    """A minute of sound in half a minute: it ends when its listener hangs up, not when it is
    made.
    """
    host, port = studio.url.removeprefix("http://").split(":")
    body = json.dumps({**ASK, "instructions": "seconds=60 rtf=0.5", **params}).encode()
    before = settle(studio, idle)["opened"]
    with socket.create_connection((host, int(port))) as caller:
        caller.sendall(
            f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        assert settle(studio, lambda now: now["opened"] > before)["opened"] == before + 1
    after = settle(studio, lambda now: idle(now) and now["opened"] == now["finalised"], 15)
    assert idle(after) and after["opened"] == after["finalised"]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_whole_file_has_its_length(client, pcm, kind):
    answer = client.audio.speech.with_raw_response.create(
        **ASK, response_format=kind, extra_body={**SEED, "stream": False}
    )
    assert int(answer.headers["content-length"]) == len(answer.content)
    check(kind, answer.content, pcm, is_whole=True)


def test_the_format_that_is_not_named_is_mp3_for_this_client_and_wav_for_others(server, client):
    assert (
        client.audio.speech.with_raw_response.create(**ASK).headers["content-type"] == "audio/mpeg"
    )
    content_types = {}
    for name, headers in {
        "curl": {"User-Agent": "curl/8"},
        "node": {"User-Agent": "OpenAI/JS 6.1.0"},
        "other": {"User-Agent": "Mine", "x-stainless-lang": "go"},
        "none": {},
        "async": {"User-Agent": "AsyncOpenAI/Python 2"},
        "like": {"User-Agent": "NotOpenAI/1"},
    }.items():
        with httpx.stream(
            "POST", server.url + "/v1/audio/speech", json={**ASK, "input": "Hi."}, headers=headers
        ) as r:
            content_types[name] = r.headers["content-type"]
    assert content_types == {
        "curl": "audio/wav",
        "node": "audio/mpeg",
        "other": "audio/mpeg",
        "none": "audio/wav",
        "async": "audio/mpeg",
        "like": "audio/wav",
    }
    with httpx.stream(
        "POST",
        server.url + "/v1/audio/speech",
        json={**ASK, "input": "Hi.", "response_format": None},
        headers={"User-Agent": "OpenAI/Python 3"},
    ) as r:
        assert r.headers["content-type"] == "audio/mpeg"


def events_of(lines) -> list[dict]:
    return [json.loads(line[6:]) for line in lines if line.startswith("data: ")]


@pytest.mark.parametrize("kind", ["pcm", "mp3"])
def test_events_carry_the_sound_and_then_the_usage(client, pcm, kind):
    with client.audio.speech.with_streaming_response.create(
        **ASK, response_format=kind, stream_format="sse", instructions="", extra_body=SEED
    ) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = events_of(answer.iter_lines())
    assert [e["type"] for e in events] == ["speech.audio.delta"] * (len(events) - 1) + [
        "speech.audio.done"
    ] and len(events) > 3
    check(kind, b"".join(base64.b64decode(e["audio"], validate=True) for e in events[:-1]), pcm)
    seconds = len(pcm) / 48000
    assert events[-1]["usage"] == {
        "input_tokens": len(TEXT),
        "output_tokens": int(np.ceil(seconds * 25)),
        "total_tokens": len(TEXT) + int(np.ceil(seconds * 25)),
    }


@pytest.mark.parametrize(
    "name",
    [
        "alloy",
        "ash",
        "ballad",
        "coral",
        "echo",
        "fable",
        "nova",
        "onyx",
        "sage",
        "shimmer",
        "verse",
        "marin",
        "cedar",
    ],
)
def test_every_voice_of_theirs_is_a_starter_of_ours(client, name):
    with client.audio.speech.with_streaming_response.create(
        model="gpt-4o-mini-tts", voice=name, input="Hi.", response_format="pcm"
    ) as answer:
        assert answer.headers["x-voice"].startswith("starter-")


def test_the_async_client_too(server, pcm):
    async def ask() -> bytes:
        async with (
            openai.AsyncOpenAI(
                base_url=server.url + "/v1", api_key="none", max_retries=0
            ) as api_client,
            api_client.audio.speech.with_streaming_response.create(
                **ASK, extra_body=SEED
            ) as answer,
        ):
            assert answer.headers["content-type"] == "audio/mpeg"
            return b"".join([p async for p in answer.iter_bytes()])

    check("mp3", asyncio.run(ask()), pcm)


def test_models(client):
    listed = [m.id for m in client.models.list()]
    assert listed == ["auto", "builtin"]
    assert [client.models.retrieve(name).id for name in (*listed, "tts-1", "gpt-4o-mini-tts")] == [
        *listed,
        "tts-1",
        "gpt-4o-mini-tts",
    ]
    with pytest.raises(openai.NotFoundError) as refused:
        client.models.retrieve("gpt-9")
    assert refused.value.code == "model_not_found" and "auto" in refused.value.message


def test_a_consent_is_kept_and_a_voice_made_under_it(client):
    consents, voices = client.audio.voice_consents, client.audio.voices
    consent = consents.create(
        name="Lin Wan", language="en-US", recording=("yes.wav", clip(4), "audio/x-wav")
    )
    assert (consent.object, consent.name, consent.language) == (
        "audio.voice_consent",
        "Lin Wan",
        "en-US",
    ) and consent.created_at > 1_700_000_000
    assert (
        consents.retrieve(consent.id) == consent
        and consents.update(consent.id, name="Lin Wan 2").name == "Lin Wan 2"
    )
    voice = voices.create(
        audio_sample=("me.wav", clip(5), "audio/x-wav"), consent=consent.id, name="Lin Wan"
    )
    assert (voice.object, voice.type, voice.name) == ("audio.voice", "audio_sample", "Lin Wan")
    assert (
        len(
            client.audio.speech.create(
                model="tts-1", voice={"id": voice.id}, input="Hi there.", response_format="pcm"
            ).content
        )
        > 10000
    )
    with pytest.raises(openai.ConflictError) as refused:
        consents.delete(consent.id)
    assert refused.value.code == "consent_in_use"
    deletion = voices.delete(voice.id)
    assert (deletion.id, deletion.deleted, deletion.object) == (
        voice.id,
        True,
        "audio.voice.deleted",
    )
    deletion = consents.delete(consent.id)
    assert (deletion.id, deletion.deleted) == (consent.id, True)
    with pytest.raises(openai.NotFoundError):
        consents.retrieve(consent.id)


def test_consents_are_listed_in_pages(client):
    consent_ids = [
        client.audio.voice_consents.create(
            name=f"Person {n}", language="zh-CN", recording=clip(2)
        ).id
        for n in range(5)
    ]
    page = client.audio.voice_consents.list(limit=2)
    assert [c.id for c in page.data] == consent_ids[:-3:-1] and page.has_more
    assert [c.id for c in client.audio.voice_consents.list(limit=2)] == consent_ids[::-1], (
        "the client follows the pages by itself"
    )
    for consent in consent_ids:
        client.audio.voice_consents.delete(consent)
    assert list(client.audio.voice_consents.list()) == []


def test_a_reference_that_comes_along_is_spoken_as_and_not_saved(server, client):
    before = [v["id"] for v in httpx.get(server.url + "/v1/audio/voices").json()["data"]]
    sound = base64.b64encode(clip(5)).decode()
    for ref in (
        sound,
        "data:audio/wav;base64," + sound,
        "data:audio/webm;codecs=opus;base64," + sound,
    ):
        with client.audio.speech.with_streaming_response.create(
            **ASK,
            response_format="opus",
            extra_body={**SEED, "ref_audio": ref, "ref_text": "so it was", "consent": True},
        ) as answer:
            assert answer.headers["x-voice"].startswith("draft-")
            assert len(read("opus", b"".join(answer.iter_bytes()))[0]) > 24000
    assert [v["id"] for v in httpx.get(server.url + "/v1/audio/voices").json()["data"]] == before
    assert not list(server.data_dir.glob("voices/*")), "something of it is on disk"


def test_every_refusal_is_its_exception(server, client):
    def refused(kind: type, code: str, ask) -> openai.APIStatusError:
        with pytest.raises(openai.APIStatusError) as exc_info:
            ask()
        error = exc_info.value
        assert (
            type(error) is kind
            and error.code == code
            and error.message
            and isinstance(error.body, dict)
            and {"message", "type", "param", "code"} <= set(error.body)
        )
        return error

    speech = client.audio.speech.create
    refused(
        openai.BadRequestError,
        "bad_body",
        lambda: client.post(
            "/audio/voices",
            cast_to=object,
            content=b"x",
            options={"headers": {"Content-Type": "Multipart/form-data"}},
        ),
    )
    refused(
        openai.PermissionDeniedError,
        "bad_origin",
        lambda: speech(**ASK, extra_headers={"Origin": "https://evil.example"}),
    )
    refused(openai.NotFoundError, "voice_gone", lambda: speech(**{**ASK, "voice": "voice-none"}))
    assert (
        refused(
            openai.NotFoundError, "model_not_found", lambda: speech(**{**ASK, "model": "tts-9"})
        ).param
        == "model"
    )
    assert (
        refused(
            openai.UnprocessableEntityError, "no_text", lambda: speech(**{**ASK, "input": "..."})
        ).param
        == "input"
    )
    assert (
        refused(
            openai.UnprocessableEntityError,
            "bad_format",
            lambda: speech(**ASK, response_format="midi"),
        ).param
        == "response_format"
    )
    assert (
        refused(
            openai.UnprocessableEntityError, "bad_field", lambda: speech(**ASK, stream_format="ws")
        ).param
        == "stream_format"
    )


def test_too_much_and_no_key_are_their_exceptions():
    with running(env={"KAIKOU_API_KEY": "right", "KAIKOU_STARTS_PER_MINUTE": "3"}) as strict:

        def client(key: str) -> openai.OpenAI:
            return openai.OpenAI(base_url=strict.url + "/v1", api_key=key, max_retries=0)

        with client("wrong") as api_client, pytest.raises(openai.AuthenticationError) as refused:
            api_client.audio.speech.create(**ASK)
        assert refused.value.code in ("login_needed", "invalid_api_key")
        with client("right") as api_client, pytest.raises(openai.RateLimitError) as refused:
            for _ in range(3):
                api_client.audio.speech.create(**ASK, extra_body={"stream": False})
        assert (
            refused.value.code == "rate_limited"
            and int(refused.value.response.headers["retry-after"]) >= 1
        )


def test_an_engine_that_is_not_there_yet_is_their_server_error():
    with (
        running(fake_start_s=60, wait=False) as starting,
        openai.OpenAI(base_url=starting.url + "/v1", api_key="none", max_retries=0) as api_client,
    ):
        with pytest.raises(openai.InternalServerError) as refused:
            api_client.audio.speech.create(**ASK)
        assert refused.value.status_code == 503 and refused.value.code == "notready"


def test_a_stream_that_breaks_off_is_no_file(studio):
    """The tone engine fails after three chunks: the file must not end as if it were whole, and
    events say why.
    """
    ask = {**ASK, "instructions": "seconds=4 chunk=0.2 fail=3 rtf=0.1"}
    with openai.OpenAI(base_url=studio.url + "/v1", api_key="none", max_retries=0) as api_client:
        for kind in ("pcm", "mp3", "opus"):
            with (
                api_client.audio.speech.with_streaming_response.create(
                    **ask, response_format=kind
                ) as answer,
                pytest.raises(Exception, match="peer closed|incomplete"),
            ):
                list(answer.iter_bytes())
        events = []
        with (
            api_client.audio.speech.with_streaming_response.create(
                **ask, response_format="pcm", stream_format="sse"
            ) as answer,
            pytest.raises(Exception, match="peer closed|incomplete"),
        ):
            for line in answer.iter_lines():
                events += events_of([line])
        assert [e["type"] for e in events[:1] + events[-1:]] == [
            "speech.audio.delta",
            "error",
        ] and events[-1]["error"]["code"] == "fault"


def test_listeners_who_leave_in_the_middle_leave_nothing(studio):
    """Thirty at a time in every format: no stream, no codec, no file handle stays behind them."""
    ask = {**ASK, "instructions": "seconds=60 rtf=0.5"}

    async def leave(kind: str, client: httpx.AsyncClient) -> None:
        async with client.stream(
            "POST",
            "/v1/audio/speech",
            json={
                **ask,
                "response_format": kind,
                "stream": True,
                "stream_format": "sse" if kind == "aac" else "audio",
            },
        ) as answer:
            async for _ in answer.aiter_raw():
                return

    async def crowd() -> None:
        async with httpx.AsyncClient(base_url=studio.url, timeout=30) as client:
            await asyncio.gather(*(leave(kind, client) for kind in ("mp3", "opus", "aac", "flac")))

    asyncio.run(crowd())
    before = settle(studio, idle)
    for _ in range(8):
        asyncio.run(crowd())
    after = settle(
        studio, lambda now: idle(now) and now["coders"] == 0 and now["fds"] <= before["fds"]
    )
    assert idle(after) and after["coders"] == 0 and after["fds"] <= before["fds"] + 1
    assert not grown_threads(before, after)
    assert after["opened"] == after["finalised"]


def test_listeners_who_hang_up_before_the_first_byte_leave_nothing(studio):
    host, port = studio.url.removeprefix("http://").split(":")
    before = settle(studio, idle)
    for n in range(40):
        body = json.dumps(
            {
                **ASK,
                "instructions": "seconds=60 rtf=0.5",
                "response_format": ("mp3", "opus", "flac", "pcm")[n % 4],
                "stream_format": ("audio", "sse")[n % 2],
            }
        ).encode()
        with socket.create_connection((host, int(port))) as caller:
            caller.sendall(
                f"POST /v1/audio/speech HTTP/1.1\r\nHost: {host}\r\nContent-Length:"
                f" {len(body)}\r\n\r\n".encode()
                + body
            )
    after = settle(
        studio, lambda now: idle(now) and now["coders"] == 0 and now["fds"] <= before["fds"], 15
    )
    assert idle(after) and after["coders"] == 0 and after["opened"] == after["finalised"]


def test_a_file_is_made_no_further_ahead_than_it_can_be_heard(studio):
    """Small files leave quickly, however slowly they are read: the studio makes ten seconds ahead
    of the clock and no more.
    """
    ask, record = {**ASK, "instructions": "seconds=600", "response_format": "mp3"}, None
    with httpx.Client(base_url=studio.url, timeout=30) as http:
        for _ in range(30):
            with http.stream("POST", "/v1/audio/speech", json=ask) as answer:
                if (
                    answer.status_code == 429
                ):  # those who hung up in the test before may still be on their way in
                    time.sleep(float(answer.headers["retry-after"]))
                    continue
                parts = answer.iter_raw(50_000)
                next(parts)
                record = http.get(f"/tts/result/{answer.headers['x-job-id']}.json").json()
                break
    assert record["state"] == "running" and 4 * 24000 < record["samples"] < 60 * 24000
