"""The flow over static buffers gives the frames of flow/stream.py, alone and in a batch, and gives
its memory back.
"""

from __future__ import annotations

import gc
import itertools
import random
from dataclasses import replace

import pytest
import torch

from tests.engine.cosyvoice_small import ids_of, small_flow, voice_of
from tests.engine.test_cosyvoice_graphs_lm import Recorder
from webui.engine.cosyvoice.cuda.flow import CapturedFlow, FlowSizes
from webui.engine.cosyvoice.cuda.flow_memory import rows_of
from webui.engine.cosyvoice.flow import Blocks, VoiceState, step_many
from webui.engine.cosyvoice.scheduler.chunk_schedule import PROFILES
from webui.errors import EngineFault

torch.set_num_threads(1)
SIZES = FlowSizes(ids=(12, 28, 52, 100), batches=(1, 2, 4), reaches=(64, 256), units=700, slots=10)
SMALL = FlowSizes(ids=(12, 28), batches=(1, 2), reaches=(64,), units=100, slots=4)


@pytest.fixture(scope="module")
def flow():
    return small_flow(torch.float32)


@pytest.fixture(scope="module")
def static(flow):
    return small(flow, SIZES)


def small(flow, sizes: FlowSizes, capture=None, store=None) -> CapturedFlow:
    captured = CapturedFlow(flow, sizes, capture, store)
    captured.record()
    return captured


def steps(n: int, hops: list[int]) -> list[tuple[int, bool]]:
    """(known ids, final) of each call"""
    out, n_ids = [], 0
    for hop in itertools.cycle(hops):
        n_ids += hop
        if n_ids >= n:
            return [*out, (n, True)]
        out.append((n_ids, False))


# every prompt with every cut, the schedules two by two in turn
STREAMS = [
    (prompt, cut, hops)
    for n, (prompt, cut) in enumerate(itertools.product([0, 53, 110], ["grid", "behind", "early"]))
    for hops in ([[28, 25], [28, 50, 100]], [[17], [100]])[n % 2]
]


@pytest.mark.parametrize(("prompt", "cut", "hops"), STREAMS, ids=str)
def test_a_stream_is_the_stream_of_the_dynamic_flow(flow, static, prompt, cut, hops):
    blocks = {
        "grid": Blocks(25),
        "behind": Blocks.behind(prompt),
        "early": Blocks.behind(prompt, 10),
    }[cut]
    ids, prompt_args = ids_of(137), voice_of(prompt)
    expected, actual = (
        VoiceState.of(flow, *prompt_args, blocks).begin(),
        VoiceState.of(static, *prompt_args, blocks).begin(),
    )
    for n_ids, final in steps(137, hops):
        assert actual.wanted_ids == expected.wanted_ids
        a, b = actual.step(ids[:n_ids], final), expected.step(ids[:n_ids], final)
        assert a.shape == b.shape
        assert not len(a) or (a - b).abs().max() < 1e-5
    assert actual.emitted_frames == expected.emitted_frames == 274
    assert actual.computed_frames == expected.computed_frames
    actual.close()


@pytest.mark.parametrize(("prompt", "mel_frames"), [(53, 99), (60, 41), (60, 0), (30, 67)])
def test_a_prompt_mel_of_another_length_than_its_ids(flow, static, prompt, mel_frames):
    prompt_args, ids = voice_of(prompt, mel_frames), ids_of(60)
    expected, actual = (
        VoiceState.of(flow, *prompt_args).begin(),
        VoiceState.of(static, *prompt_args).begin(),
    )
    for n_ids, final in steps(60, [11]):
        a, b = actual.step(ids[:n_ids], final), expected.step(ids[:n_ids], final)
        assert a.shape == b.shape and (not len(a) or (a - b).abs().max() < 1e-5)


@pytest.mark.parametrize("order", range(3))
def test_a_batch_of_different_pasts_is_each_alone(flow, static, order):
    """Streams join and leave at random; their slots and rows serve others afterwards."""
    dice = random.Random(order)
    voices = [
        (VoiceState.of(flow, *voice_of(p, seed=p)), VoiceState.of(static, *voice_of(p, seed=p)))
        for p in (0, 27, 80)
    ]
    running, n_started = [], 0
    while running or n_started < 8:
        while n_started < 8 and len(running) < 4:
            plain, fast = voices[n_started % 3]
            running.append(
                (fast.begin(), plain.begin(), ids_of(40 + 9 * n_started, seed=n_started), [0])
            )
            n_started += 1
        chosen = dice.sample(running, dice.randint(1, len(running)))
        batch = []
        for stream, _, ids, n_ids in chosen:
            n_ids[0] = min(len(ids), n_ids[0] + dice.choice([25, 28, 50, 100]))
            batch.append((stream, ids[: n_ids[0]], n_ids[0] == len(ids)))
        for mel, (stream, plain, _, _), (_, ids, final) in zip(step_many(batch), chosen, batch):
            expected = plain.step(ids, final)
            assert mel.shape == expected.shape and (
                not len(mel) or (mel - expected).abs().max() < 1e-5
            )
            if final or dice.random() < 0.1:
                stream.close()
                running = [r for r in running if r[0] is not stream]
    assert {key[1] for key in static.graphs.replayed} >= {1, 2, 4}


def test_streams_of_a_voice_share_its_rows_and_give_theirs_back(static):
    units, slots = static.units.in_use, static.slots.in_use
    voice = VoiceState.of(static, *voice_of(53))
    assert static.units.in_use == units + 50
    streams = [voice.begin() for _ in range(3)]
    assert static.units.in_use == units + 50 and static.slots.in_use == slots + 4
    streams[0].step(ids_of(28))
    assert static.units.in_use == units + 75 and streams[0].bytes > 0
    streams[0].close()
    streams[0].close()
    assert static.units.in_use == units + 50
    with pytest.raises(ValueError, match="final step"):
        streams[0].step(ids_of(60))
    del voice
    assert static.units.in_use == units + 50, "two streams still read the voice's rows"
    del streams
    assert static.units.in_use == units and static.slots.in_use == slots


def test_memory_that_ends_fails_its_own_request_only(flow):
    static = small(flow, SMALL)
    prompt_args, ids = voice_of(0), ids_of(137)
    expected = VoiceState.of(flow, *prompt_args).begin()
    voice = VoiceState.of(static, *prompt_args)
    first, second = voice.begin(), voice.begin()
    for n_known in (28, 53):
        first.step(ids[:n_known])
        expected.step(ids[:n_known])
    for n_known in (28, 53):
        second.step(ids[:n_known])
    with pytest.raises(EngineFault) as caught:
        second.step(ids[:78])
    assert caught.value.code == "out_of_memory"
    assert (second.done, static.units.in_use) == (50, 100), "nothing of it was done"
    second.close()
    assert (first.step(ids[:78]) - expected.step(ids[:78])).abs().max() < 1e-5
    with pytest.raises(EngineFault):
        [voice.begin() for _ in range(9)]


def test_a_call_that_fails_has_done_nothing(flow, monkeypatch):
    static = small(flow, SMALL)
    voice_args, ids = voice_of(0), ids_of(53)
    expected, actual = (
        VoiceState.of(flow, *voice_args).begin(),
        VoiceState.of(static, *voice_args).begin(),
    )
    actual.step(ids[:28]), expected.step(ids[:28])

    def broken(*size):
        raise RuntimeError("an illegal address")

    with monkeypatch.context() as patched, pytest.raises(RuntimeError):
        patched.setattr(static, "graphs", broken)
        actual.step(ids)
    assert static.units.in_use == 25
    assert (actual.step(ids) - expected.step(ids)).abs().max() < 1e-5


def test_a_stream_that_is_too_long_is_refused_by_name(flow):
    static = small(flow, replace(SMALL, furthest=64))
    stream = VoiceState.of(static, *voice_of(0)).begin()
    for n_known in (28, 53, 78):
        stream.step(ids_of(137)[:n_known])
    with pytest.raises(EngineFault) as caught:
        stream.step(ids_of(137)[:103])
    assert caught.value.code == "too_long"


def test_kept_rows_in_half_precision_stay_close(flow):
    sizes = replace(SMALL, ids=(12, 52), reaches=(128,))
    static = small(flow, sizes, store=torch.float16)
    prompt_args, ids = voice_of(27), ids_of(60)
    expected = VoiceState.of(flow, *prompt_args, store=torch.float16).begin()
    actual = VoiceState.of(static, *prompt_args).begin()
    for n_ids, final in steps(60, [28, 25]):
        assert (
            actual.step(ids[:n_ids], final) - expected.step(ids[:n_ids], final)
        ).abs().max() < 1e-4
    assert static.rows.dtype == torch.float16


def test_the_solver_is_only_replayed(flow):
    """While serving, and its buffers stay where they are."""
    recorder, calls = Recorder(), []
    static = small(flow, replace(SMALL, units=300, reaches=(128,)), recorder)
    buffers = (static.rows, static.tails.data, static.mels, static.mu, static.cond, static.jobs)
    addresses = [t.data_ptr() for t in buffers]
    hook = flow.decoder.estimator.register_forward_pre_hook(lambda *_: calls.append(recorder.depth))
    voice, ids = VoiceState.of(static, *voice_of(28)), ids_of(80)
    streams = [voice.begin() for _ in range(2)]
    for n_known in (28, 53, 75):
        step_many([(stream, ids[:n_known], n_known == 75) for stream in streams])
    hook.remove()
    assert len(calls) == 4 * flow.dims.euler_steps and all(calls) and not static.graphs.plain
    assert addresses == [t.data_ptr() for t in buffers]


@pytest.mark.parametrize("prompt", [0, 110])
def test_a_stream_longer_than_any_graph_is_that_of_the_dynamic_flow(flow, prompt):
    """A clip of 30 s and a sentence behind it: it goes alone and without a graph, and is heard to
    its end.
    """
    sizes = FlowSizes(ids=(28, 76), batches=(1, 2), reaches=(32, 64), units=700, slots=10)
    static = small(flow, sizes)
    ids, prompt_args = ids_of(187), voice_of(prompt)
    expected, voice = VoiceState.of(flow, *prompt_args).begin(), VoiceState.of(static, *prompt_args)
    long, short = voice.begin(), VoiceState.of(static, *voice_of(0)).begin()
    for n_ids, final in steps(187, [28, 50]):
        frames = step_many([(long, ids[:n_ids], final), (short, ids[:28], False)])[0]
        assert (frames - expected.step(ids[:n_ids], final)).abs().max() < 1e-5
    assert long.emitted_frames == 2 * 187 and static.graphs.plain
    assert voice.shape(28) == (28 if prompt == 0 else None), "it is asked for alone"
    del voice, long, short
    gc.collect()
    assert static.units.in_use == static.slots.in_use == 0


def test_the_longest_hop_of_every_profile_fits_a_call():
    ids = FlowSizes().ids[-1]
    assert ids >= 25 * max(max(profile.blocks) for profile in PROFILES.values()) + 2


def test_rows_of_a_unit_are_its_frames_for_both_guidance_rows():
    rows = rows_of(torch.tensor([[0, 3], [5, 1]]))
    assert rows.tolist() == [[0, 2, 12, 14], [1, 3, 13, 15], [20, 22, 4, 6], [21, 23, 5, 7]]
