"""Model directories: sizes as data, exact keys and shapes, the converted form, and every way a
directory can be spoiled.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch.nn.utils.parametrizations import weight_norm

from tests.engine.model_poison import calls, poisoned
from webui.engine.cosyvoice import file_checks
from webui.engine.cosyvoice.checkpoint import (
    COMPONENTS,
    assign,
    component_state,
    convert,
    fold_weight_norm,
    load_state,
    source_mark,
)
from webui.engine.cosyvoice.config import FIXED, read_spec
from webui.engine.cosyvoice.directory_contents import check_files
from webui.engine.cosyvoice.flow import FlowDims, FlowModel
from webui.engine.cosyvoice.frontend.preset_speakers import read_speakers
from webui.engine.cosyvoice.frontend.prompt_encoder import PromptEncoder
from webui.engine.cosyvoice.frontend.tokenizer import TextTokenizer
from webui.engine.cosyvoice.llm.qwen2 import Qwen2LM
from webui.engine.cosyvoice.v2 import SPEC
from webui.engine.cosyvoice.vocoder import Vocoder, VocoderDims
from webui.errors import KaikouError, NotReady

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def model(small_model, tmp_path):
    """A directory of its own to spoil.

    Large files are hard links: replace them, do not write into them.
    """
    target = tmp_path / "model"
    shutil.copytree(small_model, target, copy_function=os.link)
    return target


def replace(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


def load_all(root: Path, dtype: str = "fp32"):
    """What an engine does at its start, speakers included."""
    check_files(SPEC, root, dtype)
    spec = read_spec(root)
    lm = Qwen2LM.of(spec.lm, component_state(root, "llm", dtype))
    flow = FlowModel.of(FlowDims.of(spec.flow), component_state(root, "flow"))
    vocoder = Vocoder.of(VocoderDims.of(spec.hift), component_state(root, "hift"))
    if (root / "spk2info.pt").exists():
        read_speakers(root)
    return lm, flow, vocoder, PromptEncoder(root, TextTokenizer(root))


def refused(root: Path, dtype: str = "fp32") -> KaikouError:
    with pytest.raises(NotReady) as caught:
        load_all(root, dtype)
    assert (
        caught.value.en.count(".")
        and caught.value.zh.endswith("。")
        and caught.value.code == "model_file"
    )
    return caught.value


def test_a_whole_directory_loads(small_model):
    lm, flow, vocoder, _ = load_all(small_model)
    assert not any(
        p.requires_grad or p.is_meta for part in (lm, flow, vocoder) for p in part.parameters()
    )


def test_sizes_are_read_as_data(small_model):
    spec = read_spec(small_model)
    assert (
        spec.lm.hidden,
        spec.lm.speech_codes,
        spec.lm.mix,
        spec.sample_rate,
        spec.samples_per_id,
    ) == (64, 6561, (5, 15), 24000, 960)
    assert (
        spec.flow["spk_embed_dim"] == 192
        and spec.flow["chunk_size"] == 25
        and spec.hift["base_channels"] == 64
    )
    assert (spec.rule.top_p, spec.rule.top_k, spec.rule.window, spec.rule.tau) == (0.8, 25, 10, 0.1)


@pytest.mark.parametrize(
    "field",
    [
        *FIXED,
        "flow.vocab_size",
        "llm_input_size",
        "llm.sampling.top_p",
        "hift.upsample_rates",
        "llm.mix_ratio",
    ],
)
def test_a_field_with_another_value_is_named(model, field):
    path = model / "cosyvoice2.yaml"
    lines = path.read_text(encoding="utf-8").split("\n")
    at = 0
    for depth, part in enumerate(field.split(".")):
        at = next(
            i for i in range(at, len(lines)) if lines[i].startswith(f"{4 * depth * ' '}{part}:")
        )
    lines[at] = lines[at].split(":")[0] + ": oops"
    replace(path, "\n".join(lines).encode())
    fault = refused(model)
    assert field in fault.en or (field == "llm_input_size" and "hidden_size" in fault.en)


@pytest.mark.parametrize(
    "change",
    [
        {"num_attention_heads": 3},
        {"hidden_size": 63},
        {"num_hidden_layers": 10**9},
        {"vocab_size": "many"},
        {"hidden_size": None},
    ],
)
def test_a_language_model_whose_sizes_do_not_fit(model, change):
    path = model / "CosyVoice-BlankEN/config.json"
    replace(path, json.dumps({**json.loads(path.read_text()), **change}).encode())
    assert refused(model).param == "CosyVoice-BlankEN/config.json"


def test_another_generation_is_named(model):
    (model / "cosyvoice2.yaml").rename(model / "cosyvoice3.yaml")
    assert "cosyvoice3.yaml" in refused(model).en


def _cut(at: float):
    return lambda path: replace(path, path.read_bytes()[: int(path.stat().st_size * at)])


def _flip(at: float):
    def write(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[int(len(data) * at)] ^= 0x10
        replace(path, bytes(data))

    return write


DAMAGE = {
    "missing": (lambda path: path.unlink(), "no such file"),
    "half": (lambda path: path.rename(path.with_name(path.name + ".part")), "unfinished download"),
    "empty": (lambda path: replace(path, b""), "empty"),
    "lfs": (
        lambda path: replace(
            path, b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"
        ),
        "Git-LFS",
    ),
    "page": (lambda path: replace(path, b"<html>404</html>"), "another kind of file"),
    **{f"cut {at}": (_cut(at), "end is missing") for at in (0.01, 0.3, 0.7, 0.99, 0.9999)},
    **{f"flip {at}": (_flip(at), "damaged") for at in (0.2, 0.5, 0.8)},
}


@pytest.mark.parametrize("name", [part.file for part in COMPONENTS.values()])
@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_weight_files_are_named(model, name, damage):
    spoil, words = DAMAGE[damage]
    spoil(model / name)
    fault = refused(model)
    assert fault.param == name and words in fault.en


def test_an_empty_directory_and_none_at_all(tmp_path):
    assert "cosyvoice2.yaml" in refused(tmp_path).en
    assert "no directory" in refused(tmp_path / "nowhere").en


def test_files_that_may_not_be_read(model, monkeypatch):
    opened = Path.open

    def locked(self, *args, **kw):
        if self.name == "flow.pt":
            raise PermissionError(13, "Permission denied")
        return opened(self, *args, **kw)

    monkeypatch.setattr(Path, "open", locked)
    assert refused(model).param == "flow.pt"


@pytest.mark.parametrize("a,b", [("llm", "flow"), ("flow", "hift"), ("hift", "llm")])
def test_another_network_in_the_file_names_the_first_key(model, a, b):
    (model / f"{a}.pt").unlink()
    shutil.copy(model / f"{b}.pt", model / f"{a}.pt")
    fault = refused(model)
    assert fault.param == f"{a}.pt" and "." in fault.en.split("expected")[1]


def test_the_first_wrong_key_or_shape_is_named():
    module = torch.nn.Linear(3, 2)
    good = module.state_dict()
    for state, words in (
        ({"weight": good["weight"]}, "bias"),
        ({**good, "weight": torch.zeros(3, 2)}, "weight with shape [2, 3], found [3, 2]"),
        ({**good, "extra.key": torch.zeros(1)}, "extra.key"),
    ):
        with pytest.raises(NotReady) as caught:
            assign(module, state, "x.pt")
        assert words in caught.value.en


def test_training_extras_and_prefixes_are_dropped(tmp_path):
    torch.save(
        {"generator.conv.weight": torch.ones(2), "epoch": 3, "step": 10}, tmp_path / "hift.pt"
    )
    assert list(load_state(tmp_path / "hift.pt", ("generator.",))) == ["conv.weight"]
    torch.save({"a": torch.ones(2), "note": "text"}, tmp_path / "b.pt")
    with pytest.raises(NotReady, match="str under note"):
        load_state(tmp_path / "b.pt")
    torch.save([torch.ones(2)], tmp_path / "c.pt")
    with pytest.raises(NotReady, match="list"):
        load_state(tmp_path / "c.pt")


@pytest.mark.parametrize("layer", [torch.nn.Conv1d(3, 4, 5), torch.nn.ConvTranspose1d(3, 4, 5)])
def test_folded_weight_norm_is_the_layers_own_weight(layer):
    weight_norm(layer)
    layer.parametrizations.weight.original0.data *= 1.7
    folded = fold_weight_norm(torch.nn.Sequential(layer).state_dict())
    assert set(folded) == {"0.weight", "0.bias"} and torch.allclose(
        folded["0.weight"], layer.weight, atol=1e-6
    )


class TestConverted:
    def test_same_tensors_and_preferred(self, model, monkeypatch):
        plain = {name: component_state(model, name) for name in COMPONENTS}
        for name in COMPONENTS:
            convert(model, name, "fp32")
        monkeypatch.setattr(torch, "load", None)  # the published files are not opened again
        for name in COMPONENTS:
            state = component_state(model, name)
            assert state.keys() == plain[name].keys() and all(
                torch.equal(state[k], plain[name][k]) for k in state
            )

    def test_half_precision_halves_the_file_and_spares_the_vocoder(self, model):
        sizes = {dtype: convert(model, "llm", dtype).stat().st_size for dtype in ("fp32", "bf16")}
        assert sizes["bf16"] < 0.52 * sizes["fp32"] < (model / "llm.pt").stat().st_size
        assert (
            component_state(model, "llm", "bf16")["speech_embedding.weight"].dtype == torch.bfloat16
        )
        assert convert(model, "hift", "bf16").name == "kaikou-hift-fp32.safetensors"
        assert {v.dtype for v in component_state(model, "hift", "bf16").values()} == {torch.float32}

    def test_one_made_from_another_source_is_not_used(self, model):
        convert(model, "llm", "fp32")
        state = torch.load(model / "llm.pt", weights_only=True)
        state["llm_embedding.weight"] = torch.full_like(state["llm_embedding.weight"], 7)
        (model / "llm.pt").unlink()
        torch.save(state, model / "llm.pt")
        assert component_state(model, "llm")["llm_embedding.weight"][0, 0] == 7

    @pytest.mark.parametrize(
        "damage", [_cut(0.5), _flip(0.5), _flip(0.9), lambda path: replace(path, b"")]
    )
    def test_a_damaged_one_falls_back_or_is_named(self, model, damage):
        path = convert(model, "llm", "fp32")
        good = component_state(model, "llm")["llm_decoder.weight"]
        damage(path)
        assert torch.equal(component_state(model, "llm")["llm_decoder.weight"], good)
        (model / "llm.pt").unlink()
        with pytest.raises(NotReady, match="kaikou-llm-fp32"):
            component_state(model, "llm")

    def test_it_serves_without_its_source_under_the_same_mark(self, model):
        marks = [source_mark(model, name) for name in COMPONENTS]
        for name in COMPONENTS:
            convert(model, name, "fp32")
            (model / f"{name}.pt").unlink()
        load_all(model)
        assert [source_mark(model, name) for name in COMPONENTS] == marks and len(set(marks)) == 3

    def test_the_script(self, model):
        script = [sys.executable, str(ROOT / "scripts/convert_weights.py"), str(model)]
        done = subprocess.run(
            [*script, "--dtype", "bf16", "--only", "llm"],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0 and "kaikou-llm-bf16.safetensors" in done.stdout
        with safe_open(model / "kaikou-llm-bf16.safetensors", "pt") as f:
            assert f.metadata()["source"] == file_checks.fingerprint(model, "llm.pt")
        (model / "llm.pt").unlink()
        (model / "kaikou-llm-bf16.safetensors").unlink()
        done = subprocess.run(
            [*script, "--only", "llm"], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 1 and "llm.pt" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("seed", range(30))
def test_any_damage_is_named_or_harmless(small_model, tmp_path, seed):
    """Cuts, flips, holes and strangers anywhere in any file: never another exception than a named
    one.
    """
    chance = random.Random(seed)
    names = sorted(str(p.relative_to(small_model)) for p in small_model.rglob("*") if p.is_file())
    root = tmp_path / "model"
    shutil.copytree(small_model, root, copy_function=os.link)
    path = root / chance.choice(names)
    data = bytearray(path.read_bytes())
    at = chance.randrange(len(data))
    how = seed % 5
    if how == 0:
        data = data[:at]
    elif how == 1:
        data[at] ^= 1 << chance.randrange(8)
    elif how == 2:
        data[at : at + 200] = bytes(len(data[at : at + 200]))
    elif how == 3:
        data[at:at] = chance.randbytes(7)
    else:
        data = (small_model / chance.choice(names)).read_bytes()
    replace(path, bytes(data))
    try:
        load_all(root)
    except KaikouError as fault:
        assert fault.en.endswith(".") and fault.zh.endswith("。")


def test_forty_poisoned_files_leave_no_canary(small_model, tmp_path):
    canary, tried, loaded = tmp_path / "canary", 0, []
    for label, name, write in poisoned(canary):
        root = tmp_path / f"model{tried}"
        shutil.copytree(small_model, root, copy_function=os.link)
        (root / name).unlink()
        write(root / name)
        tried += 1
        try:
            load_all(root)
            loaded.append(label)
        except KaikouError as fault:
            assert name in fault.en, label
        assert not canary.exists(), label
        shutil.rmtree(root)
    assert tried >= 40 and loaded == []


def test_the_canary_would_sing(tmp_path):
    """The control: the same calls do leave a file when a pickle is trusted."""
    canary = tmp_path / "canary"
    pickle.loads(pickle.dumps(calls(canary)[3])).close()
    assert canary.exists()


def test_a_bare_module_costs_neither_memory_nor_the_compiler():
    code = (
        "import sys, torch; from webui.engine.cosyvoice.checkpoint import bare\nwith bare(): m ="
        " torch.nn.Sequential(torch.nn.Linear(9000, 9000), torch.nn.Embedding(9000, 9),"
        " torch.nn.Conv1d(8, 8, 3))\nassert all(p.is_meta for p in m.parameters()) and 'sympy' not"
        " in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=120)


def test_a_tagged_yaml_that_is_otherwise_right_loads_without_running(model, tmp_path):
    canary, path = tmp_path / "canary", model / "cosyvoice2.yaml"
    text = path.read_text(encoding="utf-8")
    replace(
        path,
        f'x: !!python/object/apply:os.system ["touch {canary}"]\ny: !apply:os.system ["touch'
        f' {canary}"]\n{text}'.encode(),
    )
    load_all(model)
    assert not canary.exists()
