"""Which of the built-in engine's two voices speaks, over HTTP and sockets: asked for as a model,
told in headers, notes and records, the same in batches.
"""

from __future__ import annotations

import io
import json
from urllib.parse import unquote

import numpy as np
import pytest
import soundfile

from tests.api.client import Socket
from tests.api.test_http import clip
from tests.api.test_jobs import until
from tests.api.test_keys import until as until_good
from tests.api.typist import Typist
from tests.engine.natural_setup import needs_weights
from tests.serve import running

SAY = {"input": "你好。", "voice": "starter-zh-high", "seed": 3, "stream": False}
NATURAL, INSTANT = "builtin-natural", "builtin-instant"


@pytest.fixture(scope="module")
def natural_studio():
    """The natural voice is there, and the default."""
    with running(engine="builtin", natural="fast") as studio:
        yield studio


@pytest.fixture(scope="module")
def loading():
    """The natural voice is wanted and never gets ready: needs no weights."""
    with running(engine="builtin", natural="loading") as studio:
        yield studio


def speak(http, **fields):
    answer = http.post(
        "/v1/audio/speech", json={**SAY, **fields}, headers={"Accept-Language": "en"}
    )
    assert answer.status_code == 200, answer.text
    return answer


def notes(answer) -> list[str]:
    return json.loads(unquote(answer.headers.get("X-Notes", "[]")))


def models(studio) -> dict[str, bool]:
    with studio.client() as http:
        return {m["id"]: m["active"] for m in http.get("/v1/models").json()["data"]}


# ---- with the natural voice there ----------------------------------------------------------------
@needs_weights
def test_both_voices_are_models_and_the_answer_says_which_one_spoke(natural_studio):
    assert models(natural_studio) == {"auto": True, "builtin": True, NATURAL: True, INSTANT: True}
    with natural_studio.client() as http:
        for name in (NATURAL, INSTANT):
            assert http.get(f"/v1/models/{name}").json()["active"] is True
        answers = {m: speak(http, model=m) for m in ("builtin", NATURAL, INSTANT)}
        assert [a.headers["X-Model"] for a in answers.values()] == [NATURAL, NATURAL, INSTANT]
        assert {a.headers["X-Engine"] for a in answers.values()} == {"builtin"}
        assert not any(notes(a) for a in answers.values())
        assert answers["builtin"].content == answers[NATURAL].content, (
            "the same seed, the same bytes"
        )
        assert answers[NATURAL].content != answers[INSTANT].content
        takes = until_good(  # a take is kept a moment after its last byte
            lambda: http.get("/v1/audio/takes").json()["data"], lambda takes: len(takes) == 3
        )
        assert [t["model"] for t in takes] == [INSTANT, NATURAL, NATURAL]
        versions = [t["engine_version"] for t in takes]
        assert versions[0] != versions[1] and versions[1].startswith("natural-")
        record = http.get(f"/tts/result/{takes[0]['id']}.json").json()
        assert (record["model"], record["engine_version"]) == (INSTANT, versions[0])


@needs_weights
@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"input": "こんにちは。"}, "Chinese and English only"),
        ({"instructions": "用四川话说", "mode": "instruct"}, "no dialects"),
    ],
)
def test_what_natural_cannot_do_is_spoken_by_the_other_with_a_note(natural_studio, params, why):
    with natural_studio.client() as http:
        for model in ("auto", NATURAL):
            answer = speak(http, **params, model=model)
            assert answer.headers["X-Model"] == INSTANT and why in notes(answer)[0]
        answer = speak(http, **params, model=INSTANT)
        assert answer.headers["X-Model"] == INSTANT
        assert not any(why in note for note in notes(answer))


@needs_weights
@pytest.mark.parametrize(("language", "word"), [("en", "Available"), ("zh", "可用")])
def test_an_unknown_voice_is_refused_and_the_known_ones_are_named(natural_studio, language, word):
    with natural_studio.client() as http:
        for path, body in (
            ("/v1/audio/speech", {**SAY, "model": "builtin-best"}),
            ("/v2/synthesize/batch", {"texts": ["a"], "voice": SAY["voice"],
                "model": "builtin-best"}),
            ("/v2/synthesize/batch", {"requests": [{"input": "a", "voice": SAY["voice"],
                "model": "builtin-best"}]}),
        ):  # fmt: skip
            answer = http.post(path, json=body, headers={"Accept-Language": language})
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (404, "model_not_found")
            assert error["param"] == "model"
            assert all(w in error["message"] for w in (word, "builtin-best", NATURAL, INSTANT))


@needs_weights
def test_lines_of_a_batch_have_models_of_their_own_and_keep_what_spoke(natural_studio):
    lines = [{"model": NATURAL}, {"model": INSTANT}, {}, {"input": "こんにちは。"}]
    body = {
        "requests": [{"input": "你好。", "seed": 3, **line} for line in lines],
        "voice": SAY["voice"],
        "model": "builtin",
        "async": True,
    }
    with natural_studio.client() as http:
        job = http.post("/v2/synthesize/batch", json=body).json()["id"]
        assert until(http, job, "done")["failed"] == 0
        rows = http.get(f"/v2/jobs/{job}/lines").json()["data"]
        assert [x["model"] for x in rows] == [NATURAL, INSTANT, "builtin", "builtin"]
        spoke = [x["engine"].split(" ")[1].partition("-")[0] == "natural" for x in rows]
        assert spoke == [True, False, True, False]
        wavs = [http.get(f"/v2/jobs/{job}/lines/{n}.wav").content for n in (1, 2, 3)]
        assert wavs[0] == wavs[2] != wavs[1], "what spoke is part of what a sound is known by"


@needs_weights
def test_a_text_that_is_still_written_begins_with_its_voice_and_no_clause_is_lost(natural_studio):
    """The first clause settles which voice speaks; a later one that this voice cannot say is said
    by the other.
    """
    typist = Typist(natural_studio)
    request = typist.start(model=NATURAL)
    typist.text("你好。")
    reply = typist.hear(until="sound", request=request, timeout=60)
    typist.text("こんにちは。")
    typist.send(type="end")
    reply = typist.hear(reply=reply, request=request, timeout=60)
    assert reply.end["type"] == "speech.audio.done", reply.end
    begin = reply.of("speech.begin")[0]
    assert begin["model"] == NATURAL and begin["notes"] == []
    starts = [m["start"] for m in reply.of("speech.sentence")]
    assert len(starts) == 2 and reply.end["samples"] - starts[1] > 0.3 * 24000
    second = np.frombuffer(bytes(reply.pcm[2 * starts[1] :]), "<i2")
    assert np.abs(second).max() > 1000, "the second clause sounds"
    typist.close()


@needs_weights
def test_the_pages_socket_is_told_which_voice_speaks(natural_studio):
    sock = Socket(natural_studio)
    for model, kind in (("auto", "natural"), (INSTANT, "instant")):
        reply = sock.hear(sock.start({**SAY, "model": model}), timeout=60)
        assert reply.of("begin")[0]["voice_engine"] == kind and reply.of("end")
    sock.close()


@needs_weights
def test_a_starter_has_a_sample_of_the_natural_voice_and_other_voices_their_recording(
    natural_studio,
):
    with natural_studio.client() as http:
        voices = http.get("/v1/audio/voices").json()["data"]
        assert len(voices) == 6 and all(v["starter"] for v in voices)
        for voice in voices:
            path = f"/v1/audio/voices/{voice['id']}/sample"
            assert http.get(path).headers["content-type"] == "audio/wav"
            answer = http.get(path, params={"natural": True})
            assert answer.headers["content-type"] == "audio/mpeg"
            sound, rate = soundfile.read(io.BytesIO(answer.content))
            assert (
                rate == 24000 and 2 < len(sound) / rate < 10 and np.sqrt((sound**2).mean()) > 0.05
            )
        files, form = {"audio_sample": clip(4)}, {"name": "x", "consent": "true"}
        voice_id = http.post("/v1/audio/voices", files=files, data=form).json()["id"]
        path = f"/v1/audio/voices/{voice_id}/sample"
        assert http.get(path, params={"natural": True}).content == http.get(path).content
        missing = http.get("/v1/audio/voices/voice-none/sample", params={"natural": True})
        assert missing.status_code == 404


# ---- while it loads, where it is slow, and without it --------------------------------------------
def test_a_slow_natural_voice_is_offered_and_not_the_default():
    with running(engine="builtin", natural="slow") as studio, studio.client() as http:
        health = http.get("/tts/health").json()
        assert health["natural"] == "slow" and health["voice_engines"]["natural"] == 1.3
        assert (
            "1.3 s for each second" in health["voice_note"][0] and "1.3" in health["voice_note"][1]
        )
        assert models(studio)[NATURAL] is True
        answer = speak(http)
        assert answer.headers["X-Model"] == INSTANT and not notes(answer)


def test_while_it_loads_the_instant_voice_speaks_and_says_so(loading):
    assert models(loading) == {"auto": True, "builtin": True, NATURAL: False, INSTANT: True}
    with loading.client() as http:
        assert http.get("/tts/health").json()["natural"] == "starting"
        for model in ("auto", NATURAL):
            answer = speak(http, model=model)
            assert answer.headers["X-Model"] == INSTANT and "still loading" in notes(answer)[0]
        assert not notes(speak(http, model=INSTANT))


def test_a_batch_waits_for_the_natural_voice_rather_than_begin_with_the_other(loading):
    body = {
        "requests": [
            {"input": "你好。"},
            {"input": "你好。", "model": INSTANT},
            {"input": "こんにちは。"},  # never natural's: nothing to wait for
        ],
        "voice": SAY["voice"],
        "async": True,
    }
    with loading.client() as http:
        job = http.post("/v2/synthesize/batch", json=body).json()["id"]
        lines = f"/v2/jobs/{job}/lines"
        while len(http.get(lines, params={"state": "done"}).json()["data"]) < 2:
            assert http.get(f"/v2/jobs/{job}").json()["state"] == "running"
        rows = http.get(lines).json()["data"]
        assert [x["state"] for x in rows] == ["waiting", "done", "done"], rows
        assert rows[0]["attempts"] == 0, "it was not the line's fault"
        http.delete(f"/v2/jobs/{job}")


def test_where_there_is_one_voice_it_is_not_listed_twice():
    with running(engine="builtin") as studio, studio.client() as http:
        assert models(studio) == {"auto": True, "builtin": True}
        assert speak(http).headers["X-Model"] == INSTANT and not notes(speak(http))
        assert "no natural voice" in notes(speak(http, model=NATURAL))[0]
