"""The stage trace over real sockets: in the end frame, in the take's record, in /metrics, for the
socket and for the plain API.
"""

from __future__ import annotations

import time

from prometheus_client.parser import text_string_to_metric_families

from tests.api.client import Socket
from tests.serve import running

TEXT = {
    "input": "你好，今天我们来听一听声音。",
    "mode": "instruct",
    "instructions": "seconds=2",
    "seed": 5,
}
SPEECH = {**TEXT, "voice": "starter-zh-high", "response_format": "pcm"}


def soon(ask, condition, limit_s: float = 5.0):
    """What `ask()` gives once `condition` holds of it: the last words of a request are written
    behind the reader's back.
    """
    end = time.monotonic() + limit_s
    while not condition(actual := ask()) and time.monotonic() < end:
        time.sleep(0.02)
    return actual


def counts(http) -> dict[tuple[str, str], float]:
    families = text_string_to_metric_families(http.get("/metrics").text)
    return {
        (s.name, ",".join(s.labels.values())): s.value
        for f in families
        for s in f.samples
        if s.name.endswith(("_count", "_total"))
    }


def test_the_end_of_a_stream_tells_where_the_time_went(studio):
    sock = Socket(studio)
    reply = sock.say(TEXT)
    trace, end = reply.of("end")[0]["trace"], reply.of("end")[0]
    assert trace["whole"].keys() == {"text", "queue", "encode", "socket"}, (
        "the tone engine names no stages, and none is invented"
    )
    assert trace["first"].keys() == {"text", "queue", "wait", "encode", "socket"}
    assert (
        0 < trace["first_ms"] <= trace["sent_ms"] < 20000
        and trace["whole"]["socket"] >= trace["first"]["socket"] > 0
    )
    assert abs(sum(trace["first"].values()) - trace["sent_ms"]) < 0.1
    assert not any("trace" in m for op in ("begin", "info") for m in reply.of(op))
    record = sock.http.get(f"/tts/result/{end['job']}.json")
    assert record.headers["cache-control"] == "no-store"
    result = record.json()
    assert result["trace"] == trace and (
        result["job"],
        result["state"],
        result["samples"],
        result["rate"],
        result["seed"],
    ) == (end["job"], "done", end["samples"], 24000, 5)
    other = Socket(studio)
    assert other.http.get(f"/tts/result/{end['job']}.json").status_code == 404, "another visitor's"
    assert (
        sock.http.get("/tts/result/take-00.json").status_code
        == sock.http.get("/tts/result/..%2f..%2ftake.json").status_code
        == 404
    )
    sock.close(), other.close()


def test_the_plain_api_offers_it_by_the_id_of_the_job(studio):
    with studio.client() as http:
        streamed = http.post("/v1/audio/speech", json=SPEECH)
        whole = http.post("/v1/audio/speech", json={**SPEECH, "stream": False})
        first, second = (
            http.get(f"/tts/result/{r.headers['x-job-id']}.json").json() for r in (streamed, whole)
        )
        assert (
            first["samples"] * 2 == len(streamed.content)
            and first["trace"]["whole"]["socket"] >= 0
            and first["trace"]["sent_ms"] >= first["trace"]["first_ms"]
        )
        assert "socket" not in second["trace"]["whole"], (
            "one answer in one piece: how long it took to send is not known here"
        )


def test_a_stream_under_way_and_a_stopped_one_tell_what_is_known(studio):
    sock = Socket(studio)
    seq = sock.start({**TEXT, "instructions": "seconds=60"}, credit=24000)
    while (message := sock.recv()) and (isinstance(message, bytes) or message["op"] != "begin"):
        pass
    job = message["job"]
    running_ = soon(
        lambda: sock.http.get(f"/tts/result/{job}.json").json(), lambda r: "sent_ms" in r["trace"]
    )
    assert (
        running_["state"] == "running"
        and running_["trace"]["first"]["encode"] > 0
        and running_["samples"] > 0
    )
    sock.send(op="cancel", seq=seq)
    sock.hear(seq)
    assert (
        soon(
            lambda: sock.http.get(f"/tts/result/{job}.json").json(),
            lambda r: r["state"] == "cancelled",
        )["state"]
        == "cancelled"
    )
    sock.close()


def test_an_engine_with_stages_of_its_own_names_them():
    with running(engine="builtin") as studio, studio.client() as http:
        reply = Socket(studio, http).say(
            {"input": "Good morning, everyone. This is a second sentence.", "seed": 1}
        )
        trace = reply.of("end")[0]["trace"]
        assert trace["whole"].keys() - {"voice"} == {
            "text",
            "queue",
            "espeak",
            "analysis",
            "conversion",
            "synthesis",
            "encode",
            "socket",
        }
        assert all(
            trace["whole"][s] >= trace["first"][s]
            for s in ("espeak", "analysis", "conversion", "synthesis", "encode")
        )
        now = soon(lambda: counts(http), lambda c: c["cv_stage_seconds_count", "socket"] >= 1)
        assert (
            now["cv_stage_seconds_count", "synthesis"]
            == now["cv_stage_seconds_count", "espeak"]
            == now["cv_jobs_total", "done"]
            == 1
        )


def test_metrics_rise_by_one_a_stream_and_the_log_says_no_word():
    with running() as studio, studio.client() as http:
        sock = Socket(studio, http)
        sock.say(TEXT)  # and the voice is warm
        soon(lambda: counts(http), lambda c: c["cv_stage_seconds_count", "socket"])
        before = counts(http)
        end = sock.say({**TEXT, "input": "Rotkäppchen besucht Großmutter."}).of("end")[0]
        after = soon(
            lambda: counts(http),
            lambda c: (
                c["cv_stage_seconds_count", "socket"] > before["cv_stage_seconds_count", "socket"]
            ),
        )
        up = {k: v - before[k] for k, v in after.items() if v != before[k]}
        up.pop(("cv_audio_seconds_total", "")), up.pop(("cv_engine_work_seconds_total", ""))
        assert up == {
            ("cv_jobs_total", "done"): 1,
            ("cv_audio_first_byte_seconds_count", ""): 1,
            ("cv_queue_seconds_count", ""): 1,
            ("cv_rtf_count", ""): 1,
            ("cv_stage_seconds_count", "text"): 1,
            ("cv_stage_seconds_count", "encode"): 1,
            ("cv_stage_seconds_count", "socket"): 1,
            ("cv_voice_cache_total", "hit"): 1,
            ("cv_text_cache_total", "miss"): 1,
        }
        sock.say({**TEXT, "voice": "voice-none"})
        assert counts(http)["cv_errors_total", "voice_gone"] == 1
        sock.close()
        record = soon(
            lambda: http.get(f"/tts/result/{end['job']}.json").json(),
            lambda r: r["trace"]["whole"].get("socket"),
        )
        log = soon(lambda: studio.log.read_text("utf-8"), lambda text: f"job={end['job']}" in text)
        lines = [x for x in log.splitlines() if f"job={end['job']} end=done" in x]
        assert (
            len(lines) == 1
            and f"socket_ms={record['trace']['whole']['socket']}" in lines[0]
            and "chars=31" in lines[0]
        )
        assert "Rotk" not in log and sock.token not in log
