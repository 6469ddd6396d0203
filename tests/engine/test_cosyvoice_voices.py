"""Kept voices within two budgets: the least used one waits in the host's memory and comes back bit
by bit; none is moved while it speaks.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from scripts.engine_bench.build import random_model, random_voice
from scripts.small_model.sizes import SMALL
from tests.engine.cosyvoice_small import ids_of, small_flow, voice_of
from tests.engine.test_cosyvoice_graphs_engine import SIZES
from tests.engine.test_cosyvoice_graphs_flow import grown
from tests.engine.test_cosyvoice_stages import hear, utterance
from webui.engine.cosyvoice.cuda.assemble import captured
from webui.engine.cosyvoice.cuda.capture import EagerCapture
from webui.engine.cosyvoice.cuda.flow import FlowSizes, StaticFlow
from webui.engine.cosyvoice.device import DeviceConfig
from webui.engine.cosyvoice.frontend.prompt_cache import PromptCache
from webui.engine.cosyvoice.llm.token_sources import FixedTokens
from webui.engine.cosyvoice.memory_plan import MemoryPlan
from webui.engine.cosyvoice.scheduler.chunk_schedule import PROFILES, ChunkSchedule
from webui.engine.cosyvoice.scheduler.runner import EngineRunner
from webui.engine.cosyvoice.v2 import SPEC
from webui.errors import Cancelled, EngineFault, NotReady
from webui.types import Prompt

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def static():
    made = StaticFlow(
        small_flow(torch.float32),
        FlowSizes(ids=(12, 28, 52), batches=(1,), reaches=(64, 256), units=200, slots=6),
        store=torch.float16,
    )
    made.prewarm()
    return made


def test_rows_that_were_out_come_back_bit_for_bit_to_wherever_there_is_room(static):
    given, ids, free = voice_of(53), ids_of(60), (static.units.in_use, static.slots.in_use)
    voice = grown(static, *given)
    want, stream = [], voice.begin()
    want = [stream.step(ids[:28]), stream.step(ids, True)]
    before, at, had = voice.bytes, list(voice.line.own), rows(static, voice)
    stream.close()
    del stream
    voice.move_out()
    assert (static.units.in_use, static.slots.in_use) == free and not voice.is_ready
    assert (
        voice.bytes == 0
        and voice.out_bytes == before
        and voice.host_bytes >= 50 * static.buffers.bytes_per_unit()
    )
    for part in (static.buffers.rows, *static.buffers.encoding.by_unit, *static.buffers.by_slot):
        part.fill_(7)  # others have written over it since
    voice.grow()
    assert (
        voice.is_ready
        and voice.done == 50
        and voice.bytes == before
        and voice.host_bytes == voice.out_bytes == 0
    )
    assert voice.line.own != at and all(
        torch.equal(a, b) for a, b in zip(rows(static, voice), had, strict=True)
    )
    stream = voice.begin()
    assert all(
        torch.equal(stream.step(its, final), frames)
        for (its, final), frames in zip(((ids[:28], False), (ids, True)), want, strict=True)
    )


def rows(static, voice) -> list[torch.Tensor]:
    """All that the pools hold of it, in its order."""
    units, buffers = torch.tensor(voice.line.own), static.buffers
    frames = torch.stack([2 * units, 2 * units + 1], 1).flatten()
    pairs = torch.stack([2 * frames, 2 * frames + 1], 1).flatten()
    of_slot = [part[voice.line.slot].clone() for part in buffers.by_slot]
    return [
        buffers.encoding.low[:, units],
        buffers.encoding.high[:, frames],
        buffers.rows[:, :, pairs],
        *of_slot,
    ]


def test_a_voice_for_which_there_is_no_room_stays_out_and_says_so(static):
    voice = grown(static, *voice_of(53))
    voice.move_out()
    taken = static.units.take(static.units.count - static.units.in_use)
    slots = static.slots.in_use
    with pytest.raises(EngineFault) as caught:
        voice.grow()
    assert (
        caught.value.code == "out_of_memory" and static.slots.in_use == slots and not voice.is_ready
    )
    static.units.give_back(taken)
    voice.grow()
    assert voice.is_ready


# ---- budgets -------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def model():
    return captured(
        random_model(SMALL, DeviceConfig("cpu", "fp32", "test")), sizes=SIZES, capture=EagerCapture
    )


def prompt(seed: int) -> Prompt:
    return Prompt(SPEC.engine, "v", f"voice {seed}", random_voice(2.0, SMALL.codes, seed).pack())


def make(model, device: float, host: float) -> PromptCache:
    """Room for so many voices of two seconds."""
    unit = model.static_flow.buffers.bytes_per_unit()
    return PromptCache(model, int(device * 80 * unit), int(host * 80 * unit))


def taken(voices: PromptCache, seed: int, used=()):
    voice = voices.get(prompt(seed))
    while not voice.is_ready:
        voices.grow(voice, used)
    return voice


def where(voices: PromptCache) -> str:
    return "".join("h" if v.is_out else "d" if v.is_ready else "-" for v in voices._live.values())


def test_the_least_used_voice_waits_in_the_host_and_the_least_used_there_is_let_go(model):
    voices = make(model, device=2.5, host=1)
    first, second = taken(voices, 1), taken(voices, 2)
    taken(voices, 1)
    taken(voices, 3)
    assert (
        where(voices) == "hdd" and second.is_out and (voices.moved_out, voices.moved_in) == (1, 0)
    )
    assert taken(voices, 2) is second and where(voices) == "hdd" and first.is_out, (
        "back on use, in place of the next"
    )
    assert (voices.moved_out, voices.moved_in, voices.made) == (2, 1, 3)
    taken(voices, 4)
    assert where(voices) == "hdd" and voices.get(prompt(1)) is not first, (
        "the host holds one: the first is gone"
    )


def test_a_voice_that_speaks_is_not_moved_and_goes_when_it_has_ended(model):
    voices = make(model, device=1.5, host=4)
    first = taken(voices, 1)
    second = taken(voices, 2, used={first})
    assert where(voices) == "dd", "both are needed: the budget gives way"
    voices.settle(lambda: {first, second})
    assert where(voices) == "dd"
    voices.settle(lambda: {second})
    assert first.is_out and second.is_ready
    voices.settle(lambda: pytest.fail("there is nothing to settle"))


def test_without_a_memory_of_its_own_the_least_used_voice_is_let_go(model):
    voices = make(model, device=1.5, host=0)
    first = taken(voices, 1)
    taken(voices, 2)
    assert where(voices) == "d" and voices.moved_out == 0 and first.is_ready
    plain = random_model(SMALL, DeviceConfig("cpu", "fp32", "test"))
    assert plain.voices_budget(MemoryPlan(0, 10, 0, 0, 1000))[1] == 0
    assert model.voices_budget(MemoryPlan(0, 10, 0, 0, 1000))[1] == 250


def test_requests_of_more_voices_than_there_is_room_for_are_served_as_alone(model):
    """Through the stages: voices go out and come back between requests, and nobody hears it."""
    voices = make(model, device=1.5, host=8)
    stages = EngineRunner(model, voices, PROFILES["balanced"])
    told = SimpleNamespace(stages=stages, hops=ChunkSchedule(25, 25, (1, 1, 2), True))

    def said(seed: int) -> np.ndarray:
        return hear(
            utterance(
                told, voices.get(prompt(seed)), [FixedTokens(ids_of(60, seed=seed).tolist())], seed
            )
        )[1]

    first = [said(seed) for seed in (1, 2, 3)]
    again = [said(seed) for seed in (1, 2, 3)]
    busy = utterance(told, voices.get(prompt(1)), [FixedTokens(ids_of(200).tolist())], 9)
    reader = busy.chunks()
    next(reader)
    during = said(2)
    assert not busy.voice.is_out and busy.voice.is_ready
    reader.close()
    stages.close(NotReady("The test is over.", "测试结束。"))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True)) and np.array_equal(
        during, first[1]
    )
    assert voices.moved_in >= 3 and voices.made == 3


def test_a_request_cancelled_before_it_began_is_not_kept(model):
    voices = make(model, 4, 4)
    stages = EngineRunner(model, voices, PROFILES["balanced"])
    who = utterance(
        SimpleNamespace(stages=stages, hops=ChunkSchedule(25, 25, (1,), True)),
        voices.get(prompt(1)),
        [FixedTokens([1])],
        1,
    )
    who.cancel()
    with pytest.raises(Cancelled):
        next(who.chunks())
    assert not stages.scheduler.speaking
    stages.close(NotReady("The test is over.", "测试结束。"))
