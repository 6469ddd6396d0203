"""The CosyVoice scripts on small random weights, each started once as a user does; and the bench on
a machine that has torch and numpy alone.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from tests.conftest import ROOT

ROW = {"variant", "users", "steps", "hop", "precision", "first_chunk_ms_p50", "first_chunk_ms_p95",
    "rtf", "audio_s_per_s", "underruns",
       "estimator_frames_per_frame", "peak_rss_mb", "peak_gpu_mb"}  # fmt: skip


def run(script: str, *args: object, code: int = 0) -> str:
    process = subprocess.run(
        [sys.executable, f"scripts/{script}.py", *map(str, args)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert process.returncode == code, process.stdout + process.stderr
    return process.stdout + process.stderr


@pytest.fixture(scope="module")
def root(small_model, tmp_path_factory):
    """A copy that may be written to."""
    return shutil.copytree(small_model, tmp_path_factory.mktemp("scripts") / "model")


def test_convert_then_prewarm_says_what_is_there_and_how_fast(root, tmp_path):
    assert "kaikou-llm-fp32.safetensors" in run("convert_weights", root, "--only", "llm")
    out = run(
        "prewarm",
        root,
        "--convert",
        "--device",
        "cpu",
        "--precision",
        "fp32",
        "--json",
        tmp_path / "told.json",
    )
    assert (
        "kaikou-llm-fp32.safetensors is there" in out
        and "flow.pt → kaikou-flow-fp32.safetensors" in out
    )
    assert "memory: weights" in out and "first chunk" in out and "100 %" not in out
    report = json.loads((tmp_path / "told.json").read_text())
    assert report["first_chunk_ms"] > 0 and report["rtf"] > 0


def test_prewarm_of_nothing_names_the_reason(tmp_path):
    out = run("prewarm", tmp_path, code=1)
    assert "fetch_models" in out


def test_what_cannot_be_converted_or_written_is_said_in_both_languages(small_model, tmp_path):
    """A folder stands where the new file is to be begun: as good as a disk that is full or
    write-protected.
    """
    root = shutil.copytree(small_model, tmp_path / "model")
    (root / "kaikou-hift-fp32.safetensors.part").mkdir()
    for out in (
        run("convert_weights", root, "--only", "hift", code=1),
        run("convert_weights", tmp_path, code=1),
    ):
        en, zh = out.strip().splitlines()
        assert en.isascii() and any("\u4e00" <= c <= "\u9fff" for c in zh)
    assert "kaikou-hift-fp32.safetensors cannot be written" in run(
        "convert_weights", root, "--only", "hift", code=1
    )
    assert not (root / "kaikou-hift-fp32.safetensors").exists()


def test_bench_speaks_through_the_stages_beside_the_published_schedule(tmp_path):
    run(
        "bench_engine",
        "--small",
        "--recompute",
        "--precision",
        "fp32,bf16",
        "--seconds",
        6,
        "--times",
        1,
        "--threads",
        1,
        "--json",
        tmp_path / "told.json",
    )
    report = json.loads((tmp_path / "told.json").read_text())
    assert [(r["precision"], r["variant"]) for r in report["rows"]] == [
        ("fp32", "recompute"),
        ("fp32", "stages"),
        ("bf16", "recompute"),
        ("bf16", "stages"),
    ]
    for published_row, own_row in (report["rows"][:2], report["rows"][2:]):
        assert own_row.keys() >= ROW and published_row.keys() >= ROW and not own_row["failures"]
        assert own_row["estimator_frames_per_frame"] == 1.0
        assert published_row["estimator_frames_per_frame"] == 2 * (
            (125 + 25) + (125 + 75) + (125 + 150)
        ) / (2 * 150), "the published schedule: hops of 25 and 50, then the rest"
        assert own_row["audio_s_per_s"] > 0 and own_row["peak_rss_mb"] > 0
    assert [(r["precision"], r["baseline"]) for r in report["ratios"]] == [
        ("fp32", "fp32"),
        ("bf16", "fp32"),
    ]


def test_bench_of_many_users_steps_hops_and_arrivals_by_chance(tmp_path):
    run(
        "bench_engine",
        "--small",
        "--precision",
        "int8",
        "--steps",
        "10,5",
        "--hop",
        "25,10",
        "--users",
        "1,2",
        "--poisson",
        "20",
        "--requests",
        3,
        "--seconds",
        2,
        "--times",
        1,
        "--threads",
        1,
        "--json",
        tmp_path / "told.json",
    )
    rows = json.loads((tmp_path / "told.json").read_text())["rows"]
    assert [(r["steps"], r["hop"], r["variant"], r["users"]) for r in rows] == [
        (steps, hop, variant, users)
        for steps in (10, 5)
        for hop in (25, 10)
        for variant, users in (("stages", 1), ("stages", 2), ("poisson", 20))
    ]
    assert all(
        r.keys() >= ROW and r["estimator_frames_per_frame"] == 1.0 and not r["failures"]
        for r in rows
    )
    assert [r["requests"] for r in rows] == [1, 2, 3] * 4


def test_bench_of_a_directory_tells_its_load_times(root, tmp_path):
    run(
        "bench_engine",
        "--model-dir",
        root,
        "--convert",
        "--seconds",
        2,
        "--times",
        1,
        "--threads",
        1,
        "--json",
        tmp_path / "told.json",
    )
    load = json.loads((tmp_path / "told.json").read_text())["load"][0]
    assert load["published_s"] > 0 and load["converted_s"] > 0 and load["rss_mb"] > 0
    assert "cannot be used" in run("bench_engine", "--model-dir", tmp_path, code=1)


def test_bench_of_published_models_by_name(tmp_path):
    out = run(
        "bench_engine",
        "--family",
        "CosyVoice-300M-SFT,Fun-CosyVoice3-0.5B-2512",
        "--small",
        "--seconds",
        3,
        "--times",
        1,
        "--threads",
        1,
        "--json",
        tmp_path / "told.json",
    )
    rows = json.loads((tmp_path / "told.json").read_text())["rows"]
    assert [(r["family"], r["hop"], r["failures"]) for r in rows] == [
        ("CosyVoice-300M-SFT", 100, 0),
        ("Fun-CosyVoice3-0.5B-2512", 25, 0),
    ]
    assert (
        all(r.keys() >= ROW and r["load_s"] > 0 and r["loaded_rss_mb"] > 0 for r in rows)
        and "Fun-CosyVoice3-0.5B-2512" in out
    )
    assert "no model" in run("bench_engine", "--family", "CosyVoice9", code=2)


def test_bench_needs_torch_and_numpy_only():
    """The other packages are hidden from the process: what the bench imports on the way must get
    along without.
    """
    code = (
        "import importlib.abc, importlib.machinery, runpy, sys\nhidden = {'onnxruntime',"
        " 'tokenizers', 'safetensors', 'yaml', 'onnx', 'pypinyin', 'scipy', 'soxr', 'soundfile',"
        " 'fastapi', 'gradio', 'httpx'}\nclass Hide(importlib.abc.MetaPathFinder):\n    def"
        " find_spec(self, name, path=None, target=None):\n        return None if"
        " name.partition('.')[0] in hidden else importlib.machinery.PathFinder.find_spec(name,"
        " path, target)\nsys.meta_path[:] = [f for f in sys.meta_path if f is not"
        " importlib.machinery.PathFinder] + [Hide()]\nsys.argv = ['bench_engine.py', '--small',"
        " '--seconds', '2', '--times', '1', '--threads',"
        " '1']\nrunpy.run_path('scripts/bench_engine.py', run_name='__main__')\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert process.returncode == 0, process.stderr[-2000:]
    assert "not here and not needed: onnxruntime, safetensors, tokenizers, yaml" in process.stdout
