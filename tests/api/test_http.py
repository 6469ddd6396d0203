"""The HTTP routes: voices, errors in one shape, what is refused before the first byte."""

from __future__ import annotations

import base64
import io
import json
import struct
import wave
from urllib.parse import unquote

import numpy as np
import pytest

from webui.api.speech_response import NOTES_BYTES, notes_header

RATE = 16000


def clip(seconds: float = 5.0, seed: int = 0) -> bytes:
    """A voice-like clip: syllables of a buzz with pauses between them."""
    rng, out = np.random.default_rng(seed), []
    while sum(map(len, out)) < seconds * RATE:
        n = int(rng.uniform(0.12, 0.25) * RATE)
        t = np.arange(n) / RATE
        buzz = sum(np.sin(2 * np.pi * 140 * k * t + k) / k for k in range(1, 30))
        out += [0.12 * buzz * np.hanning(n), np.zeros(int(rng.uniform(0.03, 0.09) * RATE))]
    sound = np.concatenate(out)[: int(seconds * RATE)] + rng.normal(0, 2e-4, int(seconds * RATE))
    file = io.BytesIO()
    with wave.open(file, "wb") as w:
        w.setnchannels(1), w.setsampwidth(2), w.setframerate(RATE)
        w.writeframes((np.clip(sound, -1, 1) * 32767).astype("<i2").tobytes())
    return file.getvalue()


@pytest.fixture
def http(studio):
    with studio.client() as client:
        client.post("/tts/session")
        yield client


def error(response) -> dict:
    details = response.json()["error"]
    assert (
        set(details) == {"message", "sentences", "type", "param", "code"}
        and details["message"]
        and details["type"]
    )
    return details


def add(http, name="Lin Wan", data=None, **fields):
    return http.post(
        "/v1/audio/voices",
        files={"audio_sample": ("x.wav", data or clip())},
        data={"name": name, "consent": "me, my own voice", **fields},
    )


def test_a_voice_is_added_spoken_renamed_and_deleted(http):
    answer = add(http, transcript="hello there")
    assert answer.status_code == 201
    voice = answer.json()
    assert voice["name"] == "Lin Wan" and voice["report"]["windows"] and not voice["starter"]
    assert voice["id"] in [v["id"] for v in http.get("/v1/audio/voices").json()["data"]]
    with wave.open(io.BytesIO(http.get(f"/v1/audio/voices/{voice['id']}/sample").content)) as w:
        assert 3 <= w.getnframes() / w.getframerate() <= 10
    ask = {"input": "Hello.", "voice": {"id": voice["id"]}, "seed": 3}
    response = http.post("/v1/audio/speech", json=ask)
    assert (
        response.status_code == 200
        and response.headers["x-voice"] == voice["id"]
        and response.headers["x-seed"] == "3"
        and response.headers["x-engine"] == "fake"
    )
    assert (
        http.patch(f"/v1/audio/voices/{voice['id']}", json={"name": "林晚 · 旁白"}).json()["name"]
        == "林晚 · 旁白"
    )
    assert (
        error(http.patch(f"/v1/audio/voices/{voice['id']}", json={"name": "  "}))["code"]
        == "bad_name"
    )
    assert http.delete(f"/v1/audio/voices/{voice['id']}").json() == {
        "id": voice["id"],
        "object": "audio.voice.deleted",
        "deleted": True,
    }
    for deletion in (
        http.get(f"/v1/audio/voices/{voice['id']}"),
        http.post("/v1/audio/speech", json=ask),
        http.delete(f"/v1/audio/voices/{voice['id']}"),
    ):
        assert deletion.status_code == 404 and error(deletion)["code"] == "voice_gone"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"language": "no tag!"}, "language"),
        ({"name": "x" * 61}, "name"),
        ({"consent": " "}, "consent"),
        ({"denoise": "perhaps"}, "denoise"),
    ],
)
def test_a_voice_that_is_refused_is_not_half_there(http, fields, param):
    before = http.get("/v1/audio/voices").json()
    answer = http.post(
        "/v1/audio/voices",
        files={"audio_sample": clip()},
        data={"name": "Lin Wan", "consent": "me", **fields},
    )
    assert answer.status_code in (403, 422) and error(answer)["param"] == param
    assert http.get("/v1/audio/voices").json() == before


def test_a_deleted_voice_finishes_its_running_stream(http):
    voice = add(http).json()["id"]
    with http.stream(
        "POST",
        "/v1/audio/speech",
        json={
            "input": "Hello.",
            "voice": voice,
            "instructions": "seconds=2 rtf=0.5",
            "response_format": "pcm",
        },
    ) as r:
        parts = r.iter_raw()
        actual = len(next(parts))
        assert http.delete(f"/v1/audio/voices/{voice}").json()["deleted"]
        assert actual + sum(map(len, parts)) == 2 * 2 * 24000


def test_starters_are_there_and_cannot_be_changed(http):
    starters = [v for v in http.get("/v1/audio/voices").json()["data"] if v["starter"]]
    assert len(starters) >= 3
    assert http.delete(f"/v1/audio/voices/{starters[0]['id']}").status_code == 403
    names = [
        http.post(
            "/v1/audio/speech", json={"input": "Hi there.", "voice": v, "model": "tts-1"}
        ).headers["x-voice"]
        for v in ("alloy", "nova")
    ]
    assert all(n.startswith("starter-") for n in names) and names[0] != names[1]


def test_inspect_reports_and_saves_nothing(http):
    before = len(http.get("/v1/audio/voices").json()["data"])
    report = http.post("/v1/audio/voices/inspect", files={"audio_sample": clip(6)}).json()
    assert {
        "duration_s",
        "sample_rate_hz",
        "channels",
        "speech_ratio",
        "snr_db",
        "clipping_ratio",
        "loudness_lufs",
        "bandwidth_hz",
        "windows",
        "warnings",
    } <= set(report)
    assert len(http.get("/v1/audio/voices").json()["data"]) == before


@pytest.mark.parametrize("params", ["klingon", "xx", "x" * 4000, "no tag!"])
def test_an_unknown_language_is_refused_with_the_known_ones(http, params):
    for head, mark in (("en", "Unknown language"), ("zh", "不认识的语言")):
        answer = http.post(
            "/v1/audio/speech",
            json={"input": "Hello.", "voice": "alloy", "language": params},
            headers={"Accept-Language": head},
        )
        details = error(answer)
        assert answer.status_code == 422 and (details["code"], details["param"]) == (
            "bad_language",
            "language",
        )
        assert (
            mark in details["message"]
            and "yue" in details["message"]
            and len(details["message"]) < 200
        )
    assert (
        http.post(
            "/v1/audio/speech", json={"input": "Hello.", "voice": "alloy", "language": "EN-gb"}
        ).status_code
        == 200
    )


@pytest.mark.parametrize(
    ("language", "sentence"), [("en-GB,en", "I only hum."), ("zh-CN,zh;q=0.9", "我只会哼。")]
)
def test_what_the_engine_cannot_do_is_in_a_header(http, language, sentence):
    def notes_of(instructions: str):
        ask = {
            "input": "Hi.",
            "voice": "starter-zh-high",
            "instructions": instructions,
            "response_format": "pcm",
        }
        return http.post(
            "/v1/audio/speech", json=ask, headers={"Accept-Language": language}
        ).headers.get("x-notes")

    header = notes_of("sing seconds=0.2")
    assert header.isascii() and json.loads(unquote(header)) == [sentence]
    assert notes_of("seconds=0.2") is None


def test_a_header_of_notes_holds_whole_sentences_and_never_too_many():
    header = notes_header([("note", "这一句很长，" * 12)] * 9, "zh")
    notes = json.loads(unquote(header))
    assert 1 < len(notes) < 9 and set(notes) == {"这一句很长，" * 12} and len(header) <= NOTES_BYTES
    assert json.loads(unquote(notes_header([("é" * 4000, "")], "en"))) == [] and json.loads(
        unquote(notes_header([('Tom "x"\r\nSet-Cookie: a', "")], "en"))
    )
    assert "\n" not in notes_header([("a\r\nb", "")], "en")


def test_wav_and_pcm_headers(http):
    ask = {"input": "Hello.", "voice": "starter-zh-high", "seed": 1}
    pcm = http.post("/v1/audio/speech", json={**ask, "response_format": "pcm"})
    assert (
        pcm.headers["content-type"] == "audio/pcm"
        and pcm.headers["x-audio-format"] == "s16le;rate=24000;channels=1"
    )
    assert (
        pcm.headers["cache-control"] == "no-store"
        and pcm.headers["x-accel-buffering"] == "no"
        and pcm.headers["x-content-type-options"] == "nosniff"
    )
    streamed, whole = (
        http.post("/v1/audio/speech", json={**ask, "stream": is_streamed}).content
        for is_streamed in (True, False)
    )
    for file, size in ((streamed, 0xFFFFFFFF), (whole, len(pcm.content))):
        head, sound = file.split(b"data", 1)
        assert head[:4] == b"RIFF" and b"AI-generated" in head, (
            "what is saved of it says what it is, as in every other format"
        )
        assert struct.unpack_from("<I", sound)[0] == size and sound[4:] == pcm.content
    random_seeds = {
        http.post("/v1/audio/speech", json={**ask, "seed": -1}).headers["x-seed"] for _ in range(3)
    }
    assert len(random_seeds) == 3


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"input": ""}, 422, "no_text"),
        ({"input": "😀"}, 422, "no_text"),
        ({"input": "x" * 5000}, 422, "too_long_text"),
        ({"input": "hi", "voice": "v-none"}, 404, "voice_gone"),
        ({"input": "hi", "voice": ""}, 422, "no_voice"),
        ({"input": "hi", "mode": "sing"}, 422, "bad_field"),
        ({"input": ["hi"]}, 422, "bad_field"),
        ({"voice": "alloy"}, 422, "bad_field"),
        ({"input": "hi", "speed": 10}, 422, "bad_speed"),
        ({"input": "hi", "speed": 10**400}, 422, "bad_field"),
        ({"input": "hi", "response_format": "midi"}, 422, "bad_format"),
        ({"input": "hi", "model": "gpt-9"}, 404, "model_not_found"),
        ({"input": "hi", "instructions": "x" * 1001}, 422, "too_long_instruction"),
        ({"input": "hi", "seed": "lucky"}, 422, "bad_field"),
        ({"input": "hi", "voice": {"name": "x"}}, 422, "no_voice"),
    ],
)
def test_refusals_come_before_the_first_byte_in_one_shape(http, body, status, code):
    answer = http.post("/v1/audio/speech", json={"voice": "starter-zh-high", **body})
    assert answer.status_code == status and error(answer)["code"] == code
    zh = http.post(
        "/v1/audio/speech",
        json={"voice": "starter-zh-high", **body},
        headers={"Accept-Language": "zh-CN,zh;q=0.9"},
    )
    assert any("\u4e00" <= c <= "\u9fff" for c in error(zh)["message"])
    words = error(answer)["sentences"]
    assert words == error(zh)["sentences"]
    assert (words["en"], words["zh"]) == (error(answer)["message"], error(zh)["message"])


@pytest.mark.parametrize(
    "text", ["Meet me at 2.30 a.m. tomorrow.", "1.\u200d²1.1:30:", "12.5", "²\u200d٢.٣٠"]
)
def test_decimals_that_look_like_years_are_spoken(http, text):
    ask = {"input": text, "voice": "starter-en-mid", "response_format": "pcm"}
    assert http.post("/v1/audio/speech", json=ask).status_code == 200


def test_what_is_not_json_is_told_so(http):
    for raw in (b"", b"{", b"\xff\xfe", b"[]", b"null"):
        answer = http.post(
            "/v1/audio/speech", content=raw, headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == 422 and error(answer)["code"] in ("bad_json", "bad_field")
    assert error(http.get("/v1/nothing"))["code"] == "not_found"


def test_unknown_fields_are_ignored(http):
    assert (
        http.post(
            "/v1/audio/speech",
            json={"input": "hi", "voice": "alloy", "stream_format": "audio", "colour": "red"},
        ).status_code
        == 200
    )


@pytest.mark.parametrize(
    "path",
    [
        "/tts/result/../../etc/passwd.wav",
        "/tts/result/take-00.wav",
        "/tts/result/%2e%2e%2fsecret.wav",
        "/tts/result/secret",
        "/tts/static/x/..%2f..%2fREADME.md",
        "/v1/audio/voices/..%2f..%2fsecret/sample",
        "/v1/audio/voices/voice-../sample",
        "/tts/draft/draft-00/audio",
    ],
)
def test_nothing_a_user_sends_becomes_a_path(http, path):
    assert http.get(path).status_code == 404


def test_consent_is_needed(http):
    answer = http.post("/v1/audio/voices", files={"audio_sample": clip()}, data={"name": "x"})
    assert answer.status_code == 403 and error(answer)["code"] == "consent"


def test_a_transcript_that_is_another_clips_is_spoken_with_a_warning(http):
    """Whichever way it came; where nobody reads it nobody minds."""
    sound, ask = (
        base64.b64encode(clip(4)).decode(),
        {"input": "Hello.", "voice": "starter-en-mid", "mode": "zero_shot"},
    )
    along = {"ref_audio": sound, "consent": True}
    warned = [
        http.post("/v1/audio/speech", json={**ask, "transcript": "a misfit"}),
        http.post("/v1/audio/speech", json={**ask, **along, "ref_text": "a misfit"}),
        http.post(
            "/inference_zero_shot",
            data={"tts_text": "Hello.", "prompt_text": "a misfit"},
            files={"prompt_wav": clip(4)},
        ),
    ]
    assert all(a.status_code == 200 for a in warned)
    notes = [json.loads(unquote(a.headers["X-Notes"])) for a in warned]
    assert (
        notes == [["The transcript is another clip's."]] * 3
        or notes == [["文字稿不是这段音频的。"]] * 3
    )
    ask["mode"] = "cross_lingual"
    answer = http.post("/v1/audio/speech", json={**ask, "transcript": "a misfit"})
    assert answer.status_code == 200 and "X-Notes" not in answer.headers


def test_a_voice_may_be_made_from_a_part_whose_words_are_given(http):
    def add(**more):
        fields = {
            "name": "x",
            "consent": "me",
            "transcript": "你好，世界，今天天气很好，我们去公园走走吧。",
            **more,
        }
        return http.post("/v1/audio/voices", files={"audio_sample": clip(8)}, data=fields)

    whole, part = add().json(), add(start_s=2, end_s=5.5).json()
    assert whole["used"].items() <= whole["report"]["whole"].items() and whole["notes"] == []
    assert part["used"] == {"start_s": 2.0, "end_s": 5.5} and part["transcript"]
    assert 3 < part["duration_s"] <= 3.6 < whole["duration_s"]
    for odd in ({"start_s": 2}, {"end_s": 5}, {"start_s": "nan", "end_s": 5}):
        assert add(**odd).status_code == 422
    assert "says more" in add(transcript="你好世界" * 60).json()["notes"][0]["message"]


def test_a_program_converts_a_recording_too(http):
    sound, voice = base64.b64encode(clip(4)).decode(), "starter-en-mid"

    def convert(**more):
        return http.post(
            "/v1/audio/speech",
            json={
                "input": "",
                "voice": voice,
                "mode": "convert",
                "response_format": "pcm",
                "seed": 1,
                **more,
            },
        )

    answers = [
        convert(source_audio=audio, consent=True)
        for audio in (sound, "data:audio/wav;base64," + sound)
    ]
    assert (
        all(
            a.status_code == 200 and len(a.content) == pytest.approx(4 * 48000, rel=0.02)
            for a in answers
        )
        and answers[0].content == answers[1].content
    )
    assert (
        answers[0].content
        != convert(source_audio=sound, consent=True, voice="starter-zh-low").content
    )
    for more, status, code, param in (
        ({"source_audio": sound}, 403, "consent", "consent"),
        ({}, 422, "no_source", "source_audio"),
        ({"source": "draft-none"}, 404, "voice_gone", "voice"),
        ({"source_audio": "/etc/passwd"}, 422, "no_path", "source_audio"),
        ({"source_audio": "http://127.0.0.1/a.wav"}, 422, "no_address", "source_audio"),
        ({"source_audio": base64.b64encode(clip(0.7)).decode()}, 422, "too_short", "source_audio"),
        ({"source_audio": base64.b64encode(clip(31)).decode()}, 413, "too_large", "source_audio"),
        (
            {"source_audio": base64.b64encode(b"no sound" * 90).decode()},
            422,
            "bad_audio",
            "source_audio",
        ),
        ({"source_audio": sound, "speed": 9}, 422, "bad_speed", "speed"),
    ):
        answer = convert(**{"consent": code != "consent", **more})
        assert (answer.status_code, error(answer)["code"], error(answer)["param"]) == (
            status,
            code,
            param,
        ), answer.text


def test_cancel_by_id_is_idempotent(studio, http):
    with http.stream(
        "POST",
        "/v1/audio/speech",
        json={
            "input": "hi",
            "voice": "alloy",
            "instructions": "seconds=60 rtf=0.5",
            "response_format": "pcm",
        },
    ) as r:
        job = r.headers["x-job-id"]
        assert http.post(f"/tts/cancel/{job}").json() == {"cancelled": True}
        with pytest.raises(Exception, match="peer closed|incomplete"):
            r.read()
    assert (
        http.post(f"/tts/cancel/{job}").status_code
        == http.post("/tts/cancel/take-unknown").status_code
        == 200
    )


def test_service_routes(http):
    assert [m["id"] for m in http.get("/v1/models").json()["data"]] == ["auto", "fake"]
    metrics = http.get("/metrics").text
    assert "cv_audio_first_byte_seconds_bucket" in metrics and "cv_streams_open" in metrics
    health = http.get("/tts/health").json()
    assert health["state"] == "ready" and health["engine"] == "fake" and health["rate"] == 24000


def test_takes_come_as_a_zip_with_a_manifest(http):
    import json
    import zipfile

    for n in range(2):
        http.post(
            "/v1/audio/speech",
            json={"input": f"Take {n}.", "voice": "alloy", "stream": False, "seed": n},
        )
    import time

    end = time.monotonic() + 5
    while time.monotonic() < end:
        z = zipfile.ZipFile(io.BytesIO(http.get("/tts/takes.zip").content))
        if len(z.namelist()) == 3:
            break
    manifest = json.loads(z.read("manifest.json"))
    assert [t["text"] for t in manifest] == ["Take 0.", "Take 1."] and all(
        t["file"] in z.namelist() for t in manifest
    )
