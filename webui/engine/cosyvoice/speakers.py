"""Ready speakers of a model directory (`spk2info.pt`): presets and saved clones, as tensors. Knows the published layout, no audio."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from .faults import model_fault
from .weights import read_pt

SPEAKERS = "spk2info.pt"
VECTOR = 192


def read_speakers(root: Path, name: str = SPEAKERS) -> dict[str, dict[str, Tensor]]:
    """id -> tensors, on the CPU. Presets hold `embedding` (1, 192); saved clones `flow_embedding`, `prompt_speech_feat` and ids.
    Both get `embedding`. Raises NotReady naming the entry that cannot be used."""
    table = read_pt(root / name)
    out = {}
    for speaker, entry in table.items():
        if not isinstance(entry, Mapping) or not all(isinstance(v, Tensor) for v in entry.values()):
            raise model_fault(
                name,
                (f"tensors under {speaker[:60]}", f"{speaker[:60]} 之下是张量"),
                (type(entry).__name__, type(entry).__name__),
            )
        vector = entry.get("embedding", entry.get("flow_embedding"))
        if vector is None or vector.numel() != VECTOR:
            found = "none" if vector is None else str(list(vector.shape))
            raise model_fault(
                name,
                (
                    f"a voice vector [1, {VECTOR}] under {speaker[:60]}",
                    f"{speaker[:60]} 之下有声纹 [1, {VECTOR}]",
                ),
                (found, found),
            )
        out[speaker] = {**entry, "embedding": vector.float().reshape(1, VECTOR)}
    return out
