"""CosyVoice2: sizes of the small model and of the real one, and the YAML and JSON files that state
them in the published layout.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from . import cosyvoice3, hift

STAGES = cosyvoice3.STAGES


@dataclass(frozen=True)
class Sizes:
    hidden: int = 64
    intermediate: int = 128
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    text_rows: int = 640
    codes: int = 6561
    flow: int = 64
    flow_heads: int = 4
    flow_ffn: int = 128
    flow_blocks: int = 2
    channels: int = 48
    estimator_heads: int = 2
    head_dim: int = 32
    n_blocks: int = 1
    mid_blocks: int = 2
    vocoder: int = 64
    f0: int = 64


SMALL = Sizes()
FULL = Sizes(896, 4864, 24, 14, 2, 151936, 6561, 512, 8, 2048, 6, 256, 8, 64, 4, 12, 512, 512)


def config_json(sizes: Sizes | cosyvoice3.Sizes) -> str:
    """Of the language model that two generations share."""
    table = {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu",
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.intermediate, "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
        "tie_word_embeddings": True,
        "vocab_size": sizes.text_rows,
    }  # fmt: skip
    return json.dumps(table, indent=2)


def yaml_text(s: Sizes) -> str:
    """The published file's keys and tags, as far as inference reads them.

    Our reader follows no tag.
    """
    return f"""\
__set_seed1: !apply:random.seed [1986]
sample_rate: 24000
llm_input_size: {s.hidden}
llm_output_size: {s.hidden}
spk_embed_dim: 192
qwen_pretrain_path: ''
token_frame_rate: 25
token_mel_ratio: 2
chunk_size: 25 # in ids
num_decoding_left_chunks: -1
llm: !new:cosyvoice.llm.llm.Qwen2LM
    llm_input_size: !ref <llm_input_size>
    llm_output_size: !ref <llm_output_size>
    speech_token_size: {s.codes}
    mix_ratio: [5, 15]
    llm: !new:cosyvoice.llm.llm.Qwen2Encoder
        pretrain_path: !ref <qwen_pretrain_path>
    sampling: !name:cosyvoice.utils.common.ras_sampling
        top_p: 0.8
        top_k: 25
        win_size: 10
        tau_r: 0.1
flow: !new:cosyvoice.flow.flow.CausalMaskedDiffWithXvec
    input_size: {s.flow}
    output_size: 80
    spk_embed_dim: !ref <spk_embed_dim>
    vocab_size: {s.codes}
    input_frame_rate: !ref <token_frame_rate>
    token_mel_ratio: !ref <token_mel_ratio>
    pre_lookahead_len: 3
    encoder: !new:cosyvoice.transformer.upsample_encoder.UpsampleConformerEncoder
        output_size: {s.flow}
        attention_heads: {s.flow_heads}
        linear_units: {s.flow_ffn}
        num_blocks: {s.flow_blocks}
        input_size: {s.flow}
        static_chunk_size: !ref <chunk_size>
    decoder: !new:cosyvoice.flow.flow_matching.CausalConditionalCFM
        in_channels: 240
        spk_emb_dim: 80
        cfm_params: !new:omegaconf.DictConfig
            content:
                sigma_min: 1e-06
                t_scheduler: 'cosine'
                inference_cfg_rate: 0.7
        estimator: !new:cosyvoice.flow.decoder.CausalConditionalDecoder
            in_channels: 320
            out_channels: 80
            channels: [{s.channels}]
            attention_head_dim: {s.head_dim}
            n_blocks: {s.n_blocks}
            num_mid_blocks: {s.mid_blocks}
            num_heads: {s.estimator_heads}
            static_chunk_size: !ref <chunk_size> * <token_mel_ratio>
{hift.yaml_text("HiFTGenerator", "ConvRNNF0Predictor", (8, 5, 3), STAGES, s.vocoder, s.f0)}\
"""
