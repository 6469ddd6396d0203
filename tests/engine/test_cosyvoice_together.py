"""Pieces of sound of several requests in one call: each is what it is alone, whoever joins, leaves
or fails, and a first one waits for nobody.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from scripts.engine_bench.build import random_model, random_voice
from scripts.small_model.sizes import SMALL
from tests.engine.cosyvoice_small import ids_of, small_flow, voice_of
from tests.engine.stage_floor import hear, until, utterance
from tests.engine.test_cosyvoice_graphs_engine import SIZES
from webui.engine.cosyvoice.cuda.assemble import TOGETHER, captured
from webui.engine.cosyvoice.cuda.capture import EagerCapture
from webui.engine.cosyvoice.device import DeviceConfig
from webui.engine.cosyvoice.flow import VoiceState, step_many
from webui.engine.cosyvoice.flow.causal_flow import FlowModel
from webui.engine.cosyvoice.frontend.prompt_cache import CachedPrompt, PromptCache
from webui.engine.cosyvoice.llm.token_sources import FixedTokens
from webui.engine.cosyvoice.scheduler.chunk_schedule import PROFILES, ChunkSchedule
from webui.engine.cosyvoice.scheduler.runner import EngineRunner
from webui.errors import Cancelled, EngineFault, NotReady
from webui.messages import Message
from webui.types import part_seed

torch.set_num_threads(1)
BF16_DB = 30.0  # of a bf16 flow's difference below the frames: what rounding in another order gives


# ---- the flow itself -----------------------------------------------------------------------------
def side_by_side(flow: FlowModel, hops: tuple[int, ...] = (28, 53, 78)):
    """Frames of four requests of three voices, each alone and all together."""
    voices = [VoiceState.of(flow, *voice_of(p, seed=p)) for p in (50, 75, 50)]
    ids = [ids_of(90, seed=seed) for seed in range(4)]
    request_voices = [voices[0], voices[1], voices[2], voices[0]]
    states = [voice.begin() for voice in request_voices]
    alone = [
        [state.step(its[:n]) for n in hops] + [state.step(its, final=True)]
        for state, its in zip(states, ids, strict=True)
    ]
    states, step_frames = [voice.begin() for voice in request_voices], []
    for n in hops:
        assert len({state.shape(n) for state in states}) == 1
        step_frames.append(
            step_many([(state, its[:n], False) for state, its in zip(states, ids, strict=True)])
        )
    assert len({state.shape(90, True) for state in states}) == 1
    step_frames.append(
        step_many([(state, its, True) for state, its in zip(states, ids, strict=True)])
    )
    assert [s.computed_frames for s in states] == [230] * 4, (
        "the prompt's last block, and each frame once"
    )
    return [torch.cat(frames) for frames in alone], [
        torch.cat(frames) for frames in zip(*step_frames, strict=True)
    ]


@pytest.mark.parametrize("apart", [False, True], ids=["rows together", "a core per guidance row"])
def test_requests_in_one_call_get_the_frames_of_their_own(apart):
    flow = small_flow(torch.float32)
    with ThreadPoolExecutor(1) as pool:
        flow.decoder.beside = pool if apart else None
        alone, together = side_by_side(flow)
    for own, joint in zip(alone, together, strict=True):
        assert own.shape == joint.shape == (180, 80) and torch.allclose(
            joint, own, rtol=0, atol=1e-5
        )


def test_in_bf16_they_differ_by_rounding():
    for own, joint in zip(*side_by_side(small_flow(torch.bfloat16)), strict=True):
        assert 10 * torch.log10(own.square().mean() / (joint - own).square().mean()) > BF16_DB


def test_what_has_another_shape_is_told_apart():
    flow = small_flow(torch.float32)
    voice, bare = (
        VoiceState.of(flow, *voice_of(50), ahead=ids_of(3)),
        VoiceState.of(flow, *voice_of(0)),
    )
    state = voice.begin()
    assert state.shape(28) == state.shape(30) == voice.shape(28) == (False, 25)
    assert state.shape(53) == (False, 25, 50) and state.shape(53, True) == (False, 25, 50, 53)
    assert state.shape(20) is None, "nothing to compute"
    assert bare.shape(28) == (True, 25), "without anything behind it there are no rows to join"


def test_a_call_that_fails_half_way_leaves_all_as_they_were(monkeypatch):
    """Then each is asked alone; a voice's own pieces are made again too."""
    flow, fail = small_flow(torch.float64), [False]
    voice, ids = VoiceState.of(flow, *voice_of(50)), [ids_of(60, seed=s) for s in range(2)]
    expected = [voice.begin().step(its[:53]) for its in ids]
    real, calls = flow.decoder.estimator.forward, []

    def forward(*args):
        calls.append(1)
        if fail[0] and len(calls) % 10 == 7:
            raise torch.OutOfMemoryError("full")
        return real(*args)

    flow.decoder.estimator.forward = forward
    states = [voice.begin() for _ in ids]
    step_many([(s, its[:28], False) for s, its in zip(states, ids, strict=True)])
    calls.clear()
    fail[0] = True
    with pytest.raises(torch.OutOfMemoryError):
        step_many([(s, its[:53], False) for s, its in zip(states, ids, strict=True)])
    fail[0] = False
    for state, its, frames in zip(states, ids, expected, strict=True):
        assert torch.allclose(state.step(its[:53]), frames[50:], rtol=0, atol=1e-10)
    fresh = VoiceState.create(flow, *voice_of(50))
    calls.clear()
    fail[0] = True
    with pytest.raises(torch.OutOfMemoryError):
        fresh.grow()
    fail[0] = False
    while not fresh.is_ready:
        fresh.grow()
    assert torch.allclose(fresh.begin().step(ids[0][:53]), expected[0], rtol=0, atol=1e-10)


# ---- the stage -----------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def model():
    return random_model(SMALL, DeviceConfig("cpu", "fp32", "test"))


@pytest.fixture
def floor(model):
    """Stages whose sound stage takes up to `most` at once; `gate` may hold it up before a call."""
    runners = []

    def make(most: int = 4, profile: str = "balanced", first_alone: bool = False):
        stages = EngineRunner(model, PromptCache(model, 1 << 40), PROFILES[profile])
        stages.audio_worker.most, stages.audio_worker.is_first_alone = most, first_alone
        rig = SimpleNamespace(
            stages=stages,
            model=model,
            hops=ChunkSchedule(25, 25, (1, 1, 2), True),
            calls=[],
            gate=lambda batch: None,
        )

        def flow_batch(batch):
            rig.calls.append(len(batch))
            rig.gate(batch)
            return model.flow_batch(batch)

        watched = replace(model)
        object.__setattr__(watched, "flow_batch", flow_batch)
        stages.audio_worker._model = watched
        runners.append(stages)
        return rig

    yield make
    for stages in runners:
        stages.close(NotReady(Message("The test is over.", "测试结束。")))


def fixed_utterance(rig, voice, seed: int, ids: int = 90):
    return utterance(rig, voice, [FixedTokens(ids_of(ids, seed=seed).tolist())], seed)


def together(rig, whos, wait: bool = True) -> list:
    """What each gives, all begun before the stage looks. Errors stand in their place."""
    out: list = [None] * len(whos)
    rig.calls.clear()

    def listen(i: int) -> None:
        try:
            out[i] = hear(whos[i])[1]
        except (EngineFault, Cancelled) as error:
            out[i] = error

    rig.stages.scheduler.lock.acquire()
    readers = [threading.Thread(target=listen, args=(i,)) for i in range(len(whos))]
    try:
        for request, reader in zip(whos, readers, strict=True):
            rig.stages.scheduler.speaking.append(
                request
            )  # `submit` would let the first begin alone
            scheduler = request.scheduler
            own = {"submit": lambda _: None, "wake": scheduler.wake, "leave": scheduler.leave}
            request.scheduler = SimpleNamespace(**{**vars(scheduler), **own})
            reader.start()
    finally:
        rig.stages.scheduler.wake()
        rig.stages.scheduler.lock.release()
    for reader in readers:
        reader.join(60)
    return out


@pytest.fixture(scope="module")
def prompt():
    return random_voice(2.0, SMALL.codes)


def ready(rig, prompt) -> CachedPrompt:
    voice = CachedPrompt(rig.model, prompt)
    rig.stages.prepare(voice)
    return voice


def alike(a: np.ndarray, b: np.ndarray) -> bool:
    """To rounding, as a random vocoder hears it (0.0001 is measured)."""
    return a.shape == b.shape and np.square(a - b).mean() ** 0.5 < 0.01 * np.square(b).mean() ** 0.5


def test_pieces_of_one_shape_are_made_in_one_call_and_sound_as_alone(floor, prompt):
    quiet = floor(most=1)
    voice = ready(quiet, prompt)
    alone = [hear(fixed_utterance(quiet, voice, seed))[1] for seed in range(5)]
    assert set(quiet.calls) == {1}
    rig = floor(most=4)
    out = together(rig, [fixed_utterance(rig, ready(rig, prompt), seed) for seed in range(5)])
    assert all(alike(a, b) for a, b in zip(out, alone, strict=True))
    assert max(rig.calls) == 4, "never more than it may"
    assert (
        sum(rig.calls) == sum(quiet.calls) == rig.stages.audio_worker.pieces
        and len(rig.calls) < sum(rig.calls) / 2
    )
    assert rig.stages.audio_worker.calls == len(rig.calls)


def test_pieces_of_different_shapes_are_made_apart(floor, prompt):
    """Three requests that end at different ids: their last pieces share no call."""
    rig, shapes = floor(), []
    rig.gate = lambda batch: shapes.append(
        {state.shape(len(ids), final) for state, ids, final in batch}
    )
    voice = ready(rig, prompt)
    alone = [
        hear(fixed_utterance(rig, voice, seed, ids))[1] for seed, ids in enumerate((60, 66, 66))
    ]
    shapes.clear()
    out = together(
        rig, [fixed_utterance(rig, voice, seed, ids) for seed, ids in enumerate((60, 66, 66))]
    )
    assert all(alike(a, b) for a, b in zip(out, alone, strict=True))
    assert all(len(shape) == 1 for shape in shapes) and max(rig.calls) == 3


def test_on_a_cpu_a_first_sound_has_no_company(floor, prompt):
    rig, firsts = floor(most=4, first_alone=True), []
    whos = [fixed_utterance(rig, ready(rig, prompt), seed) for seed in range(3)]
    rig.gate = lambda batch: firsts.append(
        (len(batch), any(not state.emitted_frames for state, *_ in batch))
    )
    assert all(isinstance(wave, np.ndarray) for wave in together(rig, whos))
    assert {count for count, is_first in firsts if is_first} == {1}
    assert max(count for count, _ in firsts) > 1


def test_who_leaves_during_a_call_leaves_the_others_as_they_were(floor, prompt):
    rig = floor()
    voice = ready(rig, prompt)
    alone = [hear(fixed_utterance(rig, voice, seed))[1] for seed in range(3)]
    whos = [fixed_utterance(rig, voice, seed) for seed in range(3)]

    def gate(batch):
        if len(batch) == 3:
            whos[1].cancel()

    rig.gate = gate
    out = together(rig, whos)
    assert isinstance(out[1], Cancelled) and rig.calls[0] == 3
    assert alike(out[0], alone[0]) and alike(out[2], alone[2])
    assert until(lambda: not rig.stages.scheduler.speaking)


def test_a_call_that_fails_for_many_fails_for_the_one_at_fault(floor, prompt):
    rig = floor()
    voice = ready(rig, prompt)
    alone = [hear(fixed_utterance(rig, voice, seed))[1] for seed in range(3)]
    whos, bad = [fixed_utterance(rig, voice, seed) for seed in range(3)], []

    def gate(batch):
        if len(batch) == 3:
            bad.append(whos[1].segments[0].flow)
        if any(state is bad[0] for state, *_ in batch):
            raise torch.OutOfMemoryError("full")

    rig.gate = gate
    out = together(rig, whos)
    assert (
        isinstance(out[1], EngineFault)
        and out[1].code == "out_of_memory"
        and rig.calls[:4] == [3, 1, 1, 1]
    )
    assert alike(out[0], alone[0]) and alike(out[2], alone[2])


def test_one_whose_sound_fails_to_begin_ends_alone(floor, prompt):
    rig = floor()
    voice = ready(rig, prompt)
    alone = hear(fixed_utterance(rig, voice, 0))[1]
    wave = rig.model.new_wave_stream

    def refused(seed):
        if seed == part_seed(1, 0):
            raise EngineFault(
                Message("The places are taken.", "没有位置了。"), code="out_of_memory"
            )
        return wave(seed)

    object.__setattr__(rig.stages.audio_worker._model, "new_wave_stream", refused)
    out = together(rig, [fixed_utterance(rig, voice, seed) for seed in range(2)])
    assert isinstance(out[1], EngineFault) and alike(out[0], alone)


def test_captured_networks_replay_once_for_all_of_them(prompt):
    """What a GPU does, here without its graphs: one call of flow and of vocoder, and the sound of
    each alone.
    """
    sizes = replace(
        SIZES,
        flow=replace(SIZES.flow, batches=(1, 4)),
        vocoder=replace(SIZES.vocoder, batches=(1, 4)),
    )
    fast = captured(
        random_model(SMALL, DeviceConfig("cpu", "fp32", "test")), sizes=sizes, capture=EagerCapture
    )
    stages = EngineRunner(fast, PromptCache(fast, 1 << 40), PROFILES["balanced"])
    rig = SimpleNamespace(
        stages=stages, model=fast, hops=ChunkSchedule(25, 25, (1, 1, 2), True), calls=[]
    )
    assert fast.max_batch_size == 4
    voice = ready(rig, prompt)
    alone = [hear(fixed_utterance(rig, voice, seed))[1] for seed in range(3)]
    stages.audio_worker.most, stages.audio_worker.is_first_alone = 4, False
    fast.flow.graphs.replayed.clear()
    fast.vocoder.graphs.replayed.clear()
    out = together(rig, [fixed_utterance(rig, voice, seed) for seed in range(3)])
    stages.close(NotReady(Message("The test is over.", "测试结束。")))
    assert all(alike(a, b) for a, b in zip(out, alone, strict=True))
    assert any(key[1] == 4 for key in fast.flow.graphs.replayed) and any(
        key[1] == 4 for key in fast.vocoder.graphs.replayed
    )
    assert stages.audio_worker.pieces > fast.flow.graphs.replayed.total()
    assert not fast.flow.graphs.plain


class Clock:
    """The waits of the sound stage that have an end."""

    def __init__(self, rig, monkeypatch):
        self.waits: list[float] = []
        condition = rig.stages.scheduler.sound_wanted
        wait = condition.wait
        monkeypatch.setattr(
            condition,
            "wait",
            lambda timeout=None: (
                (timeout is not None and self.waits.append(timeout)) or wait(timeout)
            ),
        )


def test_a_lone_request_and_a_first_sound_wait_for_nobody(floor, prompt, monkeypatch):
    rig = floor(profile="throughput")
    clock, voice = Clock(rig, monkeypatch), ready(rig, prompt)
    hear(fixed_utterance(rig, voice, 1, ids=200))
    assert not clock.waits
    rig.stages.audio_worker._is_near = lambda request, lead: True  # company is always about to come
    firsts = []
    rig.gate = lambda batch: firsts.append((bool(clock.waits), not batch[0][0].emitted_frames))
    together(rig, [fixed_utterance(rig, voice, seed, ids=200) for seed in (2, 3)])
    assert firsts[0] == (False, True), "the first sound was waited with"
    assert (
        set(clock.waits) == {PROFILES["throughput"].batch_wait_s}
        and PROFILES["throughput"].batch_wait_s <= 0.005
    )


def test_who_is_nearly_there_is_waited_for_and_nobody_else(floor, prompt, monkeypatch):
    """Looked at with the stage asleep: one lead, and a neighbour of whom some ids are known."""
    rig = floor(profile="throughput")
    voice, sound = ready(rig, prompt), rig.stages.audio_worker
    waits = []
    with rig.stages.scheduler.lock:
        lead, other = fixed_utterance(rig, voice, 1, ids=60), fixed_utterance(rig, voice, 2, ids=60)
        for request in (lead, other):
            request._number, request.dry_s = 1, request.born_s + 1e6
        rig.stages.scheduler.speaking += [lead, other]
        monkeypatch.setattr(
            rig.stages.scheduler.sound_wanted, "wait", lambda timeout=None: waits.append(timeout)
        )
        other.segments[0].source = SimpleNamespace(
            ids=ids_of(20).tolist(), is_over=False, free=lambda: None
        )
        lead.segments[0].source = SimpleNamespace(
            ids=ids_of(60).tolist(), is_over=False, free=lambda: None
        )
        cases = []
        for n_ids in (19, 20, 27, 28):
            other.segments[0].source.ids = ids_of(n_ids).tolist()
            waits.clear()
            cases.append((len(sound._collect_batch(lead)), len(waits)))
        assert cases == [(1, 0), (1, 1), (1, 1), (2, 0)]
        lead.dry_s, other.segments[0].source.ids = lead.born_s, ids_of(27).tolist()
        waits.clear()
        assert (sound._collect_batch(lead), waits) == ([lead], []), (
            "a listener who runs dry has no time"
        )
        rig.stages.scheduler.speaking.clear()


def test_a_gpu_makes_eight_at_once_and_a_processor_two_where_nobody_minds_the_wait(model):
    assert (
        TOGETHER == (1, 2, 4, 8)
        and replace(model, device_config=DeviceConfig("mps", "fp32", "test")).max_batch_size == 4
    )
    most = {}
    for name, profile in PROFILES.items():
        stages = EngineRunner(model, PromptCache(model, 1 << 40), profile)
        most[name] = stages.audio_worker.most
        stages.close(NotReady(Message("The test is over.", "测试结束。")))
    assert most == {"ttfa": 1, "balanced": 1, "throughput": 2}
