"""A captured model in the engine's two stages speaks as the plain one, from replays alone; and it
is only made where there is a GPU and room.
"""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from scripts import bench_graphs
from scripts.engine_bench.build import random_model, random_voice
from scripts.small_model.sizes import SMALL
from tests.engine.stage_floor import hear, say, until
from webui.engine.cosyvoice.cuda.assemble import Sizes, captured
from webui.engine.cosyvoice.cuda.capture import EagerCapture
from webui.engine.cosyvoice.cuda.flow import FlowSizes
from webui.engine.cosyvoice.cuda.lm import LmSizes
from webui.engine.cosyvoice.cuda.vocoder import VocoderSizes
from webui.engine.cosyvoice.device import DeviceConfig
from webui.engine.cosyvoice.engine import CosyVoiceEngine
from webui.engine.cosyvoice.frontend.prompt_builder import PromptBuilder
from webui.engine.cosyvoice.frontend.prompt_cache import CachedPrompt, PromptCache
from webui.engine.cosyvoice.llm.interface import SamplingRequest
from webui.engine.cosyvoice.memory_plan import MemoryPlan
from webui.engine.cosyvoice.scheduler.chunk_schedule import PROFILES, ChunkSchedule
from webui.engine.cosyvoice.scheduler.runner import EngineRunner
from webui.errors import BadInput, NotReady
from webui.messages import Message
from webui.types import SpeechRequest, part_seed

PLACE = DeviceConfig("cpu", "fp32", "test")
SIZES = Sizes(
    LmSizes(slots=(1, 4), reaches=(256, 512), run=8),
    FlowSizes(ids=(28, 100), batches=(1,), reaches=(256,), units=800, slots=10),
    VocoderSizes(batches=(1,)),
)


def stages_of(model):
    lm = model.lm
    stages = EngineRunner(model, PromptCache(model, 1 << 40), PROFILES["balanced"])
    return SimpleNamespace(
        stages=stages,
        lm=lm,
        model=model,
        hops=ChunkSchedule(25, 25, PROFILES["balanced"].blocks, True),
    )


@pytest.fixture(scope="module")
def model_pair():
    torch.set_num_threads(1)
    progress = []
    plain = stages_of(random_model(SMALL, PLACE))
    fast = stages_of(
        captured(
            random_model(SMALL, PLACE), lambda *words: progress.append(words), SIZES, EagerCapture
        )
    )
    fast.progress = progress
    yield plain, fast
    for floor in (plain, fast):
        floor.stages.close(NotReady(Message("The test is over.", "测试结束。")))


def test_speech_is_that_of_the_plain_model_and_everything_is_given_back(model_pair):
    prompt = random_voice(2.0, SMALL.codes)
    outputs = []
    for floor in model_pair:
        voice = CachedPrompt(floor.model, prompt)
        outputs.append(
            [hear(say(floor, voice, seed, n_text=4 + seed, segments=1 + seed)) for seed in range(2)]
        )
        whos = [say(floor, voice, seed, n_text=6) for seed in range(2, 5)]
        readers = [request_state.chunks() for request_state in whos]
        firsts = [next(reader) for reader in readers]
        for reader in readers:
            reader.close()
        outputs[-1] += [([], first.samples) for first in firsts]
    for (ids, wave), (other_ids, other) in zip(*outputs):
        assert ids == other_ids
        assert wave.shape == other.shape
        # windows end elsewhere, and a random vocoder hears much further than a trained one
        # (test_cosyvoice_graphs_vocoder: 0.002)
        assert np.square(wave - other).mean() ** 0.5 < 0.1 * np.square(other).mean() ** 0.5
    model = model_pair[1].model
    del voice, whos, readers
    assert until(lambda: (model.lm.slots.in_use, model.flow.units.in_use) == (0, 0))
    assert not model.lm.graphs.plain and not model.flow.graphs.plain


def test_ids_drawn_by_the_model_are_those_drawn_here(model_pair):
    """Several at once, joining while others speak; and fewer turns than ids are needed for it."""
    plain, fast = model_pair
    prompt = random_voice(2.0, SMALL.codes)
    voice = CachedPrompt(plain.model, prompt)
    expected = [
        hear(say(plain, voice, seed, n_text=3 + seed, segments=1 + seed % 2))[0]
        for seed in range(4)
    ]
    voice, outputs, before = CachedPrompt(fast.model, prompt), {}, fast.lm.graphs.replayed.copy()
    threads = [
        threading.Thread(
            target=lambda seed=seed: outputs.update(
                {seed: hear(say(fast, voice, seed, n_text=3 + seed, segments=1 + seed % 2))[0]}
            )
        )
        for seed in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [outputs[seed] for seed in range(4)] == expected
    assert fast.lm.max_steps > 1 == plain.lm.max_steps
    played = fast.lm.graphs.replayed - before
    ids = sum(len(segment) for segments in expected for segment in segments)
    assert played.total() < ids


def test_every_segment_has_a_seed_of_its_own_and_bounds_by_its_text(model_pair):
    request = SpeechRequest(
        "r", "text", "v", mode="cross_lingual", segments=("one", "two three"), seed=7
    )
    for floor in model_pair:
        model = replace(floor.model, tokenizer=SimpleNamespace(typed=lambda text: [1] * len(text)))
        voice = CachedPrompt(model, random_voice(1.0, SMALL.codes))
        assert [
            source.sampling for source in PromptBuilder(model, voice, request).build_lm_tokens()
        ] == [
            SamplingRequest(part_seed(7, 0), 6, 60),
            SamplingRequest(part_seed(7, 1), 18, 180),
        ]


def test_recording_is_told_in_order(model_pair):
    shares = [share for share, _, _ in model_pair[1].progress]
    assert shares == sorted(shares) and shares[0] >= 0.82 and abs(shares[-1] - 0.9) < 1e-9


def test_voices_may_take_half_of_the_pool(model_pair):
    model = model_pair[1].model
    unit = model.flow.bytes_per_unit
    assert model.voices_budget(MemoryPlan(0, 1 << 50, 0, 0, 100)) == 400 * unit
    voice = model.new_voice_state(*[(), torch.zeros(0, 80), torch.zeros(192)])
    assert voice.bytes == 80 * unit, "one that takes a slot and no row still counts"


def test_sizes_follow_the_memory_that_is_free():
    model = random_model(SMALL, PLACE)
    sizes = [Sizes.for_memory(model, free << 20).flow.units for free in (400, 800, 1 << 20)]
    assert 1000 <= sizes[0] < sizes[1] < sizes[2] == 40000
    rows = [Sizes.for_memory(model, free << 30) for free in (1, 3, 6, 80)]
    assert (
        [size.flow.batches[-1] for size in rows]
        == [size.vocoder.batches[-1] for size in rows]
        == [1, 4, 8, 8]
    )
    with pytest.raises(NotReady) as caught:
        Sizes.for_memory(model, 100 << 20)
    assert caught.value.code == "no_memory"


@pytest.mark.parametrize(
    ("slots", "units", "flow_slots", "streams"),
    [(2, 40000, 512, 2), (64, 40000, 512, 64), (64, 40000, 20, 10), (64, 1000, 64, 4),
        (64, 100, 64, 1)],
)  # fmt: skip
def test_as_many_streams_as_there_are_places_for(model_pair, slots, units, flow_slots, streams):
    model = model_pair[1].model
    results = replace(
        model,
        device_config=DeviceConfig("cuda", "bf16", "test"),
        prompt_encoder=SimpleNamespace(can_hear=False),
        presets={},
        lm=SimpleNamespace(sizes=LmSizes(slots=(1, slots))),
        flow=SimpleNamespace(sizes=FlowSizes(units=units, slots=flow_slots)),
    )
    assert results.streams == streams and model_pair[0].model.streams == 0
    engine = CosyVoiceEngine(Path("nowhere"))
    engine._model, engine._steps, engine._first_hop = results, 10, 25
    engine._runner = SimpleNamespace(speed=9.0)
    about = engine.describe()
    assert (about.streams, about.lanes) == (streams, min(32, streams))


def test_a_sentence_without_room_behind_its_clip_is_refused_before_anything_is_computed(model_pair):
    """Slots have 512 positions here."""
    model = replace(
        model_pair[1].model, tokenizer=SimpleNamespace(typed=lambda text: [1] * len(text))
    )
    voice = CachedPrompt(model, random_voice(8.0, SMALL.codes))
    assert len(voice.prompt.speech_ids) == 200

    def build_tokens(letters: int):
        request = SpeechRequest(
            "r", "x", "v", "zero_shot", transcript="t" * 50, segments=("ok", "a" * letters), seed=7
        )
        return PromptBuilder(model, voice, request).build_lm_tokens()

    most = (512 - 200 - 50 - 3) // 3
    assert len(build_tokens(most)) == 2
    with pytest.raises(BadInput) as caught:
        build_tokens(most + 1)
    assert caught.value.code == "too_long_sentence" and caught.value.param == "input"
    past = voice.prefix((1,) * 50).fork(0)
    model_pair[1].lm.start(
        model_pair[1].lm.prefill_embeddings([1] * most, voice.prompt.speech_ids),
        past,
        SamplingRequest(7, 2 * most, 20 * most),
    )
    assert model_pair[1].lm.rows[past].left >= 2 * most, (
        "what is let in has room for the least that is said of it"
    )
    plain = replace(model_pair[0].model, tokenizer=model.tokenizer)
    request = SpeechRequest("r", "x", "v", "zero_shot", segments=("a" * 900,), transcript="t" * 50)
    assert PromptBuilder(plain, CachedPrompt(plain, voice.prompt), request).build_lm_tokens(), (
        "no slots, no bounds"
    )


def test_an_int8_model_is_not_captured():
    with pytest.raises(ValueError, match="torch"):
        captured(SimpleNamespace(lm=object()))


@pytest.mark.parametrize("family", ["cosyvoice1", "cosyvoice2", "cosyvoice3"])
def test_the_bench_of_graphs_runs_without_a_gpu(tmp_path, family):
    report = bench_graphs.main(
        [
            "--family",
            family,
            "--device",
            "cpu",
            "--size",
            "small",
            "--times",
            "1",
            "--json",
            str(tmp_path / "out.json"),
        ]
    )
    assert (
        report["same_ids"] == bench_graphs.IDS
        and report["agreement"]["lm"] < 1e-5
        and report["agreement"]["flow"] < 1e-3
        and report["agreement"]["vocoder"] < 0.1
    )
    assert (
        report["graphs"]
        == len(report["rows"])
        == len(json.loads((tmp_path / "out.json").read_text())["rows"])
    )
    assert {row["network"] for row in report["rows"]} == {"lm", "flow", "vocoder"} and all(
        row["best_ms"] > 0 for row in report["rows"]
    )
