"""Where a loaded model computes: as torch has it, or as CUDA graphs on a GPU."""

from __future__ import annotations

from .model import Model
from .model_spec import Progress


def to_backend(model: Model, on_progress: Progress) -> Model:
    """The model with its networks captured, where `device_config.graphs` asks for it on a GPU."""
    if model.device_config.device != "cuda" or not model.device_config.graphs:
        return model
    # Late: it defines CUDA streams and buffers that a CPU never needs.
    from .cuda.assemble import captured

    return captured(model, on_progress)
