"""Where a loaded model computes: as torch has it, or as CUDA graphs on a GPU."""

from __future__ import annotations

from .model import Model
from .model_spec import Progress


def to_backend(model: Model, on_progress: Progress) -> Model:
    """The model with its networks captured, where `device_config.graphs` asks for it on a GPU."""
    if model.device_config.device != "cuda" or not model.device_config.graphs:
        return model
    # Late: the modules below define CUDA streams and buffers that a CPU never needs.
    if model.model_spec.engine == "cosyvoice1":
        from .cuda.assemble_v1 import captured
    elif model.model_spec.engine == "cosyvoice2":
        from .cuda.assemble import captured
    else:
        from .cuda.assemble_v3 import replaying as captured
    return captured(model, on_progress)
