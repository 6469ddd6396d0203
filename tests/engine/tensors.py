"""What torch, and the voices of our engine, hold in this process."""

from __future__ import annotations

import gc


def tensors_kept() -> tuple[int, int]:
    """Tensors that something still refers to, and the bytes of their storages, each counted
    once.
    """
    import torch

    gc.collect()
    tensors = [
        tensor for tensor in gc.get_objects() if type(tensor) in (torch.Tensor, torch.nn.Parameter)
    ]
    plain = [
        tensor.untyped_storage() for tensor in tensors if not tensor.is_mkldnn
    ]  # those of oneDNN are weights, in a layout of its own
    return len(tensors), sum({storage.data_ptr(): storage.nbytes() for storage in plain}.values())


def voices_kept() -> list[int]:
    """Of each voice that something still refers to, the bytes that were computed for it."""
    from webui.engine.cosyvoice.frontend.prompt_cache import CachedPrompt

    gc.collect()
    return sorted(obj.bytes for obj in gc.get_objects() if type(obj) is CachedPrompt)
