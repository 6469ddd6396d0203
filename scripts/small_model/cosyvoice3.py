"""Fun-CosyVoice3: its sizes, small and real, the YAML that states them, and the published names and
shapes of its tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from . import hift
from .cosyvoice1 import conv, linear

Shapes = Mapping[str, tuple[int, ...]]
CODES, SPECIAL, BANDS, VECTOR = 6561, 200, 80, 192
_LOOK = "    conv_pre_look_right: 4\n"
STAGES = (hift.Stage(16, 7, 30), hift.Stage(11, 7, 6), hift.Stage(7, 11, 1))


@dataclass(frozen=True)
class Sizes:
    hidden: int = 64
    intermediate: int = 128
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    text_rows: int = 640
    lookahead: int = 64
    dit: int = 64
    depth: int = 2
    dit_heads: int = 2
    head_dim: int = 32
    ff_mult: int = 2
    vocoder: int = 64
    f0: int = 64
    codes: int = CODES


SMALL = Sizes()
FULL = Sizes(896, 4864, 24, 14, 2, 151936, 1024, 1024, 22, 16, 64, 2, 512, 512)


def yaml_text(s: Sizes) -> str:
    """The published file's keys and tags, as far as inference reads them."""
    f0 = (8, 5, 3)
    vocoder = hift.yaml_text(
        "CausalHiFTGenerator", "CausalConvRNNF0Predictor", f0, STAGES, s.vocoder, s.f0, _LOOK
    )
    return f"""\
__set_seed1: !apply:random.seed [1986]
sample_rate: 24000
llm_input_size: {s.hidden}
llm_output_size: {s.hidden}
spk_embed_dim: {VECTOR}
qwen_pretrain_path: ''
token_frame_rate: 25
token_mel_ratio: 2
chunk_size: 25 # in ids
num_decoding_left_chunks: -1
llm: !new:cosyvoice.llm.llm.CosyVoice3LM
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
flow: !new:cosyvoice.flow.flow.CausalMaskedDiffWithDiT
    input_size: {BANDS}
    output_size: {BANDS}
    spk_embed_dim: !ref <spk_embed_dim>
    output_type: 'mel'
    vocab_size: {s.codes}
    input_frame_rate: !ref <token_frame_rate>
    token_mel_ratio: !ref <token_mel_ratio>
    pre_lookahead_len: 3
    pre_lookahead_layer: !new:cosyvoice.transformer.upsample_encoder.PreLookaheadLayer
        in_channels: {BANDS}
        channels: {s.lookahead}
        pre_lookahead_len: 3
    decoder: !new:cosyvoice.flow.flow_matching.CausalConditionalCFM
        in_channels: 240
        n_spks: 1
        spk_emb_dim: {BANDS}
        cfm_params: !new:omegaconf.DictConfig
            content:
                sigma_min: 1e-06
                solver: 'euler'
                t_scheduler: 'cosine'
                inference_cfg_rate: 0.7
        estimator: !new:cosyvoice.flow.DiT.dit.DiT
            dim: {s.dit}
            depth: {s.depth}
            heads: {s.dit_heads}
            dim_head: {s.head_dim}
            ff_mult: {s.ff_mult}
            mel_dim: {BANDS}
            mu_dim: {BANDS}
            spk_dim: {BANDS}
            out_channels: {BANDS}
            static_chunk_size: !ref <chunk_size> * <token_mel_ratio>
            num_decoding_left_chunks: !ref <num_decoding_left_chunks>
{vocoder}\
feat_extractor: !name:matcha.utils.audio.mel_spectrogram
    n_fft: 1920
    num_mels: {BANDS}
    sampling_rate: !ref <sample_rate>
    hop_size: 480
    win_size: 1920
    fmin: 0
    fmax: null
    center: False
"""


def llm_shapes(s: Sizes) -> Shapes:
    rows, narrow = s.codes + SPECIAL, s.kv_heads * (s.hidden // s.heads)
    out = {"speech_embedding.weight": (rows, s.hidden), "llm_decoder.weight": (rows, s.hidden),
        "llm.model.model.norm.weight": (s.hidden,),
           "llm.model.model.embed_tokens.weight": (s.text_rows, s.hidden),
           "llm.model.lm_head.weight": (s.text_rows, s.hidden)}  # fmt: skip
    for layer in (f"llm.model.model.layers.{i}" for i in range(s.layers)):
        for part, width in (("q", s.hidden), ("k", narrow), ("v", narrow)):
            out |= linear(f"{layer}.self_attn.{part}_proj", s.hidden, width)
        out |= {
            f"{layer}.self_attn.o_proj.weight": (s.hidden, s.hidden),
            f"{layer}.mlp.down_proj.weight": (s.hidden, s.intermediate),
        }
        out |= {
            f"{layer}.mlp.{part}_proj.weight": (s.intermediate, s.hidden) for part in ("gate", "up")
        }
        out |= {
            f"{layer}.{part}_layernorm.weight": (s.hidden,) for part in ("input", "post_attention")
        }
    return out


def flow_shapes(s: Sizes) -> Shapes:
    out = {"input_embedding.weight": (s.codes, BANDS),
        **linear("spk_embed_affine_layer", VECTOR, BANDS),
           **conv("pre_lookahead_layer.conv1", s.lookahead, BANDS, 4),
           **conv("pre_lookahead_layer.conv2", BANDS, s.lookahead, 3)}  # fmt: skip
    return out | {f"decoder.estimator.{key}": shape for key, shape in _estimator(s).items()}


def _estimator(s: Sizes) -> Shapes:
    d, inner = s.dit, s.dit_heads * s.head_dim
    out = (
        linear("time_embed.time_mlp.0", 256, d)
        | linear("time_embed.time_mlp.2", d, d)
        | linear("input_embed.proj", 4 * BANDS, d)
    )
    for half in (1, 2):
        out |= conv(f"input_embed.conv_pos_embed.conv{half}.0", d, d // 16, 31)
    for block in (f"transformer_blocks.{i}" for i in range(s.depth)):
        out |= linear(f"{block}.attn_norm.linear", d, 6 * d) | linear(
            f"{block}.attn.to_out.0", inner, d
        )
        for part in "qkv":
            out |= linear(f"{block}.attn.to_{part}", d, inner)
        out |= linear(f"{block}.ff.ff.0.0", d, s.ff_mult * d) | linear(
            f"{block}.ff.ff.2", s.ff_mult * d, d
        )
    return (
        out
        | linear("norm_out.linear", d, 2 * d)
        | linear("proj_out", d, BANDS)
        | {"rotary_embed.inv_freq": (s.head_dim // 2,)}
    )


def hift_shapes(s: Sizes) -> tuple[Shapes, Shapes]:
    """(plain tensors, directions of the weight-normed layers without their suffix)."""
    return hift.shapes(s.vocoder, s.f0, STAGES, is_causal=True)
