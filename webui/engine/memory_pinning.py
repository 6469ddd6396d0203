"""Memory kept for a model: a GPU's by taking it first, a machine's by pinning the pages of its
weight files. Undone by `release`.

Knows bytes and paths, no model. torch is handed in, so that importing this costs nothing.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import resource
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import numpy as np

from ..errors import NotReady

log = logging.getLogger(__name__)
GPU_HEADROOM = 512 << 20  # left for the desktop, other processes' contexts and our own libraries
RAM_HEADROOM = 1 << 30
MODES = {
    "Default": "DEFAULT",
    "Exclusive_Process": "EXCLUSIVE_PROCESS",
    "Prohibited": "PROHIBITED",
}  # as nvidia-smi prints them: as it takes them
Call = Callable[..., subprocess.CompletedProcess]
MemoryCall = Callable[[int, int], int]  # (address, bytes) -> 0, or the errno


class MemoryLock:
    """`did`: what was done, one English sentence each.

    Every method raises NotReady with the reason and the remedy, and then has done nothing.
    """

    def __init__(self) -> None:
        self.did: list[str] = []
        self._undo: list[tuple[str, Callable[[], None]]] = []

    def __enter__(self) -> MemoryLock:
        return self

    def __exit__(self, *error) -> None:
        self.release()

    def hold_gpu(self, torch: ModuleType, needed: int, headroom: int = GPU_HEADROOM) -> None:
        """Take `needed` bytes of the current GPU and keep them until `release`; another process
        that wants them finds them gone.
        """
        tensors = [self._take(torch, needed, headroom)]

        def free() -> None:
            tensors.clear()
            torch.cuda.empty_cache()

        self._note(
            f"Holding {_gb(needed)} of {torch.cuda.get_device_name()}; at least {_gb(headroom)} are"
            " left to others.",
            "gave the GPU's memory back",
            free,
        )

    def pool_gpu(self, torch: ModuleType, needed: int, headroom: int = GPU_HEADROOM) -> None:
        """As `hold_gpu`, for this process' own use: the memory goes to torch's pool, which serves
        the model from it.
        """
        del_me = self._take(torch, needed, headroom)
        del del_me
        self._note(
            f"{_gb(needed)} of {torch.cuda.get_device_name()} are in this process' pool.",
            "emptied the pool",
            torch.cuda.empty_cache,
        )

    def _take(self, torch: ModuleType, needed: int, headroom: int) -> object:
        if not torch.cuda.is_available():
            raise NotReady("no_device.no_gpu")
        free, total = torch.cuda.mem_get_info()
        if needed + headroom > free:
            raise NotReady(
                "no_memory.gpu",
                needed=_gb(needed),
                headroom=_gb(headroom),
                free=_gb(free),
                total=_gb(total),
            )
        try:
            return torch.empty(needed, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            raise NotReady("no_memory.gpu_taken") from error

    def exclusive(self, gpu: str = "0", call: Call = subprocess.run) -> None:
        """No second process on this GPU until `release`.

        Needs an administrator's rights. gpu: index or UUID.
        """
        before = _smi(call, "-i", gpu, "--query-gpu=compute_mode", "--format=csv,noheader")
        if before not in MODES:
            raise _no_smi(f"it answered “{before[:80]}”")
        _smi(call, "-i", gpu, "-c", "EXCLUSIVE_PROCESS")
        self._note(
            f"GPU {gpu} takes one process only (it was: {before}).",
            f"set GPU {gpu} back to {before}",
            lambda: _smi(call, "-i", gpu, "-c", MODES[before]) and None,
        )

    def pin(
        self,
        paths: Sequence[Path],
        available: int,
        headroom: int = RAM_HEADROOM,
        mlock: MemoryCall | None = None,
        munlock: MemoryCall | None = None,
    ) -> None:
        """Keep the pages of these files in RAM, all of them or none; every process that maps them
        profits. available: bytes, 0 = unknown.
        """
        needed = sum(path.stat().st_size for path in paths)
        if available and needed + headroom > available:
            raise NotReady(
                "no_memory.ram",
                needed=_gb(needed),
                headroom=_gb(headroom),
                available=_gb(available),
            )
        before = _raise_limit()
        pinned: list[_Pinned] = []

        def free() -> None:
            while pinned:
                pinned.pop().release()
            resource.setrlimit(resource.RLIMIT_MEMLOCK, before)

        try:
            for path in paths:
                pinned.append(
                    _Pinned(path, mlock or _system("mlock"), munlock or _system("munlock"))
                )
        except OSError as error:
            allowed = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
            free()
            raise _no_right(needed, allowed, error) from error
        self._note(
            f"{len(pinned)} files, {_gb(needed)}, are pinned in RAM:"
            f" {', '.join(p.name for p in paths)}.",
            "let the pinned files go",
            free,
        )

    def _note(self, sentence: str, undone: str, undo: Callable[[], None]) -> None:
        self.did.append(sentence)
        self._undo.append((undone, undo))
        log.info("%s", sentence)

    def release(self) -> list[str]:
        """Undo everything, last first; idempotent. Returns what was undone, or why it was not."""
        messages = []
        while self._undo:
            undone, undo = self._undo.pop()
            try:
                undo()
                messages.append(undone)
            except (NotReady, OSError, RuntimeError, ValueError) as error:
                messages.append(f"not undone: {undone} ({error})")
                log.warning("%s", messages[-1])
        return messages


class _Pinned:
    """One file, mapped shared and read-only: its pages are those of every other mapping of the
    file.
    """

    def __init__(self, path: Path, mlock: MemoryCall, munlock: MemoryCall):
        with path.open("rb") as f:
            self._map = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
        self._view, self._munlock = np.frombuffer(self._map, np.uint8), munlock
        error = mlock(self._view.ctypes.data, len(self._view))
        if error:
            self._close()
            raise OSError(error, "mlock")

    def release(self) -> None:
        self._munlock(self._view.ctypes.data, len(self._view))
        self._close()

    def _close(self) -> None:
        del self._view  # the map cannot be closed while somebody looks at it
        self._map.close()


def _system(name: str) -> MemoryCall:
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_size_t), ctypes.c_int
    return lambda address, count: ctypes.get_errno() if function(address, count) else 0


def _raise_limit() -> tuple[int, int]:
    """As much as this process may pin; returns the limits as they were."""
    before = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    for limit in ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), (before[1], before[1])):
        try:
            resource.setrlimit(resource.RLIMIT_MEMLOCK, limit)
            break
        except (ValueError, OSError):
            continue  # the first wants an administrator's rights
    return before


def _no_right(needed: int, allowed: int, error: OSError) -> NotReady:
    limit = "no limit" if allowed == resource.RLIM_INFINITY else _gb(allowed)
    return NotReady("no_right.pin_memory", needed=_gb(needed), errno=error.errno, limit=limit)


def _smi(call: Call, *arguments: str) -> str:
    try:
        process = call(["nvidia-smi", *arguments], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _no_smi(type(error).__name__) from error
    if process.returncode:
        raise _no_smi(
            (process.stdout + process.stderr).strip()[:160] or f"exit code {process.returncode}"
        )
    return process.stdout.strip()


def _no_smi(why: str) -> NotReady:
    return NotReady("no_right.compute_mode", why=why)


def _gb(count: int) -> str:
    return f"{count / 2**30:.1f} GB" if count >= 100 << 20 else f"{count / 2**20:.1f} MB"
