"""What `scripts/export.py` writes is what the model computes, and each check says so when it is
not: every fault that is planted here ends with a sentence and exit code 1.
"""

from __future__ import annotations

import json
import shutil

import numpy as np
import onnx
import pytest
import soundfile
import torch
from onnx import numpy_helper
from safetensors.torch import load_file, save_file

from scripts import export
from scripts.export_formats import estimator, griffin_lim, qwen2, stages
from scripts.make_small_model import make
from tests.conftest import ROOT
from webui.engine.cosyvoice.frontend.audio_features import log_mel, resample

VOICE = ROOT / "assets" / "voices" / "starter-en-mid.wav"
TWO = ("cosyvoice2", "cosyvoice3")


@pytest.fixture(scope="module")
def models(small_model, tmp_path_factory):
    """Generation -> its model directory."""
    root = tmp_path_factory.mktemp("models")
    others = ("cosyvoice1", "cosyvoice3")
    return {"cosyvoice2": small_model, **{f: make(root / f, family=f) for f in others}}


@pytest.fixture(scope="module")
def exported(models, tmp_path_factory):
    """(form, generation) -> what was written and found to be right, once."""
    done = {}

    def get(form, family="cosyvoice2"):
        if (form, family) not in done:
            out = tmp_path_factory.mktemp("out") / "out"
            assert export.main([form, str(models[family]), str(out)]) == 0
            done[form, family] = out
        return done[form, family]

    return get


@pytest.fixture
def damaged(exported, tmp_path, models, capsys):
    """A copy of an export to be damaged; `refused` then says what the check said of it."""

    class Damaged:
        def __init__(self, form):
            self.form, self.out = form, shutil.copytree(exported(form), tmp_path / "copy")

        def refused(self):
            capsys.readouterr()
            code = export.main([self.form, str(models["cosyvoice2"]), str(self.out), "--check"])
            assert code == 1
            return capsys.readouterr().err

    return Damaged


def change(path, name, value):
    tensors = load_file(path)
    tensors[name] = value(tensors[name])
    save_file(tensors, path, {"format": "pt"})


@pytest.mark.parametrize("family", TWO)
def test_the_estimator_gives_the_same_velocity_at_any_length(exported, models, family, capsys):
    out = exported("estimator", family)
    capsys.readouterr()
    assert estimator.check(models[family], out) < 2e-5
    output = capsys.readouterr().out
    assert all(f"{n} frames, attention over blocks" in output for n in estimator.LENGTHS)
    shapes = {
        tensor_info.name: [
            d.dim_param or d.dim_value for d in tensor_info.type.tensor_type.shape.dim
        ]
        for tensor_info in onnx.load(out / estimator.FILE).graph.input
    }
    assert shapes["x"] == ["rows", 80, "frames"] and shapes["mask"][1:] == ["seen_by", "frames"]


def test_a_weight_of_the_estimator_that_changed_is_found(damaged):
    copy = damaged("estimator")
    model = onnx.load(copy.out / estimator.FILE)
    weight = max(model.graph.initializer, key=lambda initializer: len(initializer.raw_data))
    values = numpy_helper.to_array(weight).copy()
    values.flat[0] += 0.5
    weight.CopyFrom(numpy_helper.from_array(values, weight.name))
    onnx.save(model, copy.out / estimator.FILE)
    assert "differs from the model in: 137 frames" in copy.refused()


def test_what_is_no_estimator_is_refused(damaged):
    copy = damaged("estimator")
    (copy.out / estimator.FILE).write_bytes(b"no graph")
    assert "no ONNX file" in copy.refused()
    (copy.out / estimator.FILE).unlink()
    assert "has no flow.decoder" in copy.refused()


@pytest.mark.parametrize("family", TWO)
def test_the_language_model_is_a_qwen2_model_of_speech_ids(exported, models, family):
    out = exported("qwen2", family)
    sizes, words = json.loads((out / "config.json").read_text()), load_file(out / qwen2.MODEL)
    assert sizes["architectures"] == ["Qwen2ForCausalLM"]
    rows = len(words["model.embed_tokens.weight"])
    assert rows == len(words["lm_head.weight"]) == sizes["vocab_size"]
    readme = (out / "README.md").read_text()
    assert f"0 to {6561} - 1" in readme and f"The end is {sizes['eos_token_id']}" in readme
    assert "{" not in readme


def bias(out):
    change(out / qwen2.BESIDE, "head_bias", lambda values: values.roll(1))


def speech_embedding(out):
    words = load_file(out / qwen2.MODEL)
    del words["model.embed_tokens.weight"]
    save_file(words, out / qwen2.MODEL)


def configured(**wrong):
    def write(out):
        sizes = json.loads((out / qwen2.CONFIG).read_text())
        (out / qwen2.CONFIG).write_text(json.dumps(sizes | wrong))

    return write


def tokenizer(out):
    table = json.loads((out / qwen2.TOKENIZER).read_text())
    table["model"]["merges"] = table["model"]["merges"][1:]
    (out / qwen2.TOKENIZER).write_text(json.dumps(table))


QWEN2_FAULTS = {
    "bias": (bias, "out differs from the model in: engine: opening"),
    "no speech embedding": (speech_embedding, "has no model.embed_tokens.weight"),
    "heads of another size": (
        configured(num_attention_heads=8, num_key_value_heads=4),
        "differs from the model in: engine: opening",
    ),
    "other key heads": (configured(num_key_value_heads=1), "does not fit config.json"),
    "no whole heads": (configured(num_attention_heads=7), "cannot be read"),
    "tokenizer": (tokenizer, "is not the model's own tokenizer"),
    "no config": (lambda out: (out / qwen2.CONFIG).unlink(), "has no config.json"),
}


@pytest.mark.parametrize(("plant", "sentence"), QWEN2_FAULTS.values(), ids=QWEN2_FAULTS)
def test_a_fault_of_the_language_model_is_found(damaged, plant, sentence):
    copy = damaged("qwen2")
    plant(copy.out)
    assert sentence.replace("out ", "copy ", 1) in copy.refused()


@pytest.mark.parametrize("family", ["cosyvoice1", *TWO])
def test_the_stages_are_those_of_the_engine(exported, models, family):
    """Fed with what the stage before gave, each gives what was written."""
    out = exported("stages", family)
    stored = stages.read(out)
    assert list(stored) == list(stages.STAGES)
    assert len(stored["speech"]["speech_ids"]) and len(stored["sound"]["samples"]) > 2400
    assert export.main(["stages", str(models[family]), str(out), "--check"]) == 0


def test_a_port_is_compared_stage_by_stage(exported, tmp_path, capsys):
    """The stage that differs is named, those it does not have are no fault, nothing at all is."""
    out = exported("stages")
    port = tmp_path / "port"
    port.mkdir()
    manifest = json.loads((out / stages.MANIFEST).read_text())

    def write(**tensors):
        table = {}
        for stage, values in tensors.items():
            save_file(values, port / f"{stage}.safetensors")
            table[stage] = {name: stages._described(value) for name, value in values.items()}
        (port / stages.MANIFEST).write_text(json.dumps({**manifest, "stages": table}))
        code = export.main(["compare", str(port), str(out)])
        return code, capsys.readouterr()

    whole = stages.read(out)
    code, output = write(mel=whole["mel"], sound=whole["sound"])
    assert code == 0 and "speech                               not in both" in output.out
    code, output = write(mel={"mel": whole["mel"]["mel"] + 0.01}, sound=whole["sound"])
    assert code == 1 and output.err == "What was computed differs from the model in: mel: mel.\n"
    ids = {"speech_ids": whole["speech"]["speech_ids"] + 1}
    code, output = write(speech={**whole["speech"], **ids})
    assert code == 1 and "speech: speech_ids" in output.err
    assert "nothing that can be compared" in write()[1].err
    code, output = write(speech=ids)
    assert code == 1 and "speech has no first_scores" in output.err


def test_stages_that_do_not_fit_their_manifest_are_refused(damaged):
    copy = damaged("stages")
    change(copy.out / "mel.safetensors", "mel", lambda values: values + 1e-7)
    assert "mel.safetensors" in copy.refused()
    (copy.out / stages.MANIFEST).write_text("{}")
    assert "cannot be read" in copy.refused()


@pytest.mark.parametrize("form", ["estimator", "qwen2"])
def test_the_first_generation_has_other_networks(models, tmp_path, form, capsys):
    assert export.main([form, str(models["cosyvoice1"]), str(tmp_path)]) == 1
    assert "CosyVoice-300M has other networks" in capsys.readouterr().err


def test_a_directory_without_a_model_is_named_in_both_languages(tmp_path, capsys):
    assert export.main(["stages", str(tmp_path), str(tmp_path / "out")]) == 1
    english, chinese = capsys.readouterr().err.strip().splitlines()
    assert "cosyvoice2.yaml" in english and "模型" in chinese


@pytest.mark.parametrize("engine", griffin_lim.FORMS)
def test_a_mel_is_heard_without_a_vocoder(tmp_path, engine):
    """The written sound has the mel it was made of, and its tone."""
    form = griffin_lim.FORMS[engine]
    samples, rate = soundfile.read(VOICE, dtype="float32", frames=48000)
    mel = log_mel(resample(torch.from_numpy(samples), rate, form.rate_hz), *form)
    np.save(tmp_path / "mel.npy", mel.numpy())
    out = tmp_path / "out.wav"
    assert (
        export.main(["griffin-lim", str(tmp_path / "mel.npy"), str(out), "--engine", engine]) == 0
    )
    vocoded, heard_rate = soundfile.read(out, dtype="float32")
    assert heard_rate == form.rate_hz
    assert float(np.corrcoef(tones(samples, rate), tones(vocoded, heard_rate))[0, 1]) > 0.9


def tones(samples, rate):
    """Strength of each 50 Hz from 0 to 2 kHz, in dB."""
    power = np.abs(np.fft.rfft(samples)) ** 2
    hz = np.fft.rfftfreq(len(samples), 1 / rate)
    return [
        10 * np.log10(power[(hz >= low) & (hz < low + 50)].mean()) for low in range(50, 2000, 50)
    ]


def test_what_is_no_mel_is_said(tmp_path, capsys):
    save_file({"mel": torch.randn(100, 80) - 4}, tmp_path / "noise.safetensors")
    np.save(tmp_path / "flat.npy", np.zeros((100, 81), np.float32))
    for name, sentence in (
        ("noise.safetensors", "No sound has this mel"),
        ("flat.npy", "no mel of 80 bands"),
        ("none.npy", "holds no mel"),
    ):
        assert export.main(["griffin-lim", str(tmp_path / name), str(tmp_path / "x.wav")]) == 1
        assert sentence in capsys.readouterr().err
