"""Alignment over HTTP: of a take, of a request by its id, of a batch line; as JSON, SRT, WebVTT and
in the last message of a stream; nobody's but their owner's.
"""

from __future__ import annotations

import base64
import json
import uuid

import pytest

from tests.api.test_http import error
from tests.api.test_jobs import until

TEXT = "Good morning to you. It is 9 now."
PARTS = ["Good morning to you.", "It is 9 now."]
SAID = {"input": TEXT, "voice": "alloy", "instructions": "seconds=2 chunk=0.5", "seed": 7}


@pytest.fixture
def http(studio):
    with studio.client() as client:
        client.post("/tts/session")
        yield client


def path(take_id: str) -> str:
    return f"/v1/audio/takes/{take_id}/alignment"


def test_a_take_tells_its_segments_in_every_format(http):
    answer = http.post("/v1/audio/speech", json={**SAID, "response_format": "pcm"})
    take_id, n_bytes = answer.headers["x-job-id"], len(answer.content)
    body = http.get(path(take_id)).raise_for_status().json()
    assert (body["id"], body["state"], body["object"]) == (take_id, "done", "audio.alignment")
    first, second = body["segments"]
    assert [first["text"], second["text"]] == PARTS
    assert second["characters"] == [21, 33] and second["spoken_text"] == "It is nine now."
    assert first["start"] == 0 and first["end"] == second["start"]
    assert second["end"] == n_bytes // 2 and second["end_s"] == body["duration_s"]
    assert first["is_whole"] and first["words"] is first["words_note"] is None

    srt = http.get(path(take_id), params={"format": "srt"})
    assert srt.headers["content-type"] == "application/x-subrip; charset=utf-8"
    assert srt.text.startswith("1\n00:00:00,000 --> ") and PARTS[1] in srt.text
    vtt = http.get(path(take_id), headers={"Accept": "text/plain;q=0.9, text/vtt"})
    assert vtt.headers["content-type"] == "text/vtt; charset=utf-8"
    assert "Accept" in vtt.headers["vary"]
    assert vtt.text.startswith("WEBVTT\n\n00:00:00.000 --> ")
    assert http.get(path(take_id), headers={"Accept": "*/*"}).json() == body
    assert error(http.get(path(take_id), params={"format": "ass"}))["code"] == "bad_field"

    words = http.get(path(take_id), params={"words": "true"}).json()["segments"]
    assert all((s["words"] is None) != (s["words_note"] is None) for s in words)
    chinese = http.get(
        path(take_id), params={"words": "true"}, headers={"Accept-Language": "zh"}
    ).json()["segments"]
    assert [s["words"] for s in chinese] == [s["words"] for s in words]


def test_a_request_that_is_still_spoken_tells_what_there_is(http):
    with http.stream(
        "POST", "/v1/audio/speech", json={**SAID, "instructions": "seconds=600 chunk=0.5"}
    ) as answer:
        job_id = answer.headers["x-job-id"]
        empty = http.get(path(job_id)).raise_for_status().json()
        assert all(not s["is_whole"] for s in empty["segments"])
        pieces = answer.iter_bytes()
        while len(next(pieces)) < 1000:
            pass  # the header comes before the sound
        body = http.get(path(job_id)).raise_for_status().json()
        assert body["state"] == "running"
        (first,) = body["segments"]
        assert first["text"] == PARTS[0] and not first["is_whole"] and first["end"] > 0


def test_nobody_elses(http, studio):
    take_id = http.post("/v1/audio/speech", json=SAID).headers["x-job-id"]
    with studio.client() as other:
        other.post("/tts/session")
        assert error(other.get(path(take_id)))["code"] == "take_gone"
    assert error(http.get(path("take-" + "0" * 32)))["code"] == "take_gone"


def test_the_last_event_of_a_stream_holds_the_segments(http):
    answer = http.post("/v1/audio/speech", json={**SAID, "stream_format": "sse"})
    events = [json.loads(line[6:]) for line in answer.text.split("\n\n") if line]
    done = events[-1]
    assert done["type"] == "speech.audio.done"
    assert [s["text"] for s in done["segments"]] == PARTS
    n_bytes = sum(len(base64.b64decode(e["audio"])) for e in events[:-1])
    assert n_bytes and done["segments"][0]["end_s"] == done["segments"][1]["start_s"]


def test_the_lines_of_a_batch(http):
    job = http.post(
        "/v2/synthesize/batch",
        json={"texts": [TEXT], "voice": "alloy", "async": True, "name": uuid.uuid4().hex},
    ).json()
    until(http, job["id"], "done")
    body = http.get(f"/v2/jobs/{job['id']}/lines/1/alignment").raise_for_status().json()
    assert [s["text"] for s in body["segments"]] == PARTS and body["id"] is None
    assert "WEBVTT" in http.get(f"/v2/jobs/{job['id']}/lines/1/alignment?format=vtt").text
    assert error(http.get(f"/v2/jobs/{job['id']}/lines/2/alignment"))["code"] == "no_sound"
