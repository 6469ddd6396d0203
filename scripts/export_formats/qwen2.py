"""The language model as a directory of a Qwen2 model, as vLLM, transformers and others read it: its
vocabulary is the speech ids, and what Qwen2 has no place for lies beside.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

from webui.engine.cosyvoice.checkpoint import component_state
from webui.engine.cosyvoice.frontend.tokenizer import TextTokenizer
from webui.engine.cosyvoice.llm.dims import LmDims
from webui.engine.cosyvoice.llm.qwen2 import SOS, TASK, Qwen2LM
from webui.errors import KaikouError

from .compare import Comparison, ExportFault
from .estimator import family_of

MODEL, BESIDE, CONFIG, TOKENIZER = (
    "model.safetensors",
    "embeddings.safetensors",
    "config.json",
    "tokenizer.json",
)
FILES = (CONFIG, MODEL, BESIDE, TOKENIZER)
BODY = "llm.model."  # before the published names of what Qwen2 has too
# our names -> those of a Qwen2 model: what it feeds itself are speech ids, so they are its words
WORDS = {
    "speech_embedding.weight": "model.embed_tokens.weight",
    "llm_decoder.weight": "lm_head.weight",
}
SIDE = {
    "llm.model.model.embed_tokens.weight": "text_embedding",
    "llm_embedding.weight": "special_embedding",
    "llm_decoder.bias": "head_bias",
}
TOLERANCE = 2e-6
TEXT = "你好，hello voice. 一[laughter]<|endofprompt|>了"
SPEECH_IDS, STEPS = 30, 12  # of the check: prompt speech, and ids fed one by one
README = Path(__file__).with_name("qwen2_readme.md")


class Scored(Protocol):
    """A language model as the check asks it: log-probabilities of the next speech id, (rows,)."""

    def start(self, text: Sequence[int], speech: Sequence[int]) -> Tensor: ...

    def step(self, speech_id: int) -> Tensor: ...


class OwnScores:
    """Through the engine's own network."""

    def __init__(self, lm: Qwen2LM):
        self._lm = lm

    def start(self, text: Sequence[int], speech: Sequence[int]) -> Tensor:
        self._cache = self._lm.prefix(())
        return self._lm.step(self._lm.prefill_embeddings(text, speech), self._cache)[0]

    def step(self, speech_id: int) -> Tensor:
        return self._lm.step(self._lm.speech([speech_id]), self._cache)[0]


class TransformersScores:
    """Through the package transformers, which shares no code with the engine."""

    def __init__(self, out: Path):
        from transformers import Qwen2ForCausalLM

        self._model, about = Qwen2ForCausalLM.from_pretrained(out, output_loading_info=True)
        odd = sorted({*about["missing_keys"], *about["unexpected_keys"]})
        if odd:
            raise ExportFault(f"{MODEL} lacks, or has beyond a Qwen2 model: {', '.join(odd)}.")
        self._beside, self._past = load_file(out / BESIDE), None

    def start(self, text: Sequence[int], speech: Sequence[int]) -> Tensor:
        special, words = self._beside["special_embedding"], self._beside["text_embedding"]
        speech_table = self._model.get_input_embeddings().weight
        parts = special[[SOS]], words[list(text)], special[[TASK]], speech_table[list(speech)]
        return self._scores(inputs_embeds=torch.cat(parts)[None])

    def step(self, speech_id: int) -> Tensor:
        return self._scores(input_ids=torch.tensor([[speech_id]]), past_key_values=self._past)

    @torch.no_grad()
    def _scores(self, **inputs) -> Tensor:
        out = self._model(**inputs, use_cache=True)
        self._past = out.past_key_values
        return (out.logits[0, -1] + self._beside["head_bias"]).log_softmax(-1)


def plain(root: Path) -> tuple[LmDims, dict[str, Tensor], TextTokenizer]:
    """Sizes, tensors and tokenizer of the language model. Raises NotReady, ExportFault."""
    model_spec, family = family_of(root)
    sizes = model_spec.read_spec(root, model_spec.steps[0])
    state = component_state(root, "llm", "fp32", model_spec.components)
    return sizes.lm, state, family.tokenizer_kind(root)


def write(root: Path, out: Path) -> Path:
    """The directory. Raises NotReady, ExportFault."""
    dims, state, tokenizer = plain(root)
    own = {WORDS.get(key, key.removeprefix(BODY)): key for key in state if key not in SIDE}
    out.mkdir(parents=True, exist_ok=True)
    save_file({name: state[key].contiguous() for name, key in own.items()}, out / MODEL,
              {"format": "pt"})  # fmt: skip
    save_file({name: state[key].contiguous() for key, name in SIDE.items()}, out / BESIDE)
    (out / CONFIG).write_text(json.dumps(config(dims), indent=2) + "\n", "utf-8")
    (out / TOKENIZER).write_text(tokenizer.to_json(), "utf-8")
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    (out / "tokenizer_config.json").write_text(json.dumps(names, indent=2) + "\n", "utf-8")
    values = {"codes": dims.speech_codes, "end": dims.end, "rows": dims.rows}
    readme = README.read_text("utf-8")
    for name, value in values.items():
        readme = readme.replace(f"{{{name}}}", str(value))
    (out / "README.md").write_text(readme, "utf-8")
    return out


def config(dims: LmDims) -> dict:
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_act": "silu",
        "hidden_size": dims.hidden,
        "intermediate_size": dims.intermediate,
        "num_hidden_layers": dims.layers,
        "num_attention_heads": dims.heads,
        "num_key_value_heads": dims.kv_heads,
        "max_position_embeddings": 32768,
        "rms_norm_eps": dims.rms_eps,
        "rope_theta": dims.rope_theta,
        "tie_word_embeddings": False,
        "use_sliding_window": False,
        "vocab_size": dims.rows,
        "eos_token_id": dims.end,
        "torch_dtype": "float32",
    }


def read(out: Path, like: LmDims) -> Qwen2LM:
    """The directory in the engine's own network. like: has what Qwen2's configuration does not say.

    Raises ExportFault.
    """
    missing = [name for name in FILES if not (out / name).is_file()]
    if missing:
        raise ExportFault(f"{out.name} has no {', '.join(missing)}.")
    try:
        words, side = load_file(out / MODEL), load_file(out / BESIDE)
        sizes = json.loads((out / CONFIG).read_text("utf-8"))
        lacking = sorted({*WORDS.values()} - words.keys() | {*SIDE.values()} - side.keys())
        if lacking:
            raise ExportFault(f"{out.name} has no {', '.join(lacking)}.")
        rows = {
            "text_vocab_size": len(side["text_embedding"]),
            "speech_token_size": sizes["vocab_size"] - like.marks,
        }
        dims = replace(
            LmDims.of({**sizes, **rows}), marks=like.marks, end_at=like.end_at, fill_at=like.fill_at
        )
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ExportFault(f"{out.name} cannot be read: {error!r}") from error
    names = {name: key for key, name in WORDS.items()}
    state = {names.get(name, BODY + name): value for name, value in words.items()}
    try:
        return Qwen2LM.of(dims, state | {key: side[name] for key, name in SIDE.items()})
    except KaikouError as error:
        raise ExportFault(f"{MODEL} does not fit {CONFIG}: {error.en}") from error


def check(root: Path, out: Path, readers: Sequence[str] = ("engine",)) -> float:
    """The largest difference of log-probabilities. readers: of "engine" and "transformers".

    Raises NotReady, ExportFault.
    """
    dims, state, tokenizer = plain(root)
    text = tokenizer.encode(TEXT)
    try:
        exported = Tokenizer.from_file(str(out / TOKENIZER))
    except Exception as error:  # the package raises nothing narrower
        raise ExportFault(f"{TOKENIZER} cannot be read: {error}") from error
    if exported.to_str() != tokenizer.to_json() or exported.encode(TEXT).ids != text:
        raise ExportFault(f"{TOKENIZER} is not the model's own tokenizer.")
    random = torch.Generator().manual_seed(1)
    speech, fed = (
        torch.randint(0, dims.speech_codes, (n,), generator=random).tolist()
        for n in (SPEECH_IDS, STEPS)
    )
    expected = _scores_of(OwnScores(Qwen2LM.of(dims, state)), text, speech, fed)
    comparison = Comparison(TOLERANCE)
    for name in readers:
        own = name == "engine"
        scored = OwnScores(read(out, dims)) if own else TransformersScores(out)
        actual = _scores_of(scored, text, speech, fed)
        comparison.add(f"{name}: opening of {len(text) + SPEECH_IDS + 2}", actual[0], expected[0])
        comparison.add(f"{name}: {STEPS} steps behind it", actual[1:], expected[1:])
    return comparison.end(out.name)


def _scores_of(scored: Scored, text: list[int], speech: list[int], fed: list[int]) -> Tensor:
    """(1 + steps, rows)"""
    return torch.stack([scored.start(text, speech), *(scored.step(speech_id) for speech_id in fed)])
