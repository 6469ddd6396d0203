"""The int8 form of the language model on disk is never trusted blindly, and a processor computes in
what it is good at.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import types
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.engine.test_cosyvoice_int8 import DIMS, random_state, threads_of
from webui.app import cosyvoice_arguments, first_model
from webui.engine.cosyvoice.checkpoint import component_state, convert
from webui.engine.cosyvoice.config import read_spec
from webui.engine.cosyvoice.device import INT8, DeviceConfig, processor
from webui.engine.cosyvoice.directory_contents import check_files
from webui.engine.cosyvoice.int8 import converted, large_pages, weights
from webui.engine.cosyvoice.int8.runtime import Int8Lm
from webui.engine.cosyvoice.llm.qwen2 import Qwen2LM
from webui.engine.cosyvoice.mapped_files import mapped_files
from webui.engine.cosyvoice.memory_plan import plan
from webui.engine.cosyvoice.v2 import SPEC, CosyVoice2, language_model
from webui.errors import NotReady
from webui.settings import load

NARROW = replace(DIMS, heads=12)  # head size 8


@pytest.fixture
def model(small_model, tmp_path):
    target = tmp_path / "model"
    # without the converted form that an engine of an earlier test may have left
    converted_files = shutil.ignore_patterns("kaikou-*")
    shutil.copytree(small_model, target, ignore=converted_files, copy_function=os.link)
    return target


def conversions(root, dims=None) -> int:
    """Loads, and tells how often it had to convert."""
    messages = []
    loaded = converted.load(root, dims or read_spec(root).lm, messages.append)
    scores = Int8Lm(dims or read_spec(root).lm, loaded)
    assert torch.isfinite(scores.step(scores.prefill_embeddings([1, 2]), scores.new_cache())).all()
    return messages.count(1.0)


class TestFile:
    def test_made_once(self, model):
        assert not converted.is_there(model, read_spec(model).lm)
        assert [conversions(model), conversions(model)] == [1, 0]
        assert converted.is_there(model, read_spec(model).lm) and not list(model.glob("*.part"))

    def test_made_again_for_other_weights_and_other_sizes(self, model):
        conversions(model)
        state = component_state(model, "llm")
        state["llm_decoder.bias"] = state["llm_decoder.bias"] + 1
        (model / "llm.pt").unlink()
        torch.save(state, model / "llm.pt")
        assert [conversions(model), conversions(model)] == [1, 0]
        slower = replace(read_spec(model).lm, rope_theta=1e4)
        assert not converted.is_there(model, slower) and [
            conversions(model, slower),
            conversions(model, slower),
        ] == [1, 0]

    @pytest.mark.parametrize("harm", ["one byte", "cut off", "empty", "something else"])
    def test_made_again_when_damaged(self, model, harm, caplog):
        conversions(model)
        file = model / converted.FILE
        data = bytearray(file.read_bytes())
        if harm == "one byte":
            data[-len(data) // 3] ^= 4
        file.unlink()
        file.write_bytes(
            {
                "one byte": data,
                "cut off": data[: len(data) // 2],
                "empty": b"",
                "something else": b"hello" * 99,
            }[harm]
        )
        assert [conversions(model), conversions(model)] == [1, 0] and "made again" in caplog.text

    def test_half_written_ones_are_neither_used_nor_left(self, model, monkeypatch):
        def die(state, target, meta):
            target.write_bytes(b"half")
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("webui.engine.cosyvoice.checkpoint.save_file", die)
            assert conversions(model) == 1 and not list(model.glob("kaikou-llm-int8*"))
        assert [conversions(model), conversions(model)] == [1, 0]

    def test_a_directory_that_cannot_be_written_to(self, model, monkeypatch, caplog):
        monkeypatch.setattr(
            converted,
            "write_checked",
            lambda *args: (_ for _ in ()).throw(PermissionError(13, "Permission denied")),
        )
        assert [conversions(model), conversions(model)] == [1, 1]
        assert "in memory" in caplog.text

    def test_the_published_file_may_go_when_a_converted_one_stays(self, model):
        for name in ("llm", "flow", "hift"):
            convert(model, name, "fp32")
            (model / f"{name}.pt").unlink()
        check_files(SPEC, model, "bf16")
        assert component_state(model, "flow", "bf16").popitem()[1].dtype == torch.bfloat16
        assert [conversions(model), conversions(model)] == [1, 0]

    @pytest.mark.parametrize("key,change,word", [
        ("llm.model.model.layers.1.mlp.down_proj.weight", None, "none of that name"),
        ("llm.model.model.layers.0.self_attn.k_proj.bias", lambda t: t[:-1], "[32]"),
        ("llm_decoder.weight", lambda t: t * torch.nan, "not finite"),
    ])  # fmt: skip
    def test_what_does_not_fit_is_named(self, key, change, word):
        state = random_state()
        state = {k: v if k != key else change(v) for k, v in state.items() if k != key or change}
        with pytest.raises(NotReady) as caught:
            weights.qwen2(DIMS, state)
        assert key in caught.value.en and word in caught.value.en and key in caught.value.zh

    def test_later_starts_need_no_onnx_package(self, model):
        conversions(model)
        code = (
            "import sys; sys.modules['onnx'] = None; from pathlib import Path; from"
            " webui.engine.cosyvoice.int8 import converted, runtime;from"
            " webui.engine.cosyvoice.config import read_spec; root = Path(sys.argv[1]); dims ="
            " read_spec(root).lm;lm = runtime.Int8Lm(dims, converted.load(root, dims));"
            " print(lm.step(lm.prefill_embeddings([1]), lm.new_cache()).shape)"
        )
        message = subprocess.run(
            [sys.executable, "-c", code, model], capture_output=True, text=True, timeout=120
        )
        assert "torch.Size" in message.stdout, message.stderr


class TestPlace:
    ALL = types.MappingProxyType({"avx512_vnni": True, "avx512_bf16": True})

    @pytest.mark.parametrize("can,precision,expected", [
        (ALL, "auto", ("int8", "bf16")), ({"avx512_vnni": True}, "auto", ("int8", "fp32")),
        ({"avx2": True}, "auto", ("torch", "fp32")),
        (ALL, "fp32", ("torch", "fp32")), (ALL, "bf16", ("torch", "bf16")),
        ({}, "int8", ("int8", "fp32")), (ALL, "int8", ("int8", "bf16")),
    ])  # fmt: skip
    def test_what_computes_in_what(self, can, precision, expected):
        place = processor(precision, 0, can, 2)
        assert (place.lm, place.precision) == expected and place.why in place.describe()

    def test_heads_that_the_int8_attention_cannot_take_are_left_to_torch(self, model, caplog):
        dims = read_spec(model).lm
        assert converted.fits(dims) and not converted.fits(replace(dims, heads=8))
        state = random_state(NARROW)
        (model / "llm.pt").unlink()
        torch.save(state, model / "llm.pt")
        lm = language_model(
            model, NARROW, DeviceConfig("cpu", "fp32", "test", INT8), lambda share, en, zh: None
        )
        assert isinstance(lm, Qwen2LM) and "head" in caplog.text

    def test_one_thread_per_stage_on_two_cores_and_a_number_that_is_asked_for(self):
        assert [processor("auto", 0, self.ALL, n).threads for n in (1, 2, 4, 64)] == [1, 1, 3, 8]
        assert (
            processor("fp32", 0, self.ALL, 2).threads == 1
            and processor("auto", 3, self.ALL, 2).threads == 3
        )
        settings = load([], {"KAIKOU_ENGINE_THREADS": "3", "KAIKOU_PRECISION": "int8"})
        message = cosyvoice_arguments(settings, first_model(settings).path)
        assert (message["threads"], message["precision"]) == (3, "int8")

    @pytest.mark.parametrize(("cores", "expected"), [(1, [1, 1]), (2, [1, 2]), (8, [1, 2])])
    def test_an_opening_has_two_cores_where_they_are(self, model, monkeypatch, cores, expected):
        monkeypatch.setattr("webui.engine.cosyvoice.v2.cores", lambda: cores)
        assert (
            threads_of(
                language_model(
                    model,
                    read_spec(model).lm,
                    DeviceConfig("cpu", "fp32", "test", INT8),
                    lambda share, en, zh: None,
                )
            )
            == expected
        )

    def test_the_model_loads_with_it_and_the_plan_counts_it(self, model):
        messages = []
        place = DeviceConfig("cpu", "fp32", "test", INT8)
        loaded = CosyVoice2.load(
            model, place, lambda share, en, zh: messages.append((share, en, zh))
        )
        assert isinstance(loaded.lm, Int8Lm) and any(
            "int8" in en and "int8" in zh for _, en, zh in messages
        )
        assert [share for share, *_ in messages] == sorted(share for share, *_ in messages)
        torch_place = DeviceConfig("cpu", "fp32", "test")
        flow_and_vocoder = sum((model / f"{name}.pt").stat().st_size for name in ("flow", "hift"))
        assert plan(SPEC, loaded.spec, model, place).weights == flow_and_vocoder + converted.memory(
            loaded.spec.lm
        )
        assert (
            plan(SPEC, loaded.spec, model, torch_place).weights
            == flow_and_vocoder + (model / "llm.pt").stat().st_size
        )
        for name in ("llm", "flow", "hift"):
            convert(model, name, "fp32")
        assert len(mapped_files(model, "fp32", INT8)) == 2 and len(mapped_files(model, "fp32")) == 3


def test_prewarm_leaves_the_int8_form_to_the_start(model):
    from scripts.prewarm import convert

    convert(model, "fp32", INT8)
    assert {p.name for p in model.glob("kaikou*")} == {
        "kaikou-flow-fp32.safetensors",
        "kaikou-hift-fp32.safetensors",
    }
    assert language_model(
        model,
        read_spec(model).lm,
        DeviceConfig("cpu", "fp32", "test", INT8),
        lambda share, en, zh: None,
    )
    assert converted.is_there(model, read_spec(model).lm)


def test_large_pages_are_a_wish(tmp_path, monkeypatch):
    with large_pages.large_pages():
        large = np.ones(16 << 20, np.uint8)
    assert large.sum() == 16 << 20
    monkeypatch.setattr(large_pages, "MAPS", tmp_path / "nothing")
    with large_pages.large_pages():
        pass
