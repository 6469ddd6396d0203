"""The runner: passes on good data of any size and seed, fails on damaged data, and names what
failed.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from scripts.check_golden import main
from scripts.published.v1 import Token2Wav as FirstToken2Wav
from scripts.published.v2 import Token2Wav, schedule
from tests.conftest import ROOT
from tests.engine.cosyvoice1_small import FLOW_DIMS as HOP_DIMS
from tests.engine.cosyvoice3_small import GOLDEN as GOLDEN3
from tests.engine.cosyvoice_small import (
    FLOW_DIMS,
    GOLDEN,
    flow_state,
    ids_of,
    random_state,
    voice_of,
)
from webui.engine.cosyvoice.dims_v1 import frames_of
from webui.engine.cosyvoice.flow import Blocks, FlowModel
from webui.engine.cosyvoice.flow.hop_flow import HopFlow
from webui.engine.cosyvoice.vocoder import Vocoder, VocoderDims

torch.set_num_threads(1)
ARGUMENTS = ["--threads", "1"]


def copied(part, target, golden=GOLDEN):
    (target / part).mkdir(parents=True)
    for path in (golden / part).iterdir():
        (target / part / path.name).write_bytes(path.read_bytes())
    return target / part


def test_the_repository_subset_passes():
    process = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "check_golden.py"), str(GOLDEN), *ARGUMENTS],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    lines = process.stdout.splitlines()
    assert lines[-1].endswith("0 not ok")
    for part in ("flow/stream_final", "hift/zero", "token2wav/b.stream"):
        assert any(line.startswith(part) and line.endswith("ok") for line in lines), part


def bend_weight(folder):
    state = load_file(folder / "hift.safetensors")
    state["resblocks.4.convs1.1.bias"] += 0.5
    save_file(state, folder / "hift.safetensors")


def bend_output(folder):
    io = load_file(folder / "hift_io.safetensors")
    io["zero.wav"][0, 700] += 0.01
    save_file(io, folder / "hift_io.safetensors")


def not_a_number(folder):
    io = load_file(folder / "hift_io.safetensors")
    io["f0"][0, 3] = float("nan")
    save_file(io, folder / "hift_io.safetensors")


def cut_file(folder):
    whole = (folder / "hift.safetensors").read_bytes()
    (folder / "hift.safetensors").write_bytes(whole[: len(whole) // 2])


def missing_file(folder):
    (folder / "hift_io.safetensors").unlink()


def other_length(folder):
    io = load_file(folder / "hift_io.safetensors")
    io["zero.wav"] = io["zero.wav"][:, :-1].contiguous()
    save_file(io, folder / "hift_io.safetensors")


@pytest.mark.parametrize(
    "damage",
    [bend_weight, bend_output, not_a_number, cut_file, missing_file, other_length],
    ids=lambda f: f.__name__,
)
def test_damage_is_found_and_named(tmp_path, capsys, damage):
    damage(copied("hift", tmp_path))
    assert main([str(tmp_path), *ARGUMENTS]) == 1
    output = capsys.readouterr().out
    assert "EXCEEDED" in output or "cannot be checked" in output


def test_damage_in_one_part_leaves_the_others_checked(tmp_path, capsys):
    cut_file(copied("hift", tmp_path))
    copied("flow", tmp_path)
    assert main([str(tmp_path), *ARGUMENTS]) == 1
    output = capsys.readouterr().out
    assert "hift " in output and "flow/offline" in output and "1 not ok" in output


def test_an_empty_folder_is_not_a_success(tmp_path, capsys):
    assert main([str(tmp_path)]) == 1
    assert "No golden data" in capsys.readouterr().out


def test_other_sizes_and_seeds(tmp_path, capsys):
    dims = dataclasses.replace(
        FLOW_DIMS, encoder_heads=3, estimator_mid_blocks=1, estimator_n_blocks=2, chunk_size=20
    )
    voice_dims = VocoderDims(32, 24)
    flow, vocoder = write_models(tmp_path, dims, voice_dims)
    write_flow_cases(tmp_path / "flow", flow, dims)
    write_token2wav(tmp_path / "token2wav", flow, vocoder, dims)
    mel = torch.randn(1, 80, 24, generator=torch.Generator().manual_seed(3))
    with torch.inference_mode():
        f0 = vocoder.f0(mel)
        source = vocoder.m_source(f0, None)
        io = {
            "mel": mel,
            "f0": f0[None],
            "zero.source": source,
            "zero.wav": vocoder.decode(mel, source)[None],
        }
    save_file(
        {key: value.clone() for key, value in io.items()}, tmp_path / "hift" / "hift_io.safetensors"
    )
    assert main([str(tmp_path), *ARGUMENTS]) == 0, capsys.readouterr().out
    output = capsys.readouterr().out
    assert (
        "flow/stream_final" in output and "token2wav/x.stream" in output and "hift/zero" in output
    )


@pytest.mark.parametrize("hop", [30, 50, 64])
def test_chunks_of_the_first_generation_are_as_long_as_their_folder_says(tmp_path, capsys, hop):
    write_first_generation(tmp_path / "flow", hop)
    assert main([str(tmp_path), *ARGUMENTS]) == 0, capsys.readouterr().out
    output = capsys.readouterr().out
    assert "CosyVoice-300M" in output and "flow/chunk3_last" in output and "cache_out, mu" in output
    io = load_file(tmp_path / "flow" / "flow_io.safetensors")
    io["chunk2.mel"][0, 3, 5] += 0.1
    save_file(io, tmp_path / "flow" / "flow_io.safetensors")
    assert main([str(tmp_path), *ARGUMENTS]) == 1
    assert "flow/chunk2 mel" in capsys.readouterr().out


def write_first_generation(folder, hop):
    """Three chunks of `hop` ids, each but the last with the twenty ids of overlap."""
    folder.mkdir()
    state = random_state(HopFlow, HOP_DIMS, 41)
    save_file(state, folder / "flow.safetensors")
    (folder / "flow_config.json").write_text(json.dumps(dataclasses.asdict(HOP_DIMS)))
    flow, draw = HopFlow.of(HOP_DIMS, state), torch.Generator().manual_seed(42)
    ids, prompt_ids = (
        torch.randint(0, HOP_DIMS.speech_token_size, (n,), generator=draw, dtype=torch.int32)
        for n in (2 * hop + 31, 17)
    )
    prompt_mel = torch.randn(frames_of(17), 80, generator=draw)
    embedding = torch.randn(1, HOP_DIMS.spk_embed_dim, generator=draw)
    io = {
        "token": ids[None],
        "prompt_token": prompt_ids[None],
        "prompt_feat": prompt_mel[None],
        "embedding": embedding,
    }
    meta, cache, case = {}, None, ""

    def noise(number, frames):
        drawn_ids = torch.randn(1, 80, frames, generator=draw)
        io[f"{case}.noise"] = drawn_ids.clone()
        return drawn_ids.mT.contiguous()

    maker = FirstToken2Wav(flow, None, prompt_ids, prompt_mel, embedding, noise)
    for number, case in enumerate(("chunk1", "chunk2", "chunk3_last")):
        end = len(ids) if case == "chunk3_last" else (number + 1) * hop + 20
        mel, cache = maker.hop(ids[number * hop : end], number, cache)
        io[f"{case}.mel"] = mel.mT[None].clone()
        io[f"{case}.cache_out"] = torch.stack([cache.noise.mT, cache.mu.mT], -1)
        meta[case] = {
            "token_len": end - number * hop,
            "prompt_len": len(prompt_ids),
            "prompt_feat_len": len(prompt_mel),
        }
    save_file(
        {key: value.contiguous() for key, value in io.items()}, folder / "flow_io.safetensors"
    )
    (folder / "flow_meta.json").write_text(json.dumps(meta))


@pytest.mark.parametrize(
    "missing",
    ["special_tokens.json", "text_cases.json", "mode_inputs.json", "audio_features.safetensors"],
)
def test_a_front_end_of_the_third_generation_is_checked_for_what_there_is(
    tmp_path, capsys, missing
):
    for part in ("frontend", "hift"):  # the vocoder says which generation it is
        copied(part, tmp_path, GOLDEN3)
    (tmp_path / "frontend" / missing).unlink()
    assert main([str(tmp_path), "--only", "frontend", *ARGUMENTS]) == 0, capsys.readouterr().out
    output = capsys.readouterr().out
    names = ("special_tokens", "text_cases", "mode_inputs", "prompt_mel")
    missing_name = missing.split(".")[0].replace("audio_features", "prompt_mel")
    assert [name for name in names if name not in output] == [missing_name]
    assert "Fun-CosyVoice3" in output and "0 not ok" in output


def test_a_front_end_with_nothing_in_it_is_not_a_success(tmp_path, capsys):
    for part in ("frontend", "hift"):
        copied(part, tmp_path, GOLDEN3)
    for path in (tmp_path / "frontend").iterdir():
        path.unlink()
    assert main([str(tmp_path), "--only", "frontend", *ARGUMENTS]) == 1
    assert "no golden tensor found" in capsys.readouterr().out


def write_models(folder, dims, voice_dims):
    for part in ("flow", "hift", "token2wav"):
        (folder / part).mkdir()
    state = flow_state(dims, seed=31)
    save_file(state, folder / "flow" / "flow.safetensors")
    (folder / "flow" / "flow_config.json").write_text(json.dumps(dataclasses.asdict(dims)))
    voice_state = random_state(Vocoder, voice_dims, seed=32)
    voice_state["f0_predictor.classifier.bias"] += 120.0
    voice_state["conv_post.bias"] -= 3.0
    voice_state["conv_post.weight"] *= (
        # tame: what another place in memory rounds otherwise is thousands of times larger in the
        # wave of a random network
        0.3
    )
    save_file(voice_state, folder / "hift" / "hift.safetensors")
    (folder / "hift" / "hift_config.json").write_text(json.dumps(dataclasses.asdict(voice_dims)))
    return FlowModel.of(dims, state), Vocoder.of(voice_dims, voice_state)


def write_flow_cases(folder, flow, dims):
    ids, (prompt_ids, prompt_mel, embedding) = ids_of(45, dims=dims), voice_of(18, dims=dims)
    io = {
        "token": ids[None],
        "prompt_token": prompt_ids[None],
        "prompt_feat": prompt_mel[None],
        "embedding": embedding[None],
    }
    meta = {}
    for case, streaming, final, n in (
        ("offline", False, True, 45),
        ("stream_final", True, True, 45),
        ("stream_chunk1", True, False, 25),
    ):
        mel = flow.whole(
            ids[:n],
            prompt_ids,
            prompt_mel,
            embedding,
            Blocks(dims.chunk_size) if streaming else None,
            final,
        )
        io[f"{case}.mel"] = mel.mT[None].contiguous()
        meta[case] = {
            "streaming": streaming,
            "finalize": final,
            "token_len": n,
            "prompt_len": 18,
            "prompt_feat_len": 36,
        }
    save_file({key: value.clone() for key, value in io.items()}, folder / "flow_io.safetensors")
    (folder / "flow_meta.json").write_text(json.dumps(meta))


def write_token2wav(folder, flow, vocoder, dims):
    ids, (prompt_ids, prompt_mel, embedding) = ids_of(50, dims=dims), voice_of(25, dims=dims)
    calls = list(Token2Wav(flow, vocoder, prompt_ids, prompt_mel, embedding).stream(ids))
    io = {
        "embedding": embedding[None],
        "x.token": ids[None],
        "x.prompt_token": prompt_ids[None],
        "x.prompt_feat": prompt_mel[None],
    }
    io["x.stream.wav"] = torch.cat([wave for _, wave in calls])[None]
    io["x.stream.chunk_lengths"] = torch.tensor([len(wave) for _, wave in calls])
    call_list = [
        {"n_token": c.n_ids, "token_offset": c.offset, "finalize": c.final}
        for c in schedule(50, 25)
    ]
    save_file(
        {key: value.clone() for key, value in io.items()}, folder / "token2wav_io.safetensors"
    )
    (folder / "token2wav_meta.json").write_text(json.dumps({"x.stream": {"calls": call_list}}))
