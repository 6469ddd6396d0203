"""A captured model in the engine's two stages speaks as the plain one, from replays alone; and it is only made where there is a GPU and room."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from scripts.engine_bench.build import random_model, random_voice
from scripts.small_model.sizes import SMALL
from tests.engine.test_cosyvoice_stages import hear, say, until
from webui.engine.cosyvoice.device import MemoryPlan, Place
from webui.engine.cosyvoice.graphs.assemble import Sizes, captured
from webui.engine.cosyvoice.graphs.capture import Direct
from webui.engine.cosyvoice.graphs.flow import FlowSizes
from webui.engine.cosyvoice.graphs.lm import LmSizes
from webui.engine.cosyvoice.graphs.vocoder import VocoderSizes
from webui.engine.cosyvoice.pace import PROFILES, Hops
from webui.engine.cosyvoice.stages import Stages
from webui.engine.cosyvoice.voices import LiveVoice, LiveVoices
from webui.errors import NotReady

PLACE = Place("cpu", "fp32", "test")
SIZES = Sizes(
    LmSizes(slots=(1, 4), reaches=(256, 512), inputs=(1, 64), run=8),
    FlowSizes(ids=(28, 100), batches=(1,), reaches=(256,), units=800, slots=10),
    VocoderSizes(batches=(1,), slots=8),
)


def stages_of(model):
    lm = model.lm
    stages = Stages(model, LiveVoices(model, 1 << 40), PROFILES["balanced"])
    return SimpleNamespace(stages=stages, lm=lm, model=model, hops=Hops(25, 25, PROFILES["balanced"].blocks, True))


@pytest.fixture(scope="module")
def both():
    torch.set_num_threads(1)
    told = []
    plain = stages_of(random_model(SMALL, PLACE))
    fast = stages_of(captured(random_model(SMALL, PLACE), lambda *words: told.append(words), SIZES, Direct))
    fast.told = told
    yield plain, fast
    for floor in (plain, fast):
        floor.stages.close(NotReady("The test is over.", "测试结束。"))


def test_speech_is_that_of_the_plain_model_and_everything_is_given_back(both):
    prompt = random_voice(2.0, SMALL.codes)
    said = []
    for floor in both:
        voice = LiveVoice(floor.model, prompt)
        said.append([hear(say(floor, voice, seed, n_text=4 + seed, segments=1 + seed)) for seed in range(2)])
        whos = [say(floor, voice, seed) for seed in range(2, 5)]
        readers = [who.chunks() for who in whos]
        firsts = [next(reader) for reader in readers]
        for reader in readers:
            reader.close()
        said[-1] += [([], first.samples) for first in firsts]
    for (ids, wave), (other_ids, other) in zip(*said):
        assert ids == other_ids
        assert wave.shape == other.shape
        # windows end elsewhere, and a random vocoder hears much further than a trained one (test_cosyvoice_graphs_vocoder: 0.002)
        assert np.square(wave - other).mean() ** 0.5 < 0.1 * np.square(other).mean() ** 0.5
    model = both[1].model
    del voice, whos, readers
    assert until(lambda: (model.lm.slots.in_use, model.static_flow.units.in_use, model.static_vocoder.slots.in_use) == (0, 0, 0))
    assert model.lm.table.refused == model.static_flow.table.refused == model.static_vocoder.table.refused == 0


def test_recording_is_told_in_order(both):
    shares = [share for share, _, _ in both[1].told]
    assert shares == sorted(shares) and 0.82 <= shares[0] and abs(shares[-1] - 0.9) < 1e-9


def test_voices_may_take_half_of_the_pool(both):
    model = both[1].model
    rows = model.static_flow.buffers
    assert model.voices_budget(MemoryPlan(0, 1 << 50, 0, 0)) == 400 * rows.bytes_per_unit()
    voice = model.voice(*[(), torch.zeros(0, 80), torch.zeros(192)])
    assert voice.bytes == 80 * rows.bytes_per_unit(), "one that takes a slot and no row still counts"


def test_sizes_follow_the_memory_that_is_free():
    model = random_model(SMALL, PLACE)
    sizes = [Sizes.for_memory(model, free << 20).flow.units for free in (400, 800, 1 << 20)]
    assert 1000 <= sizes[0] < sizes[1] < sizes[2] == 40000
    with pytest.raises(NotReady) as caught:
        Sizes.for_memory(model, 100 << 20)
    assert caught.value.code == "no_memory"


def test_an_int8_model_is_not_captured():
    with pytest.raises(ValueError, match="torch"):
        captured(SimpleNamespace(lm=object()))
