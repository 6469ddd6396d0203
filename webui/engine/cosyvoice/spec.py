"""What a model directory says about itself: every size as data. Reads scalars only; YAML tags name classes and are never followed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from . import files
from .dims import LmDims
from .faults import model_fault
from .sampler import RasRule
from .weights import COMPONENTS, converted_form

YAML, CONFIG = "cosyvoice2.yaml", "CosyVoice-BlankEN/config.json"
TOKENIZER_ONNX, SPEAKER_ONNX = "speech_tokenizer_v2.onnx", "campplus.onnx"
REQUIRED = (YAML, CONFIG, "CosyVoice-BlankEN/vocab.json", "CosyVoice-BlankEN/merges.txt", SPEAKER_ONNX, TOKENIZER_ONNX)
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
_ZH = {
    "a value": "一个值", "none": "没有", "a number": "数字", "a whole number": "整数", "a list of whole numbers": "整数列表",
    "one value": "单个值", "a list or table": "列表或表", "something else": "别的内容", "an exact division": "整除",
}  # fmt: skip
_MAX_SIZE, _MAX_BLOCKS = 1 << 20, 256  # far above any published model: a damaged number must not start a day of work
_REF = re.compile(r"<(\w+)>")
_REMEDY = (
    "Use the files of CosyVoice2-0.5B (scripts/fetch_models.py brings them); the built-in voice keeps speaking.",
    "请使用 CosyVoice2-0.5B 的文件（scripts/fetch_models.py 可下载）；在此之前由内置声音朗读。",
)


@dataclass(frozen=True)
class ModelSpec:
    """Sizes and rules of one model directory. `flow` and `hift` are scalars under the names their own dims take."""

    lm: LmDims
    rule: RasRule
    flow: Mapping[str, int]
    hift: Mapping[str, int]
    sample_rate: int
    ids_per_s: int
    samples_per_id: int


def check_files(root: Path, dtype: str = "fp32") -> None:
    """Look at every needed file's first bytes, and the containers' ends, so that a fault is told before gigabytes are read."""
    expected = ("a CosyVoice2-0.5B model directory", "CosyVoice2-0.5B 模型目录")
    if not root.is_dir():
        raise model_fault(root.name, expected, ("no directory of that name", "没有这个目录"), _REMEDY)
    if not (root / YAML).exists():
        other = next((n for n in ("cosyvoice.yaml", "cosyvoice3.yaml") if (root / n).exists()), None)
        if other:
            raise model_fault(YAML, expected, (f"{other}, another generation of the model", f"{other}，另一代模型"), _REMEDY)
    for name in REQUIRED:
        files.head(root, name, ("a file of the model", "模型的文件"))
    for part in COMPONENTS.values():
        if (root / part.file).exists() or not converted_form(root, part, dtype).exists():
            files.zipped(root, part.file).close()


def read_spec(root: Path) -> ModelSpec:
    """From `cosyvoice2.yaml` and `CosyVoice-BlankEN/config.json`. Raises NotReady naming file and field."""
    table = Scalars(root)
    for field, value in FIXED.items():
        if table.whole(field) != value:
            raise _wrong(YAML, field, str(value), str(table.whole(field)))
    rate, ids_per_s = table.whole("sample_rate"), table.whole("token_frame_rate")
    hop = _exactly(rate, ids_per_s * table.whole("token_mel_ratio"), "sample_rate / token_frame_rate / token_mel_ratio")
    made = 4
    for step in table.wholes("hift.upsample_rates"):
        made *= step
    if made != hop:
        raise _wrong(YAML, "hift.upsample_rates", f"{hop // 4} × 4", f"{made // 4} × 4")
    codes = table.whole("llm.speech_token_size")
    flow = {name: table.whole(field) for name, field in _FLOW.items()}
    flow["estimator_channels"] = table.wholes("flow.decoder.estimator.channels")[0]
    if flow["speech_token_size"] != codes:
        raise _wrong(YAML, "flow.vocab_size", f"{codes} (llm.speech_token_size)", str(flow["speech_token_size"]))
    for name, value in flow.items():
        if not 1 <= value <= (_MAX_BLOCKS if name.endswith("blocks") else _MAX_SIZE):
            raise _wrong(YAML, _FLOW.get(name, name), "1…" + str(_MAX_SIZE), str(value))
    _exactly(flow["encoder_dim"], flow["encoder_heads"], "flow.encoder.output_size / attention_heads")
    rule = RasRule(
        table.real("llm.sampling.top_p"), table.whole("llm.sampling.top_k"), table.whole("llm.sampling.win_size"), table.real("llm.sampling.tau_r")
    )
    return ModelSpec(
        lm=_language_model(root, codes, table),
        rule=rule,
        flow=flow,
        hift={"base_channels": table.whole("hift.base_channels"), "f0_cond_channels": table.whole("hift.f0_predictor.cond_channels")},
        sample_rate=rate,
        ids_per_s=ids_per_s,
        samples_per_id=_exactly(rate, ids_per_s, "sample_rate / token_frame_rate"),
    )


class Scalars:
    """The plain values of the YAML file by dotted name. Tags are dropped; `!ref <a> * <b>` is the product of the whole numbers a and b."""

    def __init__(self, root: Path):
        expected = ("a YAML table of sizes", "YAML 参数表")
        source = files.text(root, YAML, expected, limit=1 << 18)
        try:
            self._top = yaml.compose(source, yaml.SafeLoader)  # nodes only: nothing is constructed
        except (yaml.YAMLError, RecursionError, ValueError) as e:
            raise model_fault(YAML, expected, ("broken YAML", "损坏的 YAML")) from e
        if not isinstance(self._top, yaml.MappingNode):
            raise model_fault(YAML, expected, ("no table", "不是参数表"))

    def whole(self, field: str) -> int:
        return self._whole(self._scalar(self._node(field), field), field)

    def real(self, field: str) -> float:
        value = self._scalar(self._node(field), field)
        try:
            return float(value)
        except ValueError as e:
            raise _wrong(YAML, field, "a number", value) from e

    def wholes(self, field: str) -> tuple[int, ...]:
        node = self._node(field)
        if not isinstance(node, yaml.SequenceNode) or not node.value:
            raise _wrong(YAML, field, "a list of whole numbers", "something else")
        return tuple(self._whole(self._scalar(item, field), field) for item in node.value)

    def _node(self, field: str) -> yaml.Node:
        node = self._top
        for part in field.split("."):
            rows = node.value if isinstance(node, yaml.MappingNode) else ()
            node = next((value for key, value in rows if key.value == part), None)
            if node is None:
                raise _wrong(YAML, field, "a value", "none")
        return node

    def _scalar(self, node: yaml.Node, field: str) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise _wrong(YAML, field, "one value", "a list or table")
        return node.value

    def _whole(self, value: str, field: str, depth: int = 0) -> int:
        if value.lstrip("-").isascii() and value.lstrip("-").isdigit() and len(value) < 10:
            return int(value)
        names = [part.strip() for part in value.split("*")]
        if depth > 4 or not all(_REF.fullmatch(name) for name in names):
            raise _wrong(YAML, field, "a whole number", value[:60])
        product = 1
        for name in names:
            product *= self._whole(self._scalar(self._node(name[1:-1]), field), field, depth + 1)
        return product


def _language_model(root: Path, codes: int, table: Scalars) -> LmDims:
    expected = ("Qwen2's configuration", "Qwen2 的配置")
    try:
        config = json.loads(files.text(root, CONFIG, expected, limit=1 << 18))
    except (ValueError, RecursionError) as e:
        raise model_fault(CONFIG, expected, ("broken JSON, perhaps cut off", "损坏或不完整的 JSON")) from e
    if not isinstance(config, dict):
        raise model_fault(CONFIG, expected, ("no table", "不是参数表"))
    try:
        dims = LmDims.of({**config, "speech_token_size": codes, "mix_ratio": table.wholes("llm.mix_ratio")})
    except KeyError as e:
        raise _wrong(CONFIG, str(e.args[0]), "a value", "none") from e
    except (ValueError, TypeError, OverflowError) as e:
        raise model_fault(CONFIG, ("sizes that fit each other", "相互吻合的尺寸"), (str(e)[:120], str(e)[:120]), _REMEDY) from e
    if dims.layers > _MAX_BLOCKS or max(dims.hidden, dims.intermediate, dims.text_rows, dims.speech_codes) > _MAX_SIZE:
        raise _wrong(CONFIG, "num_hidden_layers, hidden_size, intermediate_size, vocab_size", f"≤ {_MAX_BLOCKS}, ≤ {_MAX_SIZE}", str(dims))
    if dims.hidden != table.whole("llm_input_size"):
        raise _wrong(CONFIG, "hidden_size", f"{table.whole('llm_input_size')} ({YAML}: llm_input_size)", str(dims.hidden))
    return dims


def _exactly(value: int, by: int, field: str) -> int:
    if by < 1 or value % by:
        raise _wrong(YAML, field, "an exact division", f"{value} / {by}")
    return value // by


def _wrong(file: str, field: str, expected: str, found: str) -> Exception:
    return model_fault(file, (f"{field} = {expected}", f"{field} = {_ZH.get(expected, expected)}"), (found, _ZH.get(found, found)), _REMEDY)
