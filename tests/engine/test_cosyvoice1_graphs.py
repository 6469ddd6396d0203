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
    LM_DIMS,
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
from webui.engine.cosyvoice.cuda import lm as lm_module
from webui.engine.cosyvoice.cuda.assemble_v1 import CapturedCosyVoice1, Sizes, SteppedWork, captured
from webui.engine.cosyvoice.cuda.capture import EagerCapture
from webui.engine.cosyvoice.cuda.hop_flow import HopSizes, StaticHops, between
from webui.engine.cosyvoice.cuda.lm import LmSizes
from webui.engine.cosyvoice.cuda.relative_lm import StaticStackLm
from webui.engine.cosyvoice.cuda.vocoder import StaticVocoder, VocoderSizes
from webui.engine.cosyvoice.cuda.windows import check
from webui.engine.cosyvoice.engine import CosyVoiceEngine
from webui.engine.cosyvoice.flow.hop_stream import HopVoice, step_many
from webui.engine.cosyvoice.llm.interface import SamplingRequest
from webui.engine.cosyvoice.llm.qwen2 import generate
from webui.engine.cosyvoice.llm.sampler import RasRule, Sampler, greedy
from webui.engine.cosyvoice.v1 import SPEC, CosyVoice1
from webui.engine.cosyvoice.vocoder import STEADY, VocoderState
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
    fast = StaticStackLm(lm, RasRule(), LM_SIZES)
    fast.prewarm()
    return lm, fast


@pytest.mark.parametrize("speaker", [None, SPEAKER], ids=["described", "speaker"])
@pytest.mark.parametrize("prompt_text", [[], PROMPT_TEXT], ids=str)
def test_scores_of_every_step_are_the_dynamic_ones(pair, prompt_text, speaker):
    lm, fast = pair
    cache, past = lm.prefix(prompt_text, speaker).fork(), fast.prefix(prompt_text, speaker).fork(50)
    got, want = (
        fast.step(fast.prefill_embeddings(TEXT, PROMPT_SPEECH), past),
        lm.step(lm.prefill_embeddings(TEXT, PROMPT_SPEECH), cache),
    )
    assert past.text is None, "all text is read"
    for chosen in range(30):
        assert torch.allclose(got, want, atol=1e-5), chosen
        got, want = fast.step_many([chosen], [past]), lm.step_many([chosen], [cache])
    assert past.length == cache.length and not torch.equal(got, fast.step(fast.speech([3]), past))


def test_text_goes_on_behind_the_words_of_its_prefix(pair):
    """What the text encoder has read of a prompt is part of the prefix, and no fork changes it."""
    _, fast = pair
    prefix = fast.prefix(PROMPT_TEXT, SPEAKER)
    twice = [fast.step(fast.prefill_embeddings(TEXT), prefix.fork(50)) for _ in range(2)]
    assert torch.equal(*twice)
    assert not torch.allclose(
        fast.step(fast.prefill_embeddings(TEXT), fast.prefix([], SPEAKER).fork(50)),
        twice[0],
        atol=1e-3,
    )


@pytest.mark.parametrize("seed", range(3))
def test_ids_drawn_there_are_those_drawn_here_in_company_too(pair, seed):
    lm, fast = pair
    want = [
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
    together = [spoken.ids for spoken in fast.run(pasts, 4).take()]
    got = [
        head + ([] if len(head) < 4 else to_the_end(fast, past))
        for head, past in zip(together, pasts)
    ]
    assert got == want


def test_greedy_through_the_seam_is_the_same_speech_and_long_inputs_are_fed_in_pieces(
    pair, monkeypatch
):
    monkeypatch.setattr(lm_module, "MAX_PREFILL", 16)
    lm, fast = pair
    long = [i % LM_DIMS.speech_codes for i in range(53)]
    assert list(
        generate(fast, fast.prefix(PROMPT_TEXT, SPEAKER).fork(200), TEXT, long, greedy)
    ) == list(generate(lm, lm.prefix(PROMPT_TEXT, SPEAKER).fork(), TEXT, long, greedy))
    assert fast.table.refused == 0


def test_drawing_is_replays_and_copies(pair):
    lm, _ = pair
    recorder = Recorder()
    fast = StaticStackLm(lm, RasRule(), LM_SIZES, recorder)
    fast.prewarm()
    past = fast.prefix(PROMPT_TEXT, SPEAKER).fork(0)
    fast.start(fast.prefill_embeddings(TEXT, PROMPT_SPEECH), past, SamplingRequest(1, 10, 100))
    with Outside(recorder) as outside:
        fast.run([past], 4).take()
    assert outside.seen <= {"select", "slice", "copy_", "zero_"}, outside.seen


# ---- flow ----------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def flow():
    return small_flow(torch.float32)


@pytest.fixture(scope="module")
def hops(flow):
    made = StaticHops(flow, HOPS)
    made.prewarm()
    return made


def twin(voice: HopVoice, hops: StaticHops) -> HopVoice:
    return HopVoice(hops, voice.prompt_ids, voice.prompt_mel, voice.speaker)


def drawn(count: int, seed: int = 7) -> list[int]:
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
    voice, ids = hop_voice(flow, prompt, frames), drawn(157)
    want, got = voice.begin(3), twin(voice, hops).begin(3)
    for known, final in ((120, False), (157, True)):
        assert got.shape(known, final) == want.shape(known, final)
        mine, its = got.step(ids[:known], final), want.step(ids[:known], final)
        assert mine.shape == its.shape and (mine - its).abs().max() < 2e-5
    assert (got.computed_frames, got.emitted_frames) == (want.computed_frames, want.emitted_frames)


@pytest.mark.parametrize("count", [1, 2, 20, 40, 41, 55, 100])
def test_every_length_of_a_rest(flow, hops, count):
    voice = hop_voice(flow, 5)
    assert (
        twin(voice, hops).begin(1).step(drawn(count), True)
        - voice.begin(1).step(drawn(count), True)
    ).abs().max() < 2e-5


def test_hops_of_different_lengths_share_a_call(flow, hops):
    voices, hops.table.played = (
        [hop_voice(flow, prompt, seed=prompt) for prompt in (3, 60, 33)],
        type(hops.table.played)(),
    )
    asked = [(voice.begin(n), drawn(30 + 25 * n, n), True) for n, voice in enumerate(voices)]
    want = [
        voice.begin(n).step(ids, True) for n, (voice, (_, ids, _)) in enumerate(zip(voices, asked))
    ]
    got = step_many(
        [(twin(state.voice, hops).begin(state.seed), ids, final) for state, ids, final in asked]
    )
    assert all((mine - its).abs().max() < 2e-5 for mine, its in zip(got, want))
    assert dict(hops.table.played) == {(256, 2): 1, (256, 1): 1}


def test_what_lies_behind_a_hop_is_not_heard(flow, hops):
    """Padding of another request is still in the buffers."""
    voice = hop_voice(flow, 20)
    first = twin(voice, hops).begin(1).step(drawn(30), True)
    for buffer in (hops.buffers.noise, hops.buffers.earlier_mu, hops.buffers.cond):
        buffer.fill_(7.0)
    assert torch.equal(twin(voice, hops).begin(1).step(drawn(30), True), first)


def test_a_call_longer_than_any_is_computed_as_ever_and_counted(flow, hops):
    voice, before = hop_voice(flow, 100), hops.passed_by
    assert (
        twin(voice, hops).begin(1).step(drawn(200), True) - voice.begin(1).step(drawn(200), True)
    ).abs().max() < 2e-5
    assert hops.passed_by == before + 1 and hops.table.refused == 0


def test_buckets_hold_ids_and_frames():
    sizes = HopSizes()
    assert [
        sizes.bucket(ids, frames)
        for ids, frames in ((120, 206), (164, 256), (165, 256), (500, 861), (120, 3073))
    ] == [256, 256, 512, 1024, None]
    assert (
        all(size % 2 == 0 for size in sizes.frames) and sizes.bucket(1500 + 220, 2584 + 378) == 3072
    ), "half a minute of prompt and the longest hop"


def test_frames_lie_between_ids_as_torch_stretches_them():
    x = torch.randn(1, 80, 63, generator=torch.Generator().manual_seed(1))
    below, above, weights = between(21, 37, 42)
    parts = [(x[..., :21], 37), (x[..., 21:41], 34), (x[..., 41:43], 4), (x[..., 43:], 34)]
    want = torch.cat(
        [torch.nn.functional.interpolate(part, size=count, mode="linear") for part, count in parts],
        2,
    )
    weight = torch.from_numpy(weights)
    assert (x[..., below] * (1 - weight) + x[..., above] * weight - want).abs().max() < 1e-5


def test_the_flow_serves_by_replays_and_copies(flow):
    recorder = Recorder()
    made = StaticHops(flow, HopSizes(frames=(256,), batches=(1,)), recorder)
    made.prewarm()
    state, ids = twin(hop_voice(flow, 20), made).begin(1), drawn(60)
    work = state.work(ids, True)
    with Outside(recorder) as outside:
        made.hops([work])
    assert outside.seen <= {"select", "slice", "copy_", "zero_", "clone"} | ON_HOST, outside.seen


# ---- vocoder -------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", [None, 3])
def test_windows_are_the_wave_of_one_shot(seed):
    vocoder, mel = small_vocoder(), torch.randn(120, 80, generator=torch.Generator().manual_seed(4))
    made = StaticVocoder(
        vocoder,
        VocoderSizes(lengths=SteppedWork.lengths[:-3], batches=(1, 2), slots=3),
        work=SteppedWork,
    )
    made.prewarm()
    want = vocoder.whole(mel, seed)
    for cut in ([50], [20, 30, 50]):
        wave = torch.cat(pushed(made.begin(seed), mel, cut))
        assert wave.shape == want.shape and relative_rms(wave, want) < 4e-3
    plain = VocoderState(vocoder, seed).push(mel[:50])
    assert (made.begin(seed).push(mel[:50]) - plain).abs().max() < 1e-4
    assert seed is None or relative_rms(made.begin(None).push(mel, True), want) > 0.05, (
        "phases are a request's own"
    )


def test_windows_of_usual_hops_are_one_each():
    check(SteppedWork.lengths, STEADY)
    assert {172, 192, 364} < set(SteppedWork.lengths)


# ---- the whole -----------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return make(tmp_path_factory.mktemp("first"), family="cosyvoice1")


def test_on_a_gpu_all_three_networks_are_captured(root, monkeypatch, reference):  # noqa: F811
    """Without one: the works run directly. Speech is that of the plain model."""
    sizes = Sizes(LmSizes(slots=(1, 2), reaches=(256, 1024), run=8),
        HopSizes(frames=(256, 768), batches=(1,)),
                  VocoderSizes(lengths=SteppedWork.lengths[:-1], batches=(1,),
                      slots=8))  # fmt: skip

    def spoken() -> np.ndarray:
        other = CosyVoiceEngine(root, precision="fp32", threads=1)
        other.start()
        try:
            torch.set_num_threads(1)
            models.append(other._loaded())
            return whole(
                other.stream(
                    ask(
                        id="static",
                        mode="zero_shot",
                        transcript="hello there",
                        segments=("Hi there.",),
                    ),
                    other.encode(*reference),
                )
            )
        finally:
            other.close()

    models: list[CosyVoice1] = []
    want = spoken()
    monkeypatch.setattr(
        engine_module,
        "to_backend",
        lambda model, told: captured(model, told, sizes, EagerCapture),
    )
    got = spoken()
    assert got.shape == want.shape and np.square(got - want).mean() < 0.01 * np.square(want).mean()
    model = models[1]
    assert (
        isinstance(model, CapturedCosyVoice1)
        and model.lm.table.played
        and model.flow.table.played
        and model.static_vocoder.table.played
    )
    assert (
        model.lm.table.refused
        == model.flow.table.refused
        == model.static_vocoder.table.refused
        == model.flow.passed_by
        == 0
    )


def test_sizes_follow_the_memory_that_is_free(root):
    spec = SPEC.read_spec(root, SPEC.steps[0])
    from webui.engine.cosyvoice.device import DeviceConfig

    model = SimpleNamespace(spec=spec, device_config=DeviceConfig("cpu", "fp32", "test"))
    of_slot = spec.lm.cache_bytes(4096, 4)
    assert [
        Sizes.for_memory(model, int(n * of_slot / 0.4) + 9).lm.slots[-1] for n in (3, 9, 1000)
    ] == [2, 8, 32]
    assert Sizes.for_memory(model, 80 << 30).flow.batches == (1, 2, 4) and Sizes.for_memory(
        model, 1 << 30
    ).vocoder.batches == (1,)
    with pytest.raises(NotReady) as caught:
        Sizes.for_memory(model, 2 * of_slot)
    assert caught.value.code == "no_memory"


def test_only_what_torch_computes_is_captured():
    with pytest.raises(ValueError, match="torch"):
        captured(SimpleNamespace(lm=object()))
