"""The engine on small random directories of the first generation: the contract, what each release
offers, what each mode feeds.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from scripts.make_small_model import make
from tests.engine.contract import EngineContract, ask, whole
from tests.engine.cosyvoice1_small import GOLDEN1
from tests.engine.tensors import voices_kept
from tests.engine.test_cosyvoice_engine import reference  # noqa: F401
from webui.engine.cosyvoice.config_v1 import MARKER, read_spec, release_of
from webui.engine.cosyvoice.dims_v1 import HOP_IDS, OVERLAP_IDS, frames_of
from webui.engine.cosyvoice.engine import CosyVoiceEngine
from webui.engine.cosyvoice.frontend.prompt_builder_v1 import PromptBuilderV1
from webui.engine.cosyvoice.frontend.prompt_cache import CachedPrompt
from webui.engine.cosyvoice.frontend.prompt_encoder import PromptFeatures
from webui.engine.cosyvoice.frontend.whisper_tokenizer import WhisperTokenizer
from webui.engine.cosyvoice.registry import model_spec_of
from webui.engine.cosyvoice.v1 import SPEC, CosyVoice1
from webui.engine.cosyvoice.vocoder import STEADY
from webui.errors import BadInput, Cancelled, NotReady
from webui.studio.request_builder import build_request, choose_mode
from webui.types import Abilities, Voice


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    return make(tmp_path_factory.mktemp("first"), family="cosyvoice1")


@pytest.fixture(scope="module")
def shared_engine(root):
    torch.set_num_threads(1)
    engine = CosyVoiceEngine(root, precision="fp32", threads=1)
    engine.start()
    torch.set_num_threads(1)
    yield engine
    engine.close()


@pytest.fixture
def engine(shared_engine):
    return shared_engine


@pytest.fixture(scope="module")
def prompt(shared_engine, reference):  # noqa: F811
    return shared_engine.encode(*reference)


class TestFirstGeneration(EngineContract):
    def stored_prompts(self, engine):
        return voices_kept()


def test_modes_differ_and_each_repeats_itself(engine, prompt):
    sound = {}
    for mode, more in {
        "zero_shot": {"transcript": "hello there"},
        "cross_lingual": {},
        "preset": {},
    }.items():
        sound[mode] = whole(engine.stream(ask(mode=mode, **more), prompt))
        assert np.array_equal(sound[mode], whole(engine.stream(ask(mode=mode, **more), prompt)))
    assert len({wave.tobytes() for wave in sound.values()}) == 3


def test_presets_speak_with_voices_of_their_own(engine):
    names = engine.describe().presets
    assert len(names) == 7
    waves = [whole(engine.stream(ask(mode="preset"), engine.preset(name))) for name in names[:2]]
    assert not np.array_equal(waves[0][:5000], waves[1][:5000])


def test_conversion_has_the_length_of_its_source(engine, prompt, reference):  # noqa: F811
    samples, rate, _, _ = reference
    wave = whole(engine.convert(ask(mode="convert"), prompt, samples, rate))
    assert len(wave) / 22050 == pytest.approx(len(samples) / rate, abs=0.1)


def test_request_12_is_request_1(engine, prompt):
    first = whole(engine.stream(ask(segments=("Hello.",)), prompt))
    for i in range(10):
        whole(engine.stream(ask(id=f"n{i}", seed=i, segments=("Hi.",)), prompt))
    assert np.array_equal(whole(engine.stream(ask(segments=("Hello.",)), prompt)), first)


def test_cancel_ends_a_long_text_between_two_hops(engine, prompt):
    long = ask(id="long", segments=("a b c d e f g h i j k l m n o p q r s t u v w x y z " * 8,))
    chunks, after = engine.stream(long, prompt), threading.Event()
    next(chunks)
    engine.cancel("long")
    with pytest.raises(Cancelled):
        for _ in chunks:
            after.set()
    assert whole(engine.stream(ask(segments=("Hello.",)), prompt)).size


def test_what_a_hop_costs(engine, prompt):
    """The whole prompt again in every hop: told, not hidden."""
    costs = []
    running = engine._running
    for _ in engine.stream(
        ask(id="cost", segments=("a b c d e f g h i j k l m n o p q r s t u v w x y z " * 6,)),
        prompt,
    ):
        costs.append((running["cost"].computed_frames, running["cost"].emitted_frames))
    before = PromptFeatures.unpack(prompt.data, None).mel.shape[1]
    first = before + frames_of(HOP_IDS + OVERLAP_IDS)
    assert costs[0] == (first, frames_of(HOP_IDS)) and len(costs) > 2
    assert all(b[0] - a[0] > before for a, b in itertools.pairwise(costs) if b != a)


@pytest.mark.usefixtures("quick")
def test_a_shorter_first_hop_sounds_sooner_and_is_part_of_the_version(root, engine):
    early = CosyVoiceEngine(root, precision="fp32", threads=1, first_hop=50)
    early.start()
    torch.set_num_threads(1)
    try:
        request, voice = (
            ask(
                id="early",
                mode="preset",
                segments=("a b c d e f g h i j k l m n o p q r s t u v w x y z " * 2,),
            ),
            engine.preset("中文女"),
        )
        firsts, lengths = zip(
            *(
                (len(next(iter(chunks)).samples), sum(len(c.samples) for c in chunks))
                for chunks in (e.stream(request, voice) for e in (early, engine))
            ),
            strict=True,
        )
        assert (
            firsts[0]
            == (frames_of(70) - 34 - STEADY.first_right) * 256
            < firsts[1]
            == (frames_of(120) - 34 - STEADY.first_right) * 256
        )
        assert abs((lengths[0] + firsts[0]) - (lengths[1] + firsts[1])) <= 2 * 256, (
            "a frame is lost at a seam, nothing else"
        )
        assert early.version != engine.version
    finally:
        early.close()
    with pytest.raises(
        NotReady, match="engine.first_hop = 10 is not for CosyVoice-300M: set it to 100 or 50"
    ) as caught:
        CosyVoiceEngine(root, precision="fp32", first_hop=10).start()
    assert "100 或 50" in caught.value.zh


def test_a_text_that_arrives_is_refused(engine, prompt):
    assert not engine.describe().text_in
    with pytest.raises(BadInput, match="whole text"):
        list(engine.stream_text(ask(), prompt, iter(["Hello"])))


# ---- what a directory is -------------------------------------------------------------------------
def beside(root: Path, target: Path) -> Path:
    return Path(shutil.copytree(root, target, copy_function=os.link))


def load(root: Path) -> CosyVoice1:
    from webui.engine.cosyvoice.device import DeviceConfig

    return SPEC.load(
        root, DeviceConfig("cpu", "fp32", "test"), lambda share, en, zh: None, SPEC.steps[0]
    )


@pytest.mark.parametrize(
    ("name", "marker", "release"),
    [("CosyVoice-300M", None, "base"), ("CosyVoice-300M-SFT", None, "sft"),
        ("cosyvoice-300m-instruct", None, "instruct"), ("mine", "instruct\n", "instruct"),
     ("CosyVoice-300M-Instruct", "base", "base")],
)  # fmt: skip
def test_the_release_is_told_by_marker_or_name(root, tmp_path, name, marker, release):
    model_dir = beside(root, tmp_path / name)
    if marker:
        (model_dir / MARKER).write_text(marker)
    model = load(model_dir)
    assert model.spec.release == release and model_spec_of(model_dir) is SPEC
    modes = model.facts.modes
    assert ("instruct" in modes) == (release == "instruct") == bool(model.facts.tags)
    assert {"preset", "zero_shot", "cross_lingual", "convert"} <= set(modes)


@pytest.mark.parametrize(
    ("path", "release"),
    [
        ("models--FunAudioLLM--CosyVoice-300M-SFT/snapshots/4f1e2d3c", "sft"),
        ("hub/models/iic/CosyVoice-300M-Instruct/master", "instruct"),
        ("my-sft-experiments/CosyVoice-300M", "base"),
        ("CosyVoice-300M-SFT/CosyVoice-300M/4f1e2d3c", "base"),
        ("instructions/4f1e2d3c", "base"),
        ("tuned-sft", "sft"),
    ],
)
def test_a_cache_that_ends_in_a_hash_is_told_by_the_parts_before(tmp_path, path, release):
    model_dir = tmp_path / path
    model_dir.mkdir(parents=True)
    assert release_of(model_dir) == release


@pytest.mark.parametrize("link", ["CosyVoice-300M-SFT", "model"])
def test_a_link_is_told_by_its_own_name_and_by_where_it_leads(tmp_path, link):
    target = tmp_path / ("4f1e2d3c" if link != "model" else "CosyVoice-300M-SFT")
    target.mkdir()
    named = tmp_path / "link" / link
    named.parent.mkdir()
    named.symlink_to(target)
    assert release_of(named) == "sft"


@pytest.mark.parametrize(
    ("size", "name", "has_speakers", "release"),
    [
        (1242994771, "4f1e2d3c", True, "instruct"),
        (1242994835, "4f1e2d3c", True, "sft"),
        (1242994771, "4f1e2d3c", False, "base"),
        (1242994772, "4f1e2d3c", True, "base"),
        (1242994771, "CosyVoice-300M", True, "base"),
    ],
)
def test_where_no_name_tells_the_size_of_the_language_model_does(
    tmp_path, size, name, has_speakers, release
):
    model_dir = tmp_path / name
    model_dir.mkdir()
    with (model_dir / "llm.pt").open("wb") as f:
        f.truncate(size)  # sparse: no such bytes are written
    if has_speakers:
        (model_dir / "spk2info.pt").touch()
    assert release_of(model_dir) == release


def test_the_base_release_needs_no_ready_speakers(root, tmp_path):
    model_dir = beside(root, tmp_path / "CosyVoice-300M")
    (model_dir / "spk2info.pt").unlink()
    facts = load(model_dir).facts
    assert "preset" not in facts.modes and "zero_shot" in facts.modes and not facts.preset_modes


@pytest.mark.parametrize("release", ["SFT", "Instruct"])
@pytest.mark.parametrize("speakers", [None, {}, {"odd": {"embedding": torch.ones(1, 3)}}], ids=str)
def test_the_tuned_releases_need_them(root, tmp_path, release, speakers):
    model_dir = beside(root, tmp_path / f"CosyVoice-300M-{release}")
    (model_dir / "spk2info.pt").unlink()
    if speakers is not None:
        torch.save(speakers, model_dir / "spk2info.pt")
    with pytest.raises(NotReady) as fault:
        load(model_dir)
    assert fault.value.param == "spk2info.pt" and "fetch_models" in fault.value.zh


def test_a_file_of_july_2024_without_sampling_gets_the_rule_of_its_code(root, tmp_path):
    model_dir = beside(root, tmp_path / "CosyVoice-300M")
    text = (model_dir / "cosyvoice.yaml").read_text("utf-8")
    (model_dir / "cosyvoice.yaml").unlink()
    early = re.sub(r"(?m)^    sampling:.*\n(      .*\n)*", "", text)
    assert "sampling:" in text and "sampling:" not in early
    (model_dir / "cosyvoice.yaml").write_text(early, "utf-8")
    rule = read_spec(model_dir).rule
    assert (rule.top_p, rule.top_k, rule.window, rule.tau) == (0.8, 25, 10, 0.1)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "missing",
    [
        ("campplus.onnx", "speech_tokenizer_v1.onnx"),
        ("speech_tokenizer_v1.onnx",),
        ("campplus.onnx",),
    ],
    ids=str,
)
def test_without_the_networks_that_hear_a_clip_its_ready_speakers_speak(
    root,
    tmp_path,
    missing,
    reference,  # noqa: F811
):
    model_dir = beside(root, tmp_path / "CosyVoice-300M-SFT")
    for name in missing:
        (model_dir / name).unlink()
    alone = CosyVoiceEngine(model_dir, precision="fp32", threads=1)
    alone.start()
    torch.set_num_threads(1)
    try:
        about = alone.describe()
        assert about.modes == ("preset",) and len(about.presets) == 7
        assert len(whole(alone.stream(ask(mode="preset"), alone.preset("中文女"))))
        for refused in (
            lambda: alone.encode(*reference),
            lambda: list(
                alone.convert(ask(mode="convert"), alone.preset("中文女"), *reference[:2])
            ),
        ):
            with pytest.raises(BadInput) as caught:
                refused()
            assert (
                caught.value.code == "no_cloning"
                and missing[0] in caught.value.en
                and missing[0] in caught.value.zh
            )
    finally:
        alone.close()


def test_a_describing_directory_without_those_networks_keeps_its_descriptions(root, tmp_path):
    model_dir = beside(root, tmp_path / "CosyVoice-300M-Instruct")
    (model_dir / "campplus.onnx").unlink()
    assert load(model_dir).facts.modes == ("preset", "instruct")


@pytest.mark.parametrize("speakers", [None, {}], ids=["none", "empty"])
def test_with_neither_ready_speakers_nor_those_networks_the_file_is_named(root, tmp_path, speakers):
    model_dir = beside(root, tmp_path / "CosyVoice-300M")
    (model_dir / "campplus.onnx").unlink()
    (model_dir / "spk2info.pt").unlink()
    if speakers is not None:
        torch.save(speakers, model_dir / "spk2info.pt")
    with pytest.raises(NotReady, match=r"campplus\.onnx"):
        load(model_dir)


def test_a_marker_of_another_word_is_refused(root, tmp_path):
    model_dir = beside(root, tmp_path / "x")
    (model_dir / MARKER).write_text("vllm")
    with pytest.raises(NotReady, match=MARKER):
        release_of(model_dir)


@pytest.mark.parametrize(
    ("line", "instead", "field"),
    [
        ("    input_frame_rate: 50", "    input_frame_rate: 25", "flow.input_frame_rate"),
        ("sample_rate: 22050", "sample_rate: 24000", "sample_rate"),
        ("    n_fft: 1024", "    n_fft: 1920", "feat_extractor.n_fft"),
        ("            channels: [48, 48]", "            channels: [48]", "estimator.channels"),
        ("            channels: [48, 48]", "            channels: [44, 44]", "estimator.channels"),
        ("        attention_heads: 4", "        attention_heads: 7", "llm"),
        ("        num_blocks: 2", "        num_blocks: many", "num_blocks"),
        ("    vocab_size: 4096", "    vocab_size: 6561", "flow.vocab_size"),
    ],
)
def test_another_models_numbers_are_named(root, tmp_path, line, instead, field):
    model_dir = beside(root, tmp_path / "m")
    text = (model_dir / "cosyvoice.yaml").read_text()
    assert line in text
    (model_dir / "cosyvoice.yaml").unlink()
    (model_dir / "cosyvoice.yaml").write_text(text.replace(line, instead, 1))
    with pytest.raises(NotReady) as caught:
        read_spec(model_dir)
    assert field in caught.value.en and "cosyvoice.yaml" in caught.value.en and caught.value.zh


def test_early_files_without_a_rate_of_ids_are_of_50(root, tmp_path):
    model_dir = beside(root, tmp_path / "m")
    text = (
        (model_dir / "cosyvoice.yaml")
        .read_text()
        .replace("    input_frame_rate: 50 # ids a second\n", "")
    )
    assert "input_frame_rate" not in text
    (model_dir / "cosyvoice.yaml").unlink()
    (model_dir / "cosyvoice.yaml").write_text(text)
    assert read_spec(model_dir).ids_per_s == 50


def test_a_text_embedding_too_small_for_the_vocabulary_is_named(root, tmp_path):
    model_dir = beside(root, tmp_path / "m")
    (model_dir / "multilingual.tiktoken").unlink()  # the packaged one has 51866 ids
    with pytest.raises(NotReady, match=r"cosyvoice\.yaml.*text_token_size = 51866"):
        load(model_dir)


# ---- what each mode feeds (golden1/frontend/mode_inputs.json) ------------------------------------
@pytest.fixture(scope="module")
def words(tmp_path_factory) -> WhisperTokenizer:
    """Ends a description as the golden data do."""
    return WhisperTokenizer(tmp_path_factory.mktemp("words"), end_of_prompt="<|endofprompt|>")


def fed(request, words) -> dict:
    """What a language model would be given."""
    inputs = {}

    def prefix(prompt_text, speaker):
        inputs.update(prompt_text=tuple(prompt_text), speaker=speaker)
        return SimpleNamespace(nbytes=0)

    spec = SimpleNamespace(ids_per_s=50)
    model = SimpleNamespace(
        tokenizer=words, lm=SimpleNamespace(prefix=prefix), spec=spec, model_spec=SPEC
    )
    prompt = PromptFeatures((), tuple(range(41)), torch.zeros(1, 85, 80), torch.ones(1, 192))
    script = PromptBuilderV1(model, CachedPrompt(model, prompt), request)
    script.prefix()
    return inputs | {
        "prompt_speech": script.prompt_speech,
        "text": script.text(request.segments[0]),
        "tokenizer": model.tokenizer,
    }


def test_the_transcript_is_rewritten_as_the_text_is_unless_it_holds_a_mark(words):
    def prompt_fed(transcript):
        return fed(ask(mode="zero_shot", transcript=transcript, segments=("T",)), words)

    assert (
        prompt_fed("I paid 5 dollars")["prompt_text"]
        == prompt_fed("I paid five dollars")["prompt_text"]
    )
    marked = "<|en|>I paid 5 dollars"
    assert prompt_fed(marked)["prompt_text"] == tuple(words.typed(marked))
    about = Abilities("e", "1", 24000, ("zero_shot",), ("en",))
    for typed, read in ((marked, "I paid 5 dollars"), ("I paid 5<endofprompt>", "I paid five")):
        voice = Voice("v", "V", "en", typed, "", 3.0, 0.0)
        request = build_request(about, "Hello.", voice, "en", 1.0, 0)
        request, _, _ = choose_mode(about, request, voice, "zero_shot", "")
        assert prompt_fed(request.transcript)["prompt_text"] == tuple(words.typed(read)), (
            "as the page asks"
        )


def test_modes_feed_what_the_published_code_does(words):
    modes = json.loads((GOLDEN1 / "frontend" / "mode_inputs.json").read_text())["modes"]
    sft = fed(ask(mode="preset", segments=("T",)), words)
    assert (
        (sft["prompt_text"], sft["prompt_speech"]) == ((), ())
        and sft["speaker"] is not None
        and "prompt_text" not in modes["sft"]
    )
    zero = fed(ask(mode="zero_shot", transcript="some words said", segments=("T",)), words)
    assert (
        zero["prompt_text"] == tuple(zero["tokenizer"].encode("some words said"))
        and len(zero["prompt_speech"]) == 41
        and zero["speaker"] is not None
    )
    cross = fed(ask(mode="cross_lingual", language="en", segments=("T",)), words)
    assert (cross["prompt_text"], cross["prompt_speech"]) == ((), ()) and cross["text"] == cross[
        "tokenizer"
    ].encode(modes["cross_lingual"]["text"])
    described = fed(ask(mode="instruct", instruction="I", segments=("T",)), words)
    assert (
        described["prompt_text"]
        == tuple(described["tokenizer"].encode(modes["instruct"]["prompt_text"]))
        and described["speaker"] is None
    )
    assert described["prompt_speech"] == () and "llm_embedding" not in modes["instruct"]


@pytest.mark.parametrize("mode", ["preset", "zero_shot", "cross_lingual", "instruct"])
def test_the_mark_of_a_pasted_example_is_fed_in_every_mode(words, mode):
    """The studio takes it out of what is said; the request keeps the text as it was typed."""
    request = ask(mode=mode, text="<|jp|>さくら<|endoftext|>", segments=("さくら",))
    assert fed(request, words)["text"] == words.encode("<|ja|>さくら")


@pytest.mark.parametrize(
    ("language", "text", "mark"),
    [("zh", "hello", "<|zh|>"), ("yue", "早晨", "<|yue|>"), ("ja", "さくら", "<|ja|>"),
        ("ko", "안녕", "<|ko|>"), ("auto", "今天天气", "<|zh|>"), ("auto", "a fine day", "<|en|>"),
     ("ru", "привет", ""), ("en", "<|ja|>さくら", ""), ("en", "  ", "")],
)  # fmt: skip
def test_the_languages_mark_is_put_in_front(words, language, text, mark):
    inputs = fed(ask(mode="cross_lingual", language=language, segments=(text,)), words)
    assert inputs["text"] == inputs["tokenizer"].encode(mark + text.strip())
    other = fed(ask(mode="preset", language=language, segments=(text,)), words)
    assert other["text"] == other["tokenizer"].encode(text.strip()), (
        "only where the voice speaks another language than its own"
    )
