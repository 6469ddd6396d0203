"""The first generation over static buffers: ids, frames and waves are those without, whatever a hop
is padded to and whoever is beside it.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from scripts.make_small_model import make
from tests.engine.contract import ask, whole
from tests.engine.cosyvoice1_small import (
    FLOW_DIMS,
    hop_voice,
    small_flow,
    small_lm,
    small_vocoder,
)
from tests.engine.test_cosyvoice1_lm import PROMPT_SPEECH, PROMPT_TEXT, SPEAKER, TEXT
from tests.engine.test_cosyvoice_engine import reference  # noqa: F401
from tests.engine.test_cosyvoice_graphs_lm import Outside, Recorder, to_the_end
from tests.engine.test_cosyvoice_vocoder import pushed, relative_rms
from webui.engine.cosyvoice import engine as engine_module
from webui.engine.cosyvoice.cuda.assemble import CapturedCosyVoice1, Sizes, captured
from webui.engine.cosyvoice.cuda.capture import EagerCapture
from webui.engine.cosyvoice.cuda.flow import CapturedHops, HopSizes
from webui.engine.cosyvoice.cuda.lm import CapturedLM, LmSizes
from webui.engine.cosyvoice.cuda.vocoder import CapturedVocoderV1, VocoderSizes
from webui.engine.cosyvoice.dims_v1 import frames_of
from webui.engine.cosyvoice.engine import CosyVoiceEngine
from webui.engine.cosyvoice.flow.hop_stream import HopVoice, step_many
from webui.engine.cosyvoice.llm.interface import SamplingRequest
from webui.engine.cosyvoice.llm.qwen2 import generate
from webui.engine.cosyvoice.llm.sampler import RasRule, Sampler
from webui.engine.cosyvoice.v1 import SPEC, CosyVoice1
from webui.engine.cosyvoice.vocoder import VocoderState
from webui.errors import NotReady

torch.set_num_threads(1)
LM_SIZES = LmSizes(slots=(1, 2, 4), reaches=(64, 192), run=8)
HOPS = HopSizes(frames=(256, 384), batches=(1, 2))
ON_HOST = {
    "cat",
    "clamp",
    "detach",
    "lift_fresh",
    "to",
    "resolve_conj",
    "resolve_neg",
}  # ids into the job table, what is kept into one piece


# ---- language model ------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def pair():
    lm = small_lm(torch.float32)
    fast = CapturedLM(lm, RasRule(), LM_SIZES)
    fast.record()
    return lm, fast


@pytest.mark.parametrize("speaker", [None, SPEAKER], ids=["described", "speaker"])
@pytest.mark.parametrize("prompt_text", [[], PROMPT_TEXT], ids=str)
def test_scores_of_every_step_are_the_dynamic_ones(pair, prompt_text, speaker):
    lm, fast = pair
    cache, past = lm.prefix(prompt_text, speaker).fork(), fast.prefix(prompt_text, speaker).fork(50)
    opening = fast.prefill_embeddings(TEXT, PROMPT_SPEECH)
    expected = lm.step(opening, cache)
    fast.start(opening, past, SamplingRequest(1, 10, 100))
    row = fast.rows[past]
    assert torch.equal(fast.last[row.slot], expected[0]) and past.text is None and not past.length
    for _ in range(30):
        (output,) = fast.decode([past], 1)
        if output.ids:
            expected = lm.step_many(output.ids, [cache])
            assert torch.allclose(fast.last[row.slot], expected[0], atol=1e-5)
    assert row.length == cache.length > len(TEXT) + 20


@pytest.mark.parametrize("seed", range(3))
def test_ids_drawn_there_are_those_drawn_here_in_company_too(pair, seed):
    lm, fast = pair
    expected = [
        list(
            generate(
                lm,
                lm.prefix(PROMPT_TEXT, SPEAKER).fork(),
                TEXT[:n],
                PROMPT_SPEECH,
                Sampler(seed + n),
            )
        )
        for n in (2, 5)
    ]
    pasts = []
    for n in (2, 5):
        pasts.append(fast.prefix(PROMPT_TEXT, SPEAKER).fork(0))
        fast.start(
            fast.prefill_embeddings(TEXT[:n], PROMPT_SPEECH),
            pasts[-1],
            SamplingRequest(seed + n, 2 * n, 20 * n),
        )
    together = [output.ids for output in fast.decode(pasts, 4)]
    actual = [
        head + ([] if len(head) < 4 else to_the_end(fast, past))
        for head, past in zip(together, pasts)
    ]
    assert actual == expected


def test_drawing_is_replays_and_copies(pair):
    lm, _ = pair
    recorder = Recorder()
    fast = CapturedLM(lm, RasRule(), LM_SIZES, recorder)
    fast.record()
    past = fast.prefix(PROMPT_TEXT, SPEAKER).fork(0)
    fast.start(fast.prefill_embeddings(TEXT, PROMPT_SPEECH), past, SamplingRequest(1, 10, 100))
    with Outside(recorder) as outside:
        fast.decode([past], 4)
    on_host = ON_HOST | {"_to_copy"}
    assert outside.operators - on_host <= {"select", "slice", "copy_", "zero_"}, outside.operators


# ---- flow ----------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def flow():
    return small_flow(torch.float32)


@pytest.fixture(scope="module")
def hops(flow):
    static_hops = CapturedHops(flow, HOPS)
    static_hops.record()
    return static_hops


def twin(voice: HopVoice, hops: CapturedHops) -> HopVoice:
    return HopVoice(hops, voice.prompt_ids, voice.prompt_mel, voice.speaker)


def random_ids(count: int, seed: int = 7) -> list[int]:
    return torch.randint(
        0, FLOW_DIMS.speech_token_size, (count,), generator=torch.Generator().manual_seed(seed)
    ).tolist()


@pytest.mark.parametrize(
    ("prompt", "frames"), [(0, None), (41, None), (30, 77), (63, 108)], ids=str
)
def test_a_request_is_that_of_the_plain_flow(flow, hops, prompt, frames):
    """Hops of 100 ids with their overlap, and a rest of odd length, padded to 256 and 384
    frames.
    """
    voice, ids = hop_voice(flow, prompt, frames), random_ids(157)
    expected, actual = voice.begin(3), twin(voice, hops).begin(3)
    for n_ids, final in ((120, False), (157, True)):
        assert actual.shape(n_ids, final) == expected.shape(n_ids, final)
        own, its = actual.step(ids[:n_ids], final), expected.step(ids[:n_ids], final)
        assert own.shape == its.shape and (own - its).abs().max() < 2e-5
    assert (actual.computed_frames, actual.emitted_frames) == (
        expected.computed_frames,
        expected.emitted_frames,
    )


@pytest.mark.parametrize("count", [1, 2, 20, 40, 41, 55, 100])
def test_every_length_of_a_rest(flow, hops, count):
    voice = hop_voice(flow, 5)
    assert (
        twin(voice, hops).begin(1).step(random_ids(count), True)
        - voice.begin(1).step(random_ids(count), True)
    ).abs().max() < 2e-5


def test_hops_of_different_lengths_share_a_call(flow, hops):
    voices = [hop_voice(flow, prompt, seed=prompt) for prompt in (3, 60, 33)]
    hops.graphs.replayed.clear()
    batch = [(voice.begin(n), random_ids(30 + 25 * n, n), True) for n, voice in enumerate(voices)]
    expected = [
        voice.begin(n).step(ids, True) for n, (voice, (_, ids, _)) in enumerate(zip(voices, batch))
    ]
    actual = step_many(
        [(twin(state.voice, hops).begin(state.seed), ids, final) for state, ids, final in batch]
    )
    assert all((own - its).abs().max() < 2e-5 for own, its in zip(actual, expected))
    assert dict(hops.graphs.replayed) == {(256, 2): 1, (256, 1): 1}


def test_what_lies_behind_a_hop_is_not_heard(flow, hops):
    """Padding of another request is still in the buffers."""
    voice = hop_voice(flow, 20)
    first = twin(voice, hops).begin(1).step(random_ids(30), True)
    for buffer in (hops.noise, hops.mu, hops.cond):
        buffer.fill_(7.0)
    assert torch.equal(twin(voice, hops).begin(1).step(random_ids(30), True), first)


def test_a_call_longer_than_any_is_computed_as_ever_and_counted(flow, hops):
    voice, before = hop_voice(flow, 100), hops.plain
    assert (
        twin(voice, hops).begin(1).step(random_ids(200), True)
        - voice.begin(1).step(random_ids(200), True)
    ).abs().max() < 2e-5
    assert hops.plain == before + 1 and not hops.graphs.plain


def test_half_a_minute_of_prompt_and_the_longest_hop_have_a_graph():
    frames = HopSizes().frames
    assert frames[-1] >= 2584 + 378 and all(size % 2 == 0 for size in frames)


def test_the_solver_is_only_replayed(flow):
    recorder, calls = Recorder(), []
    captured_hops = CapturedHops(flow, HopSizes(frames=(256,), batches=(1,)), recorder)
    captured_hops.record()
    state, ids = twin(hop_voice(flow, 20), captured_hops).begin(1), random_ids(60)
    hook = flow.decoder.estimator.register_forward_pre_hook(lambda *_: calls.append(recorder.depth))
    state.step(ids, True)
    hook.remove()
    assert len(calls) == flow.dims.euler_steps and all(calls) and not captured_hops.graphs.plain


# ---- vocoder -------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", [None, 3])
def test_windows_are_the_wave_of_one_shot(seed):
    vocoder, mel = small_vocoder(), torch.randn(120, 80, generator=torch.Generator().manual_seed(4))
    static_vocoder = CapturedVocoderV1(vocoder, VocoderSizes((50, 70, 120), (1, 2)))
    static_vocoder.record()
    expected = vocoder.whole(mel, seed)
    for cut in ([50], [20, 30, 50]):
        wave = torch.cat(pushed(static_vocoder.stream(seed), mel, cut))
        assert wave.shape == expected.shape and relative_rms(wave, expected) < 4e-3
    plain = VocoderState(vocoder, seed).push(mel[:50])
    assert (static_vocoder.stream(seed).push(mel[:50]) - plain).abs().max() < 1e-4
    assert (
        seed is None or relative_rms(static_vocoder.stream(None).push(mel, True), expected) > 0.05
    ), "phases are a request's own"


@pytest.mark.parametrize("hops", [(50, 50, 100, 200), (100, 100, 200)], ids=str)
def test_windows_of_usual_hops_are_replayed(hops):
    """Which there are is noted, and nothing is computed."""
    captured_vocoder, lengths = CapturedVocoderV1(small_vocoder(), VocoderSizes(batches=(1,))), []
    captured_vocoder.graphs = lambda length, batch: lengths.append(length)
    stream = captured_vocoder.stream(1)
    for ids in hops:
        stream.push(torch.zeros(frames_of(ids), 80))
    assert len(lengths) == len(hops) and set(lengths) <= set(CapturedVocoderV1.lengths)


# ---- the whole -----------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return make(tmp_path_factory.mktemp("first"), family="cosyvoice1")


def test_on_a_gpu_all_three_networks_are_captured(root, monkeypatch, reference):  # noqa: F811
    """Without one: the works run directly. Speech is that of the plain model."""
    sizes = Sizes(LmSizes(slots=(1, 2), reaches=(256, 1024), run=8),
        HopSizes(frames=(256, 768), batches=(1,)),
                  VocoderSizes(batches=(1,)))  # fmt: skip

    def synthesise() -> np.ndarray:
        other = CosyVoiceEngine(root, precision="fp32", threads=1)
        other.start()
        try:
            torch.set_num_threads(1)
            models.append(other._require_model())
            return whole(
                other.stream(
                    ask(
                        id="static",
                        mode="zero_shot",
                        transcript="hello there",
                        segments=("Hi there, and a good morning to all of you. " * 3,),
                    ),
                    other.encode(*reference),
                )
            )
        finally:
            other.close()

    models: list[CosyVoice1] = []
    expected = synthesise()
    monkeypatch.setattr(
        engine_module,
        "to_backend",
        lambda model, on_progress: captured(model, on_progress, sizes, EagerCapture),
    )
    actual = synthesise()
    assert (
        actual.shape == expected.shape
        and np.square(actual - expected).mean() < 0.01 * np.square(expected).mean()
    )
    model = models[1]
    assert (
        isinstance(model, CapturedCosyVoice1)
        and model.lm.graphs.replayed
        and model.flow.graphs.replayed
        and model.vocoder.graphs.replayed
    )
    assert model.flow.plain == 0 and not model.lm.graphs.plain and not model.flow.graphs.plain


def test_sizes_follow_the_memory_that_is_free(root):
    spec = SPEC.read_spec(root, SPEC.steps[0])
    from webui.engine.cosyvoice.device import DeviceConfig

    model = SimpleNamespace(spec=spec, device_config=DeviceConfig("cpu", "fp32", "test"))
    of_slot = spec.lm.cache_bytes(4096, 4)
    assert [
        Sizes.for_memory_v1(model, int(n * of_slot / 0.4) + 9).lm.slots[-1] for n in (2, 8, 1000)
    ] == [2, 8, 32]
    assert Sizes.for_memory_v1(model, 80 << 30).flow.batches == (1, 2, 4) and Sizes.for_memory_v1(
        model, 1 << 30
    ).vocoder.batches == (1,)
    with pytest.raises(NotReady) as caught:
        Sizes.for_memory_v1(model, 2 * of_slot)
    assert caught.value.code == "no_memory"


def test_only_what_torch_computes_is_captured():
    with pytest.raises(ValueError, match="torch"):
        captured(SimpleNamespace(lm=object()))
