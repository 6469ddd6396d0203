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
from tests.engine.stage_floor import hear, say, texts, until, utterance
from webui.engine.cosyvoice.device import MemoryPlan, Place
from webui.engine.cosyvoice.engine import CosyVoiceEngine
from webui.engine.cosyvoice.graphs.assemble import Sizes, captured
from webui.engine.cosyvoice.graphs.capture import Direct
from webui.engine.cosyvoice.graphs.flow import FlowSizes
from webui.engine.cosyvoice.graphs.lm import LmSizes
from webui.engine.cosyvoice.graphs.vocoder import VocoderSizes
from webui.engine.cosyvoice.lm_seam import Draw, DrawingModel
from webui.engine.cosyvoice.pace import PROFILES, Hops
from webui.engine.cosyvoice.script import Script
from webui.engine.cosyvoice.sources import Drawn, DrawnThere
from webui.engine.cosyvoice.stages import Stages
from webui.engine.cosyvoice.voices import LiveVoice, LiveVoices
from webui.errors import BadInput, NotReady
from webui.types import SpeechRequest, part_seed

PLACE = Place("cpu", "fp32", "test")
SIZES = Sizes(
    LmSizes(slots=(1, 4), reaches=(256, 512), inputs=(1, 64), run=8),
    FlowSizes(ids=(28, 100), batches=(1,), reaches=(256,), units=800, slots=10),
    VocoderSizes(batches=(1,), slots=8),
)


def stages_of(model):
    lm = model.lm
    stages = Stages(model, LiveVoices(model, 1 << 40), PROFILES["balanced"])
    return SimpleNamespace(
        stages=stages, lm=lm, model=model, hops=Hops(25, 25, PROFILES["balanced"].blocks, True)
    )


@pytest.fixture(scope="module")
def both():
    torch.set_num_threads(1)
    told = []
    plain = stages_of(random_model(SMALL, PLACE))
    fast = stages_of(
        captured(random_model(SMALL, PLACE), lambda *words: told.append(words), SIZES, Direct)
    )
    fast.told = told
    yield plain, fast
    for floor in (plain, fast):
        floor.stages.close(NotReady("The test is over.", "测试结束。"))


def speaking(floor, voice, seed: int, n_text: int, segments: int = 1):
    """As `say`, with ids drawn by the model itself."""
    sources = []
    for index in range(segments):
        draw = Draw(seed + index, 2 * n_text, 20 * n_text)
        sources.append(
            DrawnThere(
                floor.lm,
                lambda: voice.prefix(voice.prompt.text_ids),
                texts(n_text, 100 * seed + index),
                voice.prompt.speech_ids,
                draw,
            )
        )
    return utterance(floor, voice, sources, seed)


def test_speech_is_that_of_the_plain_model_and_everything_is_given_back(both):
    prompt = random_voice(2.0, SMALL.codes)
    said = []
    for floor, talk in zip(both, (say, speaking)):
        voice = LiveVoice(floor.model, prompt)
        said.append(
            [
                hear(talk(floor, voice, seed, n_text=4 + seed, segments=1 + seed))
                for seed in range(2)
            ]
        )
        whos = [talk(floor, voice, seed, n_text=6) for seed in range(2, 5)]
        readers = [who.chunks() for who in whos]
        firsts = [next(reader) for reader in readers]
        for reader in readers:
            reader.close()
        said[-1] += [([], first.samples) for first in firsts]
    for (ids, wave), (other_ids, other) in zip(*said):
        assert ids == other_ids
        assert wave.shape == other.shape
        # windows end elsewhere, and a random vocoder hears much further than a trained one
        # (test_cosyvoice_graphs_vocoder: 0.002)
        assert np.square(wave - other).mean() ** 0.5 < 0.1 * np.square(other).mean() ** 0.5
    model = both[1].model
    del voice, whos, readers
    assert until(
        lambda: (
            (
                model.lm.slots.in_use,
                model.static_flow.units.in_use,
                model.static_vocoder.slots.in_use,
            )
            == (0, 0, 0)
        )
    )
    assert (
        model.lm.table.refused
        == model.static_flow.table.refused
        == model.static_vocoder.table.refused
        == 0
    )


def test_ids_drawn_by_the_model_are_those_drawn_here(both):
    """Several at once, joining while others speak; and fewer turns than ids are needed for it."""
    plain, fast = both
    prompt = random_voice(2.0, SMALL.codes)
    voice = LiveVoice(plain.model, prompt)
    want = [
        hear(say(plain, voice, seed, n_text=3 + seed, segments=1 + seed % 2))[0]
        for seed in range(4)
    ]
    voice, said, before = LiveVoice(fast.model, prompt), {}, fast.lm.table.played.copy()
    threads = [
        threading.Thread(
            target=lambda seed=seed: said.update(
                {seed: hear(speaking(fast, voice, seed, 3 + seed, 1 + seed % 2))[0]}
            )
        )
        for seed in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [said[seed] for seed in range(4)] == want
    assert isinstance(fast.lm, DrawingModel) and not isinstance(plain.lm, DrawingModel)
    played = fast.lm.table.played - before
    assert not any(key[0] == "feed" for key in played), "no scores came to the host"
    ids = sum(len(segment) for segments in want for segment in segments)
    assert sum(n for key, n in played.items() if key[0] == "tick") < ids


def test_the_script_lets_a_drawing_model_draw(both):
    request = SpeechRequest(
        "r", "text", "v", mode="cross_lingual", segments=("one", "two three"), seed=7
    )
    kinds = []
    for floor in both:
        model = replace(floor.model, tokenizer=SimpleNamespace(typed=lambda text: [1] * len(text)))
        kinds.append(
            Script(model, LiveVoice(model, random_voice(1.0, SMALL.codes)), request).drawn()
        )
    assert [type(s) for s in kinds[0]] == [Drawn] * 2 and [type(s) for s in kinds[1]] == [
        DrawnThere
    ] * 2
    assert [s._asked for s in kinds[1]] == [
        Draw(part_seed(7, 0), 6, 60),
        Draw(part_seed(7, 1), 18, 180),
    ]


def test_recording_is_told_in_order(both):
    shares = [share for share, _, _ in both[1].told]
    assert shares == sorted(shares) and shares[0] >= 0.82 and abs(shares[-1] - 0.9) < 1e-9


def test_voices_may_take_half_of_the_pool(both):
    model = both[1].model
    rows = model.static_flow.buffers
    assert model.voices_budget(MemoryPlan(0, 1 << 50, 0, 0, 100)) == (
        400 * rows.bytes_per_unit(),
        25,
    )
    voice = model.begun(*[(), torch.zeros(0, 80), torch.zeros(192)])
    assert voice.bytes == 80 * rows.bytes_per_unit(), (
        "one that takes a slot and no row still counts"
    )


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
    ("slots", "units", "flow_slots", "waves", "streams"),
    [(2, 40000, 512, 128, 2), (64, 40000, 512, 128, 64), (64, 40000, 512, 9, 9),
        (64, 40000, 20, 128, 10), (64, 1000, 64, 128, 4), (64, 100, 64, 128, 1)],
)  # fmt: skip
def test_as_many_streams_as_there_are_places_for(both, slots, units, flow_slots, waves, streams):
    model = both[1].model
    made = replace(
        model,
        place=Place("cuda", "bf16", "test"),
        maker=SimpleNamespace(can_hear=False),
        presets={},
        lm=SimpleNamespace(sizes=LmSizes(slots=(1, slots))),
        static_flow=SimpleNamespace(sizes=FlowSizes(units=units, slots=flow_slots)),
        static_vocoder=SimpleNamespace(sizes=VocoderSizes(slots=waves)),
    )
    assert made.streams == streams and both[0].model.streams == 0
    engine = CosyVoiceEngine(Path("nowhere"))
    engine._model, engine._steps, engine._first_hop = made, 10, 25
    engine._stages = SimpleNamespace(speed=9.0)
    about = engine.describe()
    assert (about.streams, about.lanes) == (streams, min(32, streams))


def test_a_sentence_without_room_behind_its_clip_is_refused_before_anything_is_computed(both):
    """Slots have 512 positions here."""
    model = replace(both[1].model, tokenizer=SimpleNamespace(typed=lambda text: [1] * len(text)))
    voice = LiveVoice(model, random_voice(8.0, SMALL.codes))
    assert len(voice.prompt.speech_ids) == 200

    def drawn(letters: int):
        request = SpeechRequest(
            "r", "x", "v", "zero_shot", transcript="t" * 50, segments=("ok", "a" * letters), seed=7
        )
        return Script(model, voice, request).drawn()

    most = (512 - 200 - 50 - 3) // 3
    assert len(drawn(most)) == 2
    with pytest.raises(BadInput) as caught:
        drawn(most + 1)
    assert caught.value.code == "too_long_sentence" and caught.value.param == "input"
    past = voice.prefix((1,) * 50).fork(0)
    both[1].lm.start(
        both[1].lm.opening([1] * most, voice.prompt.speech_ids), past, Draw(7, 2 * most, 20 * most)
    )
    assert past.left >= 2 * most, "what is let in has room for the least that is said of it"
    plain = replace(both[0].model, tokenizer=model.tokenizer)
    request = SpeechRequest("r", "x", "v", "zero_shot", segments=("a" * 900,), transcript="t" * 50)
    assert Script(plain, LiveVoice(plain, voice.prompt), request).drawn(), "no slots, no bounds"


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
        report["agreement"]["lm"] < 1e-5
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
