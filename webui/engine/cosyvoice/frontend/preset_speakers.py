"""Ready speakers of a model directory (`spk2info.pt`): presets and saved clones, as tensors.

Knows the published layout, no audio.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from ..checkpoint import read_pt

log = logging.getLogger(__name__)
SPEAKERS = "spk2info.pt"
VECTOR = 192
MEL_BANDS = 80


def read_speakers(root: Path, name: str = SPEAKERS) -> dict[str, dict[str, Tensor]]:
    """id -> tensors, on the CPU.

    Presets hold `embedding` (1, 192); saved clones `flow_embedding`, `prompt_speech_feat` and ids.

    Both get `embedding`. Values that are no tensors are left out, and so is, with a warning, an
    entry that cannot be used (first-contact specification, section 4). Raises NotReady when the
    file itself cannot be read.
    """
    out = {}
    for speaker, entry in read_pt(root / name).items():
        tensors = (
            {key: value for key, value in entry.items() if isinstance(value, Tensor)}
            if isinstance(entry, Mapping)
            else {}
        )
        vector = tensors.get("embedding", tensors.get("flow_embedding"))
        if fault := _fault(vector, tensors.get("prompt_speech_feat")):
            log.warning("%s: the speaker %s is skipped: %s", name, speaker[:60], fault)
        else:
            out[speaker] = {**tensors, "embedding": vector.float().reshape(1, VECTOR)}
    return out


def _fault(vector: Tensor | None, mel: Tensor | None) -> str:
    """Why an entry with this voice vector and prompt mel cannot be used; "" when it can."""
    if vector is None:
        return "it has no voice vector"
    if vector.numel() != VECTOR or not torch.isfinite(vector).all():
        return f"its voice vector {list(vector.shape)} is not {VECTOR} finite values"
    if mel is not None and mel.numel() % MEL_BANDS:
        return f"its mel {list(mel.shape)} has not {MEL_BANDS} bands"
    return ""
