"""Peak memory of this process and of the GPU, from a moment on."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import torch

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def rss_mb(field: str = "VmRSS") -> float:
    """Resident memory now, or its peak (VmHWM).

    Where there is no /proc: the peak since the process began.
    """
    if _STATUS.exists():
        return next(
            int(line.split()[1]) / 1024
            for line in _STATUS.read_text().splitlines()
            if line.startswith(field)
        )
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        2**20 if sys.platform == "darwin" else 1024
    )


def forget_peaks() -> None:
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    try:
        _RESET.write_text("5")
    except OSError:
        return  # then peaks count from the start of the process


def peaks_mb() -> tuple[float, float]:
    """(resident, GPU)"""
    gpu = torch.cuda.max_memory_allocated() / 2**20 if torch.cuda.is_available() else 0.0
    return rss_mb("VmHWM"), gpu
