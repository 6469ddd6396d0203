"""What strangers send to the audio API: recordings that are none, addresses, texts without end,
other people's ids. Each by name, nothing kept.
"""

from __future__ import annotations

import base64
import gc
from dataclasses import replace
from types import SimpleNamespace

import httpx
import numpy as np
import pytest

from tests.api.test_http import clip, error
from tests.api.test_stream import idle, settle
from tests.hostile.test_clips import bomb, lying_wav, png, webm_bomb
from tests.serve import running
from webui.errors import NotFound
from webui.studio import drafts

ASK = {"input": "Hello.", "voice": "alloy", "consent": True, "response_format": "pcm"}


@pytest.fixture(scope="module")
def two():
    """A studio with two keys: two accounts."""
    with running(
        env={"KAIKOU_STARTS_PER_MINUTE": "100000", "KAIKOU_API_KEY": "sk-anna,sk-ben"}
    ) as studio:
        yield studio


@pytest.fixture
def anna(two):
    with two.client(headers={"Authorization": "Bearer sk-anna"}) as http:
        yield http


@pytest.fixture
def ben(two):
    with two.client(headers={"Authorization": "Bearer sk-ben"}) as http:
        yield http


def b64(data: bytes, head: str = "") -> str:
    return head + base64.b64encode(data).decode()


REFERENCES = {
    "a FLAC that unpacks to an hour": (
        lambda: b64(bomb("FLAC", "PCM_16", 48000, 1)),
        413,
        "too_large",
    ),
    "ten minutes of webm": (lambda: b64(webm_bomb(), "data:audio/webm;base64,"), 413, "too_large"),
    "a picture": (lambda: b64(png()), 422, "bad_audio"),
    "a picture that calls itself wav": (
        lambda: b64(png(), "data:audio/wav;base64,"),
        422,
        "bad_audio",
    ),
    "a page": (lambda: b64(b"<script>" * 99, "data:text/html;base64,"), 422, "bad_audio"),
    "a header that lies": (lambda: b64(lying_wav()), 422, "bad_audio"),
    "0.2 s": (lambda: b64(clip(0.2)), 422, "too_short"),
    "nothing in a data URL": (lambda: "data:audio/wav;base64,", 422, "bad_audio"),
    "a data URL without base64": (lambda: "data:audio/wav,RIFF", 422, "bad_audio"),
    "a data URL that is only a head": (lambda: "data:" + "x" * 5000, 422, "bad_audio"),
    "no base64": (lambda: "ü" * 400, 422, "bad_audio"),
    "cut base64": (lambda: b64(clip(3))[:-3], 422, "bad_audio"),
    "http": (lambda: "http://127.0.0.1:1/voice.wav", 422, "no_address"),
    "https": (lambda: "https://example.com/" + "a" * 600 + ".wav", 422, "no_address"),
    "file": (lambda: "file:///etc/passwd", 422, "no_address"),
    "another scheme": (lambda: "s3://bucket/key", 422, "no_address"),
    "a script": (lambda: "javascript:alert(1)", 422, "no_address"),
    "a path": (lambda: "/etc/passwd", 422, "no_path"),
    "a way up": (lambda: "../../secret", 422, "no_path"),
    "a home": (lambda: "~/voice.wav", 422, "no_path"),
    "a share": (lambda: "\\\\server\\share\\voice.wav", 422, "no_path"),
    "a drive": (lambda: "C:\\voice.wav", 422, "no_address"),
    "a name": (lambda: "voice.wav", 422, "no_path"),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_a_reference_that_is_none_is_refused_by_name(two, anna, name):
    make, status, code = REFERENCES[name]
    body = {**ASK, "ref_audio": make()}
    for language in ("en", "zh"):
        answer = anna.post("/v1/audio/speech", json=body, headers={"Accept-Language": language})
        assert (answer.status_code, error(answer)["code"], error(answer)["param"]) == (
            status,
            code,
            "ref_audio",
        )
        assert any("\u4e00" <= c <= "\u9fff" for c in error(answer)["message"]) == (
            language == "zh"
        )
        assert len(error(answer)["message"]) < 200, "what was sent is not sent back"
    assert not list(two.data_dir.glob("voices/*"))


def test_a_reference_needs_consent_and_goes_before_the_voice(anna):
    body = {**ASK, "ref_audio": b64(clip(4)), "consent": False}
    answer = anna.post("/v1/audio/speech", json=body)
    assert (
        answer.status_code == 403
        and error(answer)["code"] == "consent"
        and error(answer)["param"] == "consent"
    )
    assert anna.post("/v1/audio/speech", json={**body, "consent": "yes"}).status_code == 422
    output = anna.post("/v1/audio/speech", json={**body, "consent": True, "voice": "voice-none"})
    assert output.status_code == 200 and output.headers["x-voice"].startswith("draft-")


def test_the_same_reference_is_read_once_and_belongs_to_who_sent_it(two, anna, ben):
    body = {**ASK, "ref_audio": b64(clip(4, seed=5)), "seed": 3}
    before = two.state()["encoded"]
    answers = [anna.post("/v1/audio/speech", json=body) for _ in range(3)]
    assert two.state()["encoded"] == before + 1 and len({a.content for a in answers}) == 1
    key = answers[0].headers["x-voice"]
    stolen = ben.post("/v1/audio/speech", json={**ASK, "voice": key})
    assert (
        stolen.status_code == 404
        and error(stolen)["code"]
        == error(ben.post("/v1/audio/speech", json={**ASK, "voice": "draft-" + "0" * 32}))["code"]
    )


def test_nobody_hears_a_clip_that_was_cleaned_before_theirs(monkeypatch):
    """Clips come and go, and a new one may lie where an old one lay; what was cleaned of that is
    not the new one's.
    """
    draft_store, levels = (
        drafts.Drafts(None, lambda voice, clip: None, 1),
        [n / 1000 for n in range(1, 60)],
    )
    monkeypatch.setattr(
        drafts.audio,
        "decode",
        lambda data: drafts.Clip(np.full(16000, float(data), np.float32), 16000),
    )
    monkeypatch.setattr(
        drafts.audio,
        "inspect",
        lambda clip: SimpleNamespace(used=SimpleNamespace(start_s=0.0, end_s=1.0)),
    )
    monkeypatch.setattr(
        drafts.audio, "denoise", lambda clip, amount, **how: replace(clip, samples=clip.samples / 2)
    )
    peaks = []
    for level in levels:
        draft = draft_store.make("local/visit", str(level).encode())
        peaks.append(
            round(
                int.from_bytes(draft_store.audio("local/visit", draft.id, 0.6)[-2:], "little")
                / 32768,
                3,
            )
        )
        del draft
        gc.collect()
    assert peaks == pytest.approx([level / 2 for level in levels], abs=1e-3)


def test_references_by_the_dozen_stay_within_their_room(monkeypatch):
    """What is kept of a recording is the part in use, and only of the last ones; a clip that a
    visitor recorded stays whatever programs send.
    """
    draft_store = drafts.Drafts(None, lambda voice, clip: None, 32 << 20)
    monkeypatch.setattr(drafts, "ONCE_BYTES", 700 << 10)
    own = draft_store.make("local/visit", clip(5))
    references = [
        draft_store.once("local/api", clip(34 if n == 4 else 3, seed=n)) for n in range(5)
    ]
    monkeypatch.setattr(
        drafts.audio, "decode", lambda data: pytest.fail("the same bytes were read again")
    )
    assert draft_store.once("local/api", clip(34, seed=4)) is references[-1]
    assert all(d.duration_s <= 10.1 for d in references)
    assert (
        draft_store.get("local/visit", own.id) is own
        and draft_store.get("local/api", references[-1].id) is references[-1]
    )
    n_bytes = sum(d.clip.samples.nbytes for d in draft_store._drafts.values() if d.is_once)
    assert 0 < n_bytes <= 700 << 10
    with pytest.raises(NotFound):
        draft_store.get("local/api", references[0].id)


@pytest.mark.parametrize(
    ("n", "status", "code"),
    [(4096, 200, None), (4097, 422, "too_long_text"), (1_000_000, 422, "too_long_text")],
)
def test_texts_at_the_limit_and_without_end(anna, n, status, code):
    answer = anna.post(
        "/v1/audio/speech", json={**ASK, "input": "a" * n, "instructions": "seconds=0.2"}
    )
    assert answer.status_code == status and (
        code is None or (error(answer)["code"] == code and str(n) in error(answer)["message"])
    )


@pytest.mark.parametrize(
    "field",
    [
        "response_format",
        "stream_format",
        "ref_audio",
        "ref_text",
        "voice",
        "model",
        "stream",
        "consent",
        "input",
    ],
)
def test_wrong_types_are_told_by_field(anna, field):
    for wrong in (7, ["x"], {"a": {"b": []}}, 1.5):
        if field == "voice" and isinstance(wrong, dict):
            continue
        answer = anna.post("/v1/audio/speech", json={**ASK, field: wrong})
        assert (
            answer.status_code == 422
            and error(answer)["code"] == "bad_field"
            and error(answer)["param"].startswith(field)
        )


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"null",
        b'{"input": "\xff"}',
        b"[" * 50_000,
        b'{"input":' * 20_000,
        b'{"input": "a", "speed": NaN}',
        b'{"input": "a", "speed": 1e999}',
    ],
)
def test_what_is_no_request_is_told_so(anna, raw):
    answer = anna.post(
        "/v1/audio/speech", content=raw, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 422 and error(answer)["code"] in ("bad_json", "bad_field")


def test_a_body_without_end_is_cut_while_it_is_read(anna, two):
    sent = 0

    def endless():
        nonlocal sent
        yield (
            b'{"input": "a", "ref_audio": "'
            if kind.endswith("json")
            else b'--y\r\nContent-Disposition: form-data; name="recording"; filename="x"\r\n\r\n'
        )
        for _ in range(1200):
            sent += 64 << 10
            yield b"A" * (64 << 10)

    for path, kind in (
        ("/v1/audio/speech", "application/json"),
        ("/v1/audio/voice_consents", "multipart/form-data; boundary=y"),
    ):
        sent = 0
        try:
            assert (
                anna.post(path, content=endless(), headers={"Content-Type": kind}).status_code
                == 413
            )
        except httpx.TransportError:
            pass  # the door may be shut while more is being pushed through it
        assert sent < 1200 * (64 << 10)
    assert anna.post("/v1/audio/speech", json=ASK).status_code == 200


def test_other_peoples_things_are_as_unknown(anna, ben):
    consent = anna.post(
        "/v1/audio/voice_consents",
        files={"recording": clip(2)},
        data={"name": "Anna", "language": "en"},
    ).json()["id"]
    voice = anna.post(
        "/v1/audio/voices",
        files={"audio_sample": clip(4)},
        data={"name": "Anna", "consent": consent},
    ).json()["id"]
    job = anna.post("/v1/audio/speech", json={**ASK, "stream": False}).headers["x-job-id"]
    missing_ids = {
        "consent": "consent-" + "0" * 32,
        "voice": "voice-" + "0" * 32,
        "job": "take-" + "0" * 32,
    }

    def answers_for(consent: str, voice: str, job: str) -> list[tuple]:
        sample = {"audio_sample": clip(4)}
        answers = [
            ben.get(f"/v1/audio/voice_consents/{consent}"),
            ben.post(f"/v1/audio/voice_consents/{consent}", json={"name": "x"}),
            ben.delete(f"/v1/audio/voice_consents/{consent}"),
            ben.get("/v1/audio/voice_consents", params={"after": consent}),
            ben.post("/v1/audio/voices", files=sample, data={"name": "x", "consent": consent}),
            ben.get(f"/v1/audio/voices/{voice}"),
            ben.get(f"/v1/audio/voices/{voice}/sample"),
            ben.patch(f"/v1/audio/voices/{voice}", json={"name": "x"}),
            ben.delete(f"/v1/audio/voices/{voice}"),
            ben.post("/v1/audio/speech", json={**ASK, "voice": voice}),
            ben.get(f"/tts/result/{job}.wav"),
            ben.get(f"/tts/result/{job}.json"),
        ]
        return [(a.status_code, error(a)["code"], error(a)["message"]) for a in answers]

    assert answers_for(consent, voice, job) == answers_for(**missing_ids) and {
        status for status, *_ in answers_for(**missing_ids)
    } == {404}
    assert ben.get("/v1/audio/voice_consents").json()["data"] == []
    assert (
        anna.get(f"/v1/audio/voice_consents/{consent}").json()["name"] == "Anna"
        and anna.get(f"/v1/audio/voices/{voice}").status_code == 200
    )


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"name": " "}, 422, "bad_name"),
        ({"name": "x" * 61}, 422, "bad_name"),
        ({"language": "not a tag"}, 422, "bad_language"),
        ({"language": "x" * 4000}, 422, "bad_language"),
        ({"recording": png()}, 422, "bad_audio"),
        ({"recording": b""}, 422, "bad_audio"),
        ({"recording": bomb("FLAC", "PCM_16", 48000, 1)}, 413, "too_large"),
        ({"recording": b"x" * (11 << 20)}, 413, "too_large"),
    ],
)
def test_a_bad_consent_leaves_nothing(two, anna, fields, status, code):
    before = len(list(two.data_dir.glob("consents/*")))
    form = {
        "name": "Anna",
        "language": "en",
        **{k: v for k, v in fields.items() if k != "recording"},
    }
    answer = anna.post(
        "/v1/audio/voice_consents", files={"recording": fields.get("recording", clip(2))}, data=form
    )
    assert (answer.status_code, error(answer)["code"]) == (status, code) and error(answer)[
        "param"
    ] in (*fields, None)
    assert len(list(two.data_dir.glob("consents/*"))) == before


def test_a_consent_on_a_full_disk_is_not_half_there():
    with running(max_file_kb=40) as full, full.client() as http:
        answer = http.post(
            "/v1/audio/voice_consents",
            files={"recording": clip(5)},
            data={"name": "x", "language": "en"},
        )
        assert answer.status_code == 507 and error(answer)["code"] == "storage"
        assert http.get("/v1/audio/voice_consents").json()["data"] == [] and not list(
            full.data_dir.glob("consents/*")
        )


@pytest.mark.parametrize(
    "byte_range",
    [
        "bytes=0-0",
        "bytes=-1",
        "bytes=44-",
        "bytes=5-2",
        "bytes=99999999-",
        "bytes=a-b",
        "lines=0-1",
        "bytes=" + "0-0," * 2000 + "1-1",
        "bytes=0-18446744073709551616",
        "bytes=--1",
    ],
)
def test_range_tricks(anna, byte_range):
    job = anna.post("/v1/audio/speech", json={**ASK, "stream": False}).headers["x-job-id"]
    for _ in range(100):  # the take is written after the answer was
        whole = anna.get(f"/tts/result/{job}.wav")
        if whole.status_code == 200:
            break
    answer = anna.get(f"/tts/result/{job}.wav", headers={"Range": byte_range})
    assert (
        answer.status_code in (200, 206, 416)
        and len(answer.content) < 2 * len(whole.content) + 4096
    )
    if answer.status_code == 206 and "multipart" not in answer.headers["content-type"]:
        assert answer.content in whole.content
    if answer.status_code >= 400:
        assert answer.status_code == 416 and error(answer)["code"] == "bad_range"


@pytest.mark.parametrize(
    "path", ["/v1/audio/voices", "/v1/audio/voice_consents", "/inference_sft", "/tts"]
)
def test_a_form_that_cannot_be_taken_apart_is_told_so_in_each_routes_shape(anna, path):
    answer = anna.post(path, content=b"x", headers={"Content-Type": "multipart/form-data"})
    assert answer.status_code == 400 and answer.json()["error"]["code"] == "bad_body"
    assert path != "/tts" or answer.json()["message"], "GPT-SoVITS' clients read `message`"


def test_nothing_stays_of_all_this(two):
    state = settle(two, idle)
    assert idle(state) and state["coders"] == 0 and state["opened"] == state["finalised"]
    assert "Traceback" not in two.log.read_text("utf-8", "replace")
