"""Exports as programs that share no code with the engine read them; minutes, since each has an
environment of its own.
"""

from __future__ import annotations

import shutil
import subprocess

import pytest

from scripts.export_formats import qwen2, triton_server
from scripts.export_formats.compare import ExportFault
from tests.conftest import ROOT
from tests.engine.test_export import bias, configured, speech_embedding


@pytest.fixture(scope="module")
def environments(tmp_path_factory):
    return tmp_path_factory.mktemp("environments")


@pytest.fixture(scope="module")
def checked(environments, small_model, tmp_path_factory):
    """What lies in OUT when all checks have passed."""
    out = tmp_path_factory.mktemp("out")
    script = ROOT / "scripts" / "export_checks.sh"
    done = subprocess.run(
        ["bash", script, environments, small_model, out], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out, done.stdout


def test_transformers_gives_the_same_scores(checked):
    _, output = checked
    assert output.count("transformers: ") == 2 and "DIFFERS" not in output


FAULTS = {"bias": bias, "no speech embedding": speech_embedding,
          "key heads": configured(num_attention_heads=8, num_key_value_heads=4)}  # fmt: skip


@pytest.mark.parametrize("plant", FAULTS.values(), ids=FAULTS)
def test_transformers_finds_a_fault_that_the_engine_is_not_asked_about(
    checked, environments, small_model, tmp_path, plant
):
    """The reading through the engine is left out, so that it cannot be what finds it."""
    out, _ = checked
    copy = tmp_path / "copy"
    shutil.copytree(out / "qwen2", copy)
    plant(copy)
    code = (
        "import sys; from pathlib import Path; from scripts.export_formats import qwen2\n"
        "from scripts.export_formats.compare import ExportFault\n"
        "try:\n"
        "    qwen2.check(*map(Path, sys.argv[1:]), readers=('transformers',))\n"
        "except ExportFault as fault: sys.exit(f'found: {fault}')\n"
    )
    done = subprocess.run(
        [environments / "transformers" / "bin" / "python", "-c", code, small_model, copy],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and "found: " in done.stderr, done.stderr
    assert "transformers: " in done.stdout or qwen2.MODEL in done.stderr


def test_a_triton_server_speaks_as_the_engine_does(checked):
    _, output = checked
    assert "the first stream" in output and "stream 2 beside others" in output
    assert "a stream after one that was left" in output


def datatype(model):
    config, right = (model / "config.pbtxt").read_text(), '"REQUEST" data_type: TYPE_UINT8'
    assert right in config
    (model / "config.pbtxt").write_text(config.replace(right, '"REQUEST" data_type: TYPE_FP32'))


def sound(model):
    """Every chunk a little louder."""
    source = (model / "1" / "model.py").read_text()
    assert "np.array(chunk.samples, np.float32)" in source
    (model / "1" / "model.py").write_text(
        source.replace("np.array(chunk.samples, np.float32)", "np.float32(1.01) * chunk.samples")
    )


def source(model):
    source = (model / "1" / "model.py").read_text()
    (model / "1" / "model.py").write_text(source.replace("webui.cluster", "webui.absent"))


SERVER_FAULTS = {
    "datatype": (datatype, "the first stream ended with"),
    "sound": (sound, "the first stream differs from the engine in chunk 0"),
    "source": (source, "Triton does not serve .*No module named 'webui.absent'"),
}


@pytest.mark.parametrize(("plant", "sentence"), SERVER_FAULTS.values(), ids=SERVER_FAULTS)
def test_a_fault_of_a_repository_is_found_by_speaking_through_it(
    checked, environments, tmp_path, small_model, plant, sentence
):
    out = shutil.copytree(checked[0] / "triton", tmp_path / "triton")
    plant(out / "kaikou")
    flags = ["--engine", "cosyvoice2", "--model-dir", str(small_model)]
    with pytest.raises(ExportFault, match=sentence):
        triton_server.check(out, flags, environments)
