"""Kokoro-82M as a function: phonemes, a style and how the pitch is moved -> pieces of sound.

Blind to text, references and time.

Its trunk, an eighth of the work, is an ONNX graph and reads a clause as a whole; its generator
makes the sound of it window by window.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import chain, repeat
from pathlib import Path

import numpy as np
import onnxruntime
from safetensors.numpy import load_file

from ...errors import Cancelled, NotReady
from ...files import ROOT
from .convolution import Scratch
from .generator import HOP, ROW_SAMPLES, SPECTRUM, WINDOW, Generator, Sound, one_pass
from .packages import (
    DURATIONS,
    FEATURES,
    FOLDER,
    GENERATOR,
    OUTPUTS,
    PITCH,
    RATE_HZ,
    SOURCE,
    TRUNK,
    VOICED_HZ,
)
from .styles import Statistics
from .vocabulary import VOCABULARY

TRUNK_THREADS = 2  # its numbers are the same with any
MARGIN_ROWS = 6  # 75 ms: kept of the silence before and after a clause
WINDOW_ROWS = (40, 32, 48, 64)  # the first is what the listener waits for, the last repeats
_ROWS_PER_FRAME = 2  # of the features, per unit of the durations
_TAKE_APART_S = 60.0
_ANGLES = 2 * np.pi / WINDOW * np.outer(np.arange(WINDOW), np.arange(SPECTRUM))
_TRANSFORM = (
    np.concatenate((np.cos(_ANGLES), -np.sin(_ANGLES)), 1) * np.hanning(WINDOW + 1)[:-1, None]
).astype(np.float32)


def tokens_of(phonemes: str) -> list[int]:
    """Numbers of the symbols; what the model has no symbol for is left out."""
    return [VOCABULARY[symbol] for symbol in phonemes if symbol in VOCABULARY]


class Trunk:
    """What the trunk says of a clause. features: (n, 512), 80 rows per second; source: (n * 60 + 1,
    22) spectra; voiced: share of the rows; log_f0: mean over them; first, end: the rows between the
    silences.
    """

    def __init__(
        self, features: np.ndarray, signal: np.ndarray, durations: np.ndarray, f0: np.ndarray
    ):
        self.features = np.ascontiguousarray(features[0].T)
        self.source = spectra(signal.reshape(-1))
        frames = durations.reshape(-1)
        self.first = max(_ROWS_PER_FRAME * int(frames[0]) - MARGIN_ROWS, 0)
        silent = max(_ROWS_PER_FRAME * int(frames[-1]) - MARGIN_ROWS, 0)
        self.end = len(self.features) - silent
        hz = f0.reshape(-1)
        hz = hz[hz > VOICED_HZ]
        self.voiced = len(hz) / f0.size
        self.log_f0 = float(np.log(hz).mean()) if len(hz) else 0.0


class Network:
    """One session, two threads for a call of the trunk: the listener waits for it.

    Thread-safe; keeps nothing of a call.
    """

    def __init__(self, file: Path):
        """Raises NotReady: the file is not the graph that it should be, or there is too little
        memory for it.
        """
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = TRUNK_THREADS, 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        options.enable_mem_pattern = False  # a plan of memory for each length costs some 90 MB
        try:
            with ExitStack() as stack:
                folder = _parts(file, stack)
                pool = stack.enter_context(ThreadPoolExecutor(1))
                generator = pool.submit(lambda: Generator(load_file(folder / GENERATOR)))
                self._session = onnxruntime.InferenceSession(
                    str(folder / TRUNK), options, providers=["CPUExecutionProvider"]
                )
                self.generator = generator.result()
        except Exception as e:  # onnxruntime's errors have no name in common
            shutil.rmtree(file.parent / FOLDER, ignore_errors=True)  # made anew at the next start
            raise NotReady("natural_unloadable") from e

    def trunk(
        self,
        tokens: list[int],
        style: np.ndarray,
        speed: float = 1.0,
        f0_scale: float = 1.0,
        f0_shift_hz: float = 0.0,
        run: onnxruntime.RunOptions | None = None,
    ) -> Trunk:
        """style float32 (256,).

        Raises Cancelled when another thread terminates `run`, between two operations of the graph.
        """
        try:
            outputs = self._session.run(
                list(OUTPUTS),
                {
                    "tokens": np.array([[0, *tokens, 0]], np.int64),
                    "style": style.reshape(1, -1).astype(np.float32),
                    "speed": np.array([speed], np.float32),
                    "f0_scale": np.array([f0_scale], np.float32),
                    "f0_shift": np.array([f0_shift_hz], np.float32),
                },
                run,
            )
        except Exception as e:
            if run is not None and run.terminate:
                raise Cancelled() from e
            raise
        by_name = dict(zip(OUTPUTS, outputs, strict=True))
        return Trunk(by_name[FEATURES], by_name[SOURCE], by_name[DURATIONS], by_name[PITCH])

    def sound(
        self,
        trunk: Trunk,
        style: np.ndarray,
        statistics: Statistics | None,
        scratch: Scratch,
        run: onnxruntime.RunOptions | None = None,
        window_rows: tuple[int, ...] = WINDOW_ROWS,
    ) -> Iterator[np.ndarray]:
        """Pieces of sound, float32 (n,) at RATE_HZ, with 75 ms of silence before and after.
        statistics: None for those of this very clause, which then is one piece. Raises Cancelled as
        `trunk` does.
        """

        def check() -> None:
            if run is not None and run.terminate:
                raise Cancelled()

        style = style[: style.size // 2]
        if statistics is None:
            samples, _ = one_pass(
                self.generator, trunk.features, trunk.source, style, scratch, check
            )
            yield samples[trunk.first * ROW_SAMPLES : trunk.end * ROW_SAMPLES]
            return
        sound = Sound(
            self.generator,
            trunk.features[trunk.first : trunk.end],
            trunk.source[trunk.first * ROW_SAMPLES // HOP : trunk.end * ROW_SAMPLES // HOP + 1],
            style,
            statistics.of(trunk.voiced, trunk.log_f0),
            scratch,
        )
        yield from sound.pieces(chain(window_rows, repeat(window_rows[-1])), check)


def spectra(signal: np.ndarray) -> np.ndarray:
    """float32 (n,) -> (n / 5 + 1, 22): amplitude and phase of 11 lines, a window of 20 samples
    every 5, as the generator was trained with.
    """
    padded = np.pad(signal, WINDOW // 2, "reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP]
    lines = windows @ _TRANSFORM
    real, imaginary = lines[:, :SPECTRUM], lines[:, SPECTRUM:]
    return np.concatenate((np.hypot(real, imaginary), np.arctan2(imaginary, real)), 1)


def _parts(file: Path, stack: ExitStack) -> Path:
    """The folder with both parts of the graph: beside the file, or, where none can be written, one
    that goes with `stack`.
    """
    folder = file.parent / FOLDER
    if folder.is_dir():
        return folder
    try:
        tempfile.TemporaryFile(dir=file.parent).close()
    except OSError:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / FOLDER
    # Reading the published graph takes 250 MB that a process does not give back: another one does
    # it.
    command = [sys.executable, "-m", "webui.engine.natural.graph", str(file), str(folder)]
    subprocess.run(command, stdin=subprocess.DEVNULL, cwd=ROOT, timeout=_TAKE_APART_S, check=True)
    return folder


__all__ = ["RATE_HZ", "Network", "Trunk", "tokens_of"]
