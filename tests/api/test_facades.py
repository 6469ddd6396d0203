"""Other programs' routes: their published clients' requests work unchanged, errors have their
shape, and nothing of the server is opened.
"""

from __future__ import annotations

import base64
import io
import json
import wave

import numpy as np
import pytest
import requests

from tests.api.test_http import add, clip, error
from tests.api.test_stream import idle, settle

TEXT = "你好，我是通义千问语音合成大模型，请问有什么可以帮您的吗？"
PROMPT = "希望你以后能够做的比我还好呦。"


@pytest.fixture
def http(studio):
    with studio.client() as client:
        client.post("/tts/session")
        yield client


def published(
    url: str, mode: str, sound: bytes, method: str = "GET", **changed
) -> requests.Response:
    """As runtime/python/fastapi/client.py of CosyVoice asks: a GET with a form for its body, the
    recording as application/octet-stream.
    """
    payload = {
        "sft": {"tts_text": TEXT, "spk_id": "中文女"},
        "zero_shot": {"tts_text": TEXT, "prompt_text": PROMPT},
        "cross_lingual": {"tts_text": TEXT},
        "instruct": {
            "tts_text": TEXT,
            "spk_id": "中文女",
            "instruct_text": "Theo 'Crimson', is a fiery, passionate rebel leader.",
        },
        "instruct2": {"tts_text": TEXT, "instruct_text": "用四川话说这句话"},
    }[mode] | changed
    files = (
        [("prompt_wav", ("prompt_wav", io.BytesIO(sound), "application/octet-stream"))]
        if mode in ("zero_shot", "cross_lingual", "instruct2")
        else None
    )
    return requests.request(
        method, f"{url}/inference_{mode}", data=payload, files=files, stream=True, timeout=60
    )


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("mode", ["sft", "zero_shot", "cross_lingual", "instruct", "instruct2"])
def test_cosyvoices_published_client_works_unchanged(studio, mode, method):
    sound = clip(4)
    answer = published(studio.url, mode, sound, method)
    assert answer.status_code == 200, answer.text
    audio = b"".join(answer.iter_content(chunk_size=16000))
    assert (
        answer.headers["x-audio-format"] == "s16le;rate=24000;channels=1" and audio[:4] != b"RIFF"
    )
    x = np.frombuffer(audio, np.int16)
    assert abs(len(x) / 24000 - 0.15 * len(TEXT)) < 0.1 and np.abs(x).max() > 10_000, "all of it"
    record = studio.data_dir / "takes" / answer.headers["x-job-id"] / "take.json"
    settle(studio, lambda _: record.is_file())
    request = json.loads(record.read_text("utf-8"))["request"]
    assert request["text"] == TEXT and request["mode"] == {
        "zero_shot": "zero_shot",
        "sft": "zero_shot",
        "cross_lingual": "cross_lingual",
    }.get(mode, "instruct")
    assert (
        request["transcript"] == PROMPT if mode == "zero_shot" else request["transcript"] != PROMPT
    )
    assert not [
        p for p in studio.data_dir.rglob("*") if p.is_file() and sound[1000:2000] in p.read_bytes()
    ], "the recording is kept nowhere"


def test_the_same_recording_is_made_a_voice_once(studio):
    settle(studio, lambda state: "warm-voices" not in state["thread_names"])
    sound, before = clip(4, seed=9), studio.state()["encoded"]
    for _ in range(3):
        assert published(studio.url, "zero_shot", sound).status_code == 200
    assert studio.state()["encoded"] == before + 1


def test_a_speaker_is_found_by_name_or_id_and_a_language_mark_is_not_read_aloud(studio, http):
    voice_id = add(http, name="小满 · 旁白").json()["id"]
    for speaker, voice in (
        ("小满 · 旁白", voice_id),
        (voice_id, voice_id),
        ("alloy", "starter-en-mid"),
        ("中文男", "starter-zh-low"),
        ("starter-en-low", "starter-en-low"),
    ):
        answer = http.post(
            "/inference_sft", data={"tts_text": "<|en|>And then.", "spk_id": speaker}
        )
        assert answer.status_code == 200 and answer.headers["x-voice"] == voice, (
            speaker,
            answer.text,
        )
        assert abs(len(answer.content) / 48000 - 0.15 * len("And then.")) < 0.05
    assert (
        error(http.post("/inference_sft", data={"tts_text": "x", "spk_id": "nobody"}))["code"]
        == "voice_gone"
    )


@pytest.mark.parametrize(
    ("mode", "changed", "status", "code", "param"),
    [
        ("sft", {"tts_text": ""}, 422, "no_text", "tts_text"),
        ("sft", {"tts_text": "字" * 4097}, 422, "too_long_text", "tts_text"),
        ("instruct", {"instruct_text": "x" * 1001}, 422, "too_long_instruction", "instruct_text"),
        ("zero_shot", {"consent": "false"}, 403, "consent", "consent"),
        ("sft", {"spk_id": "../../etc/passwd"}, 422, "no_path", "spk_id"),
        ("sft", {"spk_id": ""}, 404, "voice_gone", "spk_id"),
    ],
)
def test_cosyvoices_routes_refuse_by_name(studio, mode, changed, status, code, param):
    answer = published(studio.url, mode, clip(4), **changed)
    assert answer.status_code == status and (error(answer)["code"], error(answer)["param"]) == (
        code,
        param,
    ), answer.text


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ({"data": {"tts_text": "x"}}, "bad_field"),
        ({"data": {"tts_text": "x", "prompt_text": "y"}}, "bad_field"),
        ({"data": {"tts_text": "x", "prompt_text": "y", "prompt_wav": "/etc/passwd"}}, "no_path"),
        (
            {"data": {"tts_text": "x", "prompt_text": "y"}, "files": {"prompt_wav": b""}},
            "bad_field",
        ),
        (
            {
                "data": {"tts_text": "x", "prompt_text": "y"},
                "files": {"prompt_wav": b"no sound" * 99},
            },
            None,
        ),
        (
            {"data": {"prompt_text": "y"}, "files": {"prompt_wav": b"x", "tts_text": b"y"}},
            "bad_field",
        ),
        (
            {
                "content": b"\x00\xff",
                "headers": {"Content-Type": "multipart/form-data; boundary=x"},
            },
            None,
        ),
        ({"content": b"{}", "headers": {"Content-Type": "multipart/form-data"}}, None),
        ({"json": {"tts_text": "x"}}, "bad_field"),
        ({"content": b""}, "bad_field"),
        ({"data": {f"f{n}": "x" for n in range(40)}, "files": {"prompt_wav": b"x"}}, None),
    ],
)
def test_forms_that_are_none_are_refused(http, sent, code):
    answer = http.post("/inference_zero_shot", **sent)
    assert answer.status_code in (400, 422), answer.text
    assert code is None or error(answer)["code"] == code


def test_a_recording_that_is_too_large_is_cut_while_it_is_read(http):
    answer = http.post(
        "/inference_cross_lingual", data={"tts_text": "x"}, files={"prompt_wav": b"x" * (12 << 20)}
    )
    assert answer.status_code == 413 and error(answer)
    answer = http.post(
        "/inference_cross_lingual",
        data={"tts_text": "x"},
        files={"prompt_wav": b"x" * (10 << 20) + b"x"},
    )
    assert answer.status_code == 413 and error(answer)["param"] == "prompt_wav"


def test_who_leaves_in_mid_answer_leaves_nothing(studio, http):
    data = {"tts_text": "字" * 4000, "spk_id": "中文女", "instruct_text": "seconds=60 rtf=0.2"}
    for path, sent in (
        ("/inference_instruct", {"data": data}),
        (
            "/tts",
            {
                "json": {
                    "text": "字" * 4000,
                    "ref_audio_path": "alloy",
                    "streaming_mode": 1,
                    "media_type": "ogg",
                }
            },
        ),
    ):
        with http.stream("POST", path, **sent) as answer:
            assert answer.status_code == 200 and next(answer.iter_raw())
    assert idle(settle(studio, idle)) and settle(studio, lambda s: not s["coders"])["coders"] == 0


# ---- GPT-SoVITS ----------------------------------------------------------------------------------
ASK = {
    "text": "先帝创业未半而中道崩殂。",
    "text_lang": "zh",
    "ref_audio_path": "refs/archive_jingyuan_1.wav",
    "aux_ref_audio_paths": [],
    "prompt_text": "我是云骑将军景元。",
    "prompt_lang": "zh",
    "top_k": 5,
    "top_p": 1,
    "temperature": 1,
    "text_split_method": "cut5",
    "batch_size": 1,
    "batch_threshold": 0.75,
    "split_bucket": True,
    "speed_factor": 1.0,
    "streaming_mode": False,
    "seed": 3,
    "parallel_infer": True,
    "repetition_penalty": 1.35,
    "media_type": "wav",
}


def test_a_gpt_sovits_script_works_once_its_reference_is_a_voice_of_that_name(http):
    refused = http.post("/tts", json=ASK)
    assert (
        refused.status_code == 400
        and "archive_jingyuan_1" in refused.json()["message"]
        and "/v1/audio/voices" in refused.json()["message"]
        and refused.json()["error"]["code"] == "no_path"
    )
    voice = add(http, name="archive_jingyuan_1").json()["id"]
    answer = http.post("/tts", json=ASK)
    assert (
        answer.status_code == 200
        and answer.headers["content-type"] == "audio/wav"
        and answer.headers["x-voice"] == voice
        and answer.headers["x-seed"] == "3"
    )
    with wave.open(io.BytesIO(answer.content)) as w:
        assert w.getnframes() == len(answer.content.split(b"data", 1)[1][4:]) // 2 > 24000, (
            "true sizes, since it is not streamed"
        )
        sound = w.readframes(w.getnframes())
    params = {k: str(v) for k, v in ASK.items() if k != "aux_ref_audio_paths"}
    assert http.get("/tts", params=params).content == answer.content
    assert (
        http.get("/tts", params={**params, "streaming_mode": "true"}).content.split(b"data", 1)[1][
            4:
        ]
        == sound
    )
    assert (
        http.post("/tts", json={**ASK, "media_type": "raw", "streaming_mode": 3}).content == sound
    )
    for name in (voice, "archive_jingyuan_1", "C:\\refs\\archive_jingyuan_1.flac"):
        assert http.post("/tts", json={**ASK, "ref_audio_path": name}).content == answer.content, (
            name
        )
    assert http.post("/tts", json={**ASK, "ref_audio_path": "voice-" + "0" * 32}).status_code == 400


@pytest.mark.parametrize(
    ("kind", "starts"), [("ogg", b"OggS"), ("aac", b"\xff"), ("wav", b"RIFF"), ("raw", b"")]
)
@pytest.mark.parametrize("streamed", [0, 1])
def test_gpt_sovits_formats(http, kind, starts, streamed):
    answer = http.post(
        "/tts",
        json={
            "text": "Hello.",
            "text_lang": "en",
            "prompt_lang": "en",
            "ref_audio_path": "alloy",
            "media_type": kind,
            "streaming_mode": streamed,
        },
    )
    assert (
        answer.status_code == 200
        and answer.headers["content-type"] == f"audio/{kind}"
        and answer.content.startswith(starts)
        and len(answer.content) > 500
    )


def test_a_reference_may_be_uploaded_or_stand_in_a_data_url(http):
    sound = clip(4)
    small = {
        k: str(v) for k, v in ASK.items() if k not in ("ref_audio_path", "aux_ref_audio_paths")
    }
    uploaded = http.post("/tts", data=small, files={"ref_audio": ("a.wav", sound, "audio/wav")})
    assert uploaded.status_code == 200 and uploaded.headers["x-voice"].startswith("draft-")
    assert (
        http.post("/tts", data=small, files={"ref_audio_path": ("a.wav", sound)}).content
        == uploaded.content
    )
    inline = http.post(
        "/tts",
        json={**ASK, "ref_audio_path": "data:audio/wav;base64," + base64.b64encode(sound).decode()},
    )
    assert inline.content == uploaded.content


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"text": ""}, "no_text"),
        ({"text": "字" * 4097}, "too_long_text"),
        ({"text": 5, "text_lang": "xx"}, "bad_field"),
        ({"prompt_lang": "klingon"}, "bad_field"),
        ({"media_type": "mp9"}, "bad_field"),
        ({"streaming_mode": 7}, "bad_field"),
        ({"streaming_mode": "fast"}, "bad_field"),
        ({"speed_factor": 99}, "bad_speed"),
        ({"speed_factor": "x"}, "bad_field"),
        ({"seed": -5}, "bad_field"),
        ({"seed": 2**80}, "bad_field"),
        ({"ref_audio_path": ""}, "no_voice"),
        ({"ref_audio_path": None}, "bad_field"),
        ({"ref_audio_path": "/etc/passwd"}, "no_path"),
        ({"ref_audio_path": "nobody"}, "voice_gone"),
        ({"ref_audio_path": "https://x/y"}, "no_path"),
        ({"ref_audio_path": "data:audio/wav;base64,AAAA"}, None),
        ({"aux_ref_audio_paths": ["a.wav"]}, "bad_field"),
        ({"text": "a\ud800"}, None),
    ],
)
def test_gpt_sovits_refusals_have_its_shape(http, changed, code):
    answer = http.post(
        "/tts",
        content=json.dumps({**ASK, "ref_audio_path": "alloy", **changed}),
        headers={"Accept-Language": "zh" if code == "no_text" else "en"},
    )
    assert (
        answer.status_code == 400 and answer.json()["message"] == answer.json()["error"]["message"]
    ), answer.text
    assert code is None or answer.json()["error"]["code"] == code, answer.text
    assert any("\u4e00" <= c <= "\u9fff" for c in answer.json()["message"]) == (code == "no_text")


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[1]", b"5", b"\xff\xfe", b"[" * 100_000, b'{"text": ' + b"1" * 6000 + b"}"],
)
def test_bodies_that_are_none_are_refused(http, body):
    answer = http.post("/tts", content=body)
    assert answer.status_code == 400 and answer.json()["message"]


@pytest.mark.parametrize("refused", ["false", "0", "no", "nobody"])
def test_an_upload_is_consent_unless_the_request_says_that_there_is_none(studio, http, refused):
    """Scripts of these programs have no such field: without it nothing changes."""
    sound = clip(4)
    for place in ("data", "params"):
        answer = http.post(
            "/inference_zero_shot",
            files={"prompt_wav": ("a.wav", sound)},
            params={"tts_text": "x", "prompt_text": "y"}
            | ({"consent": refused} if place == "params" else {}),
            data={"consent": refused} if place == "data" else {},
        )
        assert (answer.status_code, error(answer)["code"]) == (403, "consent")
    fields = {"text": "Hi.", "text_lang": "en", "prompt_text": "x"}
    answer = http.post(
        "/tts", data=fields | {"consent": refused}, files={"ref_audio": ("a.wav", sound)}
    )
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "consent"
    answer = http.post(
        "/tts",
        json=fields
        | {
            "consent": refused,
            "ref_audio_path": "data:audio/wav;base64," + base64.b64encode(sound).decode(),
        },
    )
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "consent"
    for agreed in ({}, {"consent": "true"}):
        answer = http.post("/tts", data=fields | agreed, files={"ref_audio": ("a.wav", sound)})
        assert answer.status_code == 200
