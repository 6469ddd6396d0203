"""The two stages: a request speaks beside others as it does alone, none can hold up another, and
nothing runs ahead or stays behind.
"""

from __future__ import annotations

import gc
import random
import threading
import weakref

import numpy as np
import pytest

from tests.engine import stage_floor
from tests.engine.stage_floor import hear, say, until, utterance, whole
from webui.engine.cosyvoice.frontend.prompt_cache import CachedPrompt
from webui.engine.cosyvoice.llm.token_sources import FixedTokens
from webui.engine.cosyvoice.scheduler.chunk_schedule import PROFILES, ChunkSchedule
from webui.engine.cosyvoice.scheduler.request_state import RequestState
from webui.errors import Cancelled

floor, model, prompt = stage_floor.floor, stage_floor.model, stage_floor.prompt


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_streams_that_join_and_leave_at_random_speak_as_each_does_alone(floor, prompt, count):
    """Tokens identical, and so the samples; leavers in between change nothing for those who
    stay.
    """
    alone = {}
    quiet = floor()
    voice = CachedPrompt(quiet.model, prompt)
    for seed in range(count):
        alone[seed] = hear(say(quiet, voice, seed, n_text=4 + seed % 3, segments=1 + seed % 2))
    assert set(quiet.lm.batches) == {1}

    busy, rng, results = floor(), random.Random(count), {}
    voice = CachedPrompt(busy.model, prompt)

    def listener(seed: int, after: int) -> None:
        while len(busy.lm.batches) < after and not done.is_set():
            tick.wait(0.005)
        results[seed] = hear(say(busy, voice, seed, n_text=4 + seed % 3, segments=1 + seed % 2))

    def leaver(seed: int, after: int) -> None:
        while len(busy.lm.batches) < after and not done.is_set():
            tick.wait(0.005)
        stream = say(busy, voice, 1000 + seed, n_text=8).chunks()
        next(stream)
        stream.close()

    done, tick = threading.Event(), threading.Event()
    people = [
        threading.Thread(target=listener, args=(seed, rng.randrange(60) if seed else 0))
        for seed in range(count)
    ]
    people += [
        threading.Thread(target=leaver, args=(seed, rng.randrange(60))) for seed in range(count)
    ]
    for person in people:
        person.start()
    for person in people[:count]:
        person.join(60)
    done.set()
    for person in people:
        person.join(60)
    for seed in range(count):
        assert results[seed][0] == alone[seed][0], f"tokens of {seed}"
        assert np.array_equal(results[seed][1], alone[seed][1])
    assert max(busy.lm.batches) >= 2, "they did step together"
    assert busy.lm.threads == {"cosyvoice-tokens"}
    assert until(lambda: not busy.stages.scheduler.speaking)


@pytest.mark.parametrize(("first", "needed"), [(25, 28), (10, 13)])
def test_the_first_flow_call_needs_the_first_hop_and_its_look_ahead_and_no_step_more(
    floor, prompt, first, needed, request
):
    rig, calls = floor(first=first), []
    voice = CachedPrompt(rig.model, prompt, first)
    rig.stages.prepare(voice)
    hold_event, flowed = threading.Event(), threading.Event()

    def on_flow_call(module, inputs) -> None:
        calls.append(
            len(inputs[0]) * inputs[0].shape[1]
        )  # both guidance rows of a frame, in one call or in two
        flowed.set()

    hook = rig.model.flow.decoder.estimator.register_forward_pre_hook(on_flow_call)
    request.addfinalizer(hook.remove)
    request_state = say(rig, voice, 3, most=60)
    source = request_state.segments[0].source

    def gate(kind):
        if len(source.ids) == needed - 1:
            assert not flowed.wait(0.2), "sound was begun before its ids were there"
            hold_event.set()
        elif len(source.ids) == needed:
            assert flowed.wait(10), "the ids are there and nothing begins"

    rig.lm.gate = gate
    chunks = list(request_state.chunks())
    assert hold_event.is_set() and calls[0] in (2 * first, 2 * 2 * first)
    assert sum(calls) == 2 * 10 * request_state.computed_frames
    assert request_state.computed_frames == request_state.emitted_frames == 2 * 60, (
        "estimator frames per emitted frame: 1"
    )
    assert len(whole(chunks)) == 60 * 960


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_ids_run_ahead_by_one_hop_and_sound_by_one_chunk(floor, prompt, profile):
    rig = floor(profile)
    request = say(rig, CachedPrompt(rig.model, prompt), 5, most=500)
    stream, segment = request.chunks(), request.segments[0]
    for chunk in range(3):
        next(stream)
        assert until(lambda: request._chunk is not None and not request.next_decode_segment()[1])
        assert len(segment.source.ids) == rig.hops.needed(chunk + 3)
        assert request.emitted_frames == 2 * rig.hops.end(chunk + 1)
    stream.close()


def test_a_slow_reader_slows_only_itself(floor, prompt):
    rig = floor("throughput")
    voice = CachedPrompt(rig.model, prompt)
    slow = say(rig, voice, 1, most=1000)
    stopped = slow.chunks()
    next(stopped)
    for seed in range(2, 5):
        assert len(hear(say(rig, voice, seed, most=100))[1]) == 100 * 960
    assert slow.emitted_frames == 2 * rig.hops.end(1) and len(
        slow.segments[0].source.ids
    ) == rig.hops.needed(3)
    next(stopped)
    assert slow.dry_s > 0
    stopped.close()


def test_leaving_frees_everything_and_cancel_comes_between_two_ids(floor, prompt):
    rig = floor()
    voice = CachedPrompt(rig.model, prompt)

    def leave_and_cancel() -> list[weakref.ref]:
        dropped_request, cancelled = say(rig, voice, 1, most=900), say(rig, voice, 2, most=900)
        remains = [
            weakref.ref(segment)
            for request in (dropped_request, cancelled)
            for segment in request.segments
        ]
        stream = dropped_request.chunks()
        next(stream)
        stream.close()
        id_counts, source = [], cancelled.segments[0].source
        rig.lm.gate = lambda kind: (
            id_counts.append(len(source.ids)) or (len(source.ids) == 40 and cancelled.cancel())
        )
        with pytest.raises(Cancelled):
            list(cancelled.chunks())
        rig.lm.gate = lambda kind: None
        hear(say(rig, voice, 3))
        assert len(source.ids) == 40 == max(id_counts), "not one step more"
        return remains

    remains = leave_and_cancel()
    assert until(lambda: not rig.stages.scheduler.speaking)
    gc.collect()
    assert [r() for r in remains] == [None, None]


def order_of_work(rig, requests: list[RequestState]) -> list[int]:
    return [w.request.seed for w in sorted(requests, key=lambda w: w.rank())]


def test_who_is_served_first(floor, prompt):
    for name, expected in {
        "ttfa": [3, 1, 2, 4],
        "balanced": [1, 3, 2, 4],
        "throughput": [1, 2, 3, 4],
    }.items():
        rig = floor(name)
        voice = CachedPrompt(rig.model, prompt)
        dry, rested, new, batch = (
            utterance(rig, voice, [FixedTokens([1])], n, priority=5 if n == 4 else 0)
            for n in (1, 2, 3, 4)
        )
        for w, dry_s in ((dry, -1.0), (rested, 0.3)):
            w._number, w.dry_s = 1, new.born_s + dry_s
        assert order_of_work(rig, [batch, rested, new, dry]) == expected, name


def test_no_step_waits_for_company_that_cannot_come(floor, prompt, monkeypatch):
    """A lone request, or one whose only neighbours are slow readers, is stepped at once."""
    waits = []
    rig = floor("throughput")
    voice = CachedPrompt(rig.model, prompt)
    wait = rig.stages.scheduler.ids_wanted.wait
    monkeypatch.setattr(
        rig.stages.scheduler.ids_wanted,
        "wait",
        lambda timeout=None: waits.append(timeout) or wait(timeout),
    )
    stopped = say(rig, voice, 1, most=900).chunks()
    next(stopped)
    assert until(lambda: rig.stages.scheduler.speaking[0]._chunk is not None)
    waits.clear()
    hear(say(rig, voice, 2, most=200))
    assert [w for w in waits if w is not None] == []
    assert all(p.batch_wait_s <= 0.005 for p in PROFILES.values())
    stopped.close()


def test_hops():
    assert [ChunkSchedule(25, 25, (1, 1, 2), True).end(n) for n in range(5)] == [
        25,
        50,
        100,
        150,
        200,
    ]
    assert [ChunkSchedule(10, 25, (1, 1, 2), True).end(n) for n in range(5)] == [
        10,
        25,
        50,
        100,
        150,
    ]
    whole_hops, pieces = ChunkSchedule(25, 25, (2,), True), ChunkSchedule(25, 25, (2,), False)
    assert (whole_hops.piece_end(1, 50), pieces.piece_end(1, 50), pieces.piece_end(1, 75)) == (
        100,
        75,
        100,
    )


def test_a_hop_in_pieces_is_the_hop_whole(floor, prompt):
    outputs = {}
    for whole_hop in (True, False):
        rig = floor("throughput", whole=whole_hop)
        outputs[whole_hop] = hear(say(rig, CachedPrompt(rig.model, prompt), 6, most=190))
    assert outputs[True][0] == outputs[False][0]
    assert (
        np.square(outputs[True][1] - outputs[False][1]).mean()
        < 1e-4 * np.square(outputs[True][1]).mean()
    )
