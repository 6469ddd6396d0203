"""The two stages on a processor: half of flow and vocoder on the language model's core, which steps
aside for a first sound.
"""

from __future__ import annotations

import threading

import pytest

from tests.engine import stage_floor
from tests.engine.stage_floor import hear, say, until, whole
from webui.engine.cosyvoice.frontend.prompt_cache import CachedPrompt
from webui.errors import NotReady
from webui.messages import Message

floor, model, prompt = stage_floor.floor, stage_floor.model, stage_floor.prompt


def test_the_language_model_steps_aside_while_a_first_piece_is_made(floor, prompt, request):
    """On a shared core: the ids of the next piece are wanted a hop later, the first sound now."""
    rig, steps = floor(), []
    rig.stages.lm_worker.gives_way = True
    voice = CachedPrompt(rig.model, prompt)
    rig.stages.prepare(voice)

    def on_flow_call(module, inputs) -> None:
        threading.Event().wait(0.02)
        steps.append(len(rig.lm.batches))

    hook = rig.model.flow.decoder.estimator.register_forward_pre_hook(on_flow_call)
    request.addfinalizer(hook.remove)
    chunks = list(say(rig, voice, 3, most=100).chunks())
    during = steps[9] - steps[0]  # the first piece asks at least once for each of ten steps
    assert during <= 1
    assert len(whole(chunks)) == 100 * 960, "and goes on afterwards"


def halves() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("cosyvoice-half")]


@pytest.mark.parametrize("cores", [1, 2])
def test_a_second_core_is_used_where_there_is_one_and_given_back(
    model, floor, prompt, monkeypatch, cores
):
    monkeypatch.setattr("webui.engine.cosyvoice.scheduler.runner.cores", lambda: cores)
    assert until(lambda: not halves()), "of the tests before"
    rig = floor()
    for part in (model.flow.decoder, model.vocoder):
        assert (part.beside is not None) == rig.stages.lm_worker.gives_way == (cores == 2)
    assert len(hear(say(rig, CachedPrompt(rig.model, prompt), 3, most=60))[1]) == 60 * 960
    assert len(halves()) == cores - 1
    rig.stages.close(NotReady(Message("The test is over.", "测试结束。")))
    assert model.flow.decoder.beside is None is model.vocoder.beside and until(
        lambda: not halves()
    ), "the model stays usable, and its thread has ended"
