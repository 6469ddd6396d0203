"""What a model directory says about itself: every size as data.

Reads scalars only; YAML tags name classes and are never followed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from ...errors import NotReady
from ...messages import Message, message
from . import file_checks
from .flow.dims import EULER_STEPS
from .llm.dims import LmDims
from .llm.sampler import RasRule
from .model_faults import download_advice, model_fault

YAML, CONFIG = "cosyvoice2.yaml", "CosyVoice-BlankEN/config.json"
FIXED = {
    "sample_rate": 24000,
    "token_frame_rate": 25,
    "token_mel_ratio": 2,
    "flow.pre_lookahead_len": 3,
    "flow.output_size": 80,
    "flow.decoder.estimator.in_channels": 320,
    "flow.decoder.estimator.out_channels": 80,
    "hift.nb_harmonics": 8,
    "hift.istft_params.n_fft": 16,
    "hift.istft_params.hop_len": 4,
}  # what our code is written for; another value is another model
_FLOW = {
    "input_size": "flow.input_size",
    "speech_token_size": "flow.vocab_size",
    "spk_embed_dim": "flow.spk_embed_dim",
    "encoder_dim": "flow.encoder.output_size",
    "encoder_heads": "flow.encoder.attention_heads",
    "encoder_ffn_dim": "flow.encoder.linear_units",
    "encoder_blocks": "flow.encoder.num_blocks",
    "chunk_size": "chunk_size",
    "estimator_heads": "flow.decoder.estimator.num_heads",
    "estimator_head_dim": "flow.decoder.estimator.attention_head_dim",
    "estimator_n_blocks": "flow.decoder.estimator.n_blocks",
    "estimator_mid_blocks": "flow.decoder.estimator.num_mid_blocks",
}
MAX_SIZE, MAX_BLOCKS = (
    1 << 20,
    256,
)  # far above any published model: a damaged number must not start a day of work
ISTFT_HOP = 4  # samples: of every generation's vocoder
_REF = re.compile(r"<(\w+)>")


@dataclass(frozen=True)
class ModelSizesV2:
    """Sizes and rules of one model directory.

    `flow` and `hift` are scalars under the names their own dims take.
    """

    lm: LmDims
    rule: RasRule
    flow: Mapping[str, int]
    hift: Mapping[str, int]
    sample_rate: int
    ids_per_s: int
    samples_per_id: int


def read_spec(root: Path, steps: int = EULER_STEPS) -> ModelSizesV2:
    """From `cosyvoice2.yaml` and `CosyVoice-BlankEN/config.json`. steps: of the flow's solver.

    Raises NotReady naming file and field.
    """
    table = Scalars(root)
    table.check(FIXED)
    rate, ids_per_s = table.whole("sample_rate"), table.whole("token_frame_rate")
    hop = table.exactly(
        rate,
        ids_per_s * table.whole("token_mel_ratio"),
        "sample_rate / token_frame_rate / token_mel_ratio",
    )
    table.check_rates(hop)
    codes = table.whole("llm.speech_token_size")
    flow = table.sizes(_FLOW)
    flow["estimator_channels"] = table.within(
        "flow.decoder.estimator.channels", table.wholes("flow.decoder.estimator.channels")[0]
    )
    if flow["speech_token_size"] != codes:
        raise table.wrong(
            "flow.vocab_size", f"{codes} (llm.speech_token_size)", str(flow["speech_token_size"])
        )
    table.exactly(
        flow["encoder_dim"], flow["encoder_heads"], "flow.encoder.output_size / attention_heads"
    )
    return ModelSizesV2(
        lm=qwen2_dims(root, codes, table),
        rule=table.rule(),
        flow={**flow, "euler_steps": steps},
        hift={
            "base_channels": table.whole("hift.base_channels"),
            "f0_cond_channels": table.whole("hift.f0_predictor.cond_channels"),
        },
        sample_rate=rate,
        ids_per_s=ids_per_s,
        samples_per_id=table.exactly(rate, ids_per_s, "sample_rate / token_frame_rate"),
    )


class Scalars:
    """The plain values of a model's YAML file by dotted name.

    Tags are dropped; `!ref <a> * <b>` is the product of the whole numbers a and b.
    title: of the model whose files would be right. Every method raises NotReady naming file and
      field.
    """

    def __init__(self, root: Path, yaml_name: str = YAML, title: str = "CosyVoice2-0.5B"):
        self.name, self._remedy = yaml_name, download_advice(title)
        expected = message("file.yaml_table")
        source = file_checks.text(root, yaml_name, expected, limit=1 << 18)
        try:
            self._top = yaml.compose(source, yaml.SafeLoader)  # nodes only: nothing is constructed
        except (yaml.YAMLError, RecursionError, ValueError) as e:
            raise model_fault(yaml_name, expected, message("file.broken_yaml")) from e
        if not isinstance(self._top, yaml.MappingNode):
            raise model_fault(yaml_name, expected, message("file.no_table"))

    def wrong(
        self, field: str, expected: Message | str, actual: Message | str, file: str = ""
    ) -> NotReady:
        """The fault about a field of this file, or of another one of the directory."""
        return model_fault(
            file or self.name,
            message("file.field", field=field, expected=expected),
            actual,
            self._remedy,
        )

    def check(self, fixed: Mapping[str, int]) -> None:
        """What our code is written for: another value is another model."""
        for field, value in fixed.items():
            if self.whole(field) != value:
                raise self.wrong(field, str(value), str(self.whole(field)))

    def check_rates(self, hop: int) -> None:
        """The vocoder's upsampling gives `hop` samples per frame."""
        upsampling = math.prod(self.wholes("hift.upsample_rates"))
        if upsampling * ISTFT_HOP != hop:
            raise self.wrong(
                "hift.upsample_rates",
                f"{hop // ISTFT_HOP} × {ISTFT_HOP}",
                f"{upsampling} × {ISTFT_HOP}",
            )

    def sizes(self, fields: Mapping[str, str]) -> dict[str, int]:
        """name -> value of the field that `fields` has under it; no size beyond reason."""
        return {
            name: self.within(
                field, self.whole(field), MAX_BLOCKS if name.endswith("blocks") else MAX_SIZE
            )
            for name, field in fields.items()
        }

    def within(self, field: str, value: int, most: int = MAX_SIZE) -> int:
        if not 1 <= value <= most:
            raise self.wrong(field, f"1…{most}", str(value))
        return value

    def rule(self) -> RasRule:
        top_p, tau = self.real("llm.sampling.top_p"), self.real("llm.sampling.tau_r")
        return RasRule(
            top_p, self.whole("llm.sampling.top_k"), self.whole("llm.sampling.win_size"), tau
        )

    def exactly(self, value: int, by: int, field: str) -> int:
        if by < 1 or value % by:
            raise self.wrong(field, message("file.exact_division"), f"{value} / {by}")
        return value // by

    def whole(self, field: str) -> int:
        return self._whole(self._scalar(self._node(field), field), field)

    def real(self, field: str) -> float:
        value = self._scalar(self._node(field), field)
        try:
            return float(value)
        except ValueError as e:
            raise self.wrong(field, message("file.a_number"), value) from e

    def wholes(self, field: str) -> tuple[int, ...]:
        node = self._node(field)
        if not isinstance(node, yaml.SequenceNode) or not node.value:
            raise self.wrong(field, message("file.whole_numbers"), message("file.something_else"))
        return tuple(self._whole(self._scalar(item, field), field) for item in node.value)

    def has(self, field: str) -> bool:
        return self._find(field) is not None

    def _find(self, field: str) -> yaml.Node | None:
        node = self._top
        for part in field.split("."):
            rows = node.value if isinstance(node, yaml.MappingNode) else ()
            node = next((value for key, value in rows if key.value == part), None)
        return node

    def _node(self, field: str) -> yaml.Node:
        node = self._find(field)
        if node is None:
            raise self.wrong(field, message("file.a_value"), message("file.none"))
        return node

    def _scalar(self, node: yaml.Node, field: str) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise self.wrong(field, message("file.one_value"), message("file.list_or_table"))
        return node.value

    def _whole(self, value: str, field: str, depth: int = 0) -> int:
        if value.lstrip("-").isascii() and value.lstrip("-").isdigit() and len(value) < 10:
            return int(value)
        names = [part.strip() for part in value.split("*")]
        if depth > 4 or not all(_REF.fullmatch(name) for name in names):
            raise self.wrong(field, message("file.a_whole_number"), value[:60])
        product = 1
        for name in names:
            product *= self._whole(self._scalar(self._node(name[1:-1]), field), field, depth + 1)
        return product


def qwen2_dims(root: Path, codes: int, table: Scalars, **more: int) -> LmDims:
    """Of the directory's Qwen2 body with `codes` speech ids. more: fields of LmDims that no file
    tells. Raises NotReady.
    """
    expected = message("file.qwen2_config")
    try:
        config = json.loads(file_checks.text(root, CONFIG, expected, limit=1 << 18))
    except (ValueError, RecursionError) as e:
        raise model_fault(CONFIG, expected, message("file.broken_json")) from e
    if not isinstance(config, dict):
        raise model_fault(CONFIG, expected, message("file.no_table"))
    try:
        dims = replace(
            LmDims.of(
                {**config, "speech_token_size": codes, "mix_ratio": table.wholes("llm.mix_ratio")}
            ),
            **more,
        )
    except KeyError as e:
        raise table.wrong(
            str(e.args[0]), message("file.a_value"), message("file.none"), CONFIG
        ) from e
    except (ValueError, TypeError, OverflowError) as e:
        raise model_fault(CONFIG, message("file.fitting_sizes"), str(e)[:120]) from e
    if (
        dims.layers > MAX_BLOCKS
        or max(dims.hidden, dims.intermediate, dims.text_rows, dims.speech_codes) > MAX_SIZE
    ):
        raise table.wrong(
            "num_hidden_layers, hidden_size, intermediate_size, vocab_size",
            f"≤ {MAX_BLOCKS}, ≤ {MAX_SIZE}",
            str(dims),
            CONFIG,
        )
    if dims.hidden != table.whole("llm_input_size"):
        raise table.wrong(
            "hidden_size",
            f"{table.whole('llm_input_size')} ({table.name}: llm_input_size)",
            str(dims.hidden),
            CONFIG,
        )
    return dims
