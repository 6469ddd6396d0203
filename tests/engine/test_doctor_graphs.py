"""Recorded networks are used only where they speak as the plain ones do; whatever goes wrong with
them, the engine starts, and says why.
"""

from __future__ import annotations

import copy
import logging
from dataclasses import fields, replace
from types import SimpleNamespace

import pytest
import torch

from tests.engine import doctor_small
from tests.engine.test_cosyvoice_graphs_engine import PLACE, SIZES
from webui import app, settings
from webui.engine.cosyvoice.cuda.assemble import CapturedCosyVoice2, captured
from webui.engine.cosyvoice.cuda.capture import EagerCapture
from webui.engine.cosyvoice.device import DeviceConfig
from webui.engine.cosyvoice.doctor import graphs
from webui.engine.cosyvoice.doctor.graphs import load_compared
from webui.engine.cosyvoice.doctor.result import FAILED, PASSED, SKIPPED
from webui.engine.cosyvoice.engine import CosyVoiceEngine
from webui.engine.cosyvoice.v2 import CosyVoice2
from webui.errors import NotReady


@pytest.fixture(scope="module")
def plain(small_model):
    torch.set_num_threads(1)
    return doctor_small.load(small_model)


@pytest.fixture
def loads(plain, monkeypatch):
    """load(place) -> the small model; `.places`: what was asked for."""

    def load(place):
        load.places.append(place)
        return replace(plain, device_config=place)

    load.places = []
    monkeypatch.setattr(graphs, "SEEDS", range(2))
    return load


def recorded(monkeypatch, work):
    monkeypatch.setattr(graphs, "to_backend", lambda model, on_progress: work(model))


def record(model):
    return captured(model, sizes=SIZES, capture=EagerCapture)


def test_networks_that_sound_the_same_are_used_recorded(loads, monkeypatch):
    recorded(monkeypatch, record)
    model, note = load_compared(loads, PLACE)
    assert isinstance(model, CapturedCosyVoice2) and model.device_config.graphs and note is None
    assert len(loads.places) == 1


def test_a_recording_that_fails_leaves_a_plain_model_and_its_reason(loads, monkeypatch, caplog):
    def broken(model):
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing")

    recorded(monkeypatch, broken)
    with caplog.at_level(logging.WARNING):
        model, note = load_compared(loads, PLACE)
    assert type(model) is CosyVoice2 and not model.device_config.graphs
    assert "not permitted when stream is capturing" in note[0] and "CUDA 图" in note[1]
    assert note[0] in caplog.text
    assert len(loads.places) == 2, "a fresh model: the recording may have spoiled the first"


def other_ids(model):
    lm = copy.deepcopy(model.lm)
    lm.llm_decoder.weight.data = lm.llm_decoder.weight.data.roll(1, 0)
    return replace(model, lm=lm)


def silent_vocoder(model):
    vocoder = copy.deepcopy(model.vocoder)
    vocoder.conv_post.bias.data[:9] -= 4
    return replace(model, vocoder=vocoder)


class NothingFinite(CosyVoice2):
    def flow_batch(self, batch):
        return [mel * float("nan") for mel in super().flow_batch(batch)]


def nothing_finite(model):
    return NothingFinite(**{f.name: getattr(model, f.name) for f in fields(model)})


@pytest.mark.parametrize(
    ("work", "why"),
    [
        (other_ids, "of the speech ids are the same"),
        (silent_vocoder, "its sound differs"),
        (nothing_finite, "its sound differs"),
    ],
)
def test_networks_that_sound_otherwise_recorded_are_used_plain(loads, monkeypatch, work, why):
    recorded(monkeypatch, work)
    model, note = load_compared(loads, PLACE)
    assert why in note[0]
    assert type(model) is CosyVoice2 and not model.device_config.graphs


def test_without_graphs_nothing_is_recorded(loads, monkeypatch):
    recorded(monkeypatch, lambda model: pytest.fail("it was recorded"))
    _, note = load_compared(loads, replace(PLACE, graphs=False))
    assert (note, len(loads.places)) == (None, 1)


def test_a_gpu_that_does_not_recover_names_the_setting(loads, monkeypatch):
    def broken(model):
        monkeypatch.setattr(graphs, "speak_sample", None)
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def load(place):
        if loads.places:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return loads(place)

    recorded(monkeypatch, broken)
    with pytest.raises(NotReady) as fault:
        load_compared(load, PLACE)
    assert "KAIKOU_GRAPHS=off" in fault.value.en and "KAIKOU_GRAPHS=off" in fault.value.zh


def test_the_engine_compares_on_a_gpu_only_and_keeps_the_reason(monkeypatch, tmp_path):
    engine, places = CosyVoiceEngine(tmp_path), []
    plain = SimpleNamespace(device_config=PLACE)
    family = SimpleNamespace(
        load=lambda root, place, on_progress, steps: places.append(place) or plain
    )
    assert engine._load(family, PLACE) is plain
    assert engine._note is None

    def compared(load, place):
        return load(replace(place, graphs=False)), ("It is off.", "已停用。")

    monkeypatch.setattr("webui.engine.cosyvoice.engine.load_compared", compared)
    assert engine._load(family, DeviceConfig("cuda", "bf16", "test")) is plain
    assert engine._note == ("It is off.", "已停用。")
    assert [place.graphs for place in places] == [True, False]


def test_the_doctor_tells_of_it(monkeypatch):
    assert graphs.recorded(lambda place: None, PLACE).status == SKIPPED
    for note, status in ((None, PASSED), (("It is off.", "已停用。"), FAILED)):
        monkeypatch.setattr(graphs, "load_compared", lambda load, place, n=note: (None, n))
        assert (
            graphs.recorded(lambda place: None, DeviceConfig("cuda", "bf16", "")).status == status
        )


def test_plain_networks_on_a_gpu_are_another_version():
    """Their samples differ in the last bits; on a CPU nothing is recorded."""
    marks = {
        DeviceConfig(device, "bf16", "", graphs=on).fingerprint
        for device in ("cuda", "cpu")
        for on in (0, 1)
    }
    assert marks == {"bf16.cuda", "bf16.cuda-eager", "bf16.cpu"}


def test_the_setting_reaches_the_engine_and_is_checked_by_it(small_model):
    read = settings.load([], {"KAIKOU_GRAPHS": "off"})
    assert app.cosyvoice_arguments(read, small_model)["graphs"] == "off"
    with pytest.raises(NotReady) as fault:
        CosyVoiceEngine(small_model, graphs="perhaps").start()
    assert "engine.graphs" in fault.value.en and "off" in fault.value.en
