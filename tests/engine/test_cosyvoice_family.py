"""Which generation a directory holds, and what files of other generations, of training codes and of
other tools do in it.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from scripts.engine_bench.build import random_voice
from scripts.make_small_model import make
from tests.engine import doctor_small
from webui.engine.cosyvoice import memory_plan
from webui.engine.cosyvoice.checkpoint import (
    Component,
    component_state,
    convert,
    load_state,
    source_mark,
)
from webui.engine.cosyvoice.device import INT8, DeviceConfig
from webui.engine.cosyvoice.doctor.speech import grown_flow_voice
from webui.engine.cosyvoice.frontend.prompt_encoder import MAX_S
from webui.engine.cosyvoice.registry import MODEL_SPECS, model_spec_of
from webui.engine.registry import GENERATIONS, engine_of, is_model
from webui.errors import NotReady

NAMES = [results.engine for results in GENERATIONS.values()]
TOGETHER = [(a, b) for a in NAMES for b in NAMES if a != b]


@pytest.fixture(scope="session")
def models(tmp_path_factory) -> dict[str, Path]:
    """One small directory of each generation. Read only."""
    torch.set_num_threads(1)
    return {name: make(tmp_path_factory.mktemp(name), family=name) for name in NAMES}


def own(models, name: str, tmp_path: Path) -> Path:
    """To spoil. Files are hard links: replace them, do not write into them."""
    return Path(shutil.copytree(models[name], tmp_path / "model", copy_function=os.link))


def replace(path: Path, source: Path) -> None:
    path.unlink(missing_ok=True)
    shutil.copy(source, path)


def save(path: Path, state: dict) -> None:
    path.unlink()
    torch.save(state, path)


def load(root: Path):
    family = model_spec_of(root)
    return family.load(
        root, DeviceConfig("cpu", "fp32", "test"), lambda share, en, zh: None, family.steps[0]
    )


def refused(root: Path) -> NotReady:
    with pytest.raises(NotReady) as caught:
        load(root)
    assert caught.value.code == "model_file" and caught.value.zh.endswith("。")
    return caught.value


@pytest.mark.parametrize("name", NAMES)
def test_a_directory_is_told_by_its_files_whatever_its_name(models, tmp_path, name):
    root = tmp_path / "CosyVoice2-0.5B"
    shutil.copytree(models[name], root, copy_function=os.link)
    family = model_spec_of(root)
    assert family.engine == engine_of(root) == name and is_model(root)
    assert load(root).model_spec is family


def test_names_and_files_of_the_generations_differ():
    specs = MODEL_SPECS.values()
    for of in (
        lambda f: f.engine,
        lambda f: f.title,
        lambda f: f.yaml,
        lambda f: GENERATIONS[f.yaml].signature_tensor,
    ):
        assert len({of(family) for family in specs}) == len(GENERATIONS) == 3


def test_no_model_and_no_directory_are_told(tmp_path):
    for root, word in ((tmp_path, "cosyvoice3.yaml"), (tmp_path / "none", "no directory")):
        with pytest.raises(NotReady) as caught:
            model_spec_of(root)
        assert word in caught.value.en and not is_model(root)


@pytest.mark.parametrize(("name", "other"), TOGETHER)
def test_where_two_yamls_lie_side_by_side_the_weights_decide(models, tmp_path, name, other):
    root = own(models, name, tmp_path)
    yaml = next(yaml for yaml, spec in GENERATIONS.items() if spec.engine == other)
    shutil.copy(models[other] / yaml, root / yaml)
    assert model_spec_of(root).engine == name


@pytest.mark.parametrize("file", ["llm.pt", "flow.pt", "hift.pt"])
@pytest.mark.parametrize(("name", "other"), TOGETHER)
def test_a_network_of_another_generation_is_named_with_its_first_key(
    models, tmp_path, name, other, file
):
    root = own(models, name, tmp_path)
    replace(root / file, models[other] / file)
    fault = refused(root)
    assert fault.param == file and "." in fault.en.split("expected")[1]


@pytest.mark.parametrize(("name", "other"), TOGETHER)
def test_a_yaml_of_another_generation_under_this_ones_name_is_named_with_its_field(
    models, tmp_path, name, other
):
    root = own(models, name, tmp_path)
    yaml = {spec.engine: file for file, spec in GENERATIONS.items()}
    replace(root / yaml[name], models[other] / yaml[other])
    fault = refused(root)
    assert fault.param in (yaml[name], "llm.pt", "flow.pt", "hift.pt")


@pytest.mark.parametrize(("name", "other"), TOGETHER)
def test_a_directory_whose_yaml_alone_is_misnamed_says_what_to_name_it(
    models, tmp_path, name, other
):
    """The second generation was first published with a cosyvoice.yaml."""
    root, yaml = (
        own(models, name, tmp_path),
        {spec.engine: file for file, spec in GENERATIONS.items()},
    )
    (root / yaml[name]).rename(root / yaml[other])
    fault = refused(root)
    assert fault.param == "flow.pt" and yaml[name] in fault.en and yaml[name] in fault.zh


@pytest.mark.parametrize("name", NAMES)
def test_a_speech_tokenizer_of_another_rate_is_refused_when_it_hears_a_clip(models, tmp_path, name):
    root, other = (
        own(models, name, tmp_path),
        "cosyvoice2" if name == "cosyvoice1" else "cosyvoice1",
    )
    model = load(root)
    network = model.prompt_encoder.config.network
    replace(root / network, next(models[other].glob("speech_tokenizer_*.onnx")))
    with pytest.raises(NotReady) as caught:
        load(root).prompt_encoder.make(
            (0.2 * np.sin(np.arange(48000) / 9)).astype(np.float32), 16000
        )
    assert caught.value.param == network


def with_notes(state: dict) -> dict:
    return {**state, "epoch": 3, "step": 1000, "lr": 1e-4}


def of_several_devices(state: dict) -> dict:
    return {f"module.{key}": value for key, value in state.items()}


def wrapped(state: dict) -> dict:
    return {"state_dict": state, "epoch": 3, "optimizer": "adam"}


def of_a_vocoder_training(state: dict) -> dict:
    return {
        **{f"generator.{key}": value for key, value in state.items()},
        "discriminator.conv.weight": torch.ones(2),
        "epoch": 3,
    }


def of_old_weight_norm(state: dict) -> dict:
    old = {"0": "weight_g", "1": "weight_v"}
    return {
        key.replace(f"parametrizations.weight.original{key[-1]}", old.get(key[-1], ""))
        if ".parametrizations." in key
        else key: value
        for key, value in state.items()
    }


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("file", "changed"),
    [
        ("llm", with_notes),
        ("flow", with_notes),
        ("llm", of_several_devices),
        ("flow", of_several_devices),
        ("flow", wrapped),
        ("hift", of_a_vocoder_training),
        ("hift", of_old_weight_norm),
        ("hift", with_notes),
    ],
)
def test_what_training_codes_leave_in_a_checkpoint_changes_nothing(
    models, tmp_path, name, file, changed
):
    root, parts = own(models, name, tmp_path), model_spec_of(models[name]).components
    published = load_state(root / f"{file}.pt")
    before = component_state(root, file, parts=parts)
    altered = changed(published)
    assert altered.keys() != published.keys()
    save(root / f"{file}.pt", altered)
    after = component_state(root, file, parts=parts)
    assert after.keys() == before.keys() and all(
        torch.equal(after[key], before[key]) for key in before
    )


@pytest.mark.parametrize("name", NAMES)
def test_converted_files_serve_alone_under_the_same_mark(models, tmp_path, name):
    from scripts.prewarm import convert

    root, ids = own(models, name, tmp_path), torch.tensor([3, 1, 2])
    before = load(root)
    convert(root, "fp32", "torch")
    for file in ("llm", "flow", "hift"):
        (root / f"{file}.pt").unlink()
    after = load(root)
    assert after.mark == before.mark and torch.equal(
        after.flow.input_embedding(ids), before.flow.input_embedding(ids)
    )


def test_a_key_that_nothing_knows_is_still_named(models, tmp_path):
    root = own(models, "cosyvoice2", tmp_path)
    save(root / "flow.pt", {**load_state(root / "flow.pt"), "adapter.weight": torch.ones(2)})
    fault = refused(root)
    assert fault.param == "flow.pt" and "adapter.weight" in fault.en


def test_the_other_language_model_serves_where_the_usual_one_is_missing(models, tmp_path):
    root = own(models, "cosyvoice2", tmp_path)
    parts = {"llm": Component("llm", unused=("llm.model.lm_head.weight",), also=("llm.rl.pt",))}
    usual, mark = component_state(root, "llm", parts=parts), source_mark(root, "llm", parts=parts)
    convert(root, "llm", "fp32", parts)
    state = load_state(root / "llm.pt")
    torch.save({**state, "llm_decoder.bias": state["llm_decoder.bias"] + 1}, root / "llm.rl.pt")
    assert torch.equal(
        component_state(root, "llm", parts=parts)["llm_decoder.bias"], usual["llm_decoder.bias"]
    ), "both are there"
    (root / "llm.pt").unlink()
    assert torch.equal(
        component_state(root, "llm", parts=parts)["llm_decoder.bias"], usual["llm_decoder.bias"] + 1
    ), "and not what was converted before"
    assert source_mark(root, "llm", parts=parts) != mark


def test_the_third_generation_opens_with_its_other_language_model_alone(models, tmp_path):
    root = own(models, "cosyvoice3", tmp_path)
    before = load(root)
    (root / "llm.pt").rename(root / "llm.rl.pt")
    assert load(root).mark == before.mark, "the same weights under the other name"


def test_what_vllm_exports_is_no_language_model_by_itself(models, tmp_path):
    root = own(models, "cosyvoice2", tmp_path)
    (root / "vllm").mkdir()
    (root / "vllm" / "model.safetensors").write_bytes(b"")
    assert load(root).model_spec.engine == "cosyvoice2", "beside llm.pt it is left alone"
    (root / "llm.pt").unlink()
    fault = refused(root)
    assert fault.param == "llm.pt" and "vllm" in fault.en and "vllm" in fault.zh


ODD_SPEAKERS = {
    "without ids": {"embedding": torch.ones(1, 192), "flow_prompt_speech_token": torch.ones(1, 9)},
    "with notes": {"embedding": torch.ones(1, 192), "gender": "f", "age": 30, "tags": ["x"]},
    "empty": {},
    "without a vector": {"prompt_speech_feat": torch.zeros(1, 18, 80)},
    "with a vector of another length": {"embedding": torch.ones(1, 191)},
    "not finite": {"embedding": torch.full((1, 192), torch.nan)},
    "with a mel of other bands": {
        "embedding": torch.ones(1, 192),
        "prompt_speech_feat": torch.zeros(1, 3, 79),
    },
    "no table": 3,
}
USABLE = {"whole", "without ids", "with notes"}


@pytest.mark.parametrize("name", NAMES)
def test_speakers_that_cannot_be_used_are_skipped_with_a_warning(models, tmp_path, caplog, name):
    root = own(models, name, tmp_path)
    (root / "spk2info.pt").unlink(missing_ok=True)
    torch.save({"whole": {"embedding": torch.ones(1, 192)}, **ODD_SPEAKERS}, root / "spk2info.pt")
    assert set(load(root).presets) == USABLE
    warned = [r.getMessage() for r in caplog.records if "spk2info.pt" in r.getMessage()]
    assert len(warned) == len(ODD_SPEAKERS) + 1 - len(USABLE)
    assert all(any(odd in text for text in warned) for odd in ODD_SPEAKERS.keys() - USABLE)


@pytest.mark.parametrize(
    ("line", "field", "file"),
    [
        ("input_frame_rate: 25", "input_frame_rate", "cosyvoice.yaml"),
        ("text_token_size: 60515", "text_embedding", "llm.pt"),
    ],
)
def test_the_first_generation_at_another_rate_is_named_with_its_field(
    models, tmp_path, line, field, file
):
    """CosyVoice-300M-25Hz has other ids, another tokenizer and other hops."""
    root = own(models, "cosyvoice1", tmp_path)
    text = (root / "cosyvoice.yaml").read_text("utf-8")
    (root / "cosyvoice.yaml").unlink()
    (root / "cosyvoice.yaml").write_text(re.sub(line.split()[0] + " [0-9]+", line, text), "utf-8")
    fault = refused(root)
    assert fault.param == file and field in fault.en and field in fault.zh


def test_early_files_of_the_first_generation_tell_no_rate(models, tmp_path):
    root = own(models, "cosyvoice1", tmp_path)
    text = (root / "cosyvoice.yaml").read_text("utf-8")
    (root / "cosyvoice.yaml").unlink()
    (root / "cosyvoice.yaml").write_text(
        "\n".join(x for x in text.split("\n") if "input_frame_rate" not in x), "utf-8"
    )
    assert load(root).spec.ids_per_s == 50


PUBLISHED_BYTES = {
    "cosyvoice1": {"llm": 1242994835, "flow": 419900943, "hift": 81896716, "onnx": 522624269},
    "cosyvoice2": {"llm": 2023316821, "flow": 450575567, "hift": 83390254, "onnx": 496082973},
    "cosyvoice3": {"llm": 2024669519, "flow": 1329116148, "hift": 83202622, "onnx": 969451503},
}  # first-contact specification, section 4
CAMPPLUS_BYTES = 28303423


@pytest.fixture(params=NAMES)
def published(request, models, tmp_path):
    """(family, its small spec, a directory of files with the published sizes and no content, those
    sizes).
    """
    family, sizes = model_spec_of(models[request.param]), PUBLISHED_BYTES[request.param]
    speech, speaker = sorted(family.clip_encoders, key=lambda name: "campplus" in name)
    names = {f"{name}.pt": sizes[name] for name in ("llm", "flow", "hift")}
    for name, size in {**names, speech: sizes["onnx"], speaker: CAMPPLUS_BYTES}.items():
        with (tmp_path / name).open("wb") as f:
            f.truncate(size)  # sparse: no such bytes are written
    return family, family.read_spec(models[request.param], family.steps[0]), tmp_path, sizes


def test_the_memory_plan_counts_the_networks_that_hear_a_clip(published):
    family, spec, root, sizes = published
    plan = memory_plan.plan(family, spec, root, DeviceConfig("cpu", "fp32", "test"))
    gigabytes = {"cosyvoice1": 0.55, "cosyvoice2": 0.52, "cosyvoice3": 1.0}[family.engine]
    assert plan.listening == sizes["onnx"] + CAMPPLUS_BYTES
    assert plan.listening == pytest.approx(gigabytes * 1e9, rel=0.01)
    weights = sum(sizes[name] for name in ("llm", "flow", "hift"))
    assert plan.loading == weights == plan.weights, "in fp32 the files are used as they are"
    assert plan.needed > 1.15 * weights + plan.listening
    for name in family.clip_encoders:
        (root / name).unlink()
    without = memory_plan.plan(family, spec, root, DeviceConfig("cpu", "fp32", "test"))
    assert (without.listening, plan.needed - without.needed) == (0, plan.listening)


def test_the_memory_plan_counts_what_lies_twice_while_it_loads(published):
    family, spec, root, sizes = published
    place = DeviceConfig("cpu", "bf16", "test")
    plan, llm, flow = memory_plan.plan(family, spec, root, place), sizes["llm"], sizes["flow"]
    assert plan.loading == max(llm // 2 + llm, llm // 2 + flow // 2 + flow)
    assert plan.needed == plan.loading + plan.listening > plan.speaking
    with (root / family.components["llm"].converted("bf16")).open("wb") as f:
        f.truncate(llm // 2)
    assert memory_plan.plan(family, spec, root, place).loading < plan.loading, "it was cast before"
    packed = memory_plan.plan(family, spec, root, DeviceConfig("cpu", "fp32", "test", INT8))
    assert (
        packed.loading
        == family.costs(spec, DeviceConfig("cpu", "fp32", "test", INT8)).int8_lm + llm
    )


def test_a_gpu_holds_no_listening_networks_and_its_host_holds_them(published, monkeypatch):
    family, spec, root, sizes = published
    free = {"cuda": 1 << 40, "cpu": 1 << 40}
    monkeypatch.setattr(memory_plan, "available", free.get)
    plan = memory_plan.plan(family, spec, root, DeviceConfig("cuda", "bf16", "test"))
    usual = int(plan.voice * memory_plan.USUAL_VOICE_S / memory_plan.VOICE_S)
    assert plan.needed == plan.speaking == int(plan.weights * 1.15) + usual + plan.stream
    assert plan.host_needed == plan.listening + sizes["llm"] * 3 // 2
    free["cpu"] = plan.host_needed - 1
    with pytest.raises(NotReady) as fault:
        memory_plan.plan(family, spec, root, DeviceConfig("cuda", "bf16", "test")).check()
    assert fault.value.code == "no_memory"
    free["cpu"] += 1
    memory_plan.plan(family, spec, root, DeviceConfig("cuda", "bf16", "test")).check()


def test_the_memory_plan_counts_the_longest_clip_that_is_used(small_model, caplog):
    """Its voice as the flow keeps it, and its ids in front of a stream's."""
    assert memory_plan.VOICE_S == MAX_S
    place = DeviceConfig("cpu", "fp32", "test")
    model, family = doctor_small.load(small_model), model_spec_of(small_model)
    plan = memory_plan.plan(family, model.spec, small_model, place)
    voice = grown_flow_voice(model, random_voice(MAX_S / 30, model.spec.lm.speech_codes))
    assert plan.voice / 2 < 30 * voice.bytes <= plan.voice
    shorter = model.spec.lm.cache_bytes(memory_plan.STREAM_TEXT_TOKENS, 4)
    prompt = model.spec.lm.cache_bytes(int(MAX_S * model.spec.ids_per_s), 4)
    assert plan.stream > prompt + shorter
    assert "a 30 s voice" in plan.describe()
    for free, is_said in ((plan.needed + plan.voice, False), (plan.needed, True)):
        caplog.clear()
        dataclasses.replace(plan, available=free).check()
        assert ("a clip of 30 s may find no memory" in caplog.text) == is_said
    assert dataclasses.replace(plan, available=plan.needed).voices_budget == plan.voice
