"""The model's process breaks for good: the built-in voice (here a tone) steps in, whoever asks for
the model by name hears why, and it may be tried again.
"""

from __future__ import annotations

import dataclasses
import os
import signal

import pytest
from fastapi.testclient import TestClient

from tests.engine.fake import FakeEngine
from tests.engine.wild import QUICK, ready_again, until
from tests.unit.test_studio import speak
from webui import api
from webui.engine.remote import RemoteEngine
from webui.errors import NotFound, NotReady
from webui.settings import Paths, Settings
from webui.studio import UNLIMITED, Studio

ONCE = dataclasses.replace(QUICK, max_restarts=1)


@pytest.fixture
def studio(tmp_path):
    studio = Studio(Settings(paths=dataclasses.replace(Paths(), data_dir=tmp_path)))
    studio.start(
        lambda: FakeEngine(version="small"),
        lambda: RemoteEngine(
            "wild", {"start": "", "marks": ""}, ONCE, program="tests.engine.hosted_child"
        ),
    ).join(60)
    yield studio
    studio.close()


def serving(studio):
    lease = studio.engine_manager.lease()
    lease.release()
    return lease.engine


def harm(engine) -> None:
    """As often as it is borne, and once more."""
    ready_again(engine, 0)
    os.kill(engine.pid, signal.SIGKILL)
    ready_again(engine)
    os.kill(engine.pid, signal.SIGKILL)


def test_the_other_engine_speaks_until_the_broken_one_is_tried_again(studio):
    big = serving(studio)
    assert isinstance(big, RemoteEngine) and "failure" not in studio.status()
    harm(big)
    until(lambda: studio.is_ready() and serving(studio) is not big)
    job, snapshot = speak(studio)
    assert (snapshot.state, job.engine_version) == ("done", "small"), (
        "who asks for no engine hears the one there is"
    )
    with pytest.raises(NotReady) as refused:
        studio.synthesis.open("local/me", text_in="Hello.", voice_id="alloy", model="wild")
    assert (
        refused.value.code == "broken"
        and "2 times within 10 min" in refused.value.en
        and "2 次" in refused.value.zh
    )
    with pytest.raises(NotFound):
        studio.synthesis.open("local/me", text_in="Hello.", voice_id="alloy", model="gpt-9")
    status = studio.status()
    assert (
        status["state"] == "ready"
        and status["again"]
        and status["failure"] == refused.value.en
        and status["failure_zh"] == refused.value.zh
    )
    app, _ = api.build_app(studio, studio.settings)
    with TestClient(app, base_url="http://127.0.0.1") as http:
        assert http.post("/tts/engine/again").json() == {"started": True}
        until(lambda: isinstance(serving(studio), RemoteEngine))
        assert http.post("/tts/engine/again").json() == {"started": False}
    second_engine = serving(studio)
    assert (
        second_engine is not big
        and second_engine.restarts == 0
        and "failure" not in studio.status()
    )
    job, snapshot = speak(studio)
    assert (snapshot.state, job.engine_version) == ("done", "1")
    harm(second_engine)  # it has all its chances again, and the way out too
    until(lambda: studio.is_ready() and serving(studio).describe().version == "small")


def test_who_was_listening_hears_an_error_and_the_studio_closes_with_no_process_left(studio):
    big = serving(studio)
    job = studio.synthesis.open(
        "local/me",
        text_in="Hello.",
        voice_id="alloy",
        mode="instruct",
        instruction="seconds=60 rtf=1",
    )
    studio.job_runner.credit(job, UNLIMITED)
    harm(big)
    until(lambda: job.snapshot().state == "failed")
    until(lambda: studio.is_ready() and serving(studio) is not big)
    assert big.pid is None


def test_an_engine_alone_is_tried_again_with_its_progress(tmp_path):
    """--engine cosyvoice2: nobody steps in, the reason stays until it is tried again, and then the
    page sees it come.
    """
    studio = Studio(Settings(paths=dataclasses.replace(Paths(), data_dir=tmp_path)))
    studio.start(
        lambda: RemoteEngine(
            "wild", {"start": "", "marks": ""}, ONCE, program="tests.engine.hosted_child"
        )
    ).join(60)
    harm(serving(studio))
    until(lambda: studio.status()["state"] == "broken" and studio.status().get("again"))
    with pytest.raises(NotReady) as refused:
        studio.synthesis.open("local/me", text_in="Hello.", voice_id="alloy")
    assert refused.value.code == "broken" and "coming" not in studio.status()
    assert studio.engine_manager.again()
    next_health = until(lambda: studio.status().get("coming"))
    assert next_health["state"] == "starting"
    until(studio.is_ready)
    assert speak(studio)[1].state == "done" and "failure" not in studio.status()
    studio.close()
