"""The flow's two guidance rows on two cores, and memory that goes from request to request: the same
frames, nobody else's.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tests.engine.cosyvoice_small import ids_of, small_flow, voice_of
from webui.engine.cosyvoice.flow import VoiceState
from webui.engine.cosyvoice.flow.kv_cache import BufferPool, KVStore

torch.set_num_threads(1)


@pytest.fixture
def flow():
    return small_flow(torch.float64)


@pytest.fixture
def beside():
    with ThreadPoolExecutor(1, "beside") as pool:
        yield pool


def synthesise(
    voice: VoiceState, ids: torch.Tensor, hops: tuple[int, ...] = (28, 53)
) -> torch.Tensor:
    state = voice.begin()
    return torch.cat([state.step(ids[:n]) for n in hops] + [state.step(ids, final=True)])


def test_rows_apart_give_the_frames_of_rows_together(flow, beside):
    voice, ids = VoiceState.of(flow, *voice_of(53)), ids_of(84)
    together = synthesise(voice, ids)
    flow.decoder.beside = beside
    assert torch.allclose(synthesise(voice, ids), together, rtol=0, atol=1e-10)
    assert torch.allclose(
        synthesise(VoiceState.of(flow, *voice_of(53)), ids), together, rtol=0, atol=1e-10
    ), "the voice itself too"


def test_each_core_gets_a_row(flow, beside):
    flow.decoder.beside, calls = beside, []
    flow.decoder.estimator.register_forward_pre_hook(
        lambda module, inputs: calls.append(
            (threading.current_thread().name.startswith("beside"), len(inputs[0]))
        )
    )
    synthesise(VoiceState.of(flow, *voice_of(53)), ids_of(84))
    assert calls and {rows for _, rows in calls} == {1}
    assert sum(is_beside for is_beside, _ in calls) * 2 == len(calls)


def test_a_row_that_fails_leaves_when_the_other_has_ended(flow, beside):
    """Its memory goes to the next request: nobody may still write into it."""
    flow.decoder.beside, ended = beside, []
    voice, real = VoiceState.of(flow, *voice_of(53)), flow.decoder.estimator.forward
    state = voice.begin()

    def forward(x, time, past, mask):
        if threading.current_thread().name.startswith("beside"):
            threading.Event().wait(0.2)
            ended.append(real(x, time, past, mask))
            return ended[0]
        raise RuntimeError("the first row fails")

    flow.decoder.estimator.forward = forward
    with pytest.raises(RuntimeError, match="first row"):
        state.step(ids_of(84)[:28])
    assert ended


def test_memory_of_an_ended_request_serves_the_next_and_leaks_nothing_into_it(flow):
    voice, ids = VoiceState.of(flow, *voice_of(53)), ids_of(84)
    fresh = synthesise(voice, ids)
    synthesise(voice, (ids + 7) % 90)
    state = voice.begin()
    state.step(ids[:28])
    used = {past.store.data.data_ptr() for past in state.pasts}
    state.close()
    with torch.inference_mode():
        for room in flow.rooms._free:
            room.fill_(torch.nan)  # whoever reads what it has not written shows it
    state = voice.begin()
    first = state.step(ids[:28])
    assert {past.store.data.data_ptr() for past in state.pasts} == used
    assert torch.equal(torch.cat([first, state.step(ids[:53]), state.step(ids, final=True)]), fresh)


def test_kept_memory_is_bounded():
    rooms = BufferPool(1000)
    for _ in range(5):
        rooms.give(torch.zeros(100))
    assert sum(r.nbytes for r in rooms._free) == 800
    assert rooms.take((100,), torch.zeros(1, dtype=torch.float64)).dtype == torch.float64, (
        "another type is not taken for it"
    )


def test_a_row_of_a_store_is_the_same_memory():
    store = KVStore(1, 2, 1, 4, torch.float32, "cpu")
    store.room_for(3)
    for i in range(2):
        store.row(i).put(0, torch.full((2, 1, 1, 3, 4), float(i + 1)))
    store.advance(3)
    assert torch.equal(store.data[0, 0, :, 0, 0, 0], torch.tensor([1.0, 2.0]))
