"""A small model that the doctor finds in order, made without training: its language model has
learnt one clip by heart, in closed form, and its vocoder makes one sound of every mel, which is the
clip. And ways to break such a directory.
"""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import torch

from webui.engine.cosyvoice.device import DeviceConfig
from webui.engine.cosyvoice.doctor.language import MOST_IDS
from webui.engine.cosyvoice.doctor.speech import Clip, request
from webui.engine.cosyvoice.frontend.prompt_cache import CachedPrompt
from webui.engine.cosyvoice.registry import model_spec_of

HZ, SECONDS = 24_000, 2.0
WORDS = "你好，我是一个声音。"
PLACE = DeviceConfig("cpu", "fp32", "test")
LOGIT = 20.0
QUIET = 1e-4  # of what shall hardly count: a weight of exactly zero would be a damaged one


def learnt(small: Path, folder: Path) -> tuple[Path, Clip]:
    """A copy of a small CosyVoice2 directory that has learnt the returned clip."""
    shutil.copytree(small, folder)
    edit(folder / "hift.pt", one_sound)
    model = load(folder)
    wave = model.new_wave_stream(1).push(torch.full((int(50 * SECONDS), 80), -4.0), True).numpy()
    clip = Clip("learnt", wave, HZ, WORDS, "zh")
    weight = by_heart(model, clip)

    def put(state: dict) -> None:
        state["llm_decoder.weight"] = weight
        state["llm_decoder.bias"] = torch.zeros(len(weight))

    edit(folder / "llm.pt", put)
    return folder, clip


def load(folder: Path):
    return model_spec_of(folder).load(folder, PLACE, lambda share, en, zh: None, 10)


def one_sound(state: dict) -> None:
    """The mel hardly counts; the spectrum's size is the same throughout, and its phase alone makes
    a tone of 150 Hz and overtones.
    """
    state["f0_predictor.classifier.weight"] *= QUIET
    state["conv_pre.parametrizations.weight.original0"] *= QUIET
    gain, bias = state["conv_post.parametrizations.weight.original0"], state["conv_post.bias"]
    gain[:9] *= QUIET
    bias[:9] = -8.0
    bias[0] = 1.0


def by_heart(model, clip: Clip) -> torch.Tensor:
    """The head (rows, hidden) that scores each of the clip's ids behind those before it and the
    clip's words: the smallest that does.
    """
    prompt, lm = model.prompt_encoder.voice(clip.samples, clip.rate), model.lm
    script = model.prompt_builder(
        CachedPrompt(model, prompt), request(clip.transcript, clip.language)
    )
    ids, text = prompt.speech_ids[:MOST_IDS], script.text(clip.transcript)
    past = script.prefix().fork(len(text) + len(ids) + 1)
    hidden = lm.forward(torch.cat((lm.prefill_embeddings(text), lm.speech(ids[:-1])), 1), past)[
        0, len(text) :
    ]
    assert len(ids) <= hidden.shape[1], "more places than the head has room for"
    logits = torch.zeros(len(ids), lm.dims.rows)
    logits[range(len(ids)), list(ids)] = LOGIT
    return (torch.linalg.pinv(hidden.double()) @ logits.double()).T.float().contiguous()


def edit(path: Path, change) -> None:
    state = torch.load(path, weights_only=True)
    change(state)
    torch.save(state, path)


# ---- five ways to break it -----------------------------------------------------------------------
def tokenizer(folder: Path) -> None:
    """The tokens of the merges have each other's ids."""
    path = folder / "CosyVoice-BlankEN" / "vocab.json"
    vocab = json.loads(path.read_text("utf-8"))
    names = [name for name, i in vocab.items() if i >= 256]
    ids = [vocab[name] for name in names]
    random.Random(1).shuffle(ids)
    path.write_text(
        json.dumps({**vocab, **dict(zip(names, ids, strict=True))}, ensure_ascii=False), "utf-8"
    )


def embedding_order(folder: Path) -> None:
    """Speech ids stand for each other's embeddings."""

    def change(state: dict) -> None:
        state["speech_embedding.weight"] = state["speech_embedding.weight"].roll(1, 0)

    edit(folder / "llm.pt", change)


def prompt_layout(folder: Path) -> None:
    """What begins a prompt and what ends its text have changed places."""

    def change(state: dict) -> None:
        state["llm_embedding.weight"] = state["llm_embedding.weight"].flip(0)

    edit(folder / "llm.pt", change)


def vocoder_phase(folder: Path) -> None:
    """Every phase is zero."""

    def change(state: dict) -> None:
        state["conv_post.parametrizations.weight.original0"][9:] *= QUIET
        state["conv_post.bias"][9:] = 0

    edit(folder / "hift.pt", change)


def empty_layer(folder: Path) -> None:
    """A matrix of the flow was never filled."""

    def change(state: dict) -> None:
        key = next(k for k in sorted(state) if k.endswith("weight") and state[k].dim() == 2)
        state[key] = torch.zeros_like(state[key])

    edit(folder / "flow.pt", change)
