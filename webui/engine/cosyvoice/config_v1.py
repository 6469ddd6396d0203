"""What a directory of the first generation says about itself: every size as data, and which of the
three releases it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...errors import NotReady
from .config import Scalars
from .dims_v1 import FRAME_SAMPLES, IDS_PER_S, RATE_HZ, LmDimsV1
from .flow.dims import EULER_STEPS
from .frontend.preset_speakers import SPEAKERS
from .llm.sampler import RasRule

YAML, TITLE = "cosyvoice.yaml", "CosyVoice-300M"
LISTENER_ONNX = "speech_tokenizer_v1.onnx"
NEEDS_SPEAKERS = ("instruct", "sft")  # releases that were trained for their ready speakers
RELEASES = ("base", *NEEDS_SPEAKERS)
LLM_BYTES = {1242994771: "instruct", 1242994835: "sft"}  # of llm.pt as published
MARKER = "kaikou-release"  # a file that tells the release where the directory's name does not
IDS_FIELD = "flow.input_frame_rate"
FIXED = {
    "sample_rate": RATE_HZ,
    "flow.output_size": 80,
    "flow.decoder.estimator.in_channels": 320,
    "flow.decoder.estimator.out_channels": 80,
    "hift.nb_harmonics": 8,
    "hift.istft_params.n_fft": 16,
    "hift.istft_params.hop_len": 4,
    "feat_extractor.n_fft": 1024,
    "feat_extractor.hop_size": FRAME_SAMPLES,
}  # what our code is written for; another value is another model
_LM = {
    "text_encoder_dim": "llm.text_encoder.output_size",
    "text_encoder_heads": "llm.text_encoder.attention_heads",
    "text_encoder_ffn_dim": "llm.text_encoder.linear_units",
    "text_encoder_blocks": "llm.text_encoder.num_blocks",
    "llm_dim": "llm.llm.output_size",
    "llm_heads": "llm.llm.attention_heads",
    "llm_ffn_dim": "llm.llm.linear_units",
    "llm_blocks": "llm.llm.num_blocks",
    "text_embed_dim": "llm.text_encoder_input_size",
    "text_vocab_size": "llm.text_token_size",
    "speech_token_size": "llm.speech_token_size",
    "spk_embed_dim": "llm.spk_embed_dim",
}
_FLOW = {
    "input_size": "flow.input_size",
    "speech_token_size": "flow.vocab_size",
    "spk_embed_dim": "flow.spk_embed_dim",
    "encoder_dim": "flow.encoder.output_size",
    "encoder_heads": "flow.encoder.attention_heads",
    "encoder_ffn_dim": "flow.encoder.linear_units",
    "encoder_blocks": "flow.encoder.num_blocks",
    "estimator_heads": "flow.decoder.estimator.num_heads",
    "estimator_head_dim": "flow.decoder.estimator.attention_head_dim",
    "estimator_n_blocks": "flow.decoder.estimator.n_blocks",
    "estimator_mid_blocks": "flow.decoder.estimator.num_mid_blocks",
}


@dataclass(frozen=True)
class ModelSizesV1:
    """Sizes and rules of one model directory.

    `flow` and `hift` are scalars under the names their own dims take.
    """

    lm: LmDimsV1
    rule: RasRule
    flow: Mapping[str, int]
    hift: Mapping[str, int]
    release: str
    sample_rate: int = RATE_HZ
    ids_per_s: int = IDS_PER_S


def read_spec(root: Path, steps: int = EULER_STEPS) -> ModelSizesV1:
    """From `cosyvoice.yaml`. steps: of the flow's solver. Raises NotReady naming file and field."""
    table = Scalars(root, YAML, TITLE)
    _check_rate(table)
    table.check(FIXED)
    table.check_rates(FRAME_SAMPLES)
    flow = table.sizes(_FLOW)
    channels = table.wholes("flow.decoder.estimator.channels")
    if len(channels) != 2 or channels[0] != channels[1] or channels[0] % 8:
        raise table.wrong(
            "flow.decoder.estimator.channels", "two equal multiples of 8", str(list(channels))
        )
    flow["estimator_channels"] = table.within("flow.decoder.estimator.channels", channels[0])
    table.exactly(
        flow["encoder_dim"],
        2 * flow["encoder_heads"],
        "flow.encoder.output_size / attention_heads / 2",
    )
    lm = _language_model(table)
    if flow["speech_token_size"] != lm.speech_codes:
        raise table.wrong(
            "flow.vocab_size",
            f"{lm.speech_codes} (llm.speech_token_size)",
            str(flow["speech_token_size"]),
        )
    hift = {
        "base_channels": table.whole("hift.base_channels"),
        "f0_cond_channels": table.whole("hift.f0_predictor.cond_channels"),
    }
    rule = (
        table.rule() if table.has("llm.sampling") else RasRule()
    )  # files of July 2024 leave it to the code
    return ModelSizesV1(lm, rule, {**flow, "euler_steps": steps}, hift, release_of(root))


def _check_rate(table: Scalars) -> None:
    """Early files have no such field: all of them are for 50 ids a second."""
    rate = table.whole(IDS_FIELD) if table.has(IDS_FIELD) else IDS_PER_S
    if rate != IDS_PER_S:
        raise table.wrong(IDS_FIELD, str(IDS_PER_S), f"{rate} (CosyVoice-300M-25Hz?)")


def _language_model(table: Scalars) -> LmDimsV1:
    sizes = table.sizes(_LM)
    if sizes["llm_dim"] != table.whole("llm.llm_input_size"):
        raise table.wrong(
            "llm.llm.output_size",
            f"{table.whole('llm.llm_input_size')} (llm.llm_input_size)",
            str(sizes["llm_dim"]),
        )
    try:
        return LmDimsV1.of(sizes)
    except ValueError as e:
        raise table.wrong("llm", "sizes that fit each other", str(e)[:120]) from e


def release_of(root: Path) -> str:
    """ "base", "sft" or "instruct": all three have the same shapes.

    By the marker file, else by name, else by the size of `llm.pt`.

    Names: of the path as given and with its links followed, from the innermost part outwards,
      because the caches of the hubs end in
    a commit hash or a link (first-contact specification, section 4). A parent counts only where it
    names CosyVoice-300M. Raises NotReady for an unknown word in the marker file.
    """
    if (root / MARKER).is_file():
        marker = (root / MARKER).read_text(encoding="utf-8", errors="replace").strip().lower()[:20]
        if marker not in RELEASES:
            raise NotReady(
                "model_file.unknown_release", marker=marker, releases=RELEASES, param=MARKER
            )
        return marker
    named = [_release_in(path) for path in (root.absolute(), root.resolve())]
    tuned = next((release for release in named if release in NEEDS_SPEAKERS), None)
    return tuned or ("base" if "base" in named else _release_by_size(root))


def _release_in(path: Path) -> str | None:
    """By the innermost part that tells; None where none does."""
    for part in map(str.lower, reversed(path.parts)):
        is_model = "cosyvoice" in part and "300m" in part
        if is_model or part == path.name.lower():
            tuned = next((release for release in NEEDS_SPEAKERS if release in part), None)
            if tuned or is_model:
                return tuned or "base"
    return None


def _release_by_size(root: Path) -> str:
    """The sizes come from listings by others, so they count only beside the ready speakers that
    both releases have.
    """
    llm = root / "llm.pt"
    size = llm.stat().st_size if llm.is_file() and (root / SPEAKERS).is_file() else 0
    return LLM_BYTES.get(size, "base")
