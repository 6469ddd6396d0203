"""The engine on a small random Fun-CosyVoice3 directory: everything that is asked of the second
generation, and what is this one's own.
"""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from scripts.make_small_model import make
from tests.engine.contract import ask, whole
from tests.engine.test_cosyvoice_engine import (  # noqa: F401
    TestCosyVoice,
    engine,
    prompt,
    reference,
    shared_engine,
    test_a_transcript_that_hardly_fits_its_clip_is_warned_of_and_spoken,
    test_cancel_from_another_thread_ends_a_long_step,
    test_frames_computed_per_frame_emitted,
    test_modes_differ_and_each_repeats_itself,
    test_references_it_cannot_use,
    test_request_50_is_request_1_and_a_voice_is_made_once,
    test_scripts_the_tokenizer_has_never_seen_and_words_without_an_end_still_end,
    test_text_that_arrives_piece_by_piece_is_spoken_before_it_ends,
)
from webui.engine.cosyvoice.engine import CosyVoiceEngine
from webui.engine.cosyvoice.frontend.instruction_formats import STYLES
from webui.engine.cosyvoice.frontend.prompt_encoder import check_speech_tokenizer
from webui.engine.cosyvoice.llm.silence_filter import MAX_RUN, SILENT
from webui.engine.cosyvoice.registry import model_spec_of
from webui.engine.cosyvoice.v3 import SPEC
from webui.errors import NotReady


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return make(tmp_path_factory.mktemp("model3"), family="cosyvoice3")


@pytest.fixture
def copy(root, tmp_path):
    return shutil.copytree(root, tmp_path / "CosyVoice2-0.5B")  # a name tells nothing


def fault(root, **options) -> NotReady:
    with pytest.raises(NotReady) as error:
        CosyVoiceEngine(root, **options).start()
    return error.value


def test_what_it_tells_of_itself(engine, root):  # noqa: F811
    about = engine.describe()
    assert (about.name, about.sample_rate, about.styles, about.text_in) == (
        "cosyvoice3",
        24000,
        STYLES,
        True,
    )
    assert (
        about.modes == ("zero_shot", "cross_lingual", "instruct", "convert") and not about.presets
    ), "no ready speakers, no mode for them"
    assert {"[laughter]", "[h]", "[uán]", "[EH1]"} <= set(about.tags) and {
        "zh",
        "en",
        "ja",
        "de",
        "ru",
    } <= set(about.languages)
    assert model_spec_of(root) is SPEC


def test_words_of_a_clip_in_another_voice(engine, prompt, reference):  # noqa: F811
    samples = whole(engine.convert(ask(), prompt, *reference[:2]))
    assert abs(len(samples) / 24000 - len(reference[0]) / reference[1]) < 0.1


def test_the_first_sound_holds_four_frames_back(engine, prompt):  # noqa: F811
    chunk = next(engine.stream(ask(id="first", segments=("Hello, you. " * 8,)), prompt))
    assert len(chunk.samples) == (2 * 25 - 4) * 480 - 8


def test_long_pauses_are_not_heard(engine, prompt, monkeypatch):  # noqa: F811
    """A language model that says nothing but silence: the flow hears five ids of it."""
    id_counts = []
    monkeypatch.setattr(
        "webui.engine.cosyvoice.llm.sampler.Sampler.__call__",
        lambda self, scores, history: min(SILENT),
    )
    real = type(engine._require_model()).flow_batch
    monkeypatch.setattr(
        type(engine._require_model()),
        "flow_batch",
        lambda self, batch: (id_counts.extend(len(ids) for _, ids, _ in batch), real(self, batch))[
            1
        ],
    )
    chunks = list(engine.stream(ask(id="still", segments=("Hush now.",)), prompt))
    assert id_counts == [MAX_RUN] and len(whole(chunks)) == MAX_RUN * 960


def test_in_company_as_alone(engine, prompt):  # noqa: F811
    """Four at once, each with a text and a seed of its own."""
    request_fields = [
        {"seed": n, "segments": (f"This is sentence number {n}.", "And its end.")} for n in range(4)
    ]
    alone = [
        whole(engine.stream(ask(id=f"a{n}", **more), prompt))
        for n, more in enumerate(request_fields)
    ]
    with ThreadPoolExecutor(4) as pool:
        beside = list(
            pool.map(
                lambda pair: whole(engine.stream(ask(id=f"b{pair[0]}", **pair[1]), prompt)),
                enumerate(request_fields),
            )
        )
    assert all(np.array_equal(*pair) for pair in zip(alone, beside, strict=True))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "how",
    [
        {"precision": "fp32"},
        {"precision": "bf16"},
        {"precision": "int8"},
        {"steps": 5, "first_hop": 10},
    ],
    ids=str,
)
def test_every_way_of_computing_speaks(root, how):
    other = CosyVoiceEngine(root, **how)
    other.start()
    try:
        torch.set_num_threads(1)
        clip_prompt = other.encode(np.sin(np.arange(48000) / 9).astype(np.float32), 16000, "", "en")
        sound = whole(other.stream(ask(id="how"), clip_prompt))
        assert (
            len(sound) > 10000
            and np.isfinite(sound).all()
            and np.array_equal(sound, whole(other.stream(ask(id="again"), clip_prompt)))
        )
    finally:
        other.close()


@pytest.mark.usefixtures("quick")
def test_ready_speakers_of_a_directory_are_offered(copy):
    torch.save({"小云": {"embedding": torch.randn(1, 192)}}, copy / "spk2info.pt")
    other = CosyVoiceEngine(copy)
    other.start()
    try:
        assert other.describe().presets == ("小云",) and "preset" in other.describe().modes
        assert len(whole(other.stream(ask(mode="preset"), other.preset("小云"))))
    finally:
        other.close()


def test_the_reinforced_language_model_serves_where_the_first_is_missing(copy):
    (copy / "llm.pt").rename(copy / "llm.rl.pt")
    other = CosyVoiceEngine(copy)
    other.start()
    other.close()


@pytest.mark.usefixtures("quick")
def test_the_reinforced_language_model_is_chosen_by_a_setting(copy, root, prompt):  # noqa: F811
    """Its own takes, its own converted files; asked for and not there, it is named."""
    error = fault(root, reinforced=True)
    assert (
        error.param == "llm.rl.pt"
        and "engine.reinforced" in error.en
        and "engine.reinforced" in error.zh
    )
    state = torch.load(copy / "llm.pt", weights_only=True)
    torch.save(
        {
            key: value + 0.02 * torch.randn_like(value, dtype=torch.float32).to(value)
            for key, value in state.items()
        },
        copy / "llm.rl.pt",
    )
    sounds, versions = [], []
    for reinforced in (False, True):
        other = CosyVoiceEngine(copy, precision="int8", reinforced=reinforced)
        other.start()
        try:
            torch.set_num_threads(1)
            sounds.append(whole(other.stream(ask(id="rl", segments=("Hi.",)), prompt)))
            versions.append(other.version)
        finally:
            other.close()
    assert not np.array_equal(*(sound[:4000] for sound in sounds)) and versions[0] != versions[1]
    assert {path.name for path in copy.glob("*int8*")} == {
        "kaikou-llm-int8.safetensors",
        "kaikou-llm.rl-int8.safetensors",
    }


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (496_000_000, "speech_tokenizer_v2.onnx"),
        (523_000_000, "speech_tokenizer_v1.onnx"),
        (969_000_000, ""),
        (700_000_000, ""),
    ],
)
def test_a_speech_tokenizer_of_another_generation_is_told_by_its_size(copy, size, expected):
    """Nothing else of it tells: its inputs, outputs and rate are the same.

    The file has a hole in it, not so many bytes.
    """
    with (copy / "speech_tokenizer_v3.onnx").open("r+b") as file:
        file.truncate(size)
    if expected:
        error = fault(copy)
        assert (
            error.param == "speech_tokenizer_v3.onnx"
            and expected in error.en
            and expected in error.zh
            and "969 MB" in error.en
        )
    else:
        check_speech_tokenizer(copy, "speech_tokenizer_v3.onnx")


def test_instruction_and_words_of_the_clip_together(engine, prompt):  # noqa: F811
    assert engine.describe().told_clones
    sounds = [
        whole(
            engine.stream(
                ask(id=f"t{n}", mode="zero_shot", transcript="hello there", instruction=how), prompt
            )
        )
        for n, how in enumerate(("", "Speak happily"))
    ]
    assert not np.array_equal(*(sound[:4000] for sound in sounds))


def bent(root, name: str, **tensors) -> None:
    torch.save({**torch.load(root / name, weights_only=True), **tensors}, root / name)


def test_notes_of_a_training_are_passed_over(copy):
    bent(copy, "llm.pt", epoch=12, step=3400)
    state = torch.load(copy / "hift.pt", weights_only=True)
    torch.save({f"generator.{key}": value for key, value in state.items()}, copy / "hift.pt")
    flow = torch.load(copy / "flow.pt", weights_only=True)
    del flow["decoder.estimator.rotary_embed.inv_freq"]
    torch.save(flow, copy / "flow.pt")
    other = CosyVoiceEngine(copy)
    other.start()
    other.close()


@pytest.mark.parametrize("part", ["llm", "flow", "hift"])
def test_a_part_of_another_generation_is_named(copy, tmp_path, part):
    second = make(tmp_path / "second")
    shutil.copy(second / f"{part}.pt", copy / f"{part}.pt")
    error = fault(copy)
    assert f"{part}.pt" in error.en and f"{part}.pt" in error.zh and error.param == f"{part}.pt"


@pytest.mark.parametrize(("field", "value", "named"), [
    ("dim: 64", "dim: 72", "flow.decoder.estimator.dim"),
    ("vocab_size: 6561", "vocab_size: 4096", "flow.vocab_size"),
    ("sample_rate: 24000", "sample_rate: 22050", "sample_rate"),
    ("depth: 2", "depth: two", "flow.decoder.estimator.depth"),
    ("pre_lookahead_len: 3", "pre_lookahead_len: 5", "flow.pre_lookahead_len"),
])  # fmt: skip
def test_a_size_it_is_not_written_for_is_named(copy, field, value, named):
    path = copy / "cosyvoice3.yaml"
    path.write_text(path.read_text("utf-8").replace(field, value, 1), "utf-8")
    error = fault(copy)
    assert "cosyvoice3.yaml" in error.en and named in error.en and named in error.zh


@pytest.mark.parametrize(
    "missing",
    ["speech_tokenizer_v3.onnx", "campplus.onnx", "flow.pt", "CosyVoice-BlankEN/merges.txt"],
)
def test_a_file_that_is_missing_is_named(copy, missing):
    (copy / missing).unlink()
    assert missing in fault(copy).en
