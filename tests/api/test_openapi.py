"""The OpenAPI document is true: schemathesis asks every route what it may be asked and more, and no
answer is a fault or one that is not in it.
"""

from __future__ import annotations

import threading
import time

import pytest
import uvicorn
from fastapi import FastAPI, Response

from scripts.check_openapi import QUICK, SETTINGS, check
from tests.serve import free_port, running


def test_every_answer_of_every_route_is_in_the_document():
    with running(env=SETTINGS) as studio:
        report = check(studio.url, *QUICK)
        state = studio.state()
    assert report.ok, report.text[-6000:]
    assert not [status for status in report.statuses if status >= 500]
    assert len(report.routes) >= 52 and sum(report.statuses.values()) > 800
    assert report.routes["POST /v1/audio/speech"][200] >= 3, (
        "nothing was spoken: only refusals were looked at"
    )
    assert report.never_done == [], (
        "of these only refusals were looked at: scripts/openapi_check/hooks.py can make them "
        "succeed"
    )
    assert state["opened"] == state["finalised"] and state["coders"] == 0


@pytest.mark.parametrize(
    ("planted", "word"), [(lambda: Response(status_code=418), "418"), (lambda: 1 / 0, "500")]
)
def test_a_planted_answer_is_noticed(planted, word):
    app, port = FastAPI(openapi_url="/v1/openapi.json"), free_port()
    app.get("/planted")(planted)
    server = uvicorn.Server(uvicorn.Config(app, "127.0.0.1", port, log_level="critical"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        end = time.monotonic() + 20
        while not server.started and time.monotonic() < end:
            time.sleep(0.02)
        report = check(
            f"http://127.0.0.1:{port}",
            "--phases",
            "fuzzing",
            "--max-examples",
            "1",
            has_things=False,
        )
    finally:
        server.should_exit = True
        thread.join(20)
    assert not report.ok and word in report.text
