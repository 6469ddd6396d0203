"""The stage trace and what /metrics makes of it: nothing invented, nothing lost, every count once
per request, every label from a closed set.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.test_studio import ME, finish, speak, studio  # noqa: F401  (the fixture)
from webui.errors import BadInput, Busy, EngineFault, NotFound
from webui.messages import Message
from webui.store import TakeStore
from webui.studio import metrics as metrics_module
from webui.studio.log_line import line, mark
from webui.studio.speech_job import UNLIMITED, SpeechJob
from webui.studio.timings import ENGINE, STAGES, Timings
from webui.types import Chunk, SpeechRequest, Take, Voice

REQUEST = SpeechRequest(
    "take-1",
    "Guten Tag, Frau Geheim.",
    "voice-7",
    mode="instruct",
    instruction="whisper it",
    seed=3,
    segments=("Guten Tag,", "Frau Geheim."),
)
VOICE = Voice("voice-7", "Name of Somebody", "de", "", "fp", 4, 0)


def job(credit: int = 1 << 40) -> SpeechJob:
    return SpeechJob("take-1", REQUEST, "local/visit", VOICE, 24000, "e", "1", credit=credit)


def chunk(number: int, seconds: float = 0.5, last: bool = False, **timings: float) -> Chunk:
    return Chunk(number, np.full(int(24000 * seconds), 0.1, np.float32), 0, 0, last, timings)


def scrape(metrics) -> dict[tuple[str, str], float]:
    """(sample name, label values) -> value, through the parser that Prometheus clients use."""
    values = {}
    for family in text_string_to_metric_families(metrics.text().decode()):
        for s in family.samples:
            key = (s.name, ",".join(v for k, v in sorted(s.labels.items())))
            assert key not in values, "a series twice"
            values[key] = s.value
    return values


# ---- the trace -----------------------------------------------------------------------------------
def test_the_first_sound_has_its_own_account_and_the_whole_goes_on():
    speech_job = job()
    speech_job.trace.add("text", 0.001)
    speech_job.accept(chunk(0, prefill=0.25, tokens=0.5, flow=0.125), 0.9)
    speech_job.accept(chunk(1, last=True, tokens=0.5, vocoder=0.0625), 0.6)
    trace_dict = speech_job.trace.to_dict()
    assert {k: v for k, v in trace_dict["first"].items() if k not in ("encode", "wait")} == {
        "text": 1.0,
        "prefill": 250.0,
        "tokens": 500.0,
        "flow": 125.0,
    }
    assert {k: v for k, v in trace_dict["whole"].items() if k != "encode"} == {
        "text": 1.0,
        "prefill": 250.0,
        "tokens": 1000.0,
        "flow": 125.0,
        "vocoder": 62.5,
    }
    assert trace_dict["whole"]["encode"] >= trace_dict["first"]["encode"] > 0
    assert (
        "socket" not in trace_dict["whole"]
        and "sent_ms" not in trace_dict
        and "queue" not in trace_dict["whole"]
    ), "what did not happen is not there"
    assert list(trace_dict["whole"]) == [s for s in STAGES if s in trace_dict["whole"]], (
        "in the order in which it happens"
    )


def test_silence_before_the_first_sound_belongs_to_the_first_sound():
    speech_job = job()
    speech_job.accept(Chunk(0, np.zeros(2400, np.float32), 0, 0, False, {"tokens": 0.5}), 0.5)
    assert speech_job.trace.first_s is None
    speech_job.accept(chunk(1, tokens=0.25), 0.3)
    assert speech_job.trace.to_dict()["first"]["tokens"] == 750.0


def test_the_parts_of_the_first_sound_add_up_to_it(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("webui.studio.timings.time.monotonic", lambda: now[0])
    trace = Timings()
    trace.add("text", 0.5)
    trace.engine({"flow": 1.0})
    now[0] += 4.0
    trace.note_first_sound()
    now[0] += 0.25
    trace.add_sending(0.125)  # the sending is part of what passed since the sound was there
    trace.add_sending(2.0)
    trace_dict = trace.to_dict()
    assert trace_dict["first_ms"] == 4000 and trace_dict["sent_ms"] == 4250
    assert trace_dict["first"] == {"text": 500, "wait": 2500, "flow": 1000, "socket": 250}
    assert sum(trace_dict["first"].values()) == trace_dict["sent_ms"]
    assert trace_dict["whole"] == {"text": 500, "flow": 1000, "socket": 2250}


def test_names_an_engine_made_up_are_one_stage_and_nonsense_is_none():
    trace = Timings()
    trace.engine(
        {f"stage {n}": 0.5 for n in range(1000)}
        | {
            "queue": 1.0,
            "socket": 1.0,
            "flow": float("nan"),
            "tokens": -1.0,
            "vocoder": "soon",
            "prefill": float("inf"),
        }
    )
    assert trace.whole() == {"other": 502.0}


def test_an_underrun_is_a_chunk_that_came_after_the_listener_ran_dry(monkeypatch):
    now = time.monotonic()
    monkeypatch.setattr(
        "webui.studio.speech_job.time",
        SimpleNamespace(monotonic=lambda: now, perf_counter=time.perf_counter),
    )
    late, whole = job(), job(UNLIMITED)
    for first in (late, whole):
        first.accept(chunk(0), 0.1)
        first.accept(chunk(1), 0.1)
        assert first.underruns == 0
        first.dry_s = now - 1
        first.accept(chunk(2, last=True), 0.1)
    assert late.underruns == 1
    assert whole.underruns == 0, "nobody listens to a file that is fetched whole"


def test_a_trace_is_closed_once_when_engine_and_reader_are_done():
    speech_job = job()
    assert speech_job.closed(by_engine=False) is False, "the engine still works"
    speech_job.listen(lambda: None)
    assert speech_job.closed(by_engine=True) is False, "somebody reads"
    speech_job.listen(None)
    assert speech_job.closed(by_engine=False) is True
    speech_job.listen(lambda: None), speech_job.listen(None)
    assert speech_job.closed(by_engine=False) is False, "a reader that came back for the rest"
    assert job().closed(by_engine=True) is True, "never read"


# ---- takes ---------------------------------------------------------------------------------------
def test_a_take_carries_its_trace_and_the_last_of_it_is_added(studio):  # noqa: F811
    first_take, _ = speak(studio)
    take = studio.takes.get(ME, first_take.id)
    assert take.trace == first_take.trace.to_dict() and take.trace["whole"].keys() >= {
        "text",
        "queue",
        "encode",
    }
    assert (
        take.first_sound_ms == round(1000 * first_take.trace.first_s, 1) > 0
    )  # of the measure itself: rounded a second time, 3.1501 would be 3.1
    studio.takes.star(ME, first_take.id, True)
    first_take.trace.add_sending(0.5)
    studio.takes.update_timings(first_take)
    reloaded_take = TakeStore(studio.settings.paths.data_dir).get(first_take.id, ME)
    assert (
        reloaded_take.trace == first_take.trace.to_dict()
        and reloaded_take.trace["whole"]["socket"] > 0
        and reloaded_take.starred
    )


def test_takes_written_before_there_was_a_trace_still_open(tmp_path):
    import json

    store = TakeStore(tmp_path)
    store.add(
        Take(
            "take-1",
            REQUEST,
            "local/a",
            "V",
            "e",
            "1",
            24000,
            10,
            0.0,
            trace={"first": {}, "whole": {"text": 1.0}},
        ),
        b"RIFF",
    )
    path = next(tmp_path.rglob("take.json"))
    record = json.loads(path.read_text("utf-8"))
    del record["trace"]
    path.write_text(json.dumps(record), "utf-8")
    assert TakeStore(tmp_path).get("take-1", "local/a").trace == {}


def test_two_changes_at_once_are_both_kept(tmp_path, monkeypatch):
    store = TakeStore(tmp_path)
    store.add(Take("take-1", REQUEST, "local/a", "V", "e", "1", 24000, 10, 0.0), b"RIFF")
    read = store.get("take-1", "local/a")
    put, inside, go = store.folder.put, threading.Event(), threading.Event()

    def slow(*args):
        inside.set()
        go.wait(10)
        put(*args)

    monkeypatch.setattr(store.folder, "put", slow)
    first = threading.Thread(target=lambda: store.change(read, starred=True))
    first.start()
    assert inside.wait(10)
    second = threading.Thread(target=lambda: store.change(read, first_sound_ms=5.0))
    second.start()
    go.set()
    first.join(10), second.join(10)
    for saved_take in (
        store.get("take-1", "local/a"),
        TakeStore(tmp_path).get("take-1", "local/a"),
    ):
        assert saved_take.starred and saved_take.first_sound_ms == 5.0


# ---- the log -------------------------------------------------------------------------------------
def test_the_log_has_one_line_per_request_and_not_a_word_of_it(studio, caplog):  # noqa: F811
    with caplog.at_level(logging.INFO, "webui.studio.job_runner"):
        take, _ = speak(studio, text="Guten Tag, Frau Geheim.", instruction="seconds=1 secretly")
        studio.job_runner.reader_done(take)
        take.listen(None)
        studio.job_runner.reader_done(take)
        studio.job_runner.reader_done(take)
    lines = [r.getMessage() for r in caplog.records if r.name == "webui.studio.job_runner"]
    assert len(lines) == 1 and "\n" not in lines[0]
    fields = dict(pair.split("=", 1) for pair in lines[0].split(" "))
    assert (
        fields["job"] == take.id == take.request.id
        and fields["end"] == "done"
        and fields["chars"] == "23"
        and fields["segments"] == str(len(take.request.segments))
    )
    assert (
        fields["text"] == mark("Guten Tag, Frau Geheim.")
        and float(fields["first_ms"]) > 0
        and float(fields["encode_ms"]) >= 0
        and fields["mode"] == "instruct"
    )
    assert not [
        word
        for word in ("Guten", "Geheim", "secretly", "local", ME, take.voice.name)
        if word in lines[0]
    ]


def test_a_failed_request_tells_its_code_in_the_log():
    speech_job = job()
    speech_job.fail(EngineFault())
    assert (
        " end=failed " in line(speech_job)
        and line(speech_job).count("code=fault") == 1
        and VOICE.name not in line(speech_job)
    )


# ---- /metrics ------------------------------------------------------------------------------------
def risen(before: dict, after: dict) -> dict[tuple[str, str], float]:
    return {
        k: v - before.get(k, 0)
        for k, v in after.items()
        if v != before.get(k, 0) and not k[0].endswith(("_bucket", "_sum", "_created"))
    }


def test_every_count_rises_by_one_per_request(studio):  # noqa: F811
    speak(studio)
    before = scrape(studio.metrics)
    take, _ = speak(studio, text="Never said before, not even once.")
    take.listen(None)
    take.trace.add_sending(0.01)
    studio.job_runner.reader_done(take)
    up = risen(before, scrape(studio.metrics))
    sound, work = (
        up.pop(("cv_audio_seconds_total", "")),
        up.pop(("cv_engine_work_seconds_total", "")),
    )
    assert sound == pytest.approx(1.0) and work > 0
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
    before = scrape(studio.metrics)
    speak(studio, text="Never said before, not even once.")
    up = risen(before, scrape(studio.metrics))
    assert up["cv_text_cache_total", "hit"] == 1 and ("cv_text_cache_total", "miss") not in up


def test_ends_and_errors_are_counted_by_name(studio):  # noqa: F811
    before = scrape(studio.metrics)
    speak(studio, instruction="seconds=2 fail=1")
    stopped = studio.synthesis.open(
        ME, text_in="Hello.", voice_id="alloy", mode="instruct", instruction="seconds=60"
    )
    studio.job_runner.credit(stopped, 24000)
    studio.job_runner.cancel(stopped)
    finish(studio, stopped)
    for refused in (
        {"text_in": "Hi.", "voice_id": ""},
        {"text_in": "Hi.", "voice_id": "voice-none"},
        {"text_in": "...", "voice_id": "alloy"},
    ):
        with pytest.raises((BadInput, NotFound)):
            studio.synthesis.open(ME, **refused)
    up = risen(before, scrape(studio.metrics))
    named = {
        k[0] + "/" + k[1]: v for k, v in up.items() if k[0].startswith(("cv_jobs", "cv_errors"))
    }
    assert named == {
        "cv_jobs_total/failed": 1,
        "cv_jobs_total/cancelled": 1,
        "cv_errors_total/fault": 1,
        "cv_errors_total/no_voice": 1,
        "cv_errors_total/voice_gone": 1,
        "cv_errors_total/no_text": 1,
    }


def test_work_in_the_background_is_no_listener_that_waited():
    metrics = metrics_module.Metrics()
    batch = job(UNLIMITED)
    batch.request = replace(REQUEST, priority=10)
    for speech_job in (batch, job()):
        speech_job.accept(chunk(0, last=True), 0.1)
        speech_job.move("saving")
        metrics.count_end(speech_job)
    values = scrape(metrics)
    assert (
        values["cv_audio_first_byte_seconds_count", ""] == 1
        and values["cv_jobs_total", "done"] == values["cv_rtf_count", ""] == 2
    )


def test_no_name_from_outside_makes_a_series(monkeypatch):
    metrics = metrics_module.Metrics()
    n = len(scrape(metrics))
    for i in range(300):
        speech_job = job()
        speech_job.accept(chunk(0, last=True, **{f"stage_{i}": 0.1, 'x"} 1\nevil{a="': 0.1}), 0.1)
        speech_job.fail(Busy(Message("no", "不"), code=f"code_{i}"))
        speech_job.trace.add_sending(
            0.01
        )  # some of it was sent before the engine was done, some after
        metrics.count_end(speech_job)
        speech_job.trace.add_sending(0.01)
        metrics.observe_reader(speech_job)
    values = scrape(metrics)
    assert len(values) == n, "series are all there from the start"
    assert (
        values["cv_errors_total", "other"]
        == values["cv_stage_seconds_count", "other"]
        == values["cv_jobs_total", "failed"]
        == values["cv_stage_seconds_count", "socket"]
        == 300
    )
    assert set(ENGINE) < {labels for name, labels in values if name == "cv_stage_seconds_count"}
