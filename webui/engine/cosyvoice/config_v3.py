"""What a model directory of this generation says about itself: every size as data."""

from __future__ import annotations

from pathlib import Path

from .checkpoint_v3 import END, FILL, MARKS
from .config import ModelSizesV2, Scalars, qwen2_dims
from .flow.dims import EULER_STEPS
from .flow.dit_dims import POSITION_GROUPS

YAML, TITLE = "cosyvoice3.yaml", "Fun-CosyVoice3-0.5B"
FIXED = {
    "sample_rate": 24000,
    "token_frame_rate": 25,
    "token_mel_ratio": 2,
    "flow.input_size": 80,
    "flow.output_size": 80,
    "flow.pre_lookahead_len": 3,
    "hift.nb_harmonics": 8,
    "hift.istft_params.n_fft": 16,
    "hift.istft_params.hop_len": 4,
}  # what our code is written for; another value is another model
_FLOW = {
    "speech_token_size": "flow.vocab_size",
    "spk_embed_dim": "flow.spk_embed_dim",
    "lookahead_channels": "flow.pre_lookahead_layer.channels",
    "chunk_size": "chunk_size",
    "dit_dim": "flow.decoder.estimator.dim",
    "dit_depth": "flow.decoder.estimator.depth",
    "dit_heads": "flow.decoder.estimator.heads",
    "dit_head_dim": "flow.decoder.estimator.dim_head",
    "dit_ff_mult": "flow.decoder.estimator.ff_mult",
}


def read_spec(root: Path, steps: int = EULER_STEPS) -> ModelSizesV2:
    """From `cosyvoice3.yaml` and `CosyVoice-BlankEN/config.json`. steps: of the flow's solver.

    Raises NotReady naming file and field.
    """
    table = Scalars(root, YAML, TITLE)
    table.check(FIXED)
    rate, ids_per_s = table.whole("sample_rate"), table.whole("token_frame_rate")
    table.check_rates(rate // ids_per_s // table.whole("token_mel_ratio"))
    codes, flow = table.whole("llm.speech_token_size"), table.sizes(_FLOW)
    if flow["speech_token_size"] != codes:
        raise table.wrong(
            "flow.vocab_size", f"{codes} (llm.speech_token_size)", str(flow["speech_token_size"])
        )
    table.exactly(
        flow["dit_dim"], POSITION_GROUPS, f"flow.decoder.estimator.dim / {POSITION_GROUPS}"
    )
    table.exactly(flow["dit_head_dim"], 2, "flow.decoder.estimator.dim_head / 2")
    return ModelSizesV2(
        lm=qwen2_dims(root, codes, table, marks=MARKS, end_at=END, fill_at=FILL),
        rule=table.rule(),
        flow={**flow, "euler_steps": steps},
        hift={
            "base_channels": table.whole("hift.base_channels"),
            "f0_cond_channels": table.whole("hift.f0_predictor.cond_channels"),
        },
        sample_rate=rate,
        ids_per_s=ids_per_s,
        samples_per_id=rate // ids_per_s,
    )
