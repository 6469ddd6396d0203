"""The download as the page sees it: begins, tells how far, pauses, goes on, ends by bringing the
engine up; offered only where no model is.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from webui import app
from webui.errors import BadInput, NotReady
from webui.messages import Message
from webui.settings import EngineChoice, Paths, Settings
from webui.store.model_files import Model, ModelFetcher
from webui.store.model_hub import FileSpec
from webui.studio import ModelDownload, Studio

BODY = bytes(range(256)) * 400
MODEL = Model(
    "M",
    {"modelscope": "x/M", "hf-mirror": "y/M"},
    (FileSpec("a.txt", 10, True, None), FileSpec("b.pt", len(BODY), True, None)),
)


class Wire:
    """In place of the network: gives bytes slowly enough to be paused."""

    def __init__(self, fault: str = ""):
        self.fault, self.gate, self.sources = fault, threading.Event(), []
        self.gate.set()

    def fetcher(self, root):
        def make(source):
            model_fetcher = ModelFetcher(root, source, MODEL)
            model_fetcher.fetch = lambda progress, stop: self._fetch(model_fetcher, progress, stop)
            return model_fetcher

        return make

    def _fetch(self, fetcher, progress, stop):
        from webui.errors import Cancelled
        from webui.store.model_files import Progress

        self.sources.append(fetcher.source)
        if self.fault:
            raise NotReady(Message(self.fault, self.fault))
        fetcher.root.mkdir(parents=True, exist_ok=True)
        for spec, data in zip(MODEL.files, (BODY[:10], BODY)):
            progress(Progress(spec.path, 10, 10 + len(BODY), 1000.0))
            while not self.gate.wait(0.01) and not stop.is_set():
                pass
            if stop.is_set():
                raise Cancelled()
            (fetcher.root / spec.path).write_bytes(data)
        progress(Progress("b.pt", 10 + len(BODY), 10 + len(BODY), 1000.0))


def until(condition, limit_s=5.0):
    end = time.monotonic() + limit_s
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    assert condition()


def test_it_goes_from_none_to_present_and_brings_the_engine(tmp_path):
    wire, ready_event = Wire(), threading.Event()
    model = ModelDownload(wire.fetcher(tmp_path), ready_event.set)
    assert model.status()["state"] == "none" and model.status()["b"] == "0.1 MB"
    model.fetch()
    assert ready_event.wait(5)
    status = model.status()
    assert status["state"] == "present" and status["p"] == 100
    assert ModelDownload(wire.fetcher(tmp_path), ready_event.set).status()["state"] == "present"


def test_pause_and_go_on_from_another_source(tmp_path):
    wire, ready_event = Wire(), threading.Event()
    wire.gate.clear()
    model = ModelDownload(wire.fetcher(tmp_path), ready_event.set)
    model.fetch()
    until(lambda: "m" in model.status())
    model.fetch()
    model.pause()
    model.pause()
    assert model.status()["state"] == "paused" and not ready_event.is_set()
    wire.gate.set()
    model.fetch("hf-mirror")
    assert ready_event.wait(5) and wire.sources == ["modelscope", "hf-mirror"]
    for other in ("ftp-somewhere", "http://127.0.0.1:1/inside", "https://example.com"):
        with pytest.raises(BadInput) as refused:
            model.fetch(other)
        assert refused.value.code == "bad_source" and wire.sources == ["modelscope", "hf-mirror"], (
            "an address is for the script, not for a visitor"
        )


def test_a_failure_is_a_sentence_and_may_be_tried_again(tmp_path):
    wire = Wire("No answer from the source.")
    model = ModelDownload(wire.fetcher(tmp_path), lambda: None)
    model.fetch()
    until(lambda: model.status()["state"] == "failed")
    assert model.status()["reason"] == "No answer from the source."
    wire.fault = ""
    model.fetch()
    until(lambda: model.status()["state"] == "present")


def test_another_source_is_named_with_the_reason_for_leaving_the_first(tmp_path):
    wire = Wire("No answer from the source.")
    model = ModelDownload(wire.fetcher(tmp_path), lambda: None)
    model.fetch()
    until(lambda: model.status()["state"] == "failed")
    assert model.status()["source"] == "modelscope" and "left" not in model.status()
    wire.fault = ""
    wire.gate.clear()
    model.fetch("hf-mirror")
    until(lambda: "m" in model.status())
    status = model.status()
    assert status["source"] == "hf-mirror" and "reason" not in status, (
        "the new source has no fault of its own"
    )
    assert status["left"] == {
        "source": "modelscope",
        "reason": "No answer from the source.",
        "reason_zh": "No answer from the source.",
    }
    model.fetch("modelscope")
    assert model.status()["left"] == {"source": "hf-mirror"}, "changed by hand: nothing had failed"
    wire.gate.set()
    until(lambda: model.status()["state"] == "present")


@pytest.mark.parametrize(
    ("name", "has_files", "offered"),
    [
        ("auto", False, True),
        ("auto", True, False),
        ("builtin", False, False),
        ("cosyvoice2", False, False),
    ],
)
def test_it_is_offered_only_where_no_model_is(tmp_path, name, has_files, offered):
    settings = Settings(
        engine=EngineChoice(name=name),
        paths=replace(Paths(), data_dir=tmp_path / "d", model_dir=tmp_path),
    )
    if has_files:
        for spec in app.read_manifest(app.MANIFEST)[app.MODEL_NAME].files:
            path = tmp_path / app.MODEL_NAME / spec.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"mine")
    studio = Studio(settings)
    app.set_models(studio, settings)
    assert ("model" in studio.status()) == offered and (
        not offered or studio.status()["model"]["name"] == app.MODEL_NAME
    )
    studio.close()
