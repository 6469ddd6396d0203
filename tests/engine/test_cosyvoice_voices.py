"""Kept voices within their budget: the least used one is let go, and nobody hears it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from scripts.engine_bench.build import random_model, random_voice
from scripts.small_model.sizes import SMALL
from tests.engine.cosyvoice_small import ids_of
from tests.engine.test_cosyvoice_graphs_engine import SIZES
from tests.engine.test_cosyvoice_stages import hear, utterance
from webui.engine.cosyvoice.cuda.assemble import captured
from webui.engine.cosyvoice.cuda.capture import EagerCapture
from webui.engine.cosyvoice.device import DeviceConfig
from webui.engine.cosyvoice.frontend.prompt_cache import PromptCache
from webui.engine.cosyvoice.llm.token_sources import FixedTokens
from webui.engine.cosyvoice.memory_plan import MemoryPlan
from webui.engine.cosyvoice.scheduler.chunk_schedule import PROFILES, ChunkSchedule
from webui.engine.cosyvoice.scheduler.runner import EngineRunner
from webui.engine.cosyvoice.v2 import SPEC
from webui.errors import Cancelled, NotReady
from webui.messages import Message
from webui.types import Prompt

torch.set_num_threads(1)


# ---- budgets -------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def model():
    return captured(
        random_model(SMALL, DeviceConfig("cpu", "fp32", "test")), sizes=SIZES, capture=EagerCapture
    )


def prompt(seed: int) -> Prompt:
    return Prompt(SPEC.engine, "v", f"voice {seed}", random_voice(2.0, SMALL.codes, seed).pack())


def make(model, room: float) -> PromptCache:
    """Room for so many voices of two seconds."""
    return PromptCache(model, int(room * 80 * model.flow.bytes_per_unit))


def take_prompt(voices: PromptCache, seed: int):
    voice = voices.get(prompt(seed))
    while not voice.is_ready:
        voices.grow(voice)
    return voice


def test_the_least_used_voice_is_let_go(model):
    voices = make(model, 2.5)
    first, second = take_prompt(voices, 1), take_prompt(voices, 2)
    assert take_prompt(voices, 1) is first
    take_prompt(voices, 3)
    assert list(voices._live) == ["voice 1", "voice 3"] and second.is_ready and voices.n_made == 3
    assert take_prompt(voices, 2) is not second
    plain = random_model(SMALL, DeviceConfig("cpu", "fp32", "test"))
    assert plain.voices_budget(MemoryPlan(0, 10, 0, 0, 1000)) == 10


def test_requests_of_more_voices_than_there_is_room_for_are_served_as_alone(model):
    """Through the stages: voices go and are made anew between requests, and nobody hears it."""
    voices = make(model, 1.5)
    stages = EngineRunner(model, voices, PROFILES["balanced"])
    rig = SimpleNamespace(stages=stages, hops=ChunkSchedule(25, 25, (1, 1, 2), True))

    def speak(seed: int) -> np.ndarray:
        return hear(
            utterance(
                rig, voices.get(prompt(seed)), [FixedTokens(ids_of(60, seed=seed).tolist())], seed
            )
        )[1]

    first = [speak(seed) for seed in (1, 2, 3)]
    second = [speak(seed) for seed in (1, 2, 3)]
    busy = utterance(rig, voices.get(prompt(1)), [FixedTokens(ids_of(200).tolist())], 9)
    reader = busy.chunks()
    next(reader)
    during = speak(2)
    assert busy.voice.is_ready
    reader.close()
    stages.close(NotReady(Message("The test is over.", "测试结束。")))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True)) and np.array_equal(
        during, first[1]
    )
    assert voices.n_made > 3


def test_a_request_cancelled_before_it_began_is_not_kept(model):
    voices = make(model, 4)
    stages = EngineRunner(model, voices, PROFILES["balanced"])
    request = utterance(
        SimpleNamespace(stages=stages, hops=ChunkSchedule(25, 25, (1,), True)),
        voices.get(prompt(1)),
        [FixedTokens([1])],
        1,
    )
    request.cancel()
    with pytest.raises(Cancelled):
        next(request.chunks())
    assert not stages.scheduler.speaking
    stages.close(NotReady(Message("The test is over.", "测试结束。")))
