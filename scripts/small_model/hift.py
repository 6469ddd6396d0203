"""The vocoder of all three generations: the YAML that states its sizes, and the published names and
shapes of its tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Shapes = Mapping[str, tuple[int, ...]]
BANDS, SPECTRUM, HARMONICS = 80, 18, 9


@dataclass(frozen=True)
class Stage:
    """Kernels of one upsampling stage: of the layer itself, of the source's block beside it, of
    what brings the source down to its rate.
    """

    up: int
    block: int
    down: int


def yaml_text(
    kind: str,
    f0_kind: str,
    rates: Sequence[int],
    stages: Sequence[Stage],
    base: int,
    f0: int,
    more: str = "",
) -> str:
    """The `hift:` table. more: lines of its own generation."""
    dilations = [[1, 3, 5]] * len(stages)
    return f"""\
hift: !new:cosyvoice.hifigan.generator.{kind}
    in_channels: {BANDS}
    base_channels: {base}
    nb_harmonics: {HARMONICS - 1}
    sampling_rate: !ref <sample_rate>
    nsf_alpha: 0.1
    nsf_sigma: 0.003
    nsf_voiced_threshold: 10
    upsample_rates: {list(rates)}
    upsample_kernel_sizes: {[s.up for s in stages]}
    istft_params:
        n_fft: 16
        hop_len: 4
    resblock_kernel_sizes: [3, 7, 11]
    resblock_dilation_sizes: [[1, 3, 5], [1, 3, 5], [1, 3, 5]]
    source_resblock_kernel_sizes: {[s.block for s in stages]}
    source_resblock_dilation_sizes: {dilations}
    lrelu_slope: 0.1
    audio_limit: 0.99
{more}    f0_predictor: !new:cosyvoice.hifigan.f0_predictor.{f0_kind}
        num_class: 1
        in_channels: {BANDS}
        cond_channels: {f0}
"""


def shapes(
    base: int, f0: int, stages: Sequence[Stage], is_causal: bool = False
) -> tuple[Shapes, Shapes]:
    """(plain tensors, directions of the weight-normed layers without their suffix). is_causal: as
    the third generation has it, which looks ahead at the mel and upsamples by ordinary
    convolutions.
    """
    plain: dict[str, tuple[int, ...]] = {
        "m_source.l_linear.weight": (1, HARMONICS),
        "m_source.l_linear.bias": (1,),
    }
    normed: dict[str, tuple[int, ...]] = {
        "conv_pre": (base, BANDS, 5 if is_causal else 7),
        "conv_post": (SPECTRUM, base >> len(stages), 7),
    }
    for i, stage in enumerate(stages):
        channels = base >> (i + 1)
        normed[f"ups.{i}"] = (
            (channels, 2 * channels, stage.up) if is_causal else (2 * channels, channels, stage.up)
        )
        plain[f"source_downs.{i}.weight"], plain[f"source_downs.{i}.bias"] = (
            (channels, SPECTRUM, stage.down),
            (channels,),
        )
        blocks = {f"source_resblocks.{i}": stage.block} | {
            f"resblocks.{3 * i + j}": kernel for j, kernel in enumerate((3, 7, 11))
        }
        for block, kernel in blocks.items():
            for j in range(3):
                for half in (1, 2):
                    normed[f"{block}.convs{half}.{j}"] = (channels, channels, kernel)
                    plain[f"{block}.activations{half}.{j}.alpha"] = (channels,)
    for i in range(5):
        normed[f"f0_predictor.condnet.{2 * i}"] = (
            (f0, f0, 3) if i else (f0, BANDS, 4 if is_causal else 3)
        )
    plain["f0_predictor.classifier.weight"], plain["f0_predictor.classifier.bias"] = (1, f0), (1,)
    return plain, normed
