"""The doctor says of random weights that they are untrained, finds nothing wrong in a model that
has learnt its clip, and finds each of five faults by the item meant for it.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
import torch

from scripts.make_small_model import make
from tests.engine import doctor_small
from webui import doctor as script
from webui.engine.cosyvoice.doctor import (
    directory,
    language,
    machine,
    origin,
    sound,
    speaking,
    text,
)
from webui.engine.cosyvoice.doctor.examination import Options, examine
from webui.engine.cosyvoice.doctor.machine import Choice
from webui.engine.cosyvoice.doctor.result import FAILED, PASSED, WARNED
from webui.engine.cosyvoice.registry import model_spec_of
from webui.errors import NotReady
from webui.store.model_files import published_files, read_manifest

SHORT = (("zh", "好"),) * len(speaking.TEXTS)


@pytest.fixture
def clips(monkeypatch):
    """Short texts, and the first moments of the starters, of the script too."""
    starter = script.starter

    def short(name: str):
        clip = starter(name)
        return replace(clip, samples=clip.samples[: 2 * clip.rate])  # halves of it are heard, too

    monkeypatch.setattr(speaking, "TEXTS", SHORT)
    monkeypatch.setattr(language, "MOST_IDS", 20)
    monkeypatch.setattr(script, "starter", short)
    return [short(name) for name in script.STARTERS]


def by_name(report: dict) -> dict[str, dict]:
    return {f"{r['item']} {r['name']}": r for r in report["results"]}


@pytest.fixture(scope="module")
def learnt(small_model, tmp_path_factory):
    torch.set_num_threads(1)
    return doctor_small.learnt(small_model, tmp_path_factory.mktemp("learnt") / "model")


def item(name: str, root, clip):
    """One item of a directory, with its networks loaded only where it needs them."""
    family = model_spec_of(root)
    if name == "C tensors":
        return directory.tensors(root, family)
    model = doctor_small.load(root)
    if name == "B text":
        return text.text(root, model)
    prompt = model.prompt_encoder.voice(clip.samples, clip.rate)
    return {"E transcript": language.transcript, "F vocoder": sound.vocoder}[name](
        model, clip, prompt
    )


@pytest.mark.parametrize("family", ["cosyvoice1", "cosyvoice3"])
def test_weights_without_training_are_called_that(family, tmp_path, clips):
    report = examine(make(tmp_path / family, family=family), clips, Options({}, is_quick=True))
    items = by_name(report)
    for name in ("E transcript", "G speaking"):
        assert items[name]["status"] == FAILED
        assert "these weights are untrained" in items[name]["en"]
        assert "这些权重未经训练" in items[name]["zh"]
    assert items["C spectrum"]["status"] == FAILED
    assert items["C tensors"]["status"] == PASSED, "random is not damaged"
    assert report["recommended"] is None, "nothing is recommended for a model that cannot speak"
    json.dumps(report, allow_nan=False)


def test_the_script_prints_a_sentence_for_each_item_and_keeps_the_figures(
    small_model, tmp_path, monkeypatch, capsys, clips
):
    monkeypatch.setenv("KAIKOU_DATA_DIR", str(tmp_path / "data"))
    root = tmp_path / "model"
    shutil.copytree(small_model, root)
    assert script.main([str(root), "--quick", "--device", "cpu"]) == 1
    report = json.loads((root / "kaikou-doctor.json").read_text("utf-8"))
    printed = capsys.readouterr().out
    assert all(result["en"] in printed for result in report["results"])
    assert {result["item"] for result in report["results"]} == set("ABCDEFGH")
    assert "these weights are untrained" in by_name(report)["E transcript"]["en"]
    file_names = by_name(report)["H words"]["figures"]["files"]
    assert file_names and all((root / name).read_bytes()[:4] == b"RIFF" for name in file_names)


@pytest.mark.parametrize("name", ["C tensors", "E transcript", "F vocoder"])
def test_a_model_that_has_learnt_its_clip_is_in_order(learnt, name):
    assert item(name, *learnt).status == PASSED


def test_a_whole_tokenizer_of_another_size_is_only_noted(learnt):
    assert item("B text", *learnt).status == WARNED


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        (doctor_small.tokenizer, "B text"),
        (doctor_small.embedding_order, "E transcript"),
        (doctor_small.prompt_layout, "E transcript"),
        (doctor_small.vocoder_phase, "F vocoder"),
        (doctor_small.empty_layer, "C tensors"),
    ],
    ids=lambda param: getattr(param, "__name__", param),
)
def test_each_fault_is_found_by_the_item_meant_for_it(learnt, tmp_path, fault, name):
    root, clip = learnt
    broken = tmp_path / "model"
    shutil.copytree(root, broken)
    fault(broken)
    finding = item(name, broken, clip)
    assert finding.status == FAILED
    assert finding.remedy_en and finding.remedy_zh
    assert "untrained" not in finding.en or name == "F vocoder"


def test_files_are_compared_with_what_was_published(small_model, tmp_path):
    root, family = tmp_path / "model", model_spec_of(small_model)
    shutil.copytree(small_model, root)
    own = directory.files(root, family, {}).figures["files"]
    table = {name: (f["bytes"], f["sha256"]) for name, f in own.items()}
    assert directory.files(root, family, table).status == PASSED
    odd = directory.files(root, family, table | {"hift.pt": (table["hift.pt"][0], "0" * 64)})
    assert (odd.status, odd.figures["differing"]) == (WARNED, ["hift.pt"])
    (root / "campplus.onnx").unlink()
    assert directory.files(root, family, table).figures["missing"] == ["campplus.onnx"]


def release_of(sums: dict, llm: int = 0) -> list[str]:
    """What item A says of files with these checksums, beside the real table. llm: bytes of
    llm.pt.
    """
    models = published_files(read_manifest(script.MANIFEST), "cosyvoice.yaml")
    own = {path: {"bytes": 1, "sha256": sha256} for path, sha256 in sums.items()}
    return list(
        origin.releases(own | {"llm.pt": {"bytes": llm, "sha256": sums.get("llm.pt")}}, models)
    )


def test_the_release_is_told_by_sizes_and_checksums(small_model, tmp_path):
    models = published_files(read_manifest(script.MANIFEST), "cosyvoice.yaml")
    shared = {path: models["CosyVoice-300M"][path][1] for path in ("flow.pt", "hift.pt")}
    sft = models["CosyVoice-300M-SFT"]["llm.pt"]
    assert release_of(shared | {"llm.pt": sft[1]}, sft[0]) == ["CosyVoice-300M-SFT"]
    instruct = models["CosyVoice-300M-Instruct"]["llm.pt"][0]
    assert release_of(shared, instruct) == ["CosyVoice-300M-Instruct"]
    assert release_of(shared, 1_241_234_567) == ["CosyVoice-300M"]
    assert release_of({"flow.pt": "0" * 64}, instruct) == []
    root, family = tmp_path / "model", model_spec_of(small_model)
    shutil.copytree(small_model, root)
    own = directory.files(root, family, {}).figures["files"]
    table = {name: (f["bytes"], f["sha256"]) for name, f in own.items()}
    finding = directory.files(
        root, family, table, {"Some-0.5B": table, "Other": {"llm.pt": (1, "0")}}
    )
    assert finding.status == PASSED and finding.figures["release"] == ["Some-0.5B"]
    assert "Some-0.5B" in finding.en and "Some-0.5B" in finding.zh


def test_the_revision_is_what_the_hubs_libraries_wrote_down(tmp_path):
    commit, other = "1a2b3c4d5e" * 4, "f" * 40
    cached = tmp_path / "models--us--Some" / "snapshots" / commit
    cached.mkdir(parents=True)
    assert origin.revision(cached) == commit
    linked = tmp_path / "linked"
    linked.symlink_to(cached)
    assert origin.revision(linked) == commit, "behind a link too"
    plain = tmp_path / "plain"
    notes = plain / ".cache" / "huggingface" / "download"
    (notes / "part").mkdir(parents=True)
    assert origin.revision(plain) == ""
    (plain / ".mv").write_text("Revision:v1.0,CreatedAt:1734000000")
    assert origin.revision(plain) == "v1.0"
    for name, line in (("llm.pt", commit), ("part/vocab.json", commit), ("odd", "no commit")):
        (notes / f"{name}.metadata").write_text(f"{line}\netag\n1734000000.0\n")
    assert origin.revision(plain) == commit
    (notes / "flow.pt.metadata").write_text(f"{other}\netag\n1734000000.0\n")
    assert origin.revision(plain) == "v1.0", "files of two revisions are none"


def test_what_breaks_off_is_a_failure_of_its_item_and_the_next_is_asked(
    small_model, monkeypatch, clips
):
    monkeypatch.setattr(directory, "spectrum", lambda root, family: 1 / 0)
    monkeypatch.setattr(sound, "flow", lambda *args: 1 / 0)
    monkeypatch.setattr(sound, "cache", lambda *args: 1 / 0)
    report = examine(small_model, clips, Options({}, is_quick=True))
    items = by_name(report)
    assert items["C spectrum"]["status"] == items["F flow"]["status"] == FAILED
    assert "ZeroDivisionError" in items["F flow"]["en"]
    assert "H words" in items


def test_too_little_memory_is_no_finding_about_the_model(small_model, monkeypatch, clips):
    monkeypatch.setattr("webui.engine.cosyvoice.memory_plan.available", lambda device: 1 << 20)
    with pytest.raises(NotReady) as fault:
        examine(small_model, clips, Options({}, is_quick=True))
    assert fault.value.code == "no_memory"


def test_the_fastest_choice_within_tolerance_is_recommended():
    exact = Choice("fp32", 10, 1.0, 0.8, 0, 1.0, 0.0)
    choices = [
        exact,
        replace(exact, steps=5, rtf=0.5, mel_distance=0.2),
        replace(exact, precision="int8", rtf=0.3, agreement=0.5),
        replace(exact, precision="bf16", rtf=0.4, mel_distance=0.6),
        Choice("bf16", 5, fault="no memory"),
    ]
    finding = machine.machine(choices)
    assert finding.figures["recommended"] == {"precision": "fp32", "steps": 5}
    narrow = machine.precision(choices, 10)
    assert (narrow.status, narrow.figures["off"]) == (FAILED, ["int8", "bf16"])
    assert machine.machine(choices[2:]).status == FAILED


def test_every_choice_is_measured_beside_the_exact_model(learnt):
    root, clip = learnt
    model = doctor_small.load(root)
    prompt = model.prompt_encoder.voice(clip.samples, clip.rate)
    reference = machine.Reference(
        language.nll(model, prompt, clip)[1], machine.reference_mel(model, prompt)
    )
    choices = machine.choices(
        root,
        model_spec_of(root),
        clip,
        prompt,
        reference,
        lambda precision: doctor_small.PLACE,
        ["fp32"],
    )
    assert [choice.steps for choice in choices] == list(model_spec_of(root).steps)
    assert (choices[0].agreement, choices[0].mel_distance) == (1.0, 0.0)
    assert choices[0].is_alike and choices[0].first_sound_s > 0 and choices[0].rtf > 0
    assert choices[-1].mel_distance > 0, "fewer steps give another mel"


def test_recorded_networks_are_measured_beside_plain_ones(small_model, monkeypatch):
    """On a GPU; what may not be used recorded says why."""
    exact = Choice("fp32", 10, 1.0, 0.8, 0, 0.99, 0.1)
    monkeypatch.setattr(machine, "measure", lambda *args: replace(exact, steps=args[-1]))
    monkeypatch.setattr(machine, "timed", lambda model, prompt: (0.2, 0.1))
    family, places = model_spec_of(small_model), []

    def record(load, place):
        places.append(place)
        return None, ("They differ.", "不同。") if len(places) == 2 else None

    choice_args = (small_model, family, None, None, None, lambda name: doctor_small.PLACE, ["fp32"])
    choices = machine.choices(*choice_args, record)
    assert [choice.graphs for choice in choices] == [False, True] * len(family.steps)
    assert all(place.graphs for place in places)
    assert (choices[1].rtf, choices[1].first_sound_s, choices[1].agreement) == (0.1, 0.2, 0.99)
    assert choices[3].fault == "They differ." and not choices[3].is_alike
    assert machine.machine(choices).figures["recommended"] == {"precision": "fp32", "steps": 10}
    assert [choice.graphs for choice in machine.choices(*choice_args)] == [False] * len(
        family.steps
    )
