"""A model is examined when somebody asks, and by itself once it speaks and nobody listens; whoever
speaks goes first; a profile is used when it was agreed to.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from webui import app
from webui.errors import Busy, NotFound
from webui.settings import EngineChoice, Paths, Settings
from webui.store import doctor_reports
from webui.store.model_dirs import Installed
from webui.studio import Doctor, ModelLibrary

BEST = {"precision": "int8", "steps": 5}
REPORT = {
    "results": [
        {"item": "A", "status": "passed", "en": "Files.", "zh": "文件。"},
        {"item": "E", "status": "failed", "en": "Words.", "zh": "文字。"},
    ],
    "recommended": BEST,
}
WRITES = "import json, sys; print('A ok', flush=True); open(sys.argv[1], 'w').write(sys.argv[2])"
WAITS = """
import os, sys, time
print("A ok", flush=True)
while not os.path.exists(os.path.join(os.path.dirname(sys.argv[1]), "go")):
    time.sleep(0.01)
open(sys.argv[1], "w").write(sys.argv[2])
"""
HANGS = "import sys; print('A ok', flush=True); sys.stdin.read()"


def until(is_so, limit_s: float = 30.0) -> None:
    end = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


class Place:
    """A model, what examines it, and whether somebody speaks."""

    def __init__(self, root):
        self.data, self.path = root / "data", root / "models" / "own"
        self.path.mkdir(parents=True)
        (self.path / "llm.pt").write_bytes(b"weights")
        self.model = Installed("own", self.path, "cosyvoice2", True)
        self.code, self.is_idle, self.runs = WRITES, True, 0

    def command(self, path):
        self.runs += 1
        report = json.dumps({**REPORT, "stamp": doctor_reports.stamp(path)})
        return [sys.executable, "-c", self.code, str(path / doctor_reports.FILE), report]

    def doctor(self, quiet_s=0.0):
        return Doctor(self.command, self.data, lambda: self.is_idle, quiet_s)


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


@pytest.fixture
def doctor(place):
    doctor = place.doctor()
    yield doctor
    doctor.close()


def state(doctor, place) -> str:
    return doctor.status(place.model)["state"]


def test_who_asks_sees_it_run_and_then_what_was_found(place, doctor):
    place.is_idle = False
    assert doctor.status(place.model) == {"state": "none"}
    doctor.ask(place.model)
    until(lambda: state(doctor, place) == "done")
    status = doctor.status(place.model)
    assert (status["items"], status["failed"]) == (2, 1)
    assert (status["profile"], status["agreed"]) == (BEST, False)
    assert doctor.report(place.model)["results"] == REPORT["results"]


def test_a_new_model_is_examined_by_itself_and_once(place, doctor):
    doctor.offer(place.model)
    until(lambda: state(doctor, place) == "done")
    doctor.offer(place.model)
    other = place.doctor()
    other.offer(place.model)
    assert place.runs == 1 and other._thread is None, "the report is known at the next start too"


def test_nothing_is_examined_by_itself_where_that_is_switched_off(place):
    doctor = place.doctor(None)
    doctor.offer(place.model)
    assert doctor._thread is None


def test_whoever_speaks_goes_first(place, doctor):
    place.code = HANGS
    doctor.offer(place.model)
    until(lambda: doctor.status(place.model).get("line") == "A ok")
    place.is_idle, place.code = False, WRITES
    doctor.make_way()
    until(lambda: state(doctor, place) == "none")
    assert place.runs == 1, "it does not begin anew while somebody speaks"
    place.is_idle = True
    doctor.offer(place.model)  # anything that wakes it; else it looks again by itself
    until(lambda: state(doctor, place) == "done")
    assert place.runs == 2


def test_what_is_offered_while_it_is_examined_is_examined_once(place, doctor):
    place.code = WAITS
    doctor.offer(place.model)
    until(lambda: doctor.status(place.model).get("line") == "A ok")
    doctor.offer(place.model)
    (place.path / "go").touch()
    until(lambda: state(doctor, place) == "done")
    until(lambda: not doctor._offered)  # looked at, and passed over
    assert place.runs == 1


def test_what_somebody_asked_for_goes_on_while_others_speak(place, doctor):
    place.code = HANGS
    doctor.ask(place.model)
    until(lambda: doctor.status(place.model).get("line") == "A ok")
    doctor.make_way()
    assert state(doctor, place) == "runs"
    with pytest.raises(Busy):
        doctor.ask(place.model)


def test_an_examination_that_leaves_no_report_is_told(place, doctor):
    place.code = "print('No model.')"
    doctor.ask(place.model)
    until(lambda: state(doctor, place) == "broken")
    place.code = WRITES
    doctor.ask(place.model)
    until(lambda: state(doctor, place) == "done")


def test_closing_ends_the_process(place):
    doctor = place.doctor()
    place.code = HANGS
    doctor.ask(place.model)
    until(lambda: doctor.status(place.model).get("line") == "A ok")
    process = doctor._running[1]
    doctor.close()
    assert process.poll() is not None
    assert not doctor._thread.is_alive()
    assert "doctor" not in [thread.name for thread in threading.enumerate()]


def test_a_profile_is_used_once_it_was_agreed_to(place, doctor):
    paths = Paths(data_dir=place.data, model_dir=place.path.parent)
    settings = Settings(paths=paths)

    def used(settings):
        arguments = app.cosyvoice_arguments(settings, place.path)
        return arguments["precision"], arguments["steps"]

    with pytest.raises(NotFound):
        doctor.agree(place.model)
    doctor.ask(place.model)
    until(lambda: state(doctor, place) == "done")
    assert used(settings) == ("auto", 10), "nobody has agreed yet"
    doctor.agree(place.model)
    assert used(settings) == ("int8", 5)
    assert doctor.status(place.model)["agreed"]
    own = Settings(paths=paths, engine=EngineChoice(precision="fp32"))
    assert used(own) == ("fp32", 10), "what somebody has set counts"
    (place.path / "llm.pt").write_bytes(b"other weights")
    assert used(settings) == ("auto", 10), "it was measured with other files"


def test_a_precision_that_is_too_far_from_fp32_is_switched_off(place):
    off = {"item": "E", "name": "precision", "figures": {"off": ["int8"]}}
    doctor_reports.save(place.path, place.data, {"results": [off]}, {})
    for precision, used in (("auto", "fp32"), ("int8", "int8")):
        settings = Settings(
            paths=Paths(data_dir=place.data), engine=EngineChoice(precision=precision)
        )
        assert app.cosyvoice_arguments(settings, place.path)["precision"] == used


def test_the_shelf_loads_a_model_that_speaks_anew_with_its_profile(place, doctor):
    maker, replaced = object(), []
    resident = SimpleNamespace(
        made_by=lambda: maker,
        next_by=lambda: maker,
        failed_by=lambda: None,
        replace=lambda make: replaced.append(make) or True,
    )
    shelf = ModelLibrary(resident, lambda: [place.model], lambda model: maker, {}, doctor=doctor)
    shelf.maker(place.model)
    for act in (shelf.examine, shelf.report, shelf.agree):
        with pytest.raises(NotFound):
            act("another")
    with pytest.raises(NotFound):
        shelf.report("own")
    shelf.took_over()
    until(lambda: shelf.list()[0]["doctor"]["state"] == "done")
    assert shelf.report("own")["results"] == REPORT["results"]
    shelf.agree("own")
    assert replaced == [maker]
