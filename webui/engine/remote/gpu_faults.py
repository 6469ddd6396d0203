"""What an unnamed failure of an engine means: memory ran out, the device is lost until its process
ends, or a plain bug.

Told by class names and words, since whoever hosts an engine does not load its libraries.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import EngineFault

DEVICE_CLASSES = ("AcceleratorError", "CudaError", "DeferredCudaCallError")
DEVICE_WORDS = (
    "CUDA error",
    "CUDA driver error",
    "cuDNN error",
    "CUDNN_STATUS",
    "CUBLAS_STATUS",
    "NCCL error",
    "MPS backend error",
    "device-side assert",
    "illegal memory access",
    "unspecified launch failure",
    "uncorrectable ECC",
    "CUDA failure",
    "misaligned address",
)
MEMORY_CLASSES = ("OutOfMemoryError", "MemoryError")
MEMORY_WORDS = (
    "out of memory",
    "can't allocate memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "Failed to allocate memory",
    "bad_alloc",
)


def chain(error: BaseException | None) -> Iterator[BaseException]:
    visited_ids = set()
    while error is not None and id(error) not in visited_ids:
        visited_ids.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def is_memory(error: BaseException) -> bool:
    return any(
        type(e).__name__ in MEMORY_CLASSES or any(w in str(e) for w in MEMORY_WORDS)
        for e in chain(error)
    )


def is_sticky(error: BaseException) -> bool:
    """After such a fault every further call of this process fails: only a new process helps.

    Running out of memory is not one.
    """
    return not is_memory(error) and any(
        type(e).__name__ in DEVICE_CLASSES or any(w in str(e) for w in DEVICE_WORDS)
        for e in chain(error)
    )


def as_engine_error(error: BaseException) -> EngineFault:
    if is_memory(error):
        return EngineFault("out_of_memory.memory")
    if is_sticky(error):
        return EngineFault("device_fault")
    return EngineFault()
