"""The 300M family: its sizes, small and real, the YAML that states them, and the published names
and shapes of its tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from . import hift

Shapes = Mapping[str, tuple[int, ...]]
CODES, BANDS, VECTOR = 4096, 80, 192
STAGES = (hift.Stage(16, 7, 16), hift.Stage(16, 11, 1))
PRESETS = ("中文女", "中文男", "日语男", "粤语女", "英文女", "英文男", "韩语女")


@dataclass(frozen=True)
class Sizes:
    text_rows: int = 0  # 0: as many as the small vocabulary has
    text_embed: int = 32
    encoder: int = 64
    encoder_heads: int = 4
    encoder_ffn: int = 128
    encoder_blocks: int = 2
    llm: int = 64
    llm_heads: int = 4
    llm_ffn: int = 128
    llm_blocks: int = 2
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
    codes: int = CODES


SMALL = Sizes()
FULL = Sizes(
    51866, 512, 1024, 16, 4096, 6, 1024, 16, 4096, 14, 512, 8, 2048, 6, 256, 8, 64, 4, 12, 512, 512
)


def yaml_text(s: Sizes) -> str:
    """The published file's keys and tags, as far as inference reads them."""
    return f"""\
__set_seed1: !apply:random.seed [1986]
sample_rate: 22050
text_encoder_input_size: {s.text_embed}
llm_input_size: {s.llm}
llm_output_size: {s.llm}
spk_embed_dim: {VECTOR}
llm: !new:cosyvoice.llm.llm.TransformerLM
    text_encoder_input_size: !ref <text_encoder_input_size>
    llm_input_size: !ref <llm_input_size>
    llm_output_size: !ref <llm_output_size>
    text_token_size: {s.text_rows}
    speech_token_size: {s.codes}
    spk_embed_dim: !ref <spk_embed_dim>
    text_encoder: !new:cosyvoice.transformer.encoder.ConformerEncoder
        input_size: !ref <text_encoder_input_size>
        output_size: {s.encoder}
        attention_heads: {s.encoder_heads}
        linear_units: {s.encoder_ffn}
        num_blocks: {s.encoder_blocks}
        normalize_before: True
        input_layer: 'linear'
        pos_enc_layer_type: 'rel_pos_espnet'
        selfattention_layer_type: 'rel_selfattn'
        use_cnn_module: False
        macaron_style: False
        use_dynamic_chunk: False
        static_chunk_size: 1
    llm: !new:cosyvoice.transformer.encoder.TransformerEncoder
        input_size: !ref <llm_input_size>
        output_size: !ref <llm_output_size>
        attention_heads: {s.llm_heads}
        linear_units: {s.llm_ffn}
        num_blocks: {s.llm_blocks}
        input_layer: 'linear_legacy'
        pos_enc_layer_type: 'rel_pos_espnet'
        selfattention_layer_type: 'rel_selfattn'
        static_chunk_size: 1
    sampling: !name:cosyvoice.utils.common.ras_sampling
        top_p: 0.8
        top_k: 25
        win_size: 10
        tau_r: 0.1
flow: !new:cosyvoice.flow.flow.MaskedDiffWithXvec
    input_size: {s.flow}
    output_size: {BANDS}
    spk_embed_dim: !ref <spk_embed_dim>
    output_type: 'mel'
    vocab_size: {s.codes}
    input_frame_rate: 50 # ids a second
    encoder: !new:cosyvoice.transformer.encoder.ConformerEncoder
        output_size: {s.flow}
        attention_heads: {s.flow_heads}
        linear_units: {s.flow_ffn}
        num_blocks: {s.flow_blocks}
        normalize_before: True
        input_layer: 'linear'
        pos_enc_layer_type: 'rel_pos_espnet'
        selfattention_layer_type: 'rel_selfattn'
        input_size: {s.flow}
        use_cnn_module: False
        macaron_style: False
    length_regulator: !new:cosyvoice.flow.length_regulator.InterpolateRegulator
        channels: {BANDS}
        sampling_ratios: [1, 1, 1, 1]
    decoder: !new:cosyvoice.flow.flow_matching.ConditionalCFM
        in_channels: 240
        n_spks: 1
        spk_emb_dim: {BANDS}
        cfm_params: !new:omegaconf.DictConfig
            content:
                sigma_min: 1e-06
                solver: 'euler'
                t_scheduler: 'cosine'
                inference_cfg_rate: 0.7
        estimator: !new:cosyvoice.flow.decoder.ConditionalDecoder
            in_channels: 320
            out_channels: {BANDS}
            channels: [{s.channels}, {s.channels}]
            dropout: 0.0
            attention_head_dim: {s.head_dim}
            n_blocks: {s.n_blocks}
            num_mid_blocks: {s.mid_blocks}
            num_heads: {s.estimator_heads}
            act_fn: 'gelu'
{hift.yaml_text("HiFTGenerator", "ConvRNNF0Predictor", (8, 8), STAGES, s.vocoder, s.f0)}\
feat_extractor: !name:matcha.utils.audio.mel_spectrogram
    n_fft: 1024
    num_mels: {BANDS}
    sampling_rate: !ref <sample_rate>
    hop_size: 256
    win_size: 1024
    fmin: 0
    fmax: 8000
    center: False
"""


def linear(name: str, into: int, out: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (out, into), f"{name}.bias": (out,)}


def conv(name: str, out: int, into: int, kernel: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (out, into, kernel), f"{name}.bias": (out,)}


def norm(name: str, size: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (size,), f"{name}.bias": (size,)}


def encoder(
    name: str,
    into: int,
    size: int,
    heads: int,
    ffn: int,
    blocks: int,
    norms: tuple[str, str] = ("norm_mha", "norm_ff"),
) -> Shapes:
    """Embedding block, attention blocks with relative positions, last norm."""
    out = (
        linear(f"{name}.embed.out.0", into, size)
        | norm(f"{name}.embed.out.1", size)
        | norm(f"{name}.after_norm", size)
    )
    for block in (f"{name}.encoders.{i}" for i in range(blocks)):
        for part in ("q", "k", "v", "out"):
            out |= linear(f"{block}.self_attn.linear_{part}", size, size)
        out |= {f"{block}.self_attn.linear_pos.weight": (size, size)}
        out |= {f"{block}.self_attn.pos_bias_{letter}": (heads, size // heads) for letter in "uv"}
        out |= linear(f"{block}.feed_forward.w_1", size, ffn) | linear(
            f"{block}.feed_forward.w_2", ffn, size
        )
        out |= norm(f"{block}.{norms[0]}", size) | norm(f"{block}.{norms[1]}", size)
    return out


def llm_shapes(s: Sizes) -> Shapes:
    return {"text_embedding.weight": (s.text_rows, s.text_embed),
        "llm_embedding.weight": (2, s.llm), "speech_embedding.weight": (s.codes, s.llm),
            **encoder("text_encoder", s.text_embed, s.encoder, s.encoder_heads, s.encoder_ffn,
                s.encoder_blocks),
            **linear("text_encoder_affine_layer", s.encoder, s.llm),
            **linear("spk_embed_affine_layer", VECTOR, s.llm),
            **encoder("llm", s.llm, s.llm, s.llm_heads, s.llm_ffn, s.llm_blocks,
                ("norm1", "norm2")), **linear("llm_decoder", s.llm, s.codes + 1)}  # fmt: skip


def flow_shapes(s: Sizes) -> Shapes:
    out = {"input_embedding.weight": (s.codes, s.flow),
        **linear("spk_embed_affine_layer", VECTOR, BANDS), **linear("encoder_proj", s.flow, BANDS),
           **encoder("encoder", s.flow, s.flow, s.flow_heads, s.flow_ffn, s.flow_blocks),
           **conv("length_regulator.model.12", BANDS, BANDS, 1)}  # fmt: skip
    for i in (0, 3, 6, 9):
        out |= conv(f"length_regulator.model.{i}", BANDS, BANDS, 3) | norm(
            f"length_regulator.model.{i + 1}", BANDS
        )
    return out | {f"decoder.estimator.{key}": shape for key, shape in _estimator(s).items()}


def _estimator(s: Sizes) -> Shapes:
    c, time = s.channels, 4 * s.channels
    out = linear("time_mlp.linear_1", 4 * BANDS, time) | linear("time_mlp.linear_2", time, time)
    stages = {
        "down_blocks.0": 4 * BANDS,
        "down_blocks.1": c,
        "up_blocks.0": 2 * c,
        "up_blocks.1": 2 * c,
    } | {f"mid_blocks.{i}": c for i in range(s.mid_blocks)}
    for stage, into in stages.items():
        for half, width in ((1, into), (2, c)):
            out |= conv(f"{stage}.0.block{half}.block.0", c, width, 3) | norm(
                f"{stage}.0.block{half}.block.1", c
            )
        out |= linear(f"{stage}.0.mlp.1", time, c) | conv(f"{stage}.0.res_conv", c, into, 1)
        for i in range(s.n_blocks):
            out |= _attention_block(f"{stage}.1.{i}", c, s.estimator_heads * s.head_dim)
    out |= (
        conv("down_blocks.0.2.conv", c, c, 3)
        | conv("down_blocks.1.2", c, c, 3)
        | conv("up_blocks.0.2.conv", c, c, 4)
        | conv("up_blocks.1.2", c, c, 3)
    )
    return (
        out
        | conv("final_block.block.0", c, c, 3)
        | norm("final_block.block.1", c)
        | conv("final_proj", BANDS, c, 1)
    )


def _attention_block(name: str, size: int, inner: int) -> Shapes:
    out = {f"{name}.attn1.to_{part}.weight": (inner, size) for part in "qkv"} | linear(
        f"{name}.attn1.to_out.0", inner, size
    )
    return (
        out
        | norm(f"{name}.norm1", size)
        | norm(f"{name}.norm3", size)
        | linear(f"{name}.ff.net.0.proj", size, 4 * size)
        | linear(f"{name}.ff.net.2", 4 * size, size)
    )


def hift_shapes(s: Sizes) -> tuple[Shapes, Shapes]:
    """(plain tensors, directions of the weight-normed layers without their suffix)."""
    return hift.shapes(s.vocoder, s.f0, STAGES)
