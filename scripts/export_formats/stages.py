"""What goes from stage to stage for one fixed request, so that a port to another runtime can be
compared stage by stage: each stage can be fed what the one before it gave here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import soundfile
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from webui.engine.cosyvoice.device import choose
from webui.engine.cosyvoice.frontend.prompt_cache import CachedPrompt
from webui.engine.cosyvoice.model import Model
from webui.engine.cosyvoice.registry import model_spec_of
from webui.types import SpeechRequest, part_seed

from .compare import Comparison, ExportFault

MANIFEST, FORM = "manifest.json", "kaikou-stages-1"
STAGES = ("prompt", "text", "speech", "mel", "sound")
CLIP = Path(__file__).resolve().parents[2] / "assets" / "voices" / "starter-en-low.wav"
TEXT, SEED = "你好，hello voice. 这是一个声音。", 7
TOLERANCE = 1e-4

Stages = dict[str, dict[str, Tensor]]


def compute(root: Path) -> tuple[Stages, dict]:
    """(tensors of each stage, what made them): fp32 on the CPU, one segment, its ids through the
    flow in one call. Raises NotReady.
    """
    model_spec = model_spec_of(root)
    model: Model = model_spec.load(
        root, choose("cpu", "fp32"), lambda share, en, zh: None, model_spec.steps[0]
    )
    if model.prompt_encoder.can_hear:
        samples, rate = soundfile.read(CLIP, dtype="float32")
        features = model.prompt_encoder.voice(samples, rate)
    else:
        features = model.warm_prompt()
    request = SpeechRequest("stages", TEXT, "stages", "cross_lingual", segments=(TEXT,), seed=SEED)
    voice = CachedPrompt(model, features)
    while not voice.is_ready:
        voice.grow()
    builder = model.prompt_builder(voice, request)
    text = builder.text(TEXT)
    opening = model.lm.prefill_embeddings(text, builder.prompt_speech)
    scores = model.lm.step(opening, builder.prefix().fork(opening.shape[1]))[0]
    (source,) = builder.build_lm_tokens()
    while not source.is_over:
        source.prefill_or_step()
    seed = part_seed(SEED, 0)
    mel = voice.flow.begin(seed=seed).step(source.ids, True)
    stages = {
        "prompt": {
            "speech_ids": _ids(features.speech_ids),
            "mel": features.mel,
            "vector": features.vector,
        },
        "text": {"text_ids": _ids(text), "prompt_text_ids": _ids(builder.prompt_text)},
        "speech": {"first_scores": scores, "speech_ids": _ids(source.ids)},
        "mel": {"mel": mel},
        "sound": {"samples": model.new_wave_stream(seed).push(mel, True)},
    }
    return stages, {
        "engine": model_spec.engine,
        "weights": model.mark,
        "text": TEXT,
        "mode": request.mode,
        "seed": SEED,
        "clip": CLIP.name if model.prompt_encoder.can_hear else "",
        "sample_rate": model.spec.sample_rate,
        "kept_keys_and_values": str(model.device_config.store).removeprefix("torch."),
    }


def write(root: Path, out: Path) -> Path:
    """A file for each stage, and a manifest of their tensors. Raises NotReady."""
    stages, about = compute(root)
    out.mkdir(parents=True, exist_ok=True)
    table = {}
    for stage, tensors in stages.items():
        ready = {name: value.detach().contiguous() for name, value in tensors.items()}
        save_file(ready, out / f"{stage}.safetensors")
        table[stage] = {name: _described(value) for name, value in ready.items()}
    manifest = {"form": FORM, **about, "stages": table}
    (out / MANIFEST).write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", "utf-8")
    return out


def read(out: Path) -> Stages:
    """The stages of a directory that fit their manifest. Raises ExportFault."""
    try:
        manifest = json.loads((out / MANIFEST).read_text("utf-8"))
        table: Mapping[str, Mapping[str, dict]] = manifest["stages"]
        if manifest["form"] != FORM or not table.keys() <= set(STAGES):
            raise ExportFault(f"{out / MANIFEST} is not of the form {FORM}.")
        stages = {stage: load_file(out / f"{stage}.safetensors") for stage in table}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise ExportFault(f"{out} cannot be read: {error!r}") from error
    for stage, tensors in table.items():
        described = {name: _described(value) for name, value in stages[stage].items()}
        wrong = sorted(
            {name for name in described | tensors if described.get(name) != tensors.get(name)}
        )
        if wrong:
            raise ExportFault(
                f"{stage}.safetensors of {out} does not fit its manifest: {', '.join(wrong)}."
            )
    return stages


def compare(actual: Path, expected: Path, tolerance: float = TOLERANCE) -> float:
    """The largest difference, stage by stage. Raises ExportFault."""
    return compared(read(actual), read(expected), tolerance)


def check(root: Path, out: Path) -> float:
    """As `compare`, with what the model of `root` computes now. Raises NotReady, ExportFault."""
    return compared(read(out), compute(root)[0])


def compared(actual: Stages, expected: Stages, tolerance: float = TOLERANCE) -> float:
    """A stage that only one of them has is said, and is no fault: a port may have some of them."""
    comparison = Comparison(tolerance)
    for stage in STAGES:
        if stage not in actual or stage not in expected:
            print(f"{stage:<36} not in both")
            continue
        for name in sorted(actual[stage].keys() | expected[stage].keys()):
            pair = actual[stage].get(name), expected[stage].get(name)
            if pair[0] is None or pair[1] is None:
                raise ExportFault(f"{stage} has no {name} in one of both directories.")
            comparison.add(f"{stage}: {name}", *pair)
    return comparison.end("What was computed")


def _ids(ids) -> Tensor:
    return torch.tensor(list(ids), dtype=torch.int64)


def _described(value: Tensor) -> dict:
    digest = hashlib.sha256(value.contiguous().view(torch.uint8).numpy().tobytes())
    return {
        "shape": list(value.shape),
        "dtype": str(value.dtype).removeprefix("torch."),
        "sha256": digest.hexdigest(),
    }
