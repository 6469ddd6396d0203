"""What one directory of a generation has and lacks: networks that hear a clip, a language model
beside the usual one, what ends a description. Reads names and sizes only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from ...messages import message
from ..registry import GENERATIONS, yamls
from . import file_checks
from .checkpoint import DTYPES, converted_form, tensor_names
from .frontend.preset_speakers import SPEAKERS
from .frontend.prompt_encoder import (
    NoPromptEncoder,
    PromptEncoder,
    PromptEncoderConfig,
    PromptFeatures,
    PromptTokenizer,
)
from .model_faults import download_advice, model_fault
from .model_spec import ModelSpec

NEEDED = message("file.part_of_model")


def missing_encoder(model_spec: ModelSpec, root: Path) -> str:
    """The first network for hearing a clip that is not there, in a directory with ready speakers:
    that one only cannot clone. "" otherwise.
    """
    if not (root / SPEAKERS).is_file():
        return ""
    return next((name for name in model_spec.clip_encoders if not (root / name).exists()), "")


def prompt_encoder_of(
    model_spec: ModelSpec,
    root: Path,
    tokenizer: PromptTokenizer,
    config: PromptEncoderConfig,
    ready: Mapping[str, PromptFeatures],
) -> PromptEncoder | NoPromptEncoder:
    """ready: the ready speakers. Raises NotReady."""
    missing = missing_encoder(model_spec, root)
    if missing and not ready:
        file_checks.head(root, missing, NEEDED)  # says what of it is there
    return NoPromptEncoder(config, missing) if missing else PromptEncoder(root, tokenizer, config)


def with_reinforced(model_spec: ModelSpec, root: Path) -> ModelSpec:
    """Speaking with its language model after reinforcement learning; where none was published, as
    it is. Raises NotReady when the directory has no such file.
    """
    part = model_spec.reinforced
    if part is None:
        return model_spec
    if not (root / part.file).exists() and not any(
        (root / part.converted(dtype)).is_file() for dtype in DTYPES
    ):
        actual = message("file.no_reinforced")
        way_out = message("file.add_reinforced", file=part.file, title=model_spec.title)
        raise model_fault(part.file, message("file.reinforced_model"), actual, way_out)
    parts = {**model_spec.components, "llm": part}
    return replace(model_spec, components=parts, load=partial(model_spec.load, parts=parts))


def with_end_of_prompt(model_spec: ModelSpec, end: str) -> ModelSpec:
    """Ending descriptions with `end`; as it is where the generation has no such end, or it is the
    usual one.
    """
    if end not in model_spec.ends_of_prompt[1:]:
        return model_spec
    return replace(model_spec, load=partial(model_spec.load, end_of_prompt=end))


def check_files(model_spec: ModelSpec, root: Path, dtype: str = "fp32") -> None:
    """Look at every needed file's first bytes, and the containers' ends, so that a fault is told
    before gigabytes are read. Raises NotReady.
    """
    expected = message("file.model_directory", title=model_spec.title)
    if not root.is_dir():
        raise model_fault(
            root.name, expected, message("file.no_directory"), download_advice(model_spec.title)
        )
    if not (root / model_spec.yaml).exists():
        other_yaml = next(iter(yamls(root)), None)
        if other_yaml:
            raise model_fault(
                model_spec.yaml,
                expected,
                message("file.other_generation", other=other_yaml),
                download_advice(model_spec.title),
            )
    check_generation(model_spec, root)
    absent = model_spec.clip_encoders if missing_encoder(model_spec, root) else ()
    for name in model_spec.required:
        if name not in absent:
            file_checks.head(root, name, NEEDED)
    for part in model_spec.components.values():
        published = part.published(root)
        if part.name == "llm" and (root / "vllm").is_dir() and not (root / published).exists():
            actual = message("file.only_vllm")
            raise model_fault(published, message("file.whole_language_model"), actual)
        if (root / published).exists() or not converted_form(root, part, dtype).exists():
            file_checks.zipped(root, published).close()


def check_generation(model_spec: ModelSpec, root: Path) -> None:
    """Raises NotReady when flow.pt, where the generations differ most, is another one's: that is
    quicker to mend than its first odd tensor.
    """
    keys, own = tensor_names(root, "flow"), GENERATIONS[model_spec.yaml].signature_tensor
    if not keys or own in keys:
        return
    other_yaml, other = next(
        ((yaml, spec) for yaml, spec in GENERATIONS.items() if spec.signature_tensor in keys),
        ("", None),
    )
    if other is None:
        return
    expected = message("file.tensor_of_model", own=own, title=model_spec.title)
    actual = message(
        "file.tensor_of_other", signature_tensor=other.signature_tensor, title=other.title
    )
    way_out = message("file.mixed_models", title=other.title, other_yaml=other_yaml)
    raise model_fault(model_spec.components["flow"].file, expected, actual, way_out)
