"""A reason that is told to everybody who asks is a new object each time: a stored one that is
raised would grow its traceback and pin memory.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable

import pytest

from tests.engine import stage_floor
from tests.engine.fake import FakeEngine
from tests.engine.stage_floor import say
from webui.engine.cosyvoice.frontend.prompt_cache import CachedPrompt
from webui.engine.espeak import worker_process as lane_module
from webui.engine.manager import EngineManager
from webui.errors import BadInput, Busy, EngineFault, KaikouError, NotReady
from webui.messages import Message

floor, model, prompt = stage_floor.floor, stage_floor.model, stage_floor.prompt
TIMES = 1000


class Load:
    """What a frame that raised would keep alive."""


def raised_from(ask: Callable[[Load], object]) -> tuple[list[int], KaikouError, weakref.ref]:
    """The lengths of the tracebacks of all but the last of TIMES errors, the last error itself, and
    a value of the first caller's frame.
    """
    lengths, pinned = [], None

    def once() -> KaikouError:
        nonlocal pinned
        load = Load()
        pinned = pinned or weakref.ref(load)
        try:
            ask(load)
        except KaikouError as error:
            return error
        raise AssertionError("nothing was raised")

    for _ in range(TIMES):
        error = once()
        length, at = 0, error.__traceback__
        while at is not None:
            length, at = length + 1, at.tb_next
        lengths.append(length)
    gc.collect()
    return lengths, error, pinned


def assert_fresh(ask: Callable[[Load], object], kind: type[KaikouError]) -> None:
    lengths, error, pinned = raised_from(ask)
    assert type(error) is kind and error.en and error.zh
    assert len(set(lengths)) == 1, f"the traceback grew from {lengths[0]} to {lengths[-1]} entries"
    assert pinned() is None, "the frame of the first who asked is still kept"


def test_an_engine_that_could_not_start_tells_everybody_anew():
    def refuse():
        raise NotReady(Message("No weights.", "没有权重。"), code="model_file")

    resident = EngineManager()
    resident.start(refuse).join(10)
    assert_fresh(lambda load: resident.lease(), NotReady)

    def absent(load):
        raise resident.absent("")

    assert_fresh(absent, NotReady)
    resident.close()


def test_the_reason_why_an_engine_failed_does_not_keep_the_engine():
    refs = []

    class Refusing(FakeEngine):
        kind = "big"

        def start(self):
            refs.append(weakref.ref(self))
            raise NotReady(Message("No weights.", "没有权重。"))

    resident = EngineManager()
    resident.start(Refusing).join(10)
    gc.collect()
    assert resident.failure() is not None and refs[0]() is None
    resident.close()


@pytest.mark.parametrize("way", ["stream", "prepare"])
def test_stages_that_have_stopped_tell_everybody_anew(floor, prompt, way):
    rig = floor()
    rig.stages.close(EngineFault(Message("It stopped.", "停了。"), code="engine_broken"))
    voice = CachedPrompt(rig.model, prompt)

    def ask(load):
        if way == "stream":
            next(say(rig, voice, 1).chunks())
        else:
            rig.stages.prepare(voice)

    assert_fresh(ask, EngineFault)


def test_streams_that_end_together_have_an_error_each(floor, prompt):
    rig = floor()
    voice = CachedPrompt(rig.model, prompt)
    streams = [say(rig, voice, seed, most=900).chunks() for seed in range(3)]
    for stream in streams:
        next(stream)
    rig.stages.close(EngineFault(Message("It stopped.", "停了。"), code="engine_broken"))
    errors = []
    for stream in streams:
        with pytest.raises(EngineFault) as error:
            list(stream)
        errors.append(error.value)
    assert len({id(error) for error in errors}) == 3


def test_a_worker_that_cannot_be_started_keeps_no_frame_of_the_try(monkeypatch):
    lane = lane_module.WorkerConnection()
    monkeypatch.setattr(lane_module.sys, "executable", "/bin/false")
    with pytest.raises(NotReady):
        lane.start()
    lane._again()
    monkeypatch.setattr(lane_module.sys, "executable", sys.executable)
    assert lane.trouble.code == "no_worker" and lane.trouble.__traceback__ is None
    lane.close()


@pytest.mark.parametrize(
    "error",
    [
        BadInput(Message("No.", "不。"), param="input", code="other"),
        Busy(Message("Full.", "满。"), retry_after_s=3.0),
        EngineFault(),
    ],
)
def test_a_copy_says_the_same_and_remembers_no_raise(error):
    try:
        raise error from ValueError("a cause")
    except KaikouError as caught:
        twin = caught.copy()
    assert (type(twin), vars(twin), str(twin), twin.args) == (
        type(error),
        vars(error),
        str(error),
        error.args,
    )
    assert twin.__traceback__ is None and twin.__cause__ is None and twin.__context__ is None
